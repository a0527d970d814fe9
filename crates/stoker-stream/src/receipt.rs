//! Receipts, which record the positions that a rank delivered and a sum over their rows.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use stoker_types::{Digest, LastBatch, Share, Slice};

use crate::{Batch, Error, Result, Substitution};

/// The version of the receipt document. A receipt without dropped rows is written as version 2, which older builds can
/// read.
pub const RECEIPT_VERSION: u32 = 3;

/// The oldest version that can be read.
const RECEIPT_VERSION_MIN: u32 = 2;

/// The record of what one rank delivered of one stream, stored as JSON. The receipts of all ranks together prove that
/// every row of an epoch was delivered exactly once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The version of the document, from 2 to [`RECEIPT_VERSION`].
    pub version: u32,
    /// The stream id.
    pub stream_id: Digest,
    /// The delivered runs of positions, in order of delivery.
    pub parts: Vec<ReceiptPart>,
    /// The runs of positions that were skipped on purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// The ends of epochs that [`LastBatch::Drop`] left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Skipped>,
}

/// A run of positions that was skipped on purpose, or dropped at the end of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// The epoch, from zero.
    pub epoch: u64,
    /// The first position of the run.
    pub start: u64,
    /// The position after the run.
    pub end: u64,
}

/// A bad row that was replaced by another row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubstitutedRow {
    /// The position of the bad row in the order.
    pub position: u64,
    /// For each table of the stream, the address of the bad row, or 2^64 − 1 if the table does not supply it.
    pub row_addrs: Vec<u64>,
    /// What is wrong with the bad row.
    pub reason: String,
}

/// A run of positions of which one rank delivered its share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptPart {
    /// The epoch, from zero.
    pub epoch: u64,
    /// The position from which the positions were distributed over the ranks. It is the position at which the epoch or
    /// a resumption began.
    pub origin: u64,
    /// The rank. It delivered the positions p with `(p - origin) mod world_size == rank`.
    pub rank: u32,
    /// The number of ranks.
    pub world_size: u32,
    /// The first position of the run.
    pub start: u64,
    /// The position after the run.
    pub end: u64,
    /// The sum of the hashes of the rank's rows in the run modulo 2^128 (see [`row_hash`]), as 32 hexadecimal digits. A
    /// bad row is counted itself, not the row that replaced it.
    #[serde(with = "hex_u128")]
    pub sum: u128,
    /// The bad rows of the run, in ascending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub substituted: Vec<SubstitutedRow>,
}

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

    /// Returns what a batch of the slice adds to the receipt once it is delivered. This computes a hash for each row.
    pub fn part(&self, batch: &Batch) -> ReceiptPart {
        let positions = self.slice.positions(batch.step, self.num_rows);
        let share = self.share(batch.step);
        let valid = batch.substituted.iter().filter(|substitution| substitution.row < batch.num_valid);
        let bad: Vec<&Substitution> = valid.collect();
        let substituted = bad.iter().map(|substitution| SubstitutedRow {
            position: share.position(substitution.row as u64),
            row_addrs: substitution.row_addrs.clone(),
            reason: substitution.reason.clone(),
        });
        let substituted: Vec<SubstitutedRow> = substituted.collect();
        let delivered = |row: usize| row_hash(batch.row_addrs.iter().map(|addrs| addrs[row]));
        let mut sum = (0..batch.num_valid).fold(0u128, |sum, row| sum.wrapping_add(delivered(row)));
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

impl Receipt {
    /// Returns the receipt as JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a receipt from JSON text.
    ///
    /// # Errors
    /// [`Error::Receipt`] for text that is not a receipt, for a receipt of another version, and for one with impossible
    /// numbers.
    pub fn from_json(json: &str) -> Result<Self> {
        let fail = |reason: String| Error::Receipt { reason };
        let receipt: Receipt = serde_json::from_str(json).map_err(|source| fail(source.to_string()))?;
        receipt.check()?;
        Ok(receipt)
    }

    /// Checks that this build knows the receipt's version and that its numbers are possible.
    pub(crate) fn check(&self) -> Result<()> {
        let fail = |reason: String| Err(Error::Receipt { reason });
        if !(RECEIPT_VERSION_MIN..=RECEIPT_VERSION).contains(&self.version) {
            let known = format!("this build knows {RECEIPT_VERSION_MIN} to {RECEIPT_VERSION}");
            return fail(format!("its version is {}, {known}", self.version));
        }
        for part in &self.parts {
            if part.rank >= part.world_size || part.start > part.end || part.origin > part.start {
                return fail(format!("a part has impossible numbers: {part:?}"));
            }
        }
        Ok(())
    }
}

impl ReceiptPart {
    /// Returns the positions that the rank delivered, in ascending order.
    pub fn positions(&self) -> impl Iterator<Item = u64> + use<> {
        self.positions_in(&(self.start..self.end))
    }

    /// Returns those of the rank's positions that lie in `window`, in ascending order.
    pub fn positions_in(&self, window: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let (world, rank) = (u64::from(self.world_size), u64::from(self.rank));
        let (start, end) = (self.start.max(window.start), self.end.min(window.end));
        let behind = start.saturating_sub(self.origin) % world;
        let lead = (rank + world - behind) % world;
        (start.saturating_add(lead)..end).step_by(usize::try_from(world).unwrap_or(usize::MAX))
    }
}

/// Returns the hash of a row, computed from the addresses that its sources have for it, in the order of the sources. It
/// has 128 well-mixed bits and is not cryptographic.
///
/// Each half is a chain over the addresses, `h = mix(h ^ address)`, with the `mix` of SplitMix64. The two halves have
/// different seeds, and the second one rotates each address by 32 bits.
pub fn row_hash(addrs: impl Iterator<Item = u64>) -> u128 {
    let (low, high) = addrs.fold((0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344), |(low, high), addr| {
        (mix(low ^ addr), mix(high ^ addr.rotate_left(32)))
    });
    u128::from(high) << 64 | u128::from(low)
}

/// The finaliser of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Writes 128-bit numbers as hexadecimal text, because readers of JSON convert numbers to floating point.
mod hex_u128 {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(value: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{value:032x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map_err(de::Error::custom)
    }
}
