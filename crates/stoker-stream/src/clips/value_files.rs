//! Where values lie in data files, which is found once for each fragment and page.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use stoker_chunks::{ChunkScan, Freshness, with_retries};
use stoker_lake::{RangeReader, Table, ValueFile};
use tokio::sync::OnceCell;

use crate::Result;

/// The largest list of the places of a page's rows that is kept, in bytes. Of larger ones, two places are read for each
/// value.
const LIST_BYTES_MAX: u64 = 64 << 10;

/// A table, a column of it, and a fragment. The table is named by its snapshot.
type FileKey = (String, String, u32);

/// The data files of columns of videos, as far as rows of them were read. It grows with the fragments, and with at most 8
/// bytes for each of their rows.
#[derive(Default)]
pub(crate) struct ValueFiles(Mutex<HashMap<FileKey, Arc<OnceCell<Option<PlacedFile>>>>>);

/// A data file whose values are plain bytes.
struct PlacedFile {
    file: ValueFile,
    /// For each page, where its rows begin.
    lists: Box<[OnceCell<Vec<u8>>]>,
}

impl ValueFiles {
    /// Returns the reader of the data file with a value, and the range of the value in it. `None` if its bytes are not
    /// stored as they are.
    pub async fn place(
        &self,
        table: &Table,
        column: &str,
        address: u64,
        scan: &ChunkScan,
    ) -> Result<Option<(RangeReader, Range<u64>)>> {
        let (fragment, row) = ((address >> 32) as u32, address & 0xffff_ffff);
        let key = (table.snapshot().to_string(), column.to_string(), fragment);
        let cell = self.0.lock().entry(key).or_default().clone();
        let placed = cell.get_or_try_init(|| PlacedFile::find(table, column, fragment, scan)).await?;
        let Some(placed) = placed else { return Ok(None) };
        let range = placed.value(row, scan).await?;
        Ok(range.map(|range| (placed.file.reader.clone(), range)))
    }
}

impl PlacedFile {
    async fn find(table: &Table, column: &str, fragment: u32, scan: &ChunkScan) -> Result<Option<Self>> {
        let find = || table.value_file(column, fragment);
        match with_retries(scan.retry(), scan.clock(), |_| {}, find).await? {
            Ok(file) => {
                let lists = file.pages.iter().map(|_| OnceCell::new()).collect();
                Ok(Some(Self { file, lists }))
            }
            Err(reason) => {
                tracing::debug!(column, fragment, %reason, "videos are read as whole files");
                Ok(None)
            }
        }
    }

    async fn value(&self, row: u64, scan: &ChunkScan) -> Result<Option<Range<u64>>> {
        let Some(number) = self.file.page_of(row) else { return Ok(None) };
        let (Some(page), Some(list)) = (self.file.pages.get(number), self.lists.get(number)) else { return Ok(None) };
        if page.is_constant() {
            return Ok(page.value(&[], 0));
        }
        let all = page.begins_of(page.rows.clone());
        let reader = &self.file.reader;
        let read = |range| async move {
            // Most lists have a few kilobytes, which is too little for an entry of a cache.
            Ok::<_, crate::Error>(scan.read_range(reader, range, Freshness::Any).await?.to_vec())
        };
        if all.end - all.start > LIST_BYTES_MAX {
            let stored = read(page.begins_of(row..row + 1)).await?;
            return Ok(page.value(&stored, 0));
        }
        let stored = list.get_or_try_init(|| read(all)).await?;
        Ok(page.value(stored, row - page.rows.start))
    }
}
