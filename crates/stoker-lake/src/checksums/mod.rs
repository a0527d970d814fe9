//! Checksums of the rows of heavy columns, by which damaged bytes are noticed.
//!
//! Lance keeps no checksums. So the data file of a heavy column has 4 bytes for each of its rows in a *global
//! buffer*, a part of the file format that other readers skip. The file's schema metadata names the buffer:
//!
//! ```text
//! stoker:checksums = {"version":2,"hash":"xxh3_64_low32","file":"<name>.lance","buffers":{"image":1}}
//! buffer 1         = for each row a little-endian u32: its checksum, or 0 where the row is null
//! ```
//!
//! Checksums lie in the same file as the values, so they alone would not show that the file was replaced by another
//! one. Therefore the entry has the name of its file, which must be the one in the manifest, and a file with an entry
//! must have checksums for the column that it is read for. Version 1 of the entry lacks the name and is read without
//! that check. Rows of files without an entry, which other writers make, are not checked.
//!
//! A file of light columns has an entry for its columns whose pages may be plain bytes. Streams read such pages
//! without Lance's decoder, and only the decoder's reads are checked by [`sectors`](stoker_store::sectors).

mod find;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, GenericListArray, OffsetSizeTrait};
use arrow_schema::DataType;
use futures::{StreamExt, TryStreamExt, stream};
use stoker_checksum::{checksum, hash};
use stoker_pages::CHECKSUM_BYTES;
use stoker_store::{SegmentCache, SegmentKey};
use stoker_types::to_usize;

use crate::{RangeReader, Result};

pub(crate) use self::find::ChecksumCache;

/// The limit, in bytes, up to which all checksums of a column are read file by file. Larger columns are read in
/// segments.
const WHOLE_BYTES_MAX: u64 = 16 << 20;

/// The number of rows in a segment, whose checksums are 16 KiB.
const SEGMENT_ROWS: u64 = 4096;

/// The maximum number of adjacent segments in one read: 1 MiB.
const READ_SEGMENTS_MAX: u64 = 64;

/// The maximum number of files whose checksums one [`Checksums::load`] reads at the same time.
const FILES_IN_FLIGHT: usize = 16;

/// The maximum number of reads of one file at the same time.
const READS_PER_FILE: usize = 4;

/// The checksums of one column's rows at a snapshot. They are read on demand and cached up to a limit in bytes.
#[derive(Debug)]
pub struct Checksums {
    files: BTreeMap<u32, FileChecksums>,
    segments: Arc<SegmentCache>,
    /// Rows per segment. When a file has fewer rows, its checksums are one segment.
    segment_rows: u64,
}

/// The location of the checksums of one data file.
#[derive(Debug)]
pub(crate) struct FileChecksums {
    reader: RangeReader,
    path: Arc<str>,
    offset: u64,
    num_rows: u64,
    /// Held while checksums are read, so that concurrent callers read each segment once.
    loading: tokio::sync::Mutex<()>,
}

/// A row whose checksum was requested.
#[derive(Clone, Copy)]
struct RequestedRow {
    /// The index of the row in the result.
    place: usize,
    /// The index of the row in the file.
    row: u64,
}

/// Adjacent segments, and the rows that were requested from them.
struct SegmentRun {
    segments: Range<u64>,
    wanted: Vec<RequestedRow>,
}

impl Checksums {
    /// Returns the checksums of the rows at these addresses, in this order. `None` for null rows and for rows without
    /// a checksum. Segments that are not cached are read, with at most one request per MiB of checksums that lie
    /// together.
    ///
    /// # Errors
    /// Storage errors; `DataCorrupt` when a file is shorter than the manifest says.
    pub async fn load(&self, addresses: &[u64]) -> Result<Vec<Option<u32>>> {
        let mut by_fragment: BTreeMap<u32, Vec<RequestedRow>> = BTreeMap::new();
        let mut place = 0;
        // Adjacent addresses are mostly rows of the same fragment.
        for run in addresses.chunk_by(|one, next| one >> 32 == next >> 32) {
            let Some(first) = run.first() else { continue };
            let wanted =
                run.iter().zip(place..).map(|(address, place)| RequestedRow { place, row: place_of(*address).1 });
            by_fragment.entry(place_of(*first).0).or_default().extend(wanted);
            place += run.len();
        }
        let mut loads = stream::iter(by_fragment)
            .map(|(fragment, wanted)| self.load_file(fragment, wanted))
            .buffer_unordered(FILES_IN_FLIGHT);
        let mut checksums = vec![None; addresses.len()];
        while let Some(found) = loads.try_next().await? {
            for (place, value) in found {
                checksums[place] = known(value);
            }
        }
        Ok(checksums)
    }

