//! Narrow light columns, which are read for blocks of rows and kept.
//!
//! Reading the labels of some rows takes about as long as reading those of thousands: a request, a page, and the start
//! of a decoder. So narrow columns are read in blocks of 4,096 rows, once for all units, ranks and epochs of a plan.
//! Blocks are kept outside the memory budgets of streams, up to 32 MiB for each source of a plan, until the last stream
//! of the plan is closed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use arrow_select::interleave::interleave;
use futures::FutureExt;
use parking_lot::Mutex;
use stoker_chunks::ChunkScan;
use stoker_types::{OrderOptions, ShuffleMode, to_usize};
use tokio::sync::Notify;

use crate::light::{Bad, read_tables};
use crate::source::{ColumnPlan, SourcePlan};
use crate::unit_clock::UnitClock;
use crate::{Error, Result};

/// The number of neighbouring rows in a block.
const BLOCK_ROWS: u64 = 4_096;

/// The largest number of blocks that are read together. Lance takes some hundred bytes of memory for each row meanwhile.
const BLOCKS_AT_ONCE: usize = 4;

/// The number of blocks that are read for a first batch, whose rows are read alone otherwise: a block, and the next one.
const FIRST_BLOCKS_MAX: usize = 2;

/// The bytes of blocks that are kept.
const KEPT_BYTES_MAX: u64 = 32 << 20;

/// The bytes per row of all narrow columns together at most.
const ROW_BYTES_MAX: u64 = 64;

/// The smallest assumed bytes per row: reading a row takes its address.
const ROW_BYTES_MIN: u64 = 8;

/// The narrow light columns of a source, in blocks of neighbouring rows of its row set.
#[derive(Debug, Default)]
pub(crate) struct LightBlocks {
    /// The indexes of the columns. Empty if columns are not read in blocks.
    columns: Vec<usize>,
    blocks_max: usize,
    kept: Mutex<Kept>,
    /// Wakes those who wait for blocks that others read.
    is_read: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    blocks: HashMap<u64, Arc<LightBlock>>,
    /// The numbers of the blocks, the one that was read first at the front.
    oldest: VecDeque<u64>,
    /// The numbers of the blocks that are being read.
    being_read: HashSet<u64>,
    /// The numbers of the blocks that cannot be read, or that have bad rows. Their rows are read alone.
    damaged: HashSet<u64>,
    /// The number of open streams that use the blocks.
    num_streams: usize,
}

/// Keeps the blocks of a plan until the last stream of the plan is closed.
pub(crate) struct LightInUse(Arc<[SourcePlan]>);

/// Blocks that are being read by the holder, until this is dropped.
struct Claimed<'a> {
    blocks: &'a LightBlocks,
    numbers: Vec<u64>,
}

/// The rows of a block.
#[derive(Debug)]
struct LightBlock {
    /// The columns in the order of [`LightBlocks::columns`].
    columns: Vec<ArrayRef>,
    /// Whether the values were compared with their checksums.
    is_verified: bool,
}

impl LightInUse {
    /// Begins to use the blocks of these sources.
    pub fn begin(sources: Arc<[SourcePlan]>) -> Self {
        sources.iter().for_each(|source| source.light.kept.lock().num_streams += 1);
        Self(sources)
    }
}

impl Drop for LightInUse {
    fn drop(&mut self) {
        for source in &*self.0 {
            let mut kept = source.light.kept.lock();
            kept.num_streams -= 1;
            if kept.num_streams == 0 {
                kept.blocks.clear();
                kept.oldest.clear();
                kept.damaged.clear();
            }
        }
    }
}

impl LightBlocks {
    /// Decides which columns of a source are read in blocks. There are none if blocks cannot all be kept, unless the
    /// order takes one after the other.
    pub fn of(source: &SourcePlan, order: &OrderOptions) -> Self {
        // The values of columns of the row set would be resolved for whole blocks.
        if source.columns.iter().any(|column| matches!(column, ColumnPlan::RowSet { .. })) {
            return Self::default();
        }
        let mut columns = Vec::new();
        let mut row_bytes = 0;
        for (index, (column, plan)) in source.query.columns().iter().zip(&source.columns).enumerate() {
            let (ColumnPlan::Table { .. }, Some(bytes)) = (plan, width(column.field.data_type())) else { continue };
            columns.push(index);
            row_bytes += bytes;
        }
        let row_bytes = row_bytes.max(ROW_BYTES_MIN);
        let are_kept = source.row_set.num_rows().saturating_mul(row_bytes) <= KEPT_BYTES_MAX;
        if row_bytes > ROW_BYTES_MAX || !(are_kept || order.mode == ShuffleMode::Sequential) {
            return Self::default();
        }
        let blocks_max = to_usize((KEPT_BYTES_MAX / (row_bytes * BLOCK_ROWS)).max(FIRST_BLOCKS_MAX as u64));
        Self { columns, blocks_max, ..Self::default() }
    }

