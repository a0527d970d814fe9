//! An object store whose reads of data files are checked.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Extensions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result,
};
use stoker_checksum::checksum;
use stoker_types::to_usize;

use super::known::Known;
use super::local::{self, ReadFrom};
use super::trailer::{SEGMENT_SECTORS, Trailer, Unread};
use super::{Damage, SECTOR_BYTES, checked_file, data_file, sectors_of};
use crate::seal::{has_seal, is_sealed};

/// The number of bytes that are read from the end of a file if no other read contained its trailer.
const END_BYTES: u64 = 64 << 10;

/// The number of ranges of one file that are read at the same time.
const RANGES_IN_FLIGHT: usize = 8;

/// Whether a store contains files of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// It does.
    Local,
    /// It does not.
    Elsewhere,
}

/// Makes stores that verify reads of data files with checksums. The stores share what is cached of the files.
#[derive(Debug)]
pub struct CheckedStores {
    place: StoreKind,
    known: Arc<Known>,
}

impl CheckedStores {
    /// For the stores of one lake.
    pub fn new(place: StoreKind) -> Self {
        Self { place, known: Arc::default() }
    }

    /// Returns a store that verifies what it reads from `inner`.
    pub fn wrap(&self, inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(CheckedStore { inner, place: self.place, known: self.known.clone() })
    }
}

/// Bytes of a file, with the metadata that its store returned.
pub(super) struct Fetched {
    /// The offset of the bytes in the file.
    pub start: u64,
    pub bytes: Bytes,
    pub meta: ObjectMeta,
    pub attributes: Attributes,
    pub extensions: Extensions,
}

impl Fetched {
    fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }

    /// Returns the bytes of a range of the file, if all of them were fetched.
    fn part(&self, range: &Range<u64>) -> Option<Bytes> {
        let own = self.range();
        let is_there = own.start <= range.start && range.start <= range.end && range.end <= own.end;
        is_there.then(|| self.bytes.slice(to_usize(range.start - own.start)..to_usize(range.end - own.start)))
    }

    /// Reduces the fetched bytes to a range of the file, if all of it was fetched.
    fn cut(self, range: &Range<u64>) -> Option<Self> {
        let bytes = self.part(range)?;
        Some(Self { start: range.start, bytes, ..self })
    }

    /// Converts the fetched bytes to the response to a request.
    fn into_result(self) -> GetResult {
        let range = self.range();
        let Self { bytes, meta, attributes, extensions, .. } = self;
        let payload = GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed());
        GetResult { payload, meta, range, attributes, extensions }
    }

    /// Overwrites the bytes at the range of `other` with those of `other`.
    fn replace(&mut self, other: &Fetched) {
        let mut bytes = BytesMut::from(self.bytes.as_ref());
        let at = to_usize(other.start.saturating_sub(self.start));
        if let Some(place) = bytes.get_mut(at..at + other.bytes.len()) {
            place.copy_from_slice(&other.bytes);
        }
        self.bytes = bytes.freeze();
    }
}

#[derive(Debug)]
struct CheckedStore {
    inner: Arc<dyn ObjectStore>,
    place: StoreKind,
    known: Arc<Known>,
}

/// A request for a data file with checksums.
struct CheckedFile<'a> {
    store: &'a CheckedStore,
    path: &'a Path,
    name: &'a str,
    /// The request's options; its range is among them.
    options: GetOptions,
}

