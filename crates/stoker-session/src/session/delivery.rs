//! The receipt of an open stream, for the batches that the consumer got.

use std::collections::VecDeque;

use stoker_batch::ReceiptBuilder;
use stoker_types::{Receipt, ReceiptPart, Share};

/// The batches of an open stream that the consumer got, and those that it has not got yet. A batch that was read may
/// still wait for its copy to a device, or be dropped by Ctrl-C, before the consumer gets it.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    receipt: ReceiptBuilder,
    /// The steps that were read and that the consumer has not got yet, each with its part of the receipt.
    pending: VecDeque<(u64, ReceiptPart)>,
    /// Whether the stream has ended.
    is_ended: bool,
}

impl Delivery {
    /// Makes the delivery of a stream that was just opened.
    pub fn new(receipt: ReceiptBuilder) -> Self {
        Self { receipt, pending: VecDeque::new(), is_ended: false }
    }

    /// Records that a batch was read. Returns the rank's share of its positions.
    pub fn read(&mut self, step: u64, part: ReceiptPart) -> Share {
        self.pending.push_back((step, part));
        self.receipt.share(step)
    }

    /// Records that the stream has ended.
    pub fn end(&mut self) {
        self.is_ended = true;
        self.close_if_ended();
    }

    /// Whether the stream has ended.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Records that the consumer got all steps before `step`.
    pub fn got(&mut self, step: u64) {
        while let Some((_, part)) = self.pending.pop_front_if(|(first, _)| *first < step) {
            self.receipt.push(part);
        }
        self.close_if_ended();
    }

    /// Returns the receipt of the batches that the consumer got.
    pub fn receipt(&self) -> &Receipt {
        self.receipt.receipt()
    }

    fn close_if_ended(&mut self) {
        if self.is_ended && self.pending.is_empty() {
            self.receipt.end();
        }
    }
}