    /// Reads the checksums of rows of one fragment again, in case the cached ones are damaged. Evicts them from the
    /// cache. The addresses must ascend; one request reads all checksums from the first row to the last.
    ///
    /// # Errors
    /// As for [`Checksums::load`].
    pub async fn reload(&self, addresses: &[u64]) -> Result<Vec<Option<u32>>> {
        let none = vec![None; addresses.len()];
        let rows: Vec<u64> = addresses.iter().map(|address| place_of(*address).1).collect();
        let (Some(address), Some(first), Some(last)) = (addresses.first(), rows.first(), rows.last()) else {
            return Ok(none);
        };
        let Some(file) = self.files.get(&place_of(*address).0) else { return Ok(none) };
        let range = *first..last.saturating_add(1).min(file.num_rows);
        if range.is_empty() {
            return Ok(none);
        }
        for segment in range.start / self.segment_rows..=(range.end - 1) / self.segment_rows {
            self.segments.remove(&file.key(&self.rows(file, segment)));
        }
        let values = numbers(&file.reader.read(file.bytes(&range)).await?);
        let value = |row: &u64| values.get(usize::try_from(row.checked_sub(*first)?).ok()?).copied().and_then(known);
        Ok(rows.iter().map(value).collect())
    }

    /// The reader of the data file with a row; `None` when the file has no checksums.
    pub fn reader(&self, address: u64) -> Option<&RangeReader> {
        self.files.get(&place_of(address).0).map(|file| &file.reader)
    }

    /// Collects the files of a column that have checksums; `None` when none has.
    pub(crate) fn new(
        files: impl IntoIterator<Item = (u32, Option<FileChecksums>)>,
        segments: Arc<SegmentCache>,
    ) -> Option<Self> {
        let files = files.into_iter().filter_map(|(fragment, file)| Some((fragment, file?)));
        let files: BTreeMap<u32, FileChecksums> = files.collect();
        let bytes: u64 = files.values().map(|file| file.num_rows * CHECKSUM_BYTES).sum();
        let segment_rows = if bytes <= WHOLE_BYTES_MAX { u64::MAX } else { SEGMENT_ROWS };
        (!files.is_empty()).then(|| Self { files, segments, segment_rows })
    }

    /// The checksums of rows of one file, each with the index of its row in the result.
    async fn load_file(&self, fragment: u32, mut wanted: Vec<RequestedRow>) -> Result<Vec<(usize, u32)>> {
        let Some(file) = self.files.get(&fragment) else { return Ok(Vec::new()) };
        wanted.retain(|wanted| wanted.row < file.num_rows);
        wanted.sort_unstable_by_key(|wanted| wanted.row);
        let mut found = Vec::with_capacity(wanted.len());
        let missing = self.take_cached(file, wanted, &mut found);
        if missing.is_empty() {
            return Ok(found);
        }
        let _loading = file.loading.lock().await;
        // The previous holder of the lock may have read them.
        let missing = self.take_cached(file, missing, &mut found);
        let mut reads =
            stream::iter(self.runs(missing)).map(|run| self.read(file, run)).buffer_unordered(READS_PER_FILE);
        while let Some(values) = reads.try_next().await? {
            found.extend(values);
        }
        Ok(found)
    }

    /// Adds the cached checksums to `found`. Returns the rows that are not cached. Both `wanted` and the returned
    /// rows ascend.
    fn take_cached(
        &self,
        file: &FileChecksums,
        wanted: Vec<RequestedRow>,
        found: &mut Vec<(usize, u32)>,
    ) -> Vec<RequestedRow> {
        let mut missing = Vec::new();
        for part in wanted.chunk_by(|a, b| a.row / self.segment_rows == b.row / self.segment_rows) {
            let Some(first) = part.first() else { continue };
            let rows = self.rows(file, first.row / self.segment_rows);
            match self.segments.get(&file.key(&rows)) {
                Some(values) => found.extend(pick(&values, rows.start, part)),
                None => missing.extend_from_slice(part),
            }
        }
        missing
    }