impl CheckedFile<'_> {
    /// Answers the request with verified bytes.
    async fn get(&self) -> Result<GetResult> {
        let known = &self.store.known;
        let (fetched, asked, trailer) = match known.trailer(self.path) {
            Some(trailer) => {
                let asked = self.asked(trailer.file_bytes());
                if let Some(sector) = known.damaged(self.path, sectors_of(&asked)) {
                    return Err(self.damaged(&trailer, sector));
                }
                let fetched = self.fetch(Some(trailer.widened(&asked)), ReadFrom::Anywhere).await?;
                if fetched.meta.size == trailer.file_bytes() {
                    (fetched, asked, trailer)
                } else {
                    known.forget(self.path);
                    self.first().await?
                }
            }
            None => self.first().await?,
        };
        let fetched = self.checked(fetched, &trailer).await?;
        let asked = asked.start..asked.end.min(fetched.meta.size);
        let missing = || self.broken("the store returned fewer bytes than requested");
        Ok(fetched.cut(&asked).ok_or_else(missing)?.into_result())
    }

    /// Returns the range that the request means for a file of this size.
    fn asked(&self, file_bytes: u64) -> Range<u64> {
        match &self.options.range {
            None => 0..file_bytes,
            Some(GetRange::Bounded(range)) => range.clone(),
            Some(GetRange::Offset(start)) => *start..file_bytes.max(*start),
            Some(GetRange::Suffix(length)) => file_bytes.saturating_sub(*length)..file_bytes,
        }
    }

    /// Makes the first read of a file. Lance usually reads the end of a file first, so this read usually contains the
    /// trailer and the checksums.
    async fn first(&self) -> Result<(Fetched, Range<u64>, Arc<Trailer>)> {
        let range = match &self.options.range {
            None => None,
            Some(GetRange::Bounded(range)) => {
                Some(range.start / SECTOR_BYTES * SECTOR_BYTES..range.end.next_multiple_of(SECTOR_BYTES))
            }
            Some(_) => {
                let size =
                    self.store.inner.get_opts(self.path, GetOptions { head: true, ..self.options.clone() }).await?;
                let asked = self.asked(size.meta.size);
                Some(asked.start / SECTOR_BYTES * SECTOR_BYTES..asked.end)
            }
        };
        let fetched = self.fetch(range, ReadFrom::Anywhere).await?;
        let (trailer, asked) = (self.trailer(&fetched).await?, self.asked(fetched.meta.size));
        self.store.known.add_trailer(self.path, trailer.clone());
        Ok((fetched, asked, trailer))
    }

    /// Returns the file's trailer, from the fetched bytes if they contain it. A damaged trailer is read a second time.
    async fn trailer(&self, fetched: &Fetched) -> Result<Arc<Trailer>> {
        let size = fetched.meta.size;
        let mut end = fetched.part(&(fetched.start..size)).unwrap_or_default();
        let mut from = ReadFrom::Anywhere;
        for _ in 0..4 {
            let begins_at = match Trailer::parse(self.name, size, &end) {
                Ok(trailer) => return Ok(Arc::new(trailer)),
                Err(Unread::BeginsAt(at)) => at,
                Err(Unread::Damaged(_)) if end.is_empty() => size.saturating_sub(END_BYTES),
                Err(Unread::Damaged(_)) if from == ReadFrom::Anywhere => {
                    from = ReadFrom::Storage;
                    size.saturating_sub(END_BYTES)
                }
                Err(Unread::Damaged(reason)) => return Err(self.broken(&reason)),
            };
            end = self.fetch(Some(begins_at..size), from).await?.bytes;
        }
        Err(self.broken("its end is damaged or missing"))
    }

    /// Returns the fetched bytes once all of them match their checksums. Bytes that do not match are read a second
    /// time.
    async fn checked(&self, mut fetched: Fetched, trailer: &Trailer) -> Result<Fetched> {
        let wrong = self.wrong(&fetched, trailer).await?;
        let Some(range) = wrong else { return Ok(fetched) };
        let again = self.fetch(Some(range), ReadFrom::Storage).await?;
        if let Some(range) = self.wrong(&again, trailer).await? {
            if range.start >= trailer.covered {
                self.store.known.forget(self.path);
                return Err(self.broken("its end changed after it was first read"));
            }
            let sector = range.start / SECTOR_BYTES;
            self.store.known.add_damaged(self.path, sector);
            return Err(self.damaged(trailer, sector));
        }
        tracing::warn!(file = self.name, "bytes did not match their checksum, but did when they were read again");
        fetched.replace(&again);
        Ok(fetched)
    }

    /// Returns the range from the first to the last sector that does not match its checksum. If all sectors match and
    /// the fetched bytes of the trailer differ from `trailer`, returns the range of those.
    async fn wrong(&self, fetched: &Fetched, trailer: &Trailer) -> Result<Option<Range<u64>>> {
        let range = fetched.range();
        let sectors = sectors_of(&(range.start..range.end.min(trailer.covered).max(range.start)));
        let mut wrong: Option<Range<u64>> = None;
        let mut sums: Option<(u64, Arc<[u32]>)> = None;
        for sector in sectors {
            let bytes = trailer.sector(sector);
            // All sectors of a request are read whole: one is incomplete only if the store returned fewer bytes than
            // requested.
            let Some(found) = fetched.part(&bytes) else { continue };
            let segment = sector / SEGMENT_SECTORS;
            let of_segment = match &sums {
                Some((index, of_segment)) if *index == segment => of_segment,
                _ => &sums.insert((segment, self.sums(segment, fetched, trailer).await?)).1,
            };
            if of_segment.get(to_usize(sector % SEGMENT_SECTORS)) != Some(&checksum(&found)) {
                let start = wrong.as_ref().map_or(bytes.start, |wrong| wrong.start);
                wrong = Some(start..bytes.end);
            }
        }
        if wrong.is_none() && !trailer.has_end(range.start, &fetched.bytes) {
            wrong = Some(range.start.max(trailer.covered)..range.end);
        }
        Ok(wrong)
    }

    /// Returns the checksums of a segment: from the cache, from the fetched bytes, or by a request for them.
    async fn sums(&self, segment: u64, fetched: &Fetched, trailer: &Trailer) -> Result<Arc<[u32]>> {
        let (known, range) = (&self.store.known, trailer.segment(segment));
        if let Some(sums) = known.sums(self.path, &range) {
            return Ok(sums);
        }
        let mut bytes = fetched.part(&range).unwrap_or_default();
        for from in [ReadFrom::Anywhere, ReadFrom::Storage] {
            if !trailer.is_segment(segment, &bytes) {
                bytes = self.fetch(Some(range.clone()), from).await?.bytes;
            }
        }
        if !trailer.is_segment(segment, &bytes) {
            return Err(self.broken(&format!("the checksums at bytes {}..{} are damaged", range.start, range.end)));
        }
        let sums: Arc<[u32]> = bytes.as_chunks::<4>().0.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
        known.add_sums(self.path, &range, sums.clone());
        Ok(sums)
    }

    /// Reads bytes without a check.
    async fn fetch(&self, range: Option<Range<u64>>, from: ReadFrom) -> Result<Fetched> {
        if self.store.place == StoreKind::Local {
            return local::read(&self.store.known.files, self.path, range, from).await;
        }
        let options = GetOptions { range: range.map(GetRange::Bounded), ..self.options.clone() };
        let got = self.store.inner.get_opts(self.path, options).await?;
        let (meta, attributes, extensions) = (got.meta.clone(), got.attributes.clone(), got.extensions.clone());
        let start = got.range.start;
        Ok(Fetched { start, bytes: got.bytes().await?, meta, attributes, extensions })
    }

    fn damaged(&self, trailer: &Trailer, sector: u64) -> object_store::Error {
        Damage::Sector { file: self.name.to_string(), bytes: trailer.sector(sector) }.into_store_error()
    }

    fn broken(&self, reason: &str) -> object_store::Error {
        Damage::File { file: format!("data file {}", self.name), reason: reason.to_string() }.into_store_error()
    }
}

