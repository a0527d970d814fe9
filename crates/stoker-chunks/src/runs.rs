//! Divides runs of rows where files, and other runs, divide them.
//!
//! ```text
//! wanted     ├──────────────────┤           runs of rows at consecutive addresses, each with its slots
//!                   ├──────────────────┤
//! pages      ├────────────┤├───────────────
//! pieces     ├──────┤├────┤├────┤├─────┤    the two in the middle are wanted twice
//! ```

use std::collections::VecDeque;

use stoker_batch::SlotMut;
use stoker_lake::DenseColumn;
use stoker_types::to_usize;

use crate::coalesce::Piece;
use crate::locator::Locator;
use crate::{Error, Result};

/// The address of the first row of a run, and the slots of rows at consecutive addresses from there on.
pub(crate) type RowRun = (u64, SlotMut);

/// Divides runs into pieces that are contiguous in their file and at most `bytes_max` long, unless a single row is
/// longer. Slots that want the same rows become copies of one piece. `put` gets the pieces in the order of their
/// addresses, each with its offset in the file as [`Piece::at`].
///
/// # Errors
/// [`Error::UnknownRow`]; [`Error::Internal`] for a run that [`disjoint`] rejects.
pub(crate) fn divide(
    name: &str,
    column: &DenseColumn,
    runs: Vec<RowRun>,
    bytes_max: u64,
    mut put: impl FnMut(Piece),
) -> Result<()> {
    let mut locator = Locator::new(name, column);
    let rows_max = (bytes_max / (column.row_bytes as u64).max(1)).max(1);
    let mut divide = |mut piece: Piece| {
        loop {
            let (offset, num_contiguous) = locator.locate(piece.address)?;
            piece.at = offset;
            let num_rows = usize::try_from(num_contiguous.min(rows_max)).unwrap_or(usize::MAX);
            if num_rows >= piece.slot.num_rows() {
                break;
            }
            let rest = piece.split_off(num_rows)?;
            put(std::mem::replace(&mut piece, rest));
        }
        put(piece);
        Ok(())
    };
    let mut last: Option<Piece> = None;
    for (address, slot) in disjoint(column, runs)? {
        match &mut last {
            Some(piece) if piece.address == address => piece.copies.push(slot),
            _ => {
                let done = last.replace(Piece::new(address, 0, slot));
                done.map_or(Ok(()), &mut divide)?;
            }
        }
    }
    last.map_or(Ok(()), divide)
}

/// Sorts runs by address, and divides those that overlap, so that any two runs have the same rows or no row in common.
///
/// # Errors
/// [`Error::Internal`] for a run that crosses the end of a fragment's addresses, or whose slots do not have the size of
/// the column's rows.
pub(crate) fn disjoint(column: &DenseColumn, mut runs: Vec<RowRun>) -> Result<Vec<RowRun>> {
    for (address, slot) in &runs {
        check(column, *address, slot)?;
    }
    runs.sort_unstable_by_key(|(address, _)| *address);
    let mut ends = 0;
    let overlap = |pair: &[RowRun]| {
        let [one, next] = pair else { return false };
        ends = end(one).max(ends);
        next.0 < ends && (one.0, end(one)) != (next.0, end(next))
    };
    if !runs.windows(2).any(overlap) {
        return Ok(runs);
    }
    let mut borders: Vec<u64> = runs.iter().flat_map(|run| [run.0, end(run)]).collect();
    borders.sort_unstable();
    borders.dedup();
    let mut parts = Vec::with_capacity(runs.len());
    for (address, mut slot) in runs {
        let inside = borders.partition_point(|border| *border <= address);
        let past = borders.partition_point(|border| *border < address.saturating_add(slot.num_rows() as u64));
        for border in borders.get(inside..past).unwrap_or_default().iter().rev() {
            parts.push((*border, slot.split_off(to_usize(border - address))?));
        }
        parts.push((address, slot));
    }
    parts.sort_unstable_by_key(|(address, _)| *address);
    Ok(parts)
}

/// Moves the rows at addresses up to `last` from `runs`, which are sorted by address, to `taken`. A run that goes on
/// beyond `last` is divided.
pub(crate) fn take_until(runs: &mut VecDeque<RowRun>, last: u64, taken: &mut Vec<RowRun>) -> Result<()> {
    let mut left = Vec::new();
    while let Some(mut run) = runs.pop_front_if(|(address, _)| *address <= last) {
        if end(&run) - 1 > last {
            left.push((last + 1, run.1.split_off(to_usize(last - run.0 + 1))?));
        }
        taken.push(run);
    }
    // All other runs begin at or after the address of these parts.
    left.into_iter().for_each(|run| runs.push_front(run));
    Ok(())
}

/// Removes about `num_rows` rows from runs that [`disjoint`] returned, and returns them. The last run is divided if it
/// has more rows than are missing. Runs of the same rows stay together.
pub(crate) fn take_rows(runs: &mut VecDeque<RowRun>, num_rows: usize) -> Result<Vec<RowRun>> {
    let (mut taken, mut num_taken) = (Vec::new(), 0);
    while num_taken < num_rows
        && let Some((address, slot)) = runs.front()
    {
        let last = address.saturating_add(slot.num_rows().min(num_rows - num_taken) as u64 - 1);
        let before = taken.len();
        take_until(runs, last, &mut taken)?;
        num_taken += taken[before..].iter().map(|(_, slot)| slot.num_rows()).sum::<usize>();
    }
    Ok(taken)
}

fn check(column: &DenseColumn, address: u64, slot: &SlotMut) -> Result<()> {
    let num_rows = slot.num_rows();
    let last = address.checked_add(num_rows as u64 - 1);
    if last.is_none_or(|last| last >> 32 != address >> 32) {
        let reason = format!("the {num_rows} rows from address {address:#x} on are not in one fragment");
        return Err(Error::Internal { reason });
    }
    if slot.row_bytes() != column.row_bytes {
        let reason = format!("slots of {} bytes are for rows of {} bytes", slot.row_bytes(), column.row_bytes);
        return Err(Error::Internal { reason });
    }
    Ok(())
}

/// Returns the address after the last row of a run.
fn end((address, slot): &RowRun) -> u64 {
    address.saturating_add(slot.num_rows() as u64)
}
