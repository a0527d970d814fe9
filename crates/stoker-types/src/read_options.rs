//! How a stream is read; no order depends on it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Error, Result, round_to_u32};

/// What happens to a row that is bad every time it is read: a row whose bytes do not have their checksum or, if the
/// consumer decodes images, a row with an image that cannot be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BadRows {
    /// The stream fails with an error that names the row.
    #[default]
    Error,
    /// The next good row of the same window replaces the bad row, the same one on every rank, and the batch lists the
    /// replacement.
    Substitute,
}

impl BadRows {
    /// Returns the policy's name in options.
    pub fn as_str(self) -> &'static str {
        match self {
            BadRows::Error => "error",
            BadRows::Substitute => "substitute",
        }
    }

    /// Returns the policy with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [BadRows::Error, BadRows::Substitute].into_iter().find(|bad_rows| bad_rows.as_str() == name)
    }
}

/// The codec of Arrow's IPC format that compresses the bodies of record batches between a server and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// LZ4 frames, which take little processor time.
    Lz4,
    /// Zstandard, which makes messages smaller than LZ4 for more processor time.
    Zstd,
}

impl Compression {
    /// Returns the codec's name in options.
    pub fn as_str(self) -> &'static str {
        match self {
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// Returns the codec with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Compression::Lz4, Compression::Zstd].into_iter().find(|compression| compression.as_str() == name)
    }
}

/// How a stream is read. These options do not affect the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadOptions {
    /// The policy for bad rows. The default is [`BadRows::Error`].
    pub bad_rows: BadRows,
    /// The largest share of the rows of a window that may be bad and replaced. The default is one in a hundred; 16 rows
    /// are always allowed.
    pub max_bad_share: BadShare,
    /// Whether the checksums of heavy columns are verified. The default is `true`.
    pub verify: bool,
    /// The retry budget: for how long a read is retried after transient faults without progress, and for how long a
    /// client continues without a batch from any server. The default is the time limit of the connection's calls, or
    /// 120 s.
    pub retry_budget: Option<Duration>,
    /// The largest size of all batches that are being filled or wait for the consumer, in bytes. The default is 1 GiB.
    /// The stream may get less if it shares a memory budget with others.
    pub memory_budget_bytes: u64,
    /// The number of threads that read from local disks. The default is the number of cores, but at most 16. The
    /// runtime's own threads read what is in the page cache. The number is not serialized: it belongs to the machine.
    #[serde(skip)]
    pub io_threads: usize,
    /// Whether the stream only prefetches until it is told to begin
    /// (`BatchStream::begin`). It then reads its first batch. It reads more only within a
    /// sixteenth of its budget, or, once all other open streams have read everything, within the memory that they
    /// leave; windows that are read as a whole must fit there as a whole. It reads nothing if its first batch is large
    /// and would take a request for each row.
    pub ahead: bool,
    /// Whether a prefetching stream reads its first batch only, however much memory is free. A client of a server
    /// requests the other batches in another call.
    pub first_batch_only: bool,
    /// The codec that compresses the messages of a server. The default is none. A stream in this process has no
    /// messages and ignores it.
    pub compression: Option<Compression>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            bad_rows: BadRows::Error,
            max_bad_share: BadShare::default(),
            verify: true,
            retry_budget: None,
            memory_budget_bytes: 1 << 30,
            io_threads: threads.clamp(1, 16),
            ahead: false,
            first_batch_only: false,
            compression: None,
        }
    }
}

/// The number of rows of a window that may always be bad, however large their share is.
const ROWS_MIN: u64 = 16;

/// The unit of shares: they are counted in millionths.
const WHOLE: u32 = 1_000_000;

/// The largest share of the rows of a window that may be bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct BadShare(u32);

impl BadShare {
    /// All rows of a window may be bad.
    pub const ALL: BadShare = BadShare(WHOLE);

    /// Makes a share from a number from 0 to 1, rounded to a millionth. 16 rows of a window may be bad whatever the
    /// share is.
    ///
    /// # Errors
    /// `InvalidValue` for other numbers.
    pub fn try_new(share: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&share) {
            let reason = format!("it is {share}; it must be from 0 to 1");
            return Err(Error::InvalidValue { what: "max_bad_share", reason });
        }
        Ok(Self(round_to_u32(share * f64::from(WHOLE))))
    }

    /// Returns the share, from 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// Returns how many of `num_rows` rows may be bad.
    pub fn rows_of(self, num_rows: u64) -> u64 {
        let rows = u128::from(num_rows) * u128::from(self.0) / u128::from(WHOLE);
        ROWS_MIN.max(u64::try_from(rows).unwrap_or(u64::MAX))
    }
}

impl TryFrom<f64> for BadShare {
    type Error = Error;

    fn try_from(share: f64) -> Result<Self> {
        Self::try_new(share)
    }
}

impl From<BadShare> for f64 {
    fn from(share: BadShare) -> f64 {
        share.share()
    }
}

impl Default for BadShare {
    /// Returns one in a hundred.
    fn default() -> Self {
        Self(WHOLE / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::BadShare;

    #[test]
    fn shares_are_of_windows_and_sixteen_rows_are_always_allowed() {
        let share = |share| BadShare::try_new(share).expect("a share");
        assert_eq!(
            [0, 100, 1_600, 1_700, 100_000].map(|rows| BadShare::default().rows_of(rows)),
            [16, 16, 16, 17, 1_000]
        );
        assert_eq!((share(0.0).rows_of(u64::MAX), share(0.5).rows_of(100)), (16, 50));
        assert_eq!((share(1.0), BadShare::ALL.rows_of(u64::MAX)), (BadShare::ALL, u64::MAX));
        assert_eq!(share(0.25).share(), 0.25);
        for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(BadShare::try_new(wrong).expect_err("no share").to_string().contains("max_bad_share"));
        }
    }
}
