//! The receipts of a session over all of its passes.

use serde::{Deserialize, Serialize};
use stoker_types::{Digest, RECEIPT_VERSION_MIN, Receipt, ReceiptPart, Skipped, SubstitutedRow};

/// What finished passes delivered, and what was left out on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipts {
    version: u32,
    parts: Vec<ReceiptPart>,
    skipped: Vec<Skipped>,
    dropped: Vec<Skipped>,
}

/// A bad row that another row replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Substituted {
    /// The epoch, from zero.
    pub epoch: u64,
    /// The position of the bad row, its addresses, and what is wrong with it.
    #[serde(flatten)]
    pub row: SubstitutedRow,
}

impl Default for Receipts {
    /// Returns receipts without parts.
    fn default() -> Self {
        Self { version: RECEIPT_VERSION_MIN, parts: Vec::new(), skipped: Vec::new(), dropped: Vec::new() }
    }
}

impl Receipts {
    /// Adds what a pass delivered.
    pub fn add(&mut self, receipt: &Receipt) {
        self.version = self.version.max(receipt.version);
        self.parts.extend_from_slice(&receipt.parts);
        self.dropped.extend_from_slice(&receipt.dropped);
    }

    /// Records positions that are skipped on purpose.
    pub fn skip(&mut self, skipped: Skipped) {
        self.skipped.push(skipped);
    }

    /// Returns the receipt of all passes, with what the running pass delivered so far. Its version is the oldest one
    /// that can express it: a receipt without dropped rows can be read by older builds.
    pub fn document(&self, stream_id: Digest, running: Option<&Receipt>) -> Receipt {
        let mut all = self.clone();
        running.into_iter().for_each(|running| all.add(running));
        Receipt { version: all.version, stream_id, parts: all.parts, skipped: all.skipped, dropped: all.dropped }
    }
}

/// Returns the bad rows that a receipt names, in order of delivery.
pub fn substituted(receipt: Receipt) -> Vec<Substituted> {
    let of_part = |part: ReceiptPart| {
        let epoch = part.epoch;
        part.substituted.into_iter().map(move |row| Substituted { epoch, row })
    };
    receipt.parts.into_iter().flat_map(of_part).collect()
}
