//! Reads ranges of files into memory of their own, such as parts of large values.

use std::io::IoSliceMut;
use std::ops::Range;

use futures::future::try_join_all;
use stoker_lake::RangeReader;
use stoker_types::to_usize;

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
    /// That of the disk or of the store.
    PastCache,
}

impl ChunkScan {
    /// Reads a range of a file. Ranges of more than 8 MiB take several reads at once.
    ///
    /// # Errors
    /// Storage errors after the retries of transient faults.
    pub async fn read_range(&self, reader: &RangeReader, range: Range<u64>, freshness: Freshness) -> Result<Vec<u8>> {
        let starts = (range.start..range.end).step_by(to_usize(READ_BYTES_MAX));
        let parts: Vec<Range<u64>> =
            starts.map(|start| start..range.end.min(start.saturating_add(READ_BYTES_MAX))).collect();
        match parts.as_slice() {
            [] => Ok(Vec::new()),
            [part] => self.read_part(reader, part.clone(), freshness).await,
            parts => {
                let reads = parts.iter().map(|part| self.read_part(reader, part.clone(), freshness));
                Ok(try_join_all(reads).await?.concat())
            }
        }
    }

    async fn read_part(&self, reader: &RangeReader, range: Range<u64>, freshness: Freshness) -> Result<Vec<u8>> {
        let bytes = range.end - range.start;
        let (read, requests) = match reader.local() {
            Some(_) => self.read_local_part(reader, range, freshness).await?,
            None => (self.read_remote_part(reader, range).await?, 1),
        };
        self.stats().add_read(Asked { requests, bytes }, bytes);
        Ok(read)
    }

    /// Returns the bytes, and the number of system calls.
    async fn read_local_part(
        &self,
        reader: &RangeReader,
        range: Range<u64>,
        freshness: Freshness,
    ) -> Result<(Vec<u8>, u64)> {
        let is_direct = self.local_reads() == LocalReads::Direct;
        if freshness == Freshness::Any
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
