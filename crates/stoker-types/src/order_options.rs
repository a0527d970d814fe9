//! The options that determine the order of a row set, together with the seed and the epoch.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::differences::Differences;
use crate::{Error, Result};

/// The largest number of lanes in a stream.
const NUM_LANES_MAX: u32 = 65_536;

/// The largest number of rows in a block of a delay line.
pub(crate) const BLOCK_ROWS_MAX: u64 = 1 << 40;

/// The largest number of super-strides that deliver one block.
pub(crate) const SUPER_STRIDES_MAX: u64 = 1 << 32;

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

/// How rows of different blocks are mixed. Each way is a version of the order's definition
/// (`crates/stoker-order/ORDER.md`). A change of any formula makes a new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mixing {
    /// Version 1: rows are permuted inside windows of each lane.
    Windows {
        /// The number of rows in a window of *one* lane, at least 1.
        rows_per_window: u64,
    },
    /// Version 2: each block is delivered piece by piece, beside pieces of the blocks that were opened before it.
    DelayLine {
        /// The number of super-strides of a lane that deliver one block, 1 to 2^32. No lane uses more of them than it
        /// has.
        super_strides_per_block: u64,
    },
}

impl Mixing {
    /// Returns the version of the order's definition.
    pub fn version(self) -> u32 {
        match self {
            Mixing::Windows { .. } => 1,
            Mixing::DelayLine { .. } => 2,
        }
    }
}

/// The options of an order, frozen in a stream's specification. They are counts of rows, never of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Document", into = "Document")]
pub struct OrderOptions {
    /// The mode of shuffling.
    pub mode: ShuffleMode,
    /// The number of lanes over which the order is distributed, 1 to 65,536.
    pub num_lanes: u32,
    /// The number of neighbouring rows in a block, at least 1.
    pub rows_per_block: u64,
    /// How rows of different blocks are mixed.
    pub mixing: Mixing,
}

/// The options as they are stored: one document for all versions, with the fields of each.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    mode: ShuffleMode,
    num_lanes: u32,
    rows_per_block: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rows_per_window: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    super_strides_per_block: Option<u64>,
}

impl From<OrderOptions> for Document {
    fn from(options: OrderOptions) -> Self {
        let OrderOptions { mode, num_lanes, rows_per_block, mixing } = options;
        let (rows_per_window, super_strides_per_block) = match mixing {
            Mixing::Windows { rows_per_window } => (Some(rows_per_window), None),
            Mixing::DelayLine { super_strides_per_block } => (None, Some(super_strides_per_block)),
        };
        let version = mixing.version();
        Self { version, mode, num_lanes, rows_per_block, rows_per_window, super_strides_per_block }
    }
}

impl TryFrom<Document> for OrderOptions {
    type Error = String;

    fn try_from(document: Document) -> std::result::Result<Self, String> {
        let Document { version, mode, num_lanes, rows_per_block, rows_per_window, super_strides_per_block } = document;
        let mixing = match (version, rows_per_window, super_strides_per_block) {
            (1, Some(rows_per_window), None) => Mixing::Windows { rows_per_window },
            (1, ..) => return Err("order version 1 has rows_per_window, and no super_strides_per_block".into()),
            (2, None, Some(super_strides_per_block)) => Mixing::DelayLine { super_strides_per_block },
            (2, ..) => return Err("order version 2 has super_strides_per_block, and no rows_per_window".into()),
            _ => return Err(format!("this build of Stoker reads the order versions 1 and 2, not {version}")),
        };
        Ok(Self { mode, num_lanes, rows_per_block, mixing })
    }
}

impl fmt::Display for OrderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, num_lanes, rows_per_block, mixing } = self;
        write!(f, "shuffle {}, {num_lanes} lanes, {rows_per_block} rows per block, ", mode.as_str())?;
        match mixing {
            Mixing::Windows { rows_per_window } => write!(f, "{rows_per_window} rows per window")?,
            Mixing::DelayLine { super_strides_per_block } => {
                write!(f, "{super_strides_per_block} super-strides per block")?;
            }
        }
        write!(f, ", version {}", self.version())
    }
}

