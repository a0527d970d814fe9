//! Computes the ranges of files that contain the rows of blocks.

use std::collections::VecDeque;

use stoker_lake::{DenseColumn, DenseFile};

use crate::block_scan::BlockColumn;
use crate::cache::entry::ChunkKey;
use crate::chunk_scan::REMOTE;
use crate::coalesce::{Piece, Read};
use crate::locator::Locator;
use crate::runs::{RowRun, divide, take_until};
use crate::{Error, Result};

/// A range of one file that contains rows of a block.
#[derive(Debug)]
pub(crate) struct BlockRange {
    pub fragment: u32,
    pub offset: u64,
    pub length: u64,
    /// The address of the last row in the range.
    pub last: u64,
    pub num_rows: u64,
}

/// A range with the runs of wanted rows in it.
pub(crate) type BlockRequest = (BlockRange, Vec<RowRun>);

impl BlockRange {
    /// Returns the range's key in a cache.
    pub fn key(&self, column: &DenseColumn) -> Result<ChunkKey> {
        key(column, self.fragment, self.offset, self.length)
    }

    pub fn num_bytes(&self) -> Result<usize> {
        num_bytes(self.length)
    }

    /// Makes a read of some rows of the range.
    pub fn read(&self, name: &str, column: &DenseColumn, runs: Vec<RowRun>) -> Result<Read> {
        let mut pieces: Vec<Piece> = Vec::with_capacity(runs.len());
        // A row before the range, which would be a bug, gets an offset beyond the range's end.
        let put = |piece: Piece| pieces.push(Piece { at: piece.at.wrapping_sub(self.offset), ..piece });
        divide(name, column, runs, u64::MAX, put)?;
        Ok(Read::new(self.fragment, self.offset, self.length, pieces))
    }
}

/// Adds the ranges of a block that contain wanted rows to `whole`. Returns the wanted rows that are in no range. A run of
/// wanted rows that goes on beyond a range is divided. `addresses` are those of all rows of the block, ascending,
/// possibly with duplicates.
pub(crate) fn wanted_ranges(
    column: BlockColumn<'_>,
    addresses: Vec<u64>,
    mut wanted: Vec<RowRun>,
    whole: &mut Vec<BlockRequest>,
) -> Result<VecDeque<RowRun>> {
    wanted.sort_unstable_by_key(|(address, _)| *address);
    let mut wanted = VecDeque::from(wanted);
    for range in ranges(column.name, column.column, addresses)? {
        let mut runs = Vec::new();
        take_until(&mut wanted, range.last, &mut runs)?;
        if !runs.is_empty() {
            whole.push((range, runs));
        }
    }
    Ok(wanted)
}

/// Groups ranges so that one GET reads each group without much waste.
pub(crate) fn runs(mut ranges: Vec<BlockRequest>) -> Vec<Vec<BlockRequest>> {
    ranges.sort_unstable_by_key(|(range, _)| (range.fragment, range.offset));
    let mut runs: Vec<Vec<BlockRequest>> = Vec::new();
    for (range, rows) in ranges {
        let follows = |run: &&mut Vec<BlockRequest>| {
            let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { return false };
            let gap = range.offset.checked_sub(last.offset + last.length);
            let length = range.offset + range.length - first.offset.min(range.offset);
            first.fragment == range.fragment
                && gap.is_some_and(|gap| gap <= REMOTE.gap_bytes_max.min(range.length))
                && length <= REMOTE.read_bytes_max
        };
        match runs.last_mut().filter(follows) {
            Some(run) => run.push((range, rows)),
            None => runs.push(vec![(range, rows)]),
        }
    }
    runs
}

/// Returns the key of a range in a cache.
pub(crate) fn key(column: &DenseColumn, fragment: u32, offset: u64, length: u64) -> Result<ChunkKey> {
    Ok(ChunkKey::new(&file(column, fragment)?.reader, offset, length))
}

pub(crate) fn file(column: &DenseColumn, fragment: u32) -> Result<&DenseFile> {
    let unknown = || Error::Internal { reason: format!("fragment {fragment} is unknown") };
    column.file(fragment).ok_or_else(unknown)
}

pub(crate) fn num_bytes(length: u64) -> Result<usize> {
    usize::try_from(length).map_err(|_| Error::Internal { reason: "a range is too long".into() })
}

/// Returns the ranges that contain the rows at ascending addresses, which may have duplicates.
pub(crate) fn ranges(name: &str, column: &DenseColumn, mut addresses: Vec<u64>) -> Result<Vec<BlockRange>> {
    addresses.dedup();
    let row_bytes = column.row_bytes as u64;
    let mut locator = Locator::new(name, column);
    let mut ranges: Vec<BlockRange> = Vec::new();
    for address in addresses {
        let fragment = (address >> 32) as u32;
        let (offset, _) = locator.locate(address)?;
        if let Some(range) = ranges.last_mut().filter(|range| range.fragment == fragment)
            && let Some(gap) = offset.checked_sub(range.offset + range.length)
            && let Some(length) = REMOTE.joined(range.length, range.num_rows * row_bytes, gap, row_bytes)
        {
            (range.length, range.last) = (length, address);
            range.num_rows += 1;
            continue;
        }
        ranges.push(BlockRange { fragment, offset, length: row_bytes, last: address, num_rows: 1 });
    }
    Ok(ranges)
}
