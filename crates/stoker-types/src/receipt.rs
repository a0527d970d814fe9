//! Receipts: which positions a rank delivered, and a sum over their rows; and what receipts of all ranks say together.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{Digest, Error, Result, to_usize};

/// The version of the receipt document. A receipt without dropped rows is written as version 2, which older builds can
/// read.
pub const RECEIPT_VERSION: u32 = 3;

/// The oldest version that can be read.
pub const RECEIPT_VERSION_MIN: u32 = 2;

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
    /// The ends of epochs that [`LastBatch::Drop`](crate::LastBatch::Drop) left out.
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
    pub fn check(&self) -> Result<()> {
        let fail = |reason: String| Err(Error::Receipt { reason });
        if !(RECEIPT_VERSION_MIN..=RECEIPT_VERSION).contains(&self.version) {
            let known = format!("this build of Stoker reads {RECEIPT_VERSION_MIN} to {RECEIPT_VERSION}");
            return fail(format!("its version is {}; {known}", self.version));
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
        (start.saturating_add(lead)..end).step_by(to_usize(world))
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

/// What receipts prove about one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EpochVerdict {
    /// The epoch, from zero.
    pub epoch: u64,
    /// The number of rows in the epoch.
    pub num_rows: u64,
    /// Positions that no rank delivered.
    pub missing: Positions,
    /// Positions that were delivered more than once.
    pub repeated: Positions,
    /// Parts of receipts whose rows are not those of their positions.
    pub wrong: Vec<ReceiptPart>,
    /// Positions that were skipped on purpose.
    pub skipped: Positions,
    /// Positions at the end of the epoch that fill no global batch and were dropped.
    #[serde(default)]
    pub dropped: Positions,
    /// Bad rows that were replaced by other rows, in ascending order.
    pub substituted: Vec<SubstitutedRow>,
}

/// Some positions of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Positions {
    /// The number of positions.
    pub count: u64,
    /// The first runs of these positions, at most twenty.
    pub runs: Vec<Range<u64>>,
}

impl EpochVerdict {
    /// Returns whether every row was delivered exactly once, apart from rows that were skipped on purpose or dropped,
    /// and from bad rows.
    pub fn is_exactly_once(&self) -> bool {
        self.missing.count == 0 && self.repeated.count == 0 && self.wrong.is_empty()
    }
}

impl Positions {
    /// Adds a run of positions; beyond twenty runs, only their number is counted.
    pub fn push(&mut self, run: Range<u64>) {
        if run.is_empty() {
            return;
        }
        self.count += run.end - run.start;
        let is_full = self.runs.len() >= RUNS_MAX;
        match self.runs.last_mut().filter(|last| last.end == run.start) {
            Some(last) => last.end = run.end,
            None if is_full => {}
            None => self.runs.push(run),
        }
    }
}

impl fmt::Display for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs: Vec<String> = self.runs.iter().map(|run| format!("{}..{}", run.start, run.end)).collect();
        // A server may have sent runs that end before they start.
        let listed = self.runs.iter().fold(0, |sum: u64, run| sum.saturating_add(run.end.saturating_sub(run.start)));
        let more = if listed < self.count { ", …" } else { "" };
        write!(f, "{} positions: {}{more}", self.count, runs.join(", "))
    }
}

/// The largest number of runs of positions that a verdict lists.
const RUNS_MAX: usize = 20;