    /// Returns whether a column is read in blocks.
    pub fn has(&self, column: usize) -> bool {
        self.columns.contains(&column)
    }

    /// Returns the columns of the rows with these ordinals, each with its index in the source, and reads the blocks that are
    /// not there. Returns `None` if the rows have to be read alone: if there are no such columns, if a block cannot be
    /// read or has bad rows, or, for a first batch, if many blocks are not there.
    ///
    /// # Errors
    /// Transient errors of storage.
    pub async fn read(
        &self,
        source: &SourcePlan,
        scan: &ChunkScan,
        clock: &UnitClock,
        ordinals: &[u64],
        is_first: bool,
    ) -> Result<Option<Vec<(usize, ArrayRef)>>> {
        let mut numbers: Vec<u64> = ordinals.iter().map(|ordinal| ordinal / BLOCK_ROWS).collect();
        numbers.dedup();
        let are_in_order = numbers.is_sorted_by(|one, next| one < next);
        if self.columns.is_empty() || numbers.is_empty() || numbers.len() > self.blocks_max || !are_in_order {
            return Ok(None);
        }
        let mut blocks = self.found(&numbers, scan.verifies());
        let num_missing = blocks.iter().filter(|block| block.is_none()).count();
        if is_first && num_missing > FIRST_BLOCKS_MAX {
            return Ok(None);
        }
        if num_missing > 0 {
            blocks = self.completed(source, scan, clock, &numbers).boxed().await?;
        }
        let Some(blocks) = blocks.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        self.values(ordinals, &numbers, &blocks).map(Some)
    }

    /// Returns the blocks with these numbers, which ascend, and reads those that are not there. Blocks that others read are
    /// waited for. Blocks that cannot be read, or that have bad rows, are `None`.
    async fn completed(
        &self,
        source: &SourcePlan,
        scan: &ChunkScan,
        clock: &UnitClock,
        numbers: &[u64],
    ) -> Result<Vec<Option<Arc<LightBlock>>>> {
        let mut blocks: Vec<Option<Arc<LightBlock>>> = vec![None; numbers.len()];
        loop {
            let is_read = self.is_read.notified();
            let there = self.found(numbers, scan.verifies());
            blocks.iter_mut().zip(there).filter(|(block, _)| block.is_none()).for_each(|(block, found)| *block = found);
            let missing = numbers.iter().zip(&blocks).filter(|(_, block)| block.is_none());
            let missing: Vec<u64> = missing.map(|(number, _)| *number).collect();
            if missing.is_empty() || self.are_damaged(&missing) {
                return Ok(blocks);
            }
            let claimed = self.claim(&missing);
            if claimed.numbers.is_empty() {
                clock.read(is_read).await;
            }
            for some in claimed.numbers.chunks(BLOCKS_AT_ONCE) {
                let read = match self.read_blocks(source, scan, clock, some).await {
                    Ok(read) => read,
                    Err(error) if error.kind().is_transient() => return Err(error),
                    Err(error) => {
                        tracing::debug!(%error, "light columns of blocks are read row by row");
                        self.kept.lock().damaged.extend(some);
                        return Ok(blocks);
                    }
                };
                for (number, block) in some.iter().zip(read) {
                    if let Ok(index) = numbers.binary_search(number) {
                        blocks[index] = block;
                    }
                }
            }
        }
    }

