//! Which rows a stream reads when a super-stride begins, and when they are due.

use std::collections::BTreeMap;
use std::ops::Range;

use stoker_order::{BlockPiece, SuperStride};

use crate::resident::Shared;

/// Neighbouring rows of a block that are to be read and are due in the same super-stride.
pub(super) struct DueRows {
    pub due: u64,
    pub ordinals: Range<u64>,
}

impl Shared {
    /// Returns the pieces that were opened before a super-stride, by the super-stride in which each is read.
    pub(super) fn pending(&self, number: u64) -> BTreeMap<u64, Vec<BlockPiece>> {
        let mut pending: BTreeMap<u64, Vec<BlockPiece>> = BTreeMap::new();
        for lane in &self.lanes {
            for piece in self.line.pending(SuperStride { lane: *lane, number }) {
                let dues = self.line.deliveries(piece.block).filter(|(stride, ordinals)| {
                    stride.number >= number && !overlap(ordinals, &piece.ordinals).is_empty()
                });
                if let Some(due) = dues.map(|(stride, _)| stride.number).min() {
                    pending.entry(due).or_default().push(piece);
                }
            }
        }
        pending
    }

    /// Returns what is read when a super-stride begins, by ascending ordinals.
    pub(super) fn runs(&self, number: u64, pending: Vec<BlockPiece>) -> Vec<DueRows> {
        let opened = self.lanes.iter().flat_map(|lane| self.line.arrivals(SuperStride { lane: *lane, number }));
        let mut runs = Vec::new();
        for piece in pending.into_iter().chain(opened) {
            for (stride, ordinals) in self.line.deliveries(piece.block) {
                let ordinals = overlap(&ordinals, &piece.ordinals);
                if stride.number < number || ordinals.is_empty() {
                    continue;
                }
                self.add_needed(stride.number, ordinals, &mut runs);
            }
        }
        runs.sort_unstable_by_key(|run| run.ordinals.start);
        runs
    }

    /// Adds those rows of a delivery that this rank wants.
    fn add_needed(&self, due: u64, ordinals: Range<u64>, runs: &mut Vec<DueRows>) {
        let delivered = self.line.positions(due);
        if self.owns_lanes && self.positions.start <= delivered.start && delivered.end <= self.positions.end {
            runs.push(DueRows { due, ordinals });
            return;
        }
        for (ordinal, position) in ordinals.clone().zip(self.line.positions_of(ordinals)) {
            if !self.positions.contains(&position) || !self.slice.takes(position) {
                continue;
            }
            match runs.last_mut().filter(|run| run.due == due && run.ordinals.end == ordinal) {
                Some(run) => run.ordinals.end += 1,
                None => runs.push(DueRows { due, ordinals: ordinal..ordinal + 1 }),
            }
        }
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}
