//! Counts how often the parts of receipts deliver each position of an epoch.
//!
//! The parts are sorted. Then one pass goes over the positions, one window at a time. For n parts and N positions this
//! takes n log n + N steps, and one step for each position that a part claims. Receipts that claim too many positions
//! are refused.

use std::ops::Range;

use stoker_types::{Positions, ReceiptPart, Skipped, to_usize};

use crate::{Error, Result};

/// The number of positions that are counted at once. Each position takes one byte for its count and one for its marks.
const WINDOW: u64 = 1 << 20;

/// The largest number of times that the parts of one epoch may deliver it. No training job delivers it more often.
const DELIVERIES_MAX: u64 = 64;

/// The mark of a position that lies within the run of a part, which may be a part of another rank.
const TOUCHED: u8 = 1;
const SKIPPED: u8 = 2;
const DROPPED: u8 = 4;

/// The positions of an epoch that were not delivered exactly once.
#[derive(Default)]
pub(super) struct Coverage {
    pub(super) missing: Positions,
    pub(super) repeated: Positions,
    pub(super) skipped: Positions,
    pub(super) dropped: Positions,
}

/// Finds the positions that no part has, those that several parts have, and those that were left out on purpose.
///
/// # Errors
/// [`Error::Receipt`] for parts that deliver the epoch more often than training jobs do.
pub(super) async fn coverage(
    parts: &[&ReceiptPart],
    skips: &[&Skipped],
    drops: &[&Skipped],
    num_rows: u64,
) -> Result<Coverage> {
    check_claims(parts, num_rows)?;
    let within = |runs: &[&Skipped]| disjoint(runs.iter().map(|run| run.start..run.end.min(num_rows)).collect());
    let marks = [
        (TOUCHED, disjoint(parts.iter().map(|part| part.start..part.end).collect())),
        (SKIPPED, within(skips)),
        (DROPPED, within(drops)),
    ];
    let mut parts = parts.to_vec();
    parts.sort_unstable_by_key(|part| part.start);
    let mut found = Coverage::default();
    let mut open: Vec<&ReceiptPart> = Vec::new();
    let mut rest = parts.as_slice();
    for start in (0..num_rows).step_by(to_usize(WINDOW)) {
        let window = start..num_rows.min(start + WINDOW);
        let (begun, later) = rest.split_at(rest.partition_point(|part| part.start < window.end));
        rest = later;
        open.retain(|part| part.end > window.start);
        open.extend(begun);
        count(&mut found, &window, &open, &marks);
        // Other tasks run in between, and the count can be cancelled here if its client has disconnected.
        tokio::task::yield_now().await;
    }
    Ok(found)
}

fn check_claims(parts: &[&ReceiptPart], num_rows: u64) -> Result<()> {
    let claimed = parts.iter().map(|part| (part.end - part.start) / u64::from(part.world_size));
    let claimed: u64 = claimed.fold(0, u64::saturating_add);
    let limit = num_rows.saturating_mul(DELIVERIES_MAX);
    match claimed > limit {
        true => {
            let reason =
                format!("its parts name {claimed} positions in an epoch of {num_rows} rows; the limit is {limit}");
            Err(Error::Receipt { reason })
        }
        false => Ok(()),
    }
}

/// Counts the positions of a window. `parts` are all parts that have positions in it.
fn count(found: &mut Coverage, window: &Range<u64>, parts: &[&ReceiptPart], marks: &[(u8, Vec<Range<u64>>)]) {
    let place = |position: u64| to_usize(position - window.start);
    let mut counts = vec![0_u8; place(window.end)];
    let mut marked = vec![0_u8; place(window.end)];
    for part in parts {
        for position in part.positions_in(window) {
            counts[place(position)] = counts[place(position)].saturating_add(1);
        }
    }
    for (mark, runs) in marks {
        let first = runs.partition_point(|run| run.end <= window.start);
        for run in runs[first..].iter().take_while(|run| run.start < window.end) {
            let run = run.start.max(window.start)..run.end.min(window.end);
            marked[place(run.start)..place(run.end)].iter_mut().for_each(|marks| *marks |= mark);
        }
    }
    for ((count, marks), position) in counts.iter().zip(marked).zip(window.clone()) {
        let positions = match count {
            0 if marks & TOUCHED != 0 => &mut found.missing,
            0 if marks & SKIPPED != 0 => &mut found.skipped,
            0 if marks & DROPPED != 0 => &mut found.dropped,
            0 => &mut found.missing,
            1 => continue,
            _ => &mut found.repeated,
        };
        positions.push(position..position + 1);
    }
}

/// Returns the same positions as ascending runs that do not touch each other.
fn disjoint(mut runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
    runs.retain(|run| !run.is_empty());
    runs.sort_unstable_by_key(|run| run.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for run in runs {
        match merged.last_mut().filter(|last| run.start <= last.end) {
            Some(last) => last.end = last.end.max(run.end),
            None => merged.push(run),
        }
    }
    merged
}