    /// Claims those of the missing blocks that nobody reads.
    fn claim(&self, missing: &[u64]) -> Claimed<'_> {
        let mut kept = self.kept.lock();
        let numbers = missing.iter().copied().filter(|number| kept.being_read.insert(*number)).collect();
        Claimed { blocks: self, numbers }
    }

    /// Returns the blocks with these numbers, as far as they are there.
    fn found(&self, numbers: &[u64], verifies: bool) -> Vec<Option<Arc<LightBlock>>> {
        let kept = self.kept.lock();
        let is_usable = |block: &&Arc<LightBlock>| block.is_verified || !verifies;
        numbers.iter().map(|number| kept.blocks.get(number).filter(is_usable).cloned()).collect()
    }

    /// Returns whether some of these blocks cannot be read or have bad rows.
    fn are_damaged(&self, numbers: &[u64]) -> bool {
        let kept = self.kept.lock();
        !kept.damaged.is_empty() && numbers.iter().any(|number| kept.damaged.contains(number))
    }

    /// Reads blocks and keeps them, unless they have bad rows.
    async fn read_blocks(
        &self,
        source: &SourcePlan,
        scan: &ChunkScan,
        clock: &UnitClock,
        numbers: &[u64],
    ) -> Result<Vec<Option<Arc<LightBlock>>>> {
        let num_rows = source.row_set.num_rows();
        let rows = |number: u64| number * BLOCK_ROWS..((number + 1) * BLOCK_ROWS).min(num_rows);
        let ordinals: Vec<u64> = numbers.iter().flat_map(|number| rows(*number)).collect();
        let found = clock.read(source.row_set.resolve(&ordinals)).await?;
        let mut bad = Bad::new();
        let read = read_tables(source, scan, clock, &self.columns, &found.addrs, &mut bad).await?;
        let mut blocks = Vec::with_capacity(numbers.len());
        let mut start = 0;
        for number in numbers {
            let Range { start: first, end } = rows(*number);
            let length = to_usize(end - first);
            let is_bad = |(table, addrs): (usize, &Vec<u64>)| {
                addrs[start..start + length].iter().any(|address| bad.contains_key(&(table, *address)))
            };
            if !bad.is_empty() && found.addrs.iter().enumerate().any(is_bad) {
                blocks.push(None);
                start += length;
                continue;
            }
            // A slice would keep the memory of all that was decoded together.
            let of_block_rows = |array: &ArrayRef| -> Result<ArrayRef> {
                let rows: Vec<(usize, usize)> = (start..start + length).map(|row| (0, row)).collect();
                interleave(&[array.as_ref()], &rows).map_err(Error::arrow)
            };
            let columns = read.iter().map(of_block_rows).collect::<Result<_>>()?;
            blocks.push(Some(Arc::new(LightBlock { columns, is_verified: scan.verifies() })));
            start += length;
        }
        let mut kept = self.kept.lock();
        for (number, block) in numbers.iter().zip(&blocks) {
            match block {
                Some(block) if kept.blocks.insert(*number, block.clone()).is_none() => kept.oldest.push_back(*number),
                Some(_) => {}
                None => _ = kept.damaged.insert(*number),
            }
        }
        while kept.oldest.len() > self.blocks_max {
            let oldest = kept.oldest.pop_front();
            oldest.and_then(|oldest| kept.blocks.remove(&oldest));
        }
        Ok(blocks)
    }

    /// Returns the values of rows, whose blocks have these numbers.
    fn values(&self, ordinals: &[u64], numbers: &[u64], blocks: &[Arc<LightBlock>]) -> Result<Vec<(usize, ArrayRef)>> {
        let mut rows = Vec::with_capacity(ordinals.len());
        let mut index = 0;
        for ordinal in ordinals {
            if numbers[index] != ordinal / BLOCK_ROWS {
                index += 1;
            }
            rows.push((index, to_usize(ordinal % BLOCK_ROWS)));
        }
        let is_run = rows.windows(2).all(|pair| pair[0].0 == pair[1].0 && pair[0].1 + 1 == pair[1].1);
        let mut columns = Vec::with_capacity(self.columns.len());
        for (position, column) in self.columns.iter().enumerate() {
            let array = match (blocks, rows.first()) {
                ([block], Some((_, first))) if is_run => block.columns[position].slice(*first, rows.len()),
                _ => {
                    let arrays: Vec<&dyn Array> = blocks.iter().map(|block| block.columns[position].as_ref()).collect();
                    interleave(&arrays, &rows).map_err(Error::arrow)?
                }
            };
            columns.push((*column, array));
        }
        Ok(columns)
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        if self.numbers.is_empty() {
            return;
        }
        let mut kept = self.blocks.kept.lock();
        self.numbers.iter().for_each(|number| _ = kept.being_read.remove(number));
        drop(kept);
        self.blocks.is_read.notify_waiters();
    }
}

/// Returns the bytes of a value if all values of the type have the same width and no more than 16 bytes.
fn width(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::Boolean => Some(1),
        other => other.primitive_width().filter(|bytes| *bytes <= 16).map(|bytes| bytes as u64),
    }
}
