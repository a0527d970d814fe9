//! The options that determine the order of a row set, together with the seed and the epoch.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The version of the order's definition (`crates/stoker-order/ORDER.md`). A change of any formula makes a new version.
pub const ORDER_VERSION: u32 = 1;

/// The largest number of lanes in a stream.
const NUM_LANES_MAX: u32 = 65_536;

/// How an epoch visits the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShuffleMode {
    /// Blocks are visited in random order, and rows are permuted inside windows of many blocks. Reads are sequential.
    Block,
    /// Rows are permuted uniformly. Reads are random.
    Full,
    /// Rows are visited in the order of the row set.
    Sequential,
}

impl ShuffleMode {
    /// Returns the mode's name in specifications and options.
    pub fn as_str(self) -> &'static str {
        match self {
            ShuffleMode::Block => "block",
            ShuffleMode::Full => "full",
            ShuffleMode::Sequential => "sequential",
        }
    }
}

/// The options of an order, frozen in a stream's specification. They are counts of rows, never of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderOptions {
    /// The version of the order's definition, [`ORDER_VERSION`].
    pub version: u32,
    /// The mode of shuffling.
    pub mode: ShuffleMode,
    /// The number of lanes over which the order is distributed, 1 to 65,536.
    pub num_lanes: u32,
    /// The number of neighbouring rows in a block, at least 1.
    pub rows_per_block: u64,
    /// The number of rows in a window of *one* lane, at least 1.
    pub rows_per_window: u64,
}

impl fmt::Display for OrderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, mode, num_lanes, rows_per_block, rows_per_window } = self;
        let mode = mode.as_str();
        write!(
            f,
            "shuffle {mode}, {num_lanes} lanes, {rows_per_block} rows per block, {rows_per_window} rows per window, \
             version {version}"
        )
    }
}

impl OrderOptions {
    /// Checks that all options are within their ranges.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] naming the option, its value and its range.
    pub fn validate(&self) -> Result<()> {
        let fail = |what, reason| Err(Error::InvalidValue { what, reason });
        if self.version != ORDER_VERSION {
            return fail("order version", format!("this build of Stoker reads {ORDER_VERSION}, not {}", self.version));
        }
        if self.num_lanes == 0 || self.num_lanes > NUM_LANES_MAX {
            return fail("num_lanes", format!("{} is not between 1 and {NUM_LANES_MAX}", self.num_lanes));
        }
        if self.rows_per_block == 0 {
            return fail("rows_per_block", "it must be at least 1".into());
        }
        if self.rows_per_window == 0 {
            return fail("rows_per_window", "it must be at least 1".into());
        }
        Ok(())
    }
}
