//! What a stream is planned from.

use std::ops::RangeInclusive;

use crate::order_options::{BLOCK_ROWS_MAX, SUPER_STRIDES_MAX, lane_rows};
use crate::{
    BucketOptions, Error, Mixing, MixtureStop, OrderOptions, PackOptions, ParamValue, Result, RunId, ShuffleMode,
    slots_for,
};

/// A sample query as it was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The text of the query.
    pub sql: String,
    /// The positional parameters.
    pub params: Vec<ParamValue>,
}

impl Query {
    /// Makes a query from its text and parameters.
    pub fn new(sql: impl Into<String>, params: &[ParamValue]) -> Self {
        Self { sql: sql.into(), params: params.to_vec() }
    }
}

/// How several queries are mixed into one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct MixOptions {
    /// The weight of each query. Weights need not add up to one.
    pub weights: Vec<f64>,
    /// What ends an epoch.
    pub stop: MixtureStop,
    /// The number of rows in an epoch, for [`MixtureStop::Rows`].
    pub epoch_rows: u64,
}

/// A request to plan a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRequest {
    /// The query of the stream, or the queries of its mixture.
    pub queries: Vec<Query>,
    /// How several queries are mixed into one stream, or `None` for one query.
    pub mix: Option<MixOptions>,
    /// The options that determine the order.
    pub options: StreamOptions,
    /// The run, if there is one. All its processes get the same stream, whichever of them plans it first.
    pub run_id: Option<RunId>,
}

impl PlanRequest {
    /// Makes a request for a stream of one query.
    pub fn new(query: Query, options: StreamOptions) -> Self {
        Self { queries: vec![query], mix: None, options, run_id: None }
    }

    /// Checks everything that can be checked without the lake.
    ///
    /// # Errors
    /// `InvalidValue` naming the option.
    pub fn validate(&self) -> Result<()> {
        let fail = |what, reason: String| Err(Error::InvalidValue { what, reason });
        let StreamOptions { shuffle_window_bytes, block_bytes, num_lanes, .. } = &self.options;
        let numbers = [
            ("shuffle_window_bytes", shuffle_window_bytes.unwrap_or(1)),
            ("block_bytes", *block_bytes),
            ("num_lanes", u64::from(*num_lanes)),
        ];
        if let Some((what, _)) = numbers.into_iter().find(|(_, value)| *value == 0) {
            return fail(what, "it is 0; it must be at least 1".into());
        }
        if let Some(version) = self.options.order_version.filter(|version| !ORDER_VERSIONS.contains(version)) {
            return fail("order_version", format!("it is {version}; it must be 1 or 2"));
        }
        if self.options.weight.as_deref() == Some("") {
            return fail("weight", "it is empty; name a column of the query".into());
        }
        if let Some(pack) = &self.options.pack {
            pack.validate()?;
            if self.options.weight.is_some() {
                return fail("pack", "rows with weights cannot be packed; leave weight or pack out".into());
            }
        }
        if let Some(bucket) = &self.options.bucket {
            bucket.validate()?;
            if self.options.weight.is_some() {
                // docs/decisions.md: Rows with weights have no buckets
                let reason = "each epoch draws rows of other lengths by their weights, and would have another number of \
                              buckets; leave weight or bucket out, or mix queries (stoker.mix), each with its share of \
                              the buckets";
                return fail("bucket", reason.into());
            }
            if self.options.pack.is_some() {
                return fail("bucket", "packs have one length and need no buckets; leave pack or bucket out".into());
            }
        }
        match &self.mix {
            None if self.queries.len() == 1 => Ok(()),
            None => fail("queries", format!("{} queries need weights to become one stream", self.queries.len())),
            Some(mix) => {
                let slots = slots_for(&mix.weights)?;
                if slots.len() != self.queries.len() {
                    return fail("weights", format!("{} weights for {} queries", slots.len(), self.queries.len()));
                }
                match mix.stop == MixtureStop::Rows && mix.epoch_rows == 0 {
                    true => fail("epoch_rows", "an epoch needs at least one row".into()),
                    false => Ok(()),
                }
            }
        }
    }
}

