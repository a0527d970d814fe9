//! How many partitions of an index of vectors a search compares by default.
//!
//! The vectors that are nearest to a query lie in the partitions whose centroids are nearest to it: of clustered vectors in
//! a few of them, of uniform ones in most. So it is measured when the index is built: the partitions of the nearest rows of
//! some vectors, and how many partitions have to be searched until almost all of these rows are among them. A search with
//! a filter wants more: the nearest 10 of a tenth of the rows are about as far as the nearest 100 of all.
//!
//! Queries may come from another source than the table, such as texts that search images, so a search compares at least `√n`
//! of `n` partitions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef};
use lance_index::vector::VectorIndex;
use lance_linalg::distance::MetricType;
use lance_linalg::kernels::normalize_arrow;
use serde::{Deserialize, Serialize};
use stoker_store::again;
use stoker_types::to_usize;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::recall::Measured;
use crate::rerank::first_candidates;
use crate::{Error, Metric, Result, Table};

/// The ranks up to which the partitions of the nearest rows are measured.
pub(crate) const RANKS: [usize; 3] = [10, 100, 1_000];
/// The share of the nearest rows that the searched partitions have, on average.
const SHARE: f64 = 0.98;
/// Between two ranks, the partition of one row in this many is measured.
const STEPS: [usize; RANKS.len()] = [1, 3, 30];
/// The partitions that are searched at least where nothing was measured: this factor times the square root of their number.
const PROBES_FACTOR: f64 = 4.0;
/// How long an index counts as not measured after its measurement was not found.
const ABSENT_FOR: Duration = Duration::from_secs(60);
/// The indexes whose measurements are kept in memory.
const KEPT_MAX: usize = 1_024;

/// How many partitions have almost all of the nearest rows up to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankProbes {
    pub rank: u64,
    pub probes: u64,
}

/// An index that answers searches.
#[derive(Clone, Debug)]
pub struct SearchedIndex {
    /// The number of its partitions.
    pub num_partitions: usize,
    measured: Arc<Measured>,
}

impl SearchedIndex {
    pub(crate) fn new(num_partitions: usize, measured: Arc<Measured>) -> Self {
        Self { num_partitions, measured }
    }

    /// The number of candidates that a search for the nearest `k` rows asks for at first by default.
    pub fn num_candidates(&self, k: usize) -> usize {
        first_candidates(k).max(self.measured.candidates)
    }

    /// Returns the number of partitions that a search for the nearest `k` of `num_allowed` rows compares at least by
    /// default, where the table has `num_rows`.
    pub fn default_probes(&self, k: usize, num_allowed: u64, num_rows: u64) -> usize {
        let rank = (k as u128).saturating_mul(u128::from(num_rows)).div_ceil(u128::from(num_allowed.max(1)));
        let measured = &self.measured.probes;
        let probes = match measured.iter().find(|of| u128::from(of.rank) >= rank) {
            Some(of) => to_usize(of.probes).max(times_root(1.0, self.num_partitions)),
            None => {
                let most = measured.last().map_or(0, |of| to_usize(of.probes));
                most.max(times_root(PROBES_FACTOR, self.num_partitions))
            }
        };
        probes.min(self.num_partitions).max(1)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "casts of numbers with fractions saturate")]
fn times_root(factor: f64, num_partitions: usize) -> usize {
    (factor * (num_partitions as f64).sqrt()).ceil() as usize
}

/// What was measured of an index.
#[derive(Debug)]
struct Known {
    measured: Arc<Measured>,
    /// When the measurement was not found.
    absent_since: Option<Instant>,
}

/// The measurements of indexes that this process has read.
#[derive(Debug, Default)]
pub(crate) struct MeasuredIndexes(Mutex<HashMap<Uuid, Known>>);

impl MeasuredIndexes {
    /// Returns what was measured of an index, if it was read, or was not found recently.
    fn get(&self, index: Uuid) -> Option<Arc<Measured>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { measured, absent_since } = kept.get(&index)?;
        absent_since.is_none_or(|since| since.elapsed() < ABSENT_FOR).then(|| measured.clone())
    }

    fn keep(&self, index: Uuid, measured: Option<Measured>) -> Arc<Measured> {
        let absent_since = measured.is_none().then(Instant::now);
        let measured = Arc::new(measured.unwrap_or_default());
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(index, Known { measured: measured.clone(), absent_since });
        measured
    }

    /// Forgets that an index was not measured.
    pub fn forget(&self, index: Uuid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&index);
    }
}

