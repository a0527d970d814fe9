//! The memory of the parts of a stream: how much of it the stream wants, and what the stream waits for before a part is
//! opened.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use stoker_types::to_usize;

use crate::Result;
use crate::part_plan::PartPlan;
use crate::planner::Planner;
use crate::source::ColumnPlan;

/// The bytes of parts of resident rows that are open at once, unless a part is larger. As many may wait for the
/// consumer.
const RESIDENT_PARTS_BYTES: u64 = 16 << 20;

/// The parts that each stream may have open or waiting, where the streams of a process share these bytes.
const RESIDENT_PARTS: u64 = 4;

/// The size from which on the memory of a part is waited for, in bytes.
const LARGE_PART_BYTES: u64 = 16 << 20;

/// How long that memory is waited for after the consumer has taken all batches: as long as it came the last time, or
/// was not waited for yet, and otherwise. A loop on a busy machine may take long to drop a batch, and a consumer that
/// keeps its batches never does.
const DROPPED_WITHIN: Duration = Duration::from_millis(250);
const KEPT_FOR: Duration = Duration::from_millis(25);

impl Planner {
    /// Returns whether a part of resident rows is opened while other parts are open. It is copied so fast that nobody
    /// waits for it, so only small parts are.
    pub(super) fn opens_beside(&self, part: &PartPlan) -> bool {
        let held: u64 = self.held.iter().map(|(_, held)| held.bytes()).sum();
        let wanted = part.num_rows().saturating_mul(self.plan.row_bytes());
        self.builders.is_empty() || held.saturating_add(wanted) <= RESIDENT_PARTS_BYTES
    }

    /// Waits for the memory of a batch that the consumer is about to drop, if a large part would take new memory
    /// otherwise: a loop drops a batch when it gets the next one. A consumer that still has batches to take needs no
    /// other soon, and neither does one that has not begun: the epoch before it ends, and releases its memory.
    pub(super) async fn until_dropped(&mut self, part: &PartPlan) {
        let row_bytes = self.plan.inner.columns().iter().filter_map(ColumnPlan::dense_row_bytes).max().unwrap_or(0);
        let bytes = to_usize(part.num_rows()).saturating_mul(row_bytes);
        // The parts of a window are opened together, before its rows are read.
        if (bytes as u64) < LARGE_PART_BYTES || self.depth.is_none() {
            return;
        }
        let until_free = pin!(self.scan.pool().until_free(bytes));
        if !self.quota.has_begun() {
            if self.scan.pool().used_bytes() >= bytes {
                select(until_free, pin!(self.quota.until_begun())).await;
            }
            return;
        }
        let num_untaken = self.builders.len() + self.output.max_capacity() - self.output.capacity();
        let num_taken = self.num_opened.saturating_sub(num_untaken as u64);
        // With the first batch, a loop drops the last one of the epoch before.
        let holds_another = || self.scan.pool().used_bytes() >= bytes.saturating_mul(num_untaken + 2);
        if num_taken >= 2 || num_taken == 1 && holds_another() {
            let patience = if self.keeps_batches { KEPT_FOR } else { DROPPED_WITHIN };
            let pause = async {
                self.output.reserve_many(self.output.max_capacity()).await.ok();
                self.scan.clock().sleep(patience).await;
            };
            self.keeps_batches = matches!(select(until_free, pin!(pause)).await, Either::Right(_));
        }
    }

    /// Reserves memory for a part and waits for it. Returns `false` if all of the stream's memory is held by parts that
    /// cannot be delivered before this one, because only further reads release that memory.
    pub(super) async fn reserve(&mut self, part: &PartPlan) -> Result<bool> {
        let wanted = part.num_rows().saturating_mul(self.plan.row_bytes());
        let held = loop {
            let held = self.quota.try_reserve(wanted);
            if held.is_some() || self.reading.is_empty() {
                break held;
            }
            // Parts that are being read hold the memory. They are delivered first, and the consumer releases their
            // memory by taking them.
            self.deliver_oldest().await?;
        };
        let held = match held {
            Some(held) => Some(held),
            None => {
                let kept: u64 = self.held.iter().map(|(_, held)| held.bytes()).sum();
                self.quota.reserve_beside(wanted, kept).await
            }
        };
        let is_there = held.is_some();
        self.held.extend(held.map(|held| (part.number, held)));
        Ok(is_there)
    }

    /// Adapts how far the stream reads ahead after a unit of `num_bytes`. `is_late` says whether the consumer waited
    /// for storage.
    pub(super) fn learn(&mut self, num_bytes: u64, is_late: bool) {
        if let Some(depth) = &mut self.depth {
            depth.read(num_bytes, is_late, self.scan.clock().now(), self.scan.latency());
            self.plan.inner.depths.keep(self.slice.topology, depth);
        }
        self.follow_depth();
    }

    /// Reads ahead as far as the depth says: blocks of resident rows, otherwise batches.
    pub(super) fn follow_depth(&mut self) {
        let Some(depth) = &self.depth else { return };
        let Some(memory) = &self.resident_memory else {
            self.quota.set_depth(depth.bytes());
            return;
        };
        if let Some(resident) = &mut self.resident {
            resident.read_ahead(depth.bytes());
        }
        // Parts of resident rows are copied so fast that few of them need to be ready.
        let row_bytes = self.plan.row_bytes();
        let part_rows = self.slice.rows_per_batch().min(self.part_size.rows_max(row_bytes));
        let least = part_rows.saturating_mul(row_bytes).saturating_mul(RESIDENT_PARTS);
        self.quota.set_depth(memory.share_of(RESIDENT_PARTS_BYTES * 2).max(least));
    }
}