    /// Groups ascending rows by the read that returns their checksums.
    fn runs(&self, wanted: Vec<RequestedRow>) -> Vec<SegmentRun> {
        let mut runs: Vec<SegmentRun> = Vec::new();
        for wanted in wanted {
            let segment = wanted.row / self.segment_rows;
            if let Some(run) = runs.last_mut()
                && segment <= run.segments.end
                && segment < run.segments.start + READ_SEGMENTS_MAX
            {
                run.segments.end = segment + 1;
                run.wanted.push(wanted);
                continue;
            }
            runs.push(SegmentRun { segments: segment..segment + 1, wanted: vec![wanted] });
        }
        runs
    }

    /// Reads adjacent segments with one request and caches them.
    async fn read(&self, file: &FileChecksums, run: SegmentRun) -> Result<Vec<(usize, u32)>> {
        let rows = self.rows(file, run.segments.start).start..self.rows(file, run.segments.end - 1).end;
        let values = numbers(&file.reader.read(file.bytes(&rows)).await?);
        for segment in run.segments {
            let part = self.rows(file, segment);
            let place = to_usize(part.start - rows.start)..to_usize(part.end - rows.start);
            if let Some(values) = values.get(place) {
                self.segments.insert(file.key(&part), values.into());
            }
        }
        Ok(pick(&values, rows.start, &run.wanted).collect())
    }

    /// The rows of a segment, by its index in a file.
    fn rows(&self, file: &FileChecksums, segment: u64) -> Range<u64> {
        let start = segment.saturating_mul(self.segment_rows);
        start..start.saturating_add(self.segment_rows).min(file.num_rows)
    }
}

impl FileChecksums {
    fn new(reader: RangeReader, offset: u64, num_rows: u64) -> Self {
        Self { path: reader.path().into(), reader, offset, num_rows, loading: tokio::sync::Mutex::default() }
    }

    fn bytes(&self, rows: &Range<u64>) -> Range<u64> {
        self.offset + rows.start * CHECKSUM_BYTES..self.offset + rows.end * CHECKSUM_BYTES
    }

    fn key(&self, rows: &Range<u64>) -> SegmentKey {
        SegmentKey { path: self.path.clone(), bytes: self.bytes(rows) }
    }
}

/// The fragment id in a row address, and the row's index in the fragment.
fn place_of(address: u64) -> (u32, u64) {
    ((address >> 32) as u32, address & 0xffff_ffff)
}

/// A stored checksum, or `None` for 0, which stands for no checksum.
fn known(value: u32) -> Option<u32> {
    (value != 0).then_some(value)
}

fn numbers(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|chunk| u32::from_le_bytes(*chunk)).collect()
}

/// The checksums of the wanted rows, each with the index in the result. `values` begins with the checksum of row
/// `first`.
fn pick(values: &[u32], first: u64, wanted: &[RequestedRow]) -> impl Iterator<Item = (usize, u32)> {
    wanted.iter().filter_map(move |wanted| Some((wanted.place, *values.get(to_usize(wanted.row - first))?)))
}

/// Computes the checksum of each row, 0 for a null row. `None` for types without checksums: all but fixed-size lists
/// of numbers, binary values and text, and lists and structs of binary values and text.
///
/// The checksum of a fixed-size list covers its numbers in little-endian order; that of a binary value or text covers
/// its bytes; that of a list or struct covers the hashes of its values, see [`row_hashes`].
pub fn row_checksums(values: &ArrayRef) -> Option<Vec<u32>> {
    match values.data_type() {
        DataType::FixedSizeList(item, _) if item.data_type().is_primitive() => of_lists(values.as_fixed_size_list()),
        DataType::Binary => Some(of_values(values.as_binary::<i32>().iter())),
        DataType::LargeBinary => Some(of_values(values.as_binary::<i64>().iter())),
        DataType::Utf8 => Some(of_values(values.as_string::<i32>().iter().map(|text| text.map(str::as_bytes)))),
        DataType::LargeUtf8 => Some(of_values(values.as_string::<i64>().iter().map(|text| text.map(str::as_bytes)))),
        DataType::List(_) | DataType::LargeList(_) | DataType::Struct(_) => {
            let hashes = row_hashes(values)?;
            Some(hashes.into_iter().map(|hash| hash.map_or(0, of_hash)).collect())
        }
        _ => None,
    }
}