impl OrderOptions {
    /// Adds a line for each option that was asked for by itself. The others follow from sizes in bytes and from those of
    /// rows.
    pub(crate) fn compare_asked(&self, other: &Self, found: &mut Differences<'_>) {
        found.check("shuffle", self.mode.as_str(), other.mode.as_str());
        found.check("num_lanes", self.num_lanes, other.num_lanes);
    }

    /// Returns the version of the order's definition.
    pub fn version(&self) -> u32 {
        self.mixing.version()
    }

    /// Returns whether the two differ in the version: the same mode over as many lanes, whose blocks and windows follow
    /// from the same options differently.
    pub fn is_other_version_of(&self, other: &Self) -> bool {
        (self.mode, self.num_lanes) == (other.mode, other.num_lanes) && self.version() != other.version()
    }

    /// Returns the number of rows in a window of one lane, or `None` for an order without windows.
    pub fn rows_per_window(&self) -> Option<u64> {
        match self.mixing {
            Mixing::Windows { rows_per_window } => Some(rows_per_window),
            Mixing::DelayLine { .. } => None,
        }
    }

    /// Returns the largest number of rows, over all lanes, that a reader of whole blocks holds for positions of an
    /// epoch of `num_rows` rows. For windows, it is one window; the window that is read ahead is as large. For a delay
    /// line, it contains the blocks that are read ahead.
    pub fn resident_rows(&self, num_rows: u64) -> u64 {
        let lane_rows = match self.mixing {
            Mixing::Windows { rows_per_window } => rows_per_window,
            Mixing::DelayLine { super_strides_per_block } => {
                let lane_blocks = num_rows / self.rows_per_block.max(1) / u64::from(self.num_lanes.max(1));
                lane_rows(self.rows_per_block, super_strides_per_block.min(lane_blocks.max(1)))
            }
        };
        lane_rows.saturating_mul(u64::from(self.num_lanes)).min(num_rows)
    }

    /// Checks that all options are within their ranges.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] naming the option, its value and its range.
    pub fn validate(&self) -> Result<()> {
        let fail = |what, reason| Err(Error::InvalidValue { what, reason });
        if self.num_lanes == 0 || self.num_lanes > NUM_LANES_MAX {
            return fail("num_lanes", format!("{} is not between 1 and {NUM_LANES_MAX}", self.num_lanes));
        }
        if self.rows_per_block == 0 {
            return fail("rows_per_block", "it must be at least 1".into());
        }
        match self.mixing {
            Mixing::Windows { rows_per_window: 0 } => fail("rows_per_window", "it must be at least 1".into()),
            Mixing::Windows { .. } => Ok(()),
            Mixing::DelayLine { .. } if self.rows_per_block > BLOCK_ROWS_MAX => {
                fail("rows_per_block", format!("{} is more than {BLOCK_ROWS_MAX}", self.rows_per_block))
            }
            Mixing::DelayLine { super_strides_per_block: strides } if strides == 0 || strides > SUPER_STRIDES_MAX => {
                fail("super_strides_per_block", format!("{strides} is not between 1 and {SUPER_STRIDES_MAX}"))
            }
            Mixing::DelayLine { .. } => Ok(()),
        }
    }
}

/// Returns the largest number of rows that a reader of whole blocks holds for one lane of a delay line whose blocks of
/// `block` rows are delivered in `strides` super-strides.
///
/// When a super-stride begins, the rows of the block that was opened `a` super-strides ago are those with a delay of at
/// least a: block - ⌈a * block / strides⌉. Over all a, they add up to (block * strides + block - strides + gcd) / 2. One
/// block of the rows that fill no whole block of each lane, and one block that is read ahead, are held beside them.
pub(crate) fn lane_rows(block: u64, strides: u64) -> u64 {
    let (b, s) = (u128::from(block), u128::from(strides));
    let open = (b * s + b + u128::from(gcd(block, strides)) - s) / 2;
    u64::try_from(open + 2 * b).unwrap_or(u64::MAX)
}

fn gcd(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}
