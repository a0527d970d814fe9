//! Buckets: rows of similar length, whose size is limited after they are padded to the longest of them.
//!
//! ```text
//! rows ──blocks of neighbours──seed──► groups of blocks ──by length, cut──► buckets ──seed, epoch──► rows of each bucket
//! ```
//!
//! A group has the rows of 16 blocks of 256 neighbours, which lie anywhere in the row set if the order is shuffled. Its
//! rows are sorted by length, the longest first, and cut into buckets, each with as many rows as fit.
//!
//! Groups are the same in all epochs, and so are the numbers of rows in their buckets. In each epoch, rows change places
//! with those of buckets that have as many and nearly as long rows, and the buckets of a group change places. A reader of
//! a bucket needs the lengths of its group only.

use std::cmp::Reverse;
use std::ops::Range;

use crate::packing::shuffle;
use crate::{Key, Permutation};

/// The number of neighbouring rows in a block.
const BLOCK_ROWS: u64 = 256;

/// The number of blocks in a group.
const GROUP_BLOCKS: u64 = 16;

/// The label of the keys of buckets.
const BUCKETED: u64 = 10;

/// What is drawn under the keys of buckets: which blocks a group has, which rows a bucket has, the places of the buckets.
const DRAW_BLOCKS: u64 = 0;
const DRAW_ROWS: u64 = 1;
const DRAW_BUCKETS: u64 = 2;

/// Rows change places among buckets whose longest rows, padded, have at least 15/16 of the tokens of the longest one.
const ALIKE: (u64, u64) = (15, 16);

/// The limits of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketSize {
    /// The largest number of tokens in a bucket, padding included. A row with more tokens is a bucket of its own.
    pub max_tokens: u64,
    /// The largest number of rows in a bucket, at least 1.
    pub max_rows: u64,
    /// The length of the longest row is rounded up to a multiple of this number, at least 1.
    pub multiple: u64,
}

/// A row of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketRow {
    /// The ordinal of the row in the row set.
    pub row: u64,
    /// The number of tokens.
    pub length: u32,
}

/// The buckets of a row set: 8 bytes for each group of 4,096 rows.
#[derive(Clone, Debug)]
pub struct Bucketing {
    size: BucketSize,
    num_rows: u64,
    /// Which block comes when; `None` for blocks in the order of the row set.
    blocks: Option<Permutation>,
    /// For each group that was added, the number of buckets up to its end.
    ends: Vec<u64>,
    num_tokens: u64,
    num_padded: u64,
}

/// The buckets of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketGroup {
    number: u64,
    size: BucketSize,
    /// The rows of all buckets.
    rows: Vec<BucketRow>,
    /// For each bucket, the range of its rows.
    buckets: Vec<Range<usize>>,
}

impl BucketSize {
    /// Returns the number of tokens of a padded row, at least 1.
    pub fn padded(&self, length: u32) -> u64 {
        u64::from(length).max(1).next_multiple_of(self.multiple.max(1))
    }

    /// Returns the largest number of rows in a bucket whose longest row has this length.
    fn rows(&self, longest: u32) -> usize {
        let rows = (self.max_tokens / self.padded(longest)).clamp(1, self.max_rows.max(1));
        usize::try_from(rows).unwrap_or(usize::MAX)
    }
}

impl Bucketing {
    /// Begins with no groups. Blocks are permuted by the seed of the source's orders, if there is one.
    pub fn new(size: BucketSize, num_rows: u64, seed: Option<u64>) -> Self {
        let key = |seed| Key::new(seed).with(BUCKETED).with(DRAW_BLOCKS);
        let blocks = seed.map(|seed| Permutation::new(num_rows.div_ceil(BLOCK_ROWS), key(seed)));
        Self { size, num_rows, blocks, ends: Vec::new(), num_tokens: 0, num_padded: 0 }
    }

    /// Returns the number of groups of the row set.
    pub fn num_groups(&self) -> u64 {
        self.num_rows.div_ceil(BLOCK_ROWS * GROUP_BLOCKS)
    }

