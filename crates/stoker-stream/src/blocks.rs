//! Blocks that are read as a whole: of which several ranks want rows, that are streams of one process; and for a cache, whose chunks
//! are the same in every epoch, on every rank and in every job.
//!
//! ```text
//! lanes of rank r of W     all lanes l = r mod gcd(W, L), shared by W / gcd(W, L) ranks
//! row by row               ranks that go through all rows in turns share everything
//! ```

use stoker_chunks::{Block, Group, SlotMut};
use stoker_lake::Table;
use stoker_sql::NO_ROW;
use stoker_types::{OrderOptions, ShuffleMode, Slice};

use crate::plan::PlanInner;
use crate::read::resolve;
use crate::source::SourcePlan;
use crate::{Result, StreamPlan};

/// Rows of an order without blocks are kept in a cache one by one from this size on: smaller ones are as many files.
const ROW_KEPT_BYTES_MIN: u64 = 64 << 10;

/// The ranks that want rows of the same blocks as a slice does; `None` where that is none, where order has no blocks, or where the
/// system's memory of local files serves all ranks.
pub(crate) fn group(plan: &StreamPlan, slice: &Slice) -> Option<Group> {
    let PlanInner { spec, stream_id, .. } = plan.inner.as_ref();
    let world_size = u64::from(slice.topology.world_size);
    let is_full = spec.sources.iter().any(|source| source.order.mode == ShuffleMode::Full);
    if world_size == 1 || is_full || plan.tables().all(Table::is_local) {
        return None;
    }
    let residue = match spec.sources.as_slice() {
        [source] if source.order.mode == ShuffleMode::Block => {
            let num_groups = greatest_common_divisor(world_size, u64::from(source.order.num_lanes));
            if num_groups == world_size {
                return None;
            }
            slice.origin.wrapping_add(u64::from(slice.topology.rank)) % num_groups
        }
        _ => 0,
    };
    Some(Group { stream: *stream_id, epoch: slice.epoch, residue })
}

/// Whether a cache keeps the blocks of a stream: the system's memory of local files serves better.
pub(crate) fn are_kept(plan: &StreamPlan) -> bool {
    !plan.tables().all(Table::is_local)
}

/// Rows of a block that is read as a whole: one where the order has no blocks, none where rows are too small for that.
pub(crate) fn rows_per_block(order: &OrderOptions, row_bytes: u64) -> Option<u64> {
    match order.mode {
        ShuffleMode::Block | ShuffleMode::Sequential => Some(order.rows_per_block),
        ShuffleMode::Full => (row_bytes >= ROW_KEPT_BYTES_MIN).then_some(1),
    }
}

/// The blocks in which some rows lie, with all their rows.
pub(crate) struct Blocks {
    rows_per_block: u64,
    /// Which blocks, ascending.
    numbers: Vec<u64>,
    /// For each block, the end of its rows in `addrs`.
    ends: Vec<usize>,
    /// Row addresses, `[table][row]`.
    addrs: Vec<Vec<u64>>,
}

impl Blocks {
    /// The blocks around rows with these ordinals.
    pub async fn around(source: &SourcePlan, rows_per_block: u64, ordinals: &[u64]) -> Result<Self> {
        let mut numbers: Vec<u64> = ordinals.iter().map(|ordinal| ordinal / rows_per_block).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let (mut ends, mut all) = (Vec::with_capacity(numbers.len()), Vec::new());
        for number in &numbers {
            let start = number * rows_per_block;
            all.extend(start..start.saturating_add(rows_per_block).min(source.row_set.num_rows()));
            ends.push(all.len());
        }
        let (resolved, _) = resolve(source, &all).await?;
        Ok(Self { rows_per_block, numbers, ends, addrs: resolved.addrs })
    }

    /// The rows that the `supplier`th of some tables supplies, block by block, and which of them are wanted: addresses with their
    /// slots, and the ordinals of the same rows.
    pub fn of(&self, tables: &[usize], supplier: usize, ordinals: &[u64], wanted: Vec<(u64, SlotMut)>) -> Vec<Block> {
        let is_supplied = |row: &usize| {
            let has = |table: &usize| self.addrs[*table][*row] != NO_ROW;
            tables.iter().position(has) == Some(supplier)
        };
        let mut blocks = Vec::with_capacity(self.numbers.len());
        let mut start = 0;
        for end in &self.ends {
            let rows = (start..*end).filter(is_supplied);
            let mut addresses: Vec<u64> = rows.map(|row| self.addrs[tables[supplier]][row]).collect();
            addresses.sort_unstable();
            addresses.dedup();
            blocks.push(Block { addresses, rows: Vec::new() });
            start = *end;
        }
        for (ordinal, row) in ordinals.iter().zip(wanted) {
            let block = self.numbers.partition_point(|number| *number < ordinal / self.rows_per_block);
            blocks[block].rows.push(row);
        }
        blocks
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
