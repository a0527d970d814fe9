//! Receipts, which record the positions that a rank delivered and a sum over their rows.

use stoker_types::{
    Digest, LastBatch, RECEIPT_VERSION, RECEIPT_VERSION_MIN, Receipt, ReceiptPart, Share, Skipped, Slice,
    SubstitutedRow, row_hash,
};

use crate::{Batch, Substitution};

/// Builds a receipt while a stream is read.
#[derive(Clone, Debug)]
pub struct ReceiptBuilder {
    slice: Slice,
    num_rows: u64,
    receipt: Receipt,
}

impl ReceiptBuilder {
    /// Makes a receipt without parts.
    pub fn new(stream_id: Digest, slice: &Slice, num_rows: u64) -> Self {
        let (parts, skipped, dropped) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            slice: *slice,
            num_rows,
            receipt: Receipt { version: RECEIPT_VERSION_MIN, stream_id, parts, skipped, dropped },
        }
    }

    /// Returns the rank's share of the global batch of a step.
    pub fn share(&self, step: u64) -> Share {
        self.slice.share(step, self.num_rows)
    }

    /// Records a delivered batch of the slice. Padding is not recorded.
    pub fn add(&mut self, batch: &Batch) {
        self.push(self.part(batch));
    }

    /// Returns what a batch of the slice adds to the receipt once it is delivered. This computes a hash for each position:
    /// of the addresses of its row, or of the first row of its bucket.
    pub fn part(&self, batch: &Batch) -> ReceiptPart {
        let (num_valid, row_addrs, substituted) = match batch.buckets.as_deref() {
            None => (batch.num_valid, &batch.row_addrs, &batch.substituted),
            Some(buckets) => (buckets.num_valid, &buckets.row_addrs, &buckets.substituted),
        };
        let positions = self.slice.positions(batch.step, self.num_rows);
        let share = self.share(batch.step);
        let valid = substituted.iter().filter(|substitution| substitution.row < num_valid);
        let bad: Vec<&Substitution> = valid.collect();
        let substituted = bad.iter().map(|substitution| SubstitutedRow {
            position: share.position(substitution.row as u64),
            row_addrs: substitution.row_addrs.clone(),
            reason: substitution.reason.clone(),
        });
        let substituted: Vec<SubstitutedRow> = substituted.collect();
        let delivered = |row: usize| row_hash(row_addrs.iter().map(|addrs| addrs[row]));
        let mut sum = (0..num_valid).fold(0u128, |sum, row| sum.wrapping_add(delivered(row)));
        for substitution in bad {
            let wanted = row_hash(substitution.row_addrs.iter().copied());
            sum = sum.wrapping_sub(delivered(substitution.row)).wrapping_add(wanted);
        }
        ReceiptPart {
            epoch: self.slice.epoch,
            origin: self.slice.origin,
            rank: self.slice.topology.rank,
            world_size: self.slice.topology.world_size,
            start: positions.start,
            end: positions.end,
            sum,
            substituted,
        }
    }

    /// Records the result of [`ReceiptBuilder::part`] for the batch that follows the last recorded one. After the last
    /// batch of the epoch, it also records the rows that are dropped after it.
    pub fn push(&mut self, part: ReceiptPart) {
        let end = part.end;
        match self.receipt.parts.last_mut().filter(|last| last.end == part.start) {
            Some(last) => {
                last.end = part.end;
                last.sum = last.sum.wrapping_add(part.sum);
                last.substituted.extend(part.substituted);
            }
            None => self.receipt.parts.push(part),
        }
        let left = self.num_rows - end.min(self.num_rows);
        if self.slice.batching.last == LastBatch::Drop && left < self.slice.global_batch() {
            self.drop_from(end);
        }
    }

    /// Records the end of an epoch that has fewer rows than a global batch.
    pub fn end(&mut self) {
        if self.receipt.parts.is_empty() && self.slice.num_steps(self.num_rows) == 0 {
            self.drop_from(self.slice.origin);
        }
    }

    fn drop_from(&mut self, start: u64) {
        if start < self.num_rows && self.receipt.dropped.is_empty() {
            self.receipt.version = RECEIPT_VERSION;
            self.receipt.dropped.push(Skipped { epoch: self.slice.epoch, start, end: self.num_rows });
        }
    }

    /// Returns the receipt of everything that was delivered so far.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }
}