impl Table {
    /// Returns what was measured of an index; nothing for one that was not measured, or whose measurement cannot be read.
    pub(crate) async fn known_measured(&self, index: Uuid) -> Arc<Measured> {
        let known = &self.lake().inner.measured;
        if let Some(measured) = known.get(index) {
            return measured;
        }
        let read = again(async || self.measured(index).await).await;
        known.keep(index, read.unwrap_or_else(|error| {
            tracing::warn!(%error, "what was measured of an index cannot be read; searches compare as many partitions as without");
            None
        }))
    }

    /// Measures how many partitions have almost all of the nearest rows: for some queries, given with the addresses of
    /// their nearest rows in order.
    ///
    /// # Errors
    /// Storage errors.
    pub(crate) async fn measured_probes(
        &self,
        column: &str,
        metric: Metric,
        index: Arc<dyn VectorIndex>,
        nearest: &[(ArrayRef, Vec<u64>)],
    ) -> Result<Vec<RankProbes>> {
        if index.ivf_model().centroids_array().is_none() {
            return Ok(Vec::new());
        }
        let mut tally = ProbesTally::new(index.total_partitions());
        for (query, row_addrs) in nearest {
            let (positions, weights): (Vec<usize>, Vec<u64>) = sampled(row_addrs.len()).unzip();
            let addrs: Vec<u64> = positions.iter().map(|position| row_addrs[*position]).collect();
            let vectors = self.take(&[column.to_string()], &addrs).await?.column(0).clone();
            let (query, index) = (query.clone(), index.clone());
            let finding = spawn_blocking(move || found_partitions(index.as_ref(), metric, &query, &vectors));
            let found = finding.await.map_err(|source| Error::storage(self.comparing(), source))?;
            let found = found.map_err(|source| Error::storage(self.comparing(), source))?;
            for ((position, weight), rank) in positions.into_iter().zip(weights).zip(found) {
                tally.add(position, weight, rank);
            }
        }
        Ok(tally.probes())
    }
}

/// Returns the positions of the nearest rows whose partitions are measured, each with the number of rows it stands for.
fn sampled(num_rows: usize) -> impl Iterator<Item = (usize, u64)> {
    let starts = [0, RANKS[0], RANKS[1]];
    let ranges = starts.into_iter().zip(RANKS).zip(STEPS);
    ranges.flat_map(move |((start, end), step)| {
        let end = end.min(num_rows);
        (start..end).step_by(step).map(move |position| (position, step.min(end - position) as u64))
    })
}

/// Returns how many partitions a search compares until it comes to that of each vector.
fn found_partitions(
    index: &dyn VectorIndex,
    metric: Metric,
    query: &ArrayRef,
    vectors: &ArrayRef,
) -> lance_core::Result<Vec<usize>> {
    let ivf = index.ivf_model();
    let find = |vector: &ArrayRef, num: usize| {
        let metric = MetricType::from(metric);
        let (vector, metric) = match metric {
            MetricType::Cosine => (normalize_arrow(vector.as_ref())?.0, MetricType::L2),
            _ => (vector.clone(), metric),
        };
        Ok::<_, lance_core::Error>(ivf.find_partitions(vector.as_ref(), num, metric)?.0)
    };
    let order = find(query, index.total_partitions())?;
    let mut rank_of = vec![order.len(); index.total_partitions()];
    for (rank, partition) in order.values().iter().enumerate() {
        if let Some(known) = rank_of.get_mut(*partition as usize) {
            *known = rank;
        }
    }
    let vectors = vectors.as_fixed_size_list();
    let rank = |row: usize| {
        let partition = find(&vectors.value(row), 1)?;
        let rank = partition.values().first().and_then(|partition| rank_of.get(*partition as usize));
        Ok(rank.copied().unwrap_or(order.len()) + 1)
    };
    (0..vectors.len()).map(rank).collect()
}

/// Counts at how many searched partitions the nearest rows are found.
struct ProbesTally {
    num_partitions: usize,
    /// For each of [`RANKS`], the number of rows by the number of partitions that lead to them.
    counts: Vec<Vec<u64>>,
}

