//! Receipts: which positions a rank delivered, and a sum over their rows.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use stoker_types::{Digest, LastBatch, Share, Slice};

use crate::{Batch, Error, Result, Substitution};

/// The version of the receipt document. One that names no dropped rows is written as version 2, which older builds read too.
pub const RECEIPT_VERSION: u32 = 3;

/// The oldest version that is read.
const RECEIPT_VERSION_MIN: u32 = 2;

/// What one rank delivered of one stream. JSON; the receipts of all ranks together prove that an epoch was seen exactly once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// From 2 to [`RECEIPT_VERSION`].
    pub version: u32,
    /// The stream id.
    pub stream_id: Digest,
    /// What was delivered, in order.
    pub parts: Vec<ReceiptPart>,
    /// What was skipped on purpose.
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

/// A bad row in whose place another one was delivered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubstitutedRow {
    /// The position that the bad row has in the order.
    pub position: u64,
    /// For each table of the stream, the address of the bad row; 2^64 − 1 where the table does not supply it.
    pub row_addrs: Vec<u64>,
    /// What is wrong with it.
    pub reason: String,
}

/// A run of positions of which one rank delivered its share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptPart {
    /// The epoch, from zero.
    pub epoch: u64,
    /// The position from which the ranks took turns: where the epoch or a resume began.
    pub origin: u64,
    /// The rank: it had the positions p with `(p - origin) mod world_size == rank`.
    pub rank: u32,
    /// Ranks in all.
    pub world_size: u32,
    /// The first position of the run.
    pub start: u64,
    /// The position after the run.
    pub end: u64,
    /// The sum of the hashes of the rows of the run modulo 2^128, see [`row_hash`], as 32 hexadecimal digits. Bad rows count, not
    /// those in their places.
    #[serde(with = "hex_u128")]
    pub sum: u128,
    /// Bad rows of the run, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub substituted: Vec<SubstitutedRow>,
}

/// Writes a receipt while a stream is read.
#[derive(Clone, Debug)]
pub struct ReceiptBuilder {
    slice: Slice,
    num_rows: u64,
    receipt: Receipt,
}

impl ReceiptBuilder {
    /// A receipt without parts.
    pub fn new(stream_id: Digest, slice: &Slice, num_rows: u64) -> Self {
        let (parts, skipped, dropped) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            slice: *slice,
            num_rows,
            receipt: Receipt { version: RECEIPT_VERSION_MIN, stream_id, parts, skipped, dropped },
        }
    }

    /// The rows of the slice in the global batch of a step.
    pub fn share(&self, step: u64) -> Share {
        self.slice.share(step, self.num_rows)
    }

    /// Notes a delivered batch of the slice. Padding is not noted.
    pub fn add(&mut self, batch: &Batch) {
        self.push(self.part(batch));
    }

    /// What a batch of the slice adds to the receipt once it is delivered; costs a hash for each row.
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

    /// Notes what [`ReceiptBuilder::part`] returned for the batch after the last one that was noted. After the last batch of the
    /// epoch, also what is dropped behind it.
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

    /// Notes the end of an epoch that has fewer rows than a global batch.
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

    /// What was delivered so far.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }
}

impl Receipt {
    /// The receipt as JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a receipt.
    ///
    /// # Errors
    /// [`Error::Receipt`] for text that is not one, one of another version, or with impossible numbers.
    pub fn from_json(json: &str) -> Result<Self> {
        let fail = |reason: String| Error::Receipt { reason };
        let receipt: Receipt = serde_json::from_str(json).map_err(|source| fail(source.to_string()))?;
        receipt.check()?;
        Ok(receipt)
    }

    /// Whether this build knows its version and its numbers are possible.
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
    /// The positions that the rank had, ascending.
    pub fn positions(&self) -> impl Iterator<Item = u64> + use<> {
        self.positions_in(&(self.start..self.end))
    }

    /// Those of the positions that lie in a window, ascending.
    pub fn positions_in(&self, window: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let (world, rank) = (u64::from(self.world_size), u64::from(self.rank));
        let (start, end) = (self.start.max(window.start), self.end.min(window.end));
        let behind = start.saturating_sub(self.origin) % world;
        let lead = (rank + world - behind) % world;
        (start.saturating_add(lead)..end).step_by(usize::try_from(world).unwrap_or(usize::MAX))
    }
}

/// The hash of a row by the addresses that its sources have for it, in order of sources: 128 bits, well mixed, not cryptographic.
///
/// Each half is a chain over the addresses, `h = mix(h ^ address)` with `mix` of SplitMix64, from two different seeds.
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

/// 128-bit numbers as hexadecimal text: JSON readers take numbers for floats.
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