/// The options that determine the order of a stream, together with its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// The seed. The default is 0.
    pub seed: u64,
    /// The mode of shuffling. The default is [`ShuffleMode::Block`].
    pub shuffle: ShuffleMode,
    /// The bytes within which rows are mixed, of all lanes together, for any number of ranks. The default is 160 MiB, and
    /// 512 MiB for version 1 of the order.
    pub shuffle_window_bytes: Option<u64>,
    /// The size of a block of neighbouring rows, in bytes. The default is 512 KiB.
    pub block_bytes: u64,
    /// The number of lanes. The default is 48. If the number of ranks divides it, the cluster reads each byte once per
    /// epoch.
    pub num_lanes: u32,
    /// The version of the order's definition, 1 or 2. By default, the version of the run if it exists; otherwise 2 if rows
    /// are shuffled in blocks and a delay line does not hold all of them, and else 1. Mixtures always have version 1.
    pub order_version: Option<u32>,
    /// The column of each query that tells how often its rows come in an epoch, on average. By default, each row comes
    /// once.
    pub weight: Option<String>,
    /// How the rows of each query are packed into sequences. By default, each row is delivered alone.
    pub pack: Option<PackOptions>,
    /// How rows of similar length are grouped into buckets. By default, each row is delivered alone.
    pub bucket: Option<BucketOptions>,
}

/// The versions of the order's definition ([`Mixing`]).
const ORDER_VERSIONS: RangeInclusive<u32> = 1..=2;

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            shuffle: ShuffleMode::Block,
            shuffle_window_bytes: None,
            block_bytes: 512 << 10,
            num_lanes: 48,
            order_version: None,
            weight: None,
            pack: None,
            bucket: None,
        }
    }
}

/// The bytes of the windows of all lanes together by default.
pub const WINDOW_BYTES: u64 = 512 << 20;

/// The bytes that a delay line holds by default, over all lanes.
pub const DELAY_LINE_BYTES: u64 = 160 << 20;

/// The number of blocks that the windows of all lanes should hold together. More blocks do not mix rows noticeably
/// better.
const BLOCKS_PER_WINDOW: u64 = 1_024;

impl StreamOptions {
    /// Converts sizes in bytes to numbers of rows. This happens once, because the result is frozen in the stream's
    /// specification.
    pub fn order(&self, num_rows: u64, row_bytes: u64) -> OrderOptions {
        self.order_of_groups(num_rows, row_bytes, 1)
    }

    /// As [`StreamOptions::order`], for rows of which `group_rows` neighbours are read together, such as the packs of a
    /// group. Blocks of a delay line have whole groups if the bytes that it may hold allow it.
    pub fn order_of_groups(&self, num_rows: u64, row_bytes: u64, group_rows: u64) -> OrderOptions {
        let is_line = match self.order_version {
            None => self.shuffle == ShuffleMode::Block && !self.fits_delay_line(num_rows, row_bytes),
            Some(version) => version > 1,
        };
        match is_line {
            true => self.delay_line_of_groups(num_rows, row_bytes, group_rows),
            false => self.windows(num_rows, row_bytes),
        }
    }

    /// Returns whether a delay line would hold all rows. One window takes no more memory then, and fewer requests.
    fn fits_delay_line(&self, num_rows: u64, row_bytes: u64) -> bool {
        let lanes = u64::from(self.num_lanes.max(1));
        let rows = num_rows.div_ceil(lanes).saturating_mul(lanes);
        rows.saturating_mul(row_bytes.max(1)) <= self.shuffle_window_bytes.unwrap_or(DELAY_LINE_BYTES)
    }

