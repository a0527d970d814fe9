//! Blocks that are read as a whole, in two cases: several ranks whose streams are in one process want rows of the same
//! block, or a cache keeps the block's chunk, which is the same in every epoch, on every rank and in every job.
//!
//! ```text
//! shuffled in blocks   rank r of W has rows of the lanes l = r mod gcd(W, L), as W / gcd(W, L) ranks do
//! in order, mixed      ranks take rows in rotation: all of them have rows of each block
//! ```

use stoker_batch::SlotMut;
use stoker_chunks::{Block, BlockReads, Group};
use stoker_lake::Table;
use stoker_sql::NO_ROW;
use stoker_types::{OrderOptions, ShuffleMode, Slice, to_usize};

use crate::plan::PlanInner;
use crate::source::SourcePlan;
use crate::{Result, StreamPlan};

/// Rows of an order without blocks are kept in a cache one by one if they have at least this many bytes. Smaller rows
/// would make too many files.
const ROW_KEPT_BYTES_MIN: u64 = 64 << 10;

/// The size of the blocks that ranks read for each other where rows are not shuffled, in bytes. A single GET reads that
/// many efficiently.
const SEQUENTIAL_BLOCK_BYTES: u64 = 8 << 20;

/// Returns the group of ranks that want rows of the same blocks as a slice, and the number of these ranks. Returns
/// `None` if the slice's rank is alone in its group, if the order has no blocks, or if the files are local, so that the
/// page cache serves all ranks.
pub(crate) fn group(plan: &StreamPlan, slice: &Slice) -> Option<(Group, u64)> {
    let PlanInner { spec, stream_id, .. } = plan.inner.as_ref();
    let world_size = u64::from(slice.topology.world_size);
    let is_full = spec.sources.iter().any(|source| source.order.mode == ShuffleMode::Full);
    if world_size == 1 || is_full || plan.tables().all(Table::is_local) {
        return None;
    }
    let (residue, num_ranks) = match spec.sources.as_slice() {
        [source] if source.order.mode == ShuffleMode::Block => {
            let (num_groups, residue) = lanes_in_common(slice, u64::from(source.order.num_lanes));
            if num_groups == world_size {
                return None;
            }
            (residue, world_size / num_groups)
        }
        _ => (0, world_size),
    };
    Some((Group { stream: *stream_id, epoch: slice.epoch, residue }, num_ranks))
}

/// Returns into how many groups the lanes fall by the ranks that share them, and the number of the group with the lanes
/// of a slice's rank. The group `residue` of `num_groups` has the lanes l with `l mod num_groups == residue`.
pub(crate) fn lanes_in_common(slice: &Slice, num_lanes: u64) -> (u64, u64) {
    let num_groups = greatest_common_divisor(u64::from(slice.topology.world_size), num_lanes);
    (num_groups, slice.origin.wrapping_add(u64::from(slice.topology.rank)) % num_groups)
}

/// Returns whether a cache keeps the blocks of a stream. It does not keep local files, because the page cache serves
/// them better.
pub(crate) fn are_kept(plan: &StreamPlan) -> bool {
    !plan.tables().all(Table::is_local)
}

/// Returns the number of rows in a block that is read as a whole. If the order has no blocks, it is one row, or `None`
/// if rows are too small for that. Blocks for a cache are the same whether one rank or several read them.
pub(crate) fn rows_per_block(reads: &BlockReads, order: &OrderOptions, row_bytes: u64, has_cache: bool) -> Option<u64> {
    let row_bytes = row_bytes.max(1);
    match (order.mode, reads) {
        (ShuffleMode::Sequential, BlockReads::ForGroup(_)) if !has_cache => {
            Some(order.rows_per_block.max(SEQUENTIAL_BLOCK_BYTES / row_bytes))
        }
        (ShuffleMode::Block | ShuffleMode::Sequential, _) => Some(order.rows_per_block),
        (ShuffleMode::Full, _) => (row_bytes >= ROW_KEPT_BYTES_MIN).then_some(1),
    }
}

/// The blocks of a source.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a> {
    pub source: &'a SourcePlan,
    pub rows_per_block: u64,
}

impl Blocks<'_> {
    /// Returns the blocks that contain some runs of rows. `ordinals` has the ordinal of the first row of each run, and
    /// `wanted` the address of this row and the slots of all rows.
    pub fn of(self, ordinals: &[u64], wanted: Vec<(u64, SlotMut)>) -> Result<Vec<Block>> {
        let mut rows: Vec<(u64, (u64, SlotMut))> = Vec::with_capacity(wanted.len());
        for (ordinal, (address, slot)) in ordinals.iter().zip(wanted) {
            let (mut ordinal, mut address, mut rest) = (*ordinal, address, Some(slot));
            while let Some(mut slot) = rest.take() {
                let num_rows = (self.rows_per_block - ordinal % self.rows_per_block).min(slot.num_rows() as u64);
                if num_rows < slot.num_rows() as u64 {
                    rest = Some(slot.split_off(to_usize(num_rows))?);
                }
                rows.push((ordinal / self.rows_per_block, (address, slot)));
                (ordinal, address) = (ordinal + num_rows, address + num_rows);
            }
        }
        rows.sort_by_key(|(number, _)| *number);
        let mut blocks: Vec<Block> = Vec::new();
        for (number, row) in rows {
            match blocks.last_mut().filter(|block| block.number == number) {
                Some(block) => block.wanted.push(row),
                None => {
                    let ordinals = self.ordinals(number);
                    blocks.push(Block { number, num_rows: ordinals.end - ordinals.start, wanted: vec![row] });
                }
            }
        }
        Ok(blocks)
    }

    /// Returns the ascending addresses of the rows of a block that the table `tables[supplier]` supplies. An address is
    /// repeated if the block has the row several times.
    pub async fn addresses(self, tables: &[usize], supplier: usize, number: u64) -> Result<Vec<u64>> {
        let ordinals: Vec<u64> = self.ordinals(number).collect();
        let addrs = self.source.row_set.resolve(&ordinals).await?.addrs;
        let is_supplied = |row: &usize| tables.iter().position(|table| addrs[*table][*row] != NO_ROW) == Some(supplier);
        let rows = (0..ordinals.len()).filter(is_supplied);
        let mut addresses: Vec<u64> = rows.map(|row| addrs[tables[supplier]][row]).collect();
        addresses.sort_unstable();
        Ok(addresses)
    }

    fn ordinals(self, number: u64) -> std::ops::Range<u64> {
        let (start, end) = (number.saturating_mul(self.rows_per_block), self.source.row_set.num_rows());
        start.min(end)..start.saturating_add(self.rows_per_block).min(end)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