/// Returns the checksum that a hash stands for.
#[expect(clippy::cast_possible_truncation, reason = "it takes the lower bits")]
fn of_hash(hash: u64) -> u32 {
    (hash as u32).max(1)
}

/// Computes the hash of each row, `None` for a null row: that of the bytes of a binary value or text; for a list or
/// struct that of the hashes of its values, 8 bytes each in little-endian order, 0 for a null. `None` for other types.
fn row_hashes(values: &ArrayRef) -> Option<Vec<Option<u64>>> {
    let of_nested = |row: usize, hashes: &mut dyn Iterator<Item = Option<u64>>| {
        let bytes: Vec<u8> = hashes.flat_map(|hash| hash.unwrap_or(0).to_le_bytes()).collect();
        values.is_valid(row).then(|| hash(&bytes))
    };
    match values.data_type() {
        DataType::Binary => Some(values.as_binary::<i32>().iter().map(|value| value.map(hash)).collect()),
        DataType::LargeBinary => Some(values.as_binary::<i64>().iter().map(|value| value.map(hash)).collect()),
        DataType::Utf8 => {
            Some(values.as_string::<i32>().iter().map(|text| text.map(|text| hash(text.as_bytes()))).collect())
        }
        DataType::LargeUtf8 => {
            Some(values.as_string::<i64>().iter().map(|text| text.map(|text| hash(text.as_bytes()))).collect())
        }
        DataType::List(_) | DataType::LargeList(_) => {
            let (items, ranges) = list_ranges(values)?;
            let hashes = row_hashes(items)?;
            let of_row = |(row, range): (usize, Range<usize>)| of_nested(row, &mut hashes[range].iter().copied());
            Some(ranges.into_iter().enumerate().map(of_row).collect())
        }
        DataType::Struct(_) => {
            let columns: Option<Vec<_>> = values.as_struct().columns().iter().map(row_hashes).collect();
            let columns = columns?;
            let of_row = |row: usize| of_nested(row, &mut columns.iter().map(|hashes| hashes[row]));
            Some((0..values.len()).map(of_row).collect())
        }
        _ => None,
    }
}

/// Returns the items of lists, and the range of each row among them.
fn list_ranges(values: &ArrayRef) -> Option<(&ArrayRef, Vec<Range<usize>>)> {
    fn ranges<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Vec<Range<usize>> {
        lists.value_offsets().windows(2).map(|pair| pair[0].as_usize()..pair[1].as_usize()).collect()
    }
    match values.data_type() {
        DataType::List(_) => {
            let lists = values.as_list::<i32>();
            Some((lists.values(), ranges(lists)))
        }
        DataType::LargeList(_) => {
            let lists = values.as_list::<i64>();
            Some((lists.values(), ranges(lists)))
        }
        _ => None,
    }
}

/// `None` when there are nulls among the numbers, because the bytes of a null number are undefined.
fn of_lists(lists: &FixedSizeListArray) -> Option<Vec<u32>> {
    let items = lists.values().to_data();
    if items.null_count() > 0 {
        return None;
    }
    let width = items.data_type().primitive_width()?;
    let row_bytes = width.checked_mul(usize::try_from(lists.value_length()).ok()?)?;
    let bytes = items.buffers().first()?.as_slice().get(items.offset() * width..)?;
    let of_row = |row: usize| match lists.is_null(row) {
        true => Some(0),
        false => bytes.get(row * row_bytes..(row + 1) * row_bytes).map(checksum),
    };
    (0..lists.len()).map(of_row).collect()
}

fn of_values<'a>(values: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<u32> {
    values.map(|value| value.map_or(0, checksum)).collect()
}

#[cfg(test)]
mod tests;