    /// Converts sizes in bytes to the options of windows, which have [`StreamOptions::shuffle_window_bytes`] for all
    /// lanes together.
    ///
    /// Row sets that are smaller than the windows get smaller blocks, so that their rows mix equally well.
    pub fn windows(&self, num_rows: u64, row_bytes: u64) -> OrderOptions {
        let row_bytes = row_bytes.max(1);
        let bytes = self.shuffle_window_bytes.unwrap_or(WINDOW_BYTES);
        let window = (bytes / row_bytes / u64::from(self.num_lanes.max(1))).max(1);
        let reach = num_rows.min(window.saturating_mul(u64::from(self.num_lanes))).div_ceil(BLOCKS_PER_WINDOW);
        OrderOptions {
            mode: self.shuffle,
            num_lanes: self.num_lanes,
            rows_per_block: (self.block_bytes / row_bytes).min(reach).max(1),
            mixing: Mixing::Windows { rows_per_window: window },
        }
    }

    /// Converts sizes in bytes to the options of a delay line that holds at most
    /// [`StreamOptions::shuffle_window_bytes`] for all lanes together, the blocks that are read ahead included.
    ///
    /// Blocks are smaller where few of them would be open otherwise, or where the row set would have few of them. If
    /// blocks would have less than two rows, they have one row each, which needs no delay, however few bytes may be
    /// held.
    pub fn delay_line(&self, num_rows: u64, row_bytes: u64) -> OrderOptions {
        self.delay_line_of_groups(num_rows, row_bytes, 1)
    }

    fn delay_line_of_groups(&self, num_rows: u64, row_bytes: u64, group_rows: u64) -> OrderOptions {
        let (row_bytes, lanes) = (row_bytes.max(1), u64::from(self.num_lanes.max(1)));
        let budget = self.shuffle_window_bytes.unwrap_or(DELAY_LINE_BYTES) / row_bytes / lanes;
        let strides_wanted = BLOCKS_OPEN.div_ceil(lanes);
        // A lane holds about (strides + 5) / 2 blocks.
        let block_max = (u128::from(budget) * 2 / u128::from(strides_wanted + 5)).try_into().unwrap_or(u64::MAX);
        let block = (self.block_bytes / row_bytes).min(num_rows.div_ceil(BLOCKS_PER_TABLE)).min(block_max);
        let block = whole_groups(block.clamp(1, BLOCK_ROWS_MAX), group_rows, budget);
        let lane_blocks = (num_rows / block / lanes).clamp(1, SUPER_STRIDES_MAX);
        OrderOptions {
            mode: self.shuffle,
            num_lanes: self.num_lanes,
            rows_per_block: block,
            mixing: Mixing::DelayLine { super_strides_per_block: strides_within(budget, block).min(lane_blocks) },
        }
    }
}

/// The number of blocks that a delay line should have open over all lanes. More blocks mix rows little better, and
/// smaller blocks take more requests.
const BLOCKS_OPEN: u64 = 768;

/// The number of blocks that a row set should have for a delay line, so that the rows of small ones mix well over many
/// ranks.
const BLOCKS_PER_TABLE: u64 = 1_536;

/// Returns the rows of a block that has whole groups of `group` rows, and about `block` rows. If a lane with such blocks
/// would hold more than `budget` rows, a group has several blocks.
fn whole_groups(block: u64, group: u64, budget: u64) -> u64 {
    let group = group.max(1);
    match block {
        block if block >= group => block - block % group,
        _ if lane_rows(group, 1) <= budget => group,
        block => (1..=block).rev().find(|part| group.is_multiple_of(*part)).unwrap_or(1),
    }
}

/// Returns the largest number of super-strides for which a lane with blocks of `block` rows holds at most `budget` rows,
/// and at least 1. Blocks of one row have no use for more than 1.
fn strides_within(budget: u64, block: u64) -> u64 {
    if block == 1 {
        return 1;
    }
    // The rows of a lane are at least (block * strides + 5 * block - strides) / 2.
    let most = (budget.saturating_mul(2).saturating_sub(block.saturating_mul(5)) / (block - 1)).max(1);
    (1..=most).rev().find(|strides| lane_rows(block, *strides) <= budget).unwrap_or(1)
}