impl CheckedStore {
    /// Reads a deletion file whose name contains its checksum. If the bytes do not match, they are read a second time.
    async fn sealed_deletions(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let name = path.filename().unwrap_or_default();
        let file = CheckedFile { store: self, path, name, options };
        for from in [ReadFrom::Anywhere, ReadFrom::Storage] {
            let fetched = file.fetch(None, from).await?;
            if has_seal(path, &fetched.bytes) {
                return Ok(fetched.into_result());
            }
        }
        let reason = "its bytes do not match the checksum in its name, in two reads".to_string();
        Err(Damage::File { file: format!("deletion file {name}"), reason }.into_store_error())
    }

    /// Reads a range of a local data file without a check; `None` if the file has no bytes in the range.
    async fn local_part(&self, path: &Path, range: &Range<u64>) -> Result<Option<GetResult>> {
        let fetched = local::read(&self.known.files, path, Some(range.clone()), ReadFrom::Anywhere).await?;
        Ok((!fetched.bytes.is_empty()).then(|| fetched.into_result()))
    }
}

impl fmt::Display for CheckedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for CheckedStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            return self.inner.get_opts(location, options).await;
        }
        if let Some(name) = checked_file(location) {
            return CheckedFile { store: self, path: location, name, options }.get().await;
        }
        match &options.range {
            None if is_sealed(location) => return self.sealed_deletions(location, options).await,
            Some(GetRange::Bounded(range)) if self.place == StoreKind::Local && data_file(location).is_some() => {
                if let Some(result) = self.local_part(location, range).await? {
                    return Ok(result);
                }
            }
            _ => {}
        }
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if checked_file(location).is_none() {
            return self.inner.get_ranges(location, ranges).await;
        }
        let parts = stream::iter(ranges.to_vec()).map(|range| async move {
            let options = GetOptions { range: Some(range.into()), ..GetOptions::default() };
            self.get_opts(location, options).await?.bytes().await
        });
        parts.buffered(RANGES_IN_FLIGHT).try_collect().await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}