impl ProbesTally {
    fn new(num_partitions: usize) -> Self {
        Self { num_partitions, counts: vec![vec![0; num_partitions + 1]; RANKS.len()] }
    }

    /// Adds rows that are found when `probes` partitions are searched. The first is at a position among the nearest.
    fn add(&mut self, position: usize, num_rows: u64, probes: usize) {
        for (rank, counts) in RANKS.iter().zip(&mut self.counts) {
            if position < *rank {
                counts[probes.min(self.num_partitions)] += num_rows;
            }
        }
    }

    fn probes(&self) -> Vec<RankProbes> {
        let of = |(rank, counts): (&usize, &Vec<u64>)| {
            let total: u64 = counts.iter().sum();
            let mut found = 0;
            let probes = counts.iter().position(|rows| {
                found += rows;
                found as f64 >= SHARE * total as f64
            });
            let probes = probes.filter(|_| total > 0)?;
            Some(RankProbes { rank: *rank as u64, probes: probes as u64 })
        };
        RANKS.iter().zip(&self.counts).filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{MeasuredIndexes, ProbesTally, RankProbes, SearchedIndex, sampled};
    use crate::recall::Measured;

    fn index(num_partitions: usize, probes: &[(u64, u64)]) -> SearchedIndex {
        let probes = probes.iter().map(|(rank, probes)| RankProbes { rank: *rank, probes: *probes }).collect();
        SearchedIndex::new(num_partitions, Arc::new(Measured { probes, ..Measured::default() }))
    }

    #[test]
    fn few_partitions_are_all_searched() {
        let found = [1, 2, 16, 17, 256, 10_000].map(|num| index(num, &[]).default_probes(10, 1_000_000, 1_000_000));
        assert_eq!(found, [1, 2, 16, 17, 64, 400]);
        assert_eq!(index(0, &[]).default_probes(10, 10, 10), 1);
    }

    #[test]
    fn searches_with_filters_compare_more_partitions() {
        let of_uniform = index(256, &[(10, 100), (1_000, 200)]);
        assert_eq!(of_uniform.default_probes(1_001, 10, 10), 200, "no fewer than were measured");
        let index = index(256, &[(10, 3), (100, 40), (1_000, 50)]);
        let probes = |k, num_allowed| index.default_probes(k, num_allowed, 100_000);
        assert_eq!([probes(1, 100_000), probes(10, 100_000)], [16, 16], "at least √256");
        assert_eq!([probes(11, 100_000), probes(10, 10_000), probes(100, 100_000)], [40, 40, 40]);
        assert_eq!([probes(10, 1_000), probes(101, 100_000)], [50, 50]);
        assert_eq!([probes(10, 999), probes(usize::MAX, 0)], [64, 64], "as if it was not measured");
    }

    #[test]
    fn partitions_of_sampled_rows_stand_for_all() {
        for num_rows in [0, 1, 9, 10, 11, 100, 101, 500, 1_000, 2_000] {
            let rows: Vec<(usize, u64)> = sampled(num_rows).collect();
            assert_eq!(rows.iter().map(|(_, weight)| weight).sum::<u64>(), num_rows.min(1_000) as u64);
            assert!(rows.iter().all(|(position, _)| *position < num_rows) && rows.len() <= 70, "{rows:?}");
        }
        let mut tally = ProbesTally::new(8);
        assert_eq!(tally.probes(), []);
        // The nearest 10 lie in the first two partitions, and of the next 90 rows 3 in the last one.
        (0..10).for_each(|position| tally.add(position, 1, 1 + position % 2));
        (0..30).for_each(|sample| tally.add(10 + 3 * sample, 3, if sample == 7 { 20 } else { 4 }));
        let found: Vec<(u64, u64)> = tally.probes().iter().map(|of| (of.rank, of.probes)).collect();
        assert_eq!(found, [(10, 2), (100, 8), (1_000, 8)]);
    }

    #[test]
    fn an_index_that_is_measured_later_is_found() {
        let (known, index) = (MeasuredIndexes::default(), uuid::Uuid::new_v4());
        assert!(known.get(index).is_none());
        assert_eq!(known.keep(index, None).probes, []);
        assert!(known.get(index).is_some_and(|measured| measured.probes.is_empty()), "not asked for again at once");
        known.forget(index);
        assert!(known.get(index).is_none());
    }
}