    /// Returns the rows of a group, as ranges of ordinals in the order in which their lengths are needed.
    pub fn group_rows(&self, group: u64) -> Vec<Range<u64>> {
        let num_blocks = self.num_rows.div_ceil(BLOCK_ROWS);
        let first = group.saturating_mul(GROUP_BLOCKS).min(num_blocks);
        let numbers = first..first.saturating_add(GROUP_BLOCKS).min(num_blocks);
        let rows = |number| {
            let block = self.blocks.as_ref().map_or(number, |blocks| blocks.apply(number));
            block * BLOCK_ROWS..self.num_rows.min((block + 1) * BLOCK_ROWS)
        };
        numbers.map(rows).collect()
    }

    /// Adds the next group. `lengths` are those of [`Bucketing::group_rows`].
    pub fn add(&mut self, lengths: &[u32]) {
        let group = self.group(self.ends.len() as u64, lengths);
        for bucket in &group.buckets {
            let rows = &group.rows[bucket.clone()];
            self.num_tokens += rows.iter().map(|row| u64::from(row.length)).sum::<u64>();
            let padded = self.size.padded(rows[0].length).saturating_mul(rows.len() as u64);
            self.num_padded = self.num_padded.saturating_add(padded);
        }
        self.ends.push(self.num_buckets() + group.buckets.len() as u64);
    }

    /// Returns the number of buckets of the groups that were added.
    pub fn num_buckets(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns the number of rows in the row set.
    pub fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Returns the share of the padded rows that tokens fill, from 0 to 1.
    pub fn fill(&self) -> f64 {
        if self.num_padded == 0 { 1.0 } else { self.num_tokens as f64 / self.num_padded as f64 }
    }

    /// Returns the group of a bucket, and the number of the bucket in it, or `None` beyond the last bucket.
    pub fn group_of(&self, bucket: u64) -> Option<(u64, u64)> {
        if bucket >= self.num_buckets() {
            return None;
        }
        let group = self.ends.partition_point(|end| *end <= bucket);
        let first = group.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some((group as u64, bucket - first))
    }

    /// Returns the buckets of a group, the longest rows first. `lengths` are those of [`Bucketing::group_rows`].
    pub fn group(&self, group: u64, lengths: &[u32]) -> BucketGroup {
        let rows = self.group_rows(group).into_iter().flatten().zip(lengths);
        let mut rows: Vec<BucketRow> = rows.map(|(row, length)| BucketRow { row, length: *length }).collect();
        rows.sort_unstable_by_key(|row| (Reverse(row.length), row.row));
        let mut buckets = Vec::new();
        let mut start = 0;
        while let Some(longest) = rows.get(start) {
            let end = rows.len().min(start.saturating_add(self.size.rows(longest.length)));
            buckets.push(start..end);
            start = end;
        }
        BucketGroup { number: group, size: self.size, rows, buckets }
    }
}

impl BucketGroup {
    /// Returns the number of buckets.
    pub fn num_buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Returns the rows of a bucket.
    pub fn bucket(&self, index: usize) -> Option<&[BucketRow]> {
        self.buckets.get(index).map(|rows| &self.rows[rows.clone()])
    }

    /// Returns the buckets of an epoch of a source with this seed: rows change places with those of neighbouring buckets
    /// that have as many and nearly as long rows, and then the buckets change places.
    #[must_use]
    pub fn in_epoch(mut self, seed: u64, epoch: u64) -> Self {
        let key = Key::new(seed).with(epoch).with(BUCKETED).with(self.number);
        let longest = |rows: &Range<usize>| self.size.padded(self.rows[rows.start].length);
        // The first bucket of each run of buckets whose rows change places.
        let mut firsts: Vec<usize> = Vec::new();
        for (index, rows) in self.buckets.iter().enumerate() {
            let is_alike = firsts.last().is_some_and(|first| {
                let first = &self.buckets[*first];
                let (part, whole) = (longest(rows).saturating_mul(ALIKE.1), longest(first).saturating_mul(ALIKE.0));
                first.len() == rows.len() && part >= whole
            });
            if !is_alike {
                firsts.push(index);
            }
        }
        for (run, first) in (0..).zip(&firsts) {
            let start = self.buckets[*first].start;
            let end = firsts.get(run + 1).map_or(self.rows.len(), |next| self.buckets[*next].start);
            shuffle(&mut self.rows[start..end], key.with(DRAW_ROWS).with(run as u64));
        }
        shuffle(&mut self.buckets, key.with(DRAW_BUCKETS));
        self
    }
}
