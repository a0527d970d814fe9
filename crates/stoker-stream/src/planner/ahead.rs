//! The phase in which a stream is opened, and what a prefetching stream waits for before it reads its next unit.

use crate::Result;
use crate::phase::{FirstBatch, FirstUnit, Pause, Phase};
use crate::planner::Planner;
use crate::unit::Units;

/// The bytes that the streams before a prefetching one may hold, on average, when it reads its first resident rows.
const RESIDENT_BYTES_BEFORE: u64 = 48 << 20;

impl Planner {
    /// Returns the phase in which the stream begins to read.
    pub(super) fn opened(&self, units: &Units, unit: FirstUnit, by_window: bool) -> Phase {
        let first = FirstBatch { end: units.batch_end(), unit };
        if self.quota.has_begun() {
            return Phase::opened(first);
        }
        let pause = match () {
            // The rows of shared blocks are kept for this stream until it requests them once, so that rows that it
            // prefetches and drops would be lost. If only the first batch is wanted, nobody takes what is read after
            // it.
            () if self.shared.is_some() || self.options.first_batch_only => Some(Pause::UntilBegun),
            // Blocks are opened by super-strides, whatever memory there is.
            () if self.resident_memory.is_some() => Some(Pause::UntilBegun),
            () if by_window => Some(Pause::UntilRoom),
            () => None,
        };
        let unit = match unit {
            // A prefetched batch may be dropped and read again by another stream, so the first unit has this batch
            // only.
            FirstUnit::Window if self.block_reads(false).is_some() => FirstUnit::Batch,
            unit => unit,
        };
        let has_room = || pause.is_none_or(|pause| self.reads_ahead(pause, units));
        Phase::opened_ahead(FirstBatch { unit, ..first }, pause, has_room)
    }

    /// Waits until the next unit may be read. Returns the phase in which it is read.
    pub(super) async fn ready(&mut self, phase: Phase, units: &Units, looks_up: bool) -> Result<Phase> {
        Ok(match phase {
            Phase::HeldBack { .. } => {
                self.quota.hold_back().await;
                phase.begun().read_up_to(units.position())
            }
            Phase::Ahead(_) if self.quota.has_begun() => phase.begun(),
            Phase::Ahead(_) if self.resident_memory.is_some() => {
                self.deliver_all().await?;
                tokio::select! {
                    () = self.quota.until_others_hold_at_most(RESIDENT_BYTES_BEFORE) => {}
                    () = self.quota.until_begun() => {}
                }
                let unit = units.next(&self.order, self.quota.bytes(), None);
                // Blocks that ranks share would be lost to them if this stream were dropped before it begins.
                if let Some(unit) = unit.filter(|_| self.shared.is_none()) {
                    // The streams before this one have delivered most of their rows. Their memory is released while
                    // this one reads its first blocks.
                    self.resident_rows(&unit)?.begin(&unit);
                }
                self.quota.until_begun().await;
                phase
            }
            Phase::Ahead(pause) if !self.reads_ahead(pause, units) => {
                if let Some(unit) = units.next(&self.order, self.quota.bytes(), None).filter(|_| looks_up) {
                    self.look_up(&unit);
                }
                self.deliver_all().await?;
                self.wait_ahead(pause, units).await;
                phase
            }
            Phase::Ahead(_) | Phase::FirstAhead { .. } | Phase::First(_) | Phase::Steady => phase,
        })
    }

    /// Returns whether a prefetching stream reads the next unit now, because there is memory for all of it.
    fn reads_ahead(&self, pause: Pause, units: &Units) -> bool {
        self.ahead_bytes(pause, units).is_some_and(|bytes| self.quota.has_room_ahead(bytes))
    }

    /// Returns the bytes of the next unit, if a prefetching stream reads it as soon as there is memory.
    fn ahead_bytes(&self, pause: Pause, units: &Units) -> Option<u64> {
        match pause {
            Pause::UntilRoom => units.next_bytes(&self.order, self.quota.bytes()),
            Pause::UntilBegun => None,
        }
    }

    /// Waits until the stream begins, or until the streams before it leave memory for its next unit.
    async fn wait_ahead(&self, pause: Pause, units: &Units) {
        while !self.quota.has_begun() && !self.reads_ahead(pause, units) {
            match self.ahead_bytes(pause, units) {
                Some(bytes) => tokio::select! {
                    () = self.quota.until_begun() => {}
                    () = self.quota.until_room_ahead(bytes) => {}
                },
                None => self.quota.until_begun().await,
            }
        }
    }
}
