//! Reads ranges of files into memory of their own, such as parts of large values.

use std::io::IoSliceMut;
use std::ops::Range;

use arrow_buffer::Buffer;
use futures::future::try_join_all;
use stoker_lake::RangeReader;
use stoker_types::to_usize;

use crate::block_range::num_bytes;
use crate::cache::entry::ChunkKey;
use crate::local::{ReadFrom, forget, read_all};
use crate::stats::Asked;
use crate::{ChunkScan, LocalReads, Result};

/// The most bytes of one read.
const READ_BYTES_MAX: u64 = 8 << 20;

/// Which copy of the bytes of a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Any, such as that of the page cache.
    Any,
    /// Any, and of files in object stores that of the cache, if the scan has one. The cache gets a range that it does not
    /// have. This is for ranges that later epochs or other processes read again.
    Kept,
    /// That of the disk or of the store.
    PastCache,
}

impl ChunkScan {
    /// Reads a range of a file. Ranges of more than 8 MiB take several reads at once, each of which is a chunk of its own
    /// for the cache. Reads of object stores are hedged.
    ///
    /// # Errors
    /// Storage errors after the retries of transient faults.
    pub async fn read_range(&self, reader: &RangeReader, range: Range<u64>, freshness: Freshness) -> Result<Buffer> {
        let starts = (range.start..range.end).step_by(to_usize(READ_BYTES_MAX));
        let parts: Vec<Range<u64>> =
            starts.map(|start| start..range.end.min(start.saturating_add(READ_BYTES_MAX))).collect();
        match parts.as_slice() {
            [] => Ok(Buffer::default()),
            [part] => self.read_part(reader, part.clone(), freshness).await,
            parts => {
                let reads = parts.iter().map(|part| self.read_part(reader, part.clone(), freshness));
                let mut bytes = Vec::with_capacity(num_bytes(range.end - range.start)?);
                try_join_all(reads).await?.iter().for_each(|part| bytes.extend_from_slice(part));
                Ok(Buffer::from_vec(bytes))
            }
        }
    }

    async fn read_part(&self, reader: &RangeReader, range: Range<u64>, freshness: Freshness) -> Result<Buffer> {
        let bytes = range.end - range.start;
        if reader.local().is_some() {
            let (read, requests) = self.read_local_part(reader, range, freshness).await?;
            self.stats().add_read(Asked { requests, bytes }, bytes);
            return Ok(Buffer::from_vec(read));
        }
        match freshness {
            Freshness::Any => self.read_store(reader, range).await,
            Freshness::Kept => self.read_kept(reader, range).await,
            Freshness::PastCache => {
                // The cache may have the bytes that are not wanted.
                self.forget_range(ChunkKey::new(reader, range.start, bytes)).await?;
                self.read_store(reader, range).await
            }
        }
    }

    /// Returns the bytes of a range of a file in an object store: from the cache, or from the store, in which case the
    /// cache gets them too, if it has space.
    pub(crate) async fn read_kept(&self, reader: &RangeReader, range: Range<u64>) -> Result<Buffer> {
        let length = range.end - range.start;
        let key = ChunkKey::new(reader, range.start, length);
        if let Some(bytes) = self.kept_range(key, num_bytes(length)?).await? {
            return Ok(bytes);
        }
        let bytes = self.read_store(reader, range).await?;
        if let Some(cache) = self.cache() {
            match cache.room() < length {
                true => cache.refused(),
                false => cache.put(vec![(key, bytes.clone())], length),
            }
        }
        Ok(bytes)
    }

    /// Returns the bytes of a range from the cache; `None` if they are not there.
    pub(crate) async fn kept_range(&self, key: ChunkKey, length: usize) -> Result<Option<Buffer>> {
        let Some(cache) = self.cache().cloned() else { return Ok(None) };
        let (pool, stats) = (self.pool().clone(), self.stats().clone());
        self.on_local_thread(move || Ok(cache.read(&key, length, &pool, &stats))).await
    }

    /// Removes a range from the cache, if there is one.
    pub(crate) async fn forget_range(&self, key: ChunkKey) -> Result<()> {
        let Some(cache) = self.cache().cloned() else { return Ok(()) };
        let remove = move || {
            cache.remove(&key);
            Ok(())
        };
        self.on_local_thread(remove).await
    }

    /// Returns the bytes, and the number of system calls.
    async fn read_local_part(
        &self,
        reader: &RangeReader,
        range: Range<u64>,
        freshness: Freshness,
    ) -> Result<(Vec<u8>, u64)> {
        let is_direct = self.local_reads() == LocalReads::Direct;
        if freshness != Freshness::PastCache
            && !is_direct
            && let Some(read) = in_memory(reader, &range)
        {
            return Ok(read);
        }
        let reader = reader.clone();
        self.on_local_thread(move || {
            // A file that is opened anew has the bytes of the disk, once they are dropped from the page cache.
            let opened = if freshness == Freshness::PastCache { reader.open()? } else { reader };
            let Some(file) = opened.local() else { return Ok((Vec::new(), 0)) };
            if freshness == Freshness::PastCache {
                forget(file, range.clone());
            }
            let mut bytes = vec![0; to_usize(range.end - range.start)];
            let calls = read_all(file, &mut [IoSliceMut::new(&mut bytes)], range.start, ReadFrom::Anywhere);
            let calls = calls.map_err(|source| opened.read_failed(range.clone(), source))?;
            if is_direct {
                forget(file, range);
            }
            Ok((bytes, calls))
        })
        .await
    }
}

/// Returns the bytes if all of them are in the page cache, and the number of system calls.
fn in_memory(reader: &RangeReader, range: &Range<u64>) -> Option<(Vec<u8>, u64)> {
    let mut bytes = vec![0; to_usize(range.end - range.start)];
    let file = reader.local()?;
    let calls = read_all(file, &mut [IoSliceMut::new(&mut bytes)], range.start, ReadFrom::Memory).ok()?;
    Some((bytes, calls))
}
