//! Weighted epochs: how often each row of a row set comes in an epoch.
//!
//! ```text
//! weights ──groups of 1,024 rows──► sums before each group ──offset (seed, epoch)──► weighted ordinals of the group
//!                                                          ──rows permuted──► ⌊w⌋ or ⌈w⌉ of them for each row
//! ```
//!
//! An epoch has as many *weighted ordinals* as the weights add up to, rounded down. They are numbered through the groups.
//! Within a group, the rows are put in a random order, and their weights are laid end to end on a line; a row comes once
//! for each point of the line, one apart from the next, that lies within its weight (systematic sampling: Madow,
//! Annals of Mathematical Statistics 20, 1949). The weighted ordinals of a group name first each of its rows that comes
//! at all, then each that comes again, and so on, so that copies of a row are in different blocks of the order.

use crate::Key;
use crate::packing::shuffle;

/// The number of neighbouring rows whose weighted ordinals are numbered together.
pub const WEIGHT_GROUP_ROWS: u64 = 1_024;

/// The weight 1. Weights are rounded to multiples of 2^-24.
const ONE: u64 = 1 << 24;

/// The largest weight.
pub const WEIGHT_MAX: f32 = 16_777_216.0;

/// The label of the keys of weighted epochs.
const WEIGHTED: u64 = 8;

/// The sums of the weights of a row set: 8 bytes for each group of 1,024 rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightSums {
    /// For each group, the sum of the weights before it, in multiples of 2^-24.
    starts: Vec<u64>,
    total: u64,
}

/// The weighted ordinals of one epoch of a row set.
#[derive(Clone, Copy, Debug)]
pub struct WeightedEpoch<'a> {
    sums: &'a WeightSums,
    key: Key,
    /// The first point on the line of weights, less than 1.
    offset: u64,
}

/// How often the rows of one group come in an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedGroup {
    /// The first weighted ordinal, and the one after the last.
    first: u64,
    end: u64,
    /// The rows that come at all, in ascending order.
    once: Vec<u16>,
    /// The rows that come again, those that come most often first.
    again: Vec<u16>,
    /// Passes over `again` that take equally many rows from its front: the first weighted ordinal of the first pass,
    /// counted from `first`, and the number of rows.
    passes: Vec<(u64, u64)>,
}

/// Returns a weight as a multiple of 2^-24, or `None` for a number that is no weight: one that is negative, not finite,
/// or greater than [`WEIGHT_MAX`].
fn units(weight: f32) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number is between 0 and 2^48")]
    let rounded = |weight: f32| (f64::from(weight) * ONE as f64).round() as u64;
    (0.0..=WEIGHT_MAX).contains(&weight).then(|| rounded(weight))
}

impl WeightSums {
    /// Adds the weights of the next group, which has 1,024 rows or, as the last group, fewer.
    ///
    /// # Errors
    /// The index of the first number that is no weight, or at which the weights add up to 2^40 or more.
    pub fn add(&mut self, weights: &[f32]) -> Result<(), usize> {
        let mut total = self.total;
        for (row, weight) in weights.iter().enumerate() {
            total = units(*weight).and_then(|units| total.checked_add(units)).ok_or(row)?;
        }
        self.starts.push(self.total);
        self.total = total;
        Ok(())
    }

    /// Returns the number of weighted ordinals in each epoch: the sum of the weights, rounded down.
    pub fn num_rows(&self) -> u64 {
        self.total / ONE
    }

    /// Returns the sum of the weights.
    pub fn total(&self) -> f64 {
        self.total as f64 / ONE as f64
    }

    /// Returns an epoch under the seed of its source.
    pub fn epoch(&self, seed: u64, epoch: u64) -> WeightedEpoch<'_> {
        let key = Key::new(seed).with(epoch).with(WEIGHTED);
        // With an offset of at least the fraction of the total, as many points fit the line in each epoch.
        let fraction = self.total % ONE;
        WeightedEpoch { sums: self, key, offset: fraction + key.with(0).bits() % (ONE - fraction) }
    }
}

impl WeightedEpoch<'_> {
    /// Returns the number of points on the line before a place on it.
    fn points_before(&self, place: u64) -> u64 {
        place.saturating_sub(self.offset).div_ceil(ONE)
    }

    /// Returns the group that has a weighted ordinal, which must be less than [`WeightSums::num_rows`].
    pub fn group_of(&self, ordinal: u64) -> u64 {
        let place = ordinal * ONE + self.offset;
        self.sums.starts.partition_point(|start| *start <= place) as u64 - 1
    }

    /// Returns how often the rows of a group come, from their weights.
    pub fn group(&self, group: u64, weights: &[f32]) -> WeightedGroup {
        let index = usize::try_from(group).unwrap_or(usize::MAX);
        let start = self.sums.starts.get(index).copied().unwrap_or(self.sums.total);
        let (mut place, mut before) = (start, self.points_before(start));
        let first = before;
        let mut times = vec![0u64; weights.len()];
        for row in self.shuffled(group, weights.len()) {
            place += units(weights[usize::from(row)]).unwrap_or(0);
            let points = self.points_before(place);
            times[usize::from(row)] = points - before;
            before = points;
        }
        WeightedGroup::new(first, &times)
    }

    /// Returns the rows of a group in random order.
    fn shuffled(&self, group: u64, num_rows: usize) -> Vec<u16> {
        let mut rows: Vec<u16> = (0..u16::try_from(num_rows).unwrap_or(u16::MAX)).collect();
        shuffle(&mut rows, self.key.with(1).with(group));
        rows
    }
}

impl WeightedGroup {
    /// Numbers the weighted ordinals from `first` on of rows that come so many times.
    fn new(first: u64, times: &[u64]) -> Self {
        let rows = |more_than: u64| {
            let rows = (0..).zip(times).filter(move |(_, times)| **times > more_than);
            rows.map(|(row, _)| row).collect::<Vec<u16>>()
        };
        let (once, mut again) = (rows(0), rows(1));
        again.sort_by_key(|row| std::cmp::Reverse(times[usize::from(*row)]));
        let mut passes = Vec::new();
        let (mut next, mut done, mut num_rows) = (once.len() as u64, 1, again.len() as u64);
        // The rows that come least often leave first.
        for same in again.chunk_by(|one, other| times[usize::from(*one)] == times[usize::from(*other)]).rev() {
            let times = times[usize::from(same[0])];
            passes.push((next, num_rows));
            next += (times - done) * num_rows;
            (done, num_rows) = (times, num_rows - same.len() as u64);
        }
        let end = first + next;
        Self { first, end, once, again, passes }
    }

    /// Returns the index in the group of the row with a weighted ordinal, or `None` if another group has it.
    pub fn row(&self, ordinal: u64) -> Option<u64> {
        let place = ordinal.checked_sub(self.first).filter(|_| ordinal < self.end)?;
        if let Some(row) = usize::try_from(place).ok().and_then(|place| self.once.get(place)) {
            return Some(u64::from(*row));
        }
        let pass = self.passes.partition_point(|(start, _)| *start <= place).checked_sub(1)?;
        let (start, num_rows) = self.passes[pass];
        let index = usize::try_from((place - start) % num_rows).ok()?;
        self.again.get(index).map(|row| u64::from(*row))
    }
}
