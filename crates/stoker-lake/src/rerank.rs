//! Searches for vectors by an index, and compares the stored vectors of its candidates.
//!
//! An index orders rows by the distances of compressed vectors. How many of its first rows must be compared exactly until
//! the nearest are among them depends on the data and on the compression. The rows that were compared tell: the mean and
//! the deviation of `exact − approximate distance`, taken from the later half of them, which is nearest to the rows that
//! were not compared. With errors of a normal distribution, each of the others is among the nearest `k` with a
//! probability that follows from its approximate distance. The search ends when the expected number of missing rows is at
//! most 1 % of `k`. Beyond the candidates that the index was asked for, rows are taken to become more numerous with the
//! distance as they do among the candidates. How many candidates that takes is measured when the index is built, so that most
//! searches ask the index once.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, UInt64Type};
use arrow_array::{Array as _, RecordBatch};
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryStreamExt as _};
use lance_index::vector::flat::compute_distance;
use stoker_types::to_usize;

use crate::damage::caught;
use crate::scan::DISTANCE;
use crate::{Error, Nearest, ROW_ADDR, RowIdSet, ScanRequest, Table};

/// The share of the `k` nearest rows that may be missing.
const MISSING_SHARE: f64 = 0.01;
/// The fewest rows that are compared first.
pub(crate) const FIRST_ROWS: usize = 64;
/// How many candidates an index is asked for first: this many, and this factor times `k`.
const FIRST_CANDIDATES: usize = 1_000;
const CANDIDATES_PER_ROW: usize = 8;
/// By how much more candidates are asked for, if all were compared and rows may be missing.
const MORE_CANDIDATES: usize = 4;
/// Rows in a batch of candidates.
pub(crate) const BATCH_ROWS: usize = 8_192;
/// The most bytes of vectors that are read at a time.
const BYTES_PER_READ: usize = 16 << 20;
/// The bytes of a candidate in memory.
const CANDIDATE_BYTES: usize = 32;

/// A row with its distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearRow {
    /// The distance of the stored vector.
    pub distance: f32,
    /// The address of the row.
    pub row_addr: u64,
}

/// Reads the stored vectors that a search compares.
pub trait ReadVectors: Sync {
    /// Returns the column of the search, with one row for each of these ascending addresses.
    ///
    /// # Errors
    /// Storage errors; damaged rows.
    fn read<'a>(&'a self, row_addrs: &'a [u64]) -> BoxFuture<'a, Result<RecordBatch>>;
}

/// Reads vectors through Lance's decoder.
pub(crate) struct TakenVectors<'a> {
    pub table: &'a Table,
    pub column: &'a str,
}

impl ReadVectors for TakenVectors<'_> {
    fn read<'a>(&'a self, row_addrs: &'a [u64]) -> BoxFuture<'a, Result<RecordBatch>> {
        async { Ok(self.table.take(&[self.column.to_string()], row_addrs).await?) }.boxed()
    }
}

impl Table {
    /// Finds the nearest rows by an index, with the distances of their stored vectors: at least the nearest `nearest.k`
    /// that the index leads to, by ascending distance, then by address. Rows without a distance are left out.
    ///
    /// `candidates` is the number of rows of the index that are compared exactly; as many as needed if `None`. Their vectors
    /// are read by `vectors`. Returns the number of rows that the index was asked for, too.
    ///
    /// # Errors
    /// As for [`Table::scan`]; the error of the memory pool when it is exhausted.
    pub async fn nearest_by_index(
        &self,
        nearest: &Nearest,
        rows: Option<Arc<RowIdSet>>,
        candidates: Option<usize>,
        vectors: &impl ReadVectors,
        memory: &Arc<dyn MemoryPool>,
    ) -> Result<(Vec<NearRow>, usize)> {
        let candidates_memory = MemoryConsumer::new("candidates of vector_search").register(memory);
        let memory = MemoryConsumer::new("vector_search").register(memory);
        let (k, num_rows) = (nearest.k, rows.as_ref().map_or_else(|| self.num_rows(), |rows| rows.len()));
        let mut limit = candidates.unwrap_or(first_candidates(k).max(nearest.num_candidates)).max(k);
        let mut compared = Compared::default();
        loop {
            let approximate = self.approximate(nearest, rows.clone(), limit, &candidates_memory).await?;
            let is_all = approximate.len() < limit || limit as u64 >= self.num_rows();
            let mut until = if candidates.is_some() { limit } else { k.saturating_mul(2).max(FIRST_ROWS) };
            loop {
                until = until.min(approximate.len());
                let new: Vec<u64> = approximate[..until].iter().map(|row| row.row_addr).collect();
                self.compare(nearest, new, vectors, &mut compared, &memory).await?;
                if until == approximate.len() || compared.missing(&approximate, until, k) <= MISSING_SHARE * k as f64 {
                    break;
                }
                until = until.saturating_mul(2);
            }
            // With more rows of the same distance than there are candidates, those with the least addresses are due.
            let is_tie = compared.kth(k) == compared.kth(usize::MAX);
            let is_done = is_all || candidates.is_some() || (until < approximate.len() && !is_tie);
            let missing = || compared.missing_beyond(&approximate, k, num_rows);
            if is_done || (!is_tie && missing() <= MISSING_SHARE * k as f64) {
                return Ok((compared.into_rows(), limit));
            }
            limit = limit.saturating_mul(MORE_CANDIDATES);
        }
    }

    /// Returns the first rows of an index, with the distances of their compressed vectors, in ascending order. `memory`
    /// holds what they need, which is reserved before they are searched.
    async fn approximate(
        &self,
        nearest: &Nearest,
        rows: Option<Arc<RowIdSet>>,
        limit: usize,
        memory: &MemoryReservation,
    ) -> Result<Vec<NearRow>> {
        memory.try_resize(limit.min(to_usize(self.num_rows())).saturating_mul(CANDIDATE_BYTES))?;
        let request = ScanRequest {
            row_ids: rows,
            with_row_addr: true,
            nearest: Some(Nearest { k: limit, ..nearest.clone() }),
            batch_size: BATCH_ROWS,
            ..ScanRequest::default()
        };
        let mut batches = self.scan(&request).await?;
        let mut found = Vec::new();
        while let Some(batch) = batches.try_next().await? {
            self.add_distances(&batch, None, &mut found)?;
        }
        memory.try_resize(found.len().saturating_mul(CANDIDATE_BYTES))?;
        found.sort_unstable_by(in_order);
        Ok(found)
    }

    /// Compares the stored vectors of rows that were not compared yet.
    async fn compare(
        &self,
        nearest: &Nearest,
        mut new: Vec<u64>,
        vectors: &impl ReadVectors,
        compared: &mut Compared,
        memory: &MemoryReservation,
    ) -> Result<()> {
        new.retain(|row_addr| !compared.exact.contains_key(row_addr));
        if new.is_empty() {
            return Ok(());
        }
        new.sort_unstable();
        memory.try_resize((compared.exact.len() + new.len()).saturating_mul(2 * CANDIDATE_BYTES))?;
        // The query may be a part of a larger array.
        let row_bytes = nearest.query.to_data().get_slice_memory_size()?.max(1);
        for some in new.chunks((BYTES_PER_READ / row_bytes).max(FIRST_ROWS)) {
            let bytes = some.len().saturating_mul(row_bytes);
            memory.try_grow(bytes)?;
            let read = vectors.read(some).await?;
            let found = self.distances(nearest, read, some).await?;
            memory.shrink(bytes);
            // A row without a vector is not compared again.
            compared.exact.extend(some.iter().map(|row_addr| (*row_addr, None)));
            compared.exact.extend(found.into_iter().map(|row| (row.row_addr, Some(row.distance))));
        }
        Ok(())
    }

    /// Compares the vectors of rows with the query: the column of the search in a batch, and the address of each row.
    /// Rows without a distance are left out.
    ///
    /// # Errors
    /// Vectors of another type than the query's.
    pub async fn distances(&self, nearest: &Nearest, vectors: RecordBatch, row_addrs: &[u64]) -> Result<Vec<NearRow>> {
        let measuring = compute_distance(nearest.query.clone(), nearest.metric.into(), &nearest.column, vectors);
        let measured = caught(measuring).await.map_err(|source| Error::storage(self.comparing(), source))?;
        let mut found = Vec::with_capacity(row_addrs.len());
        self.add_distances(&measured, Some(row_addrs), &mut found)?;
        Ok(found)
    }

    /// Adds the rows of a batch that have a distance. Their addresses are given, or in the batch.
    pub(crate) fn add_distances(
        &self,
        batch: &RecordBatch,
        row_addrs: Option<&[u64]>,
        found: &mut Vec<NearRow>,
    ) -> Result<()> {
        let distances = batch.column_by_name(DISTANCE).and_then(|column| column.as_primitive_opt::<Float32Type>());
        let in_batch = batch.column_by_name(ROW_ADDR).and_then(|column| column.as_primitive_opt::<UInt64Type>());
        let row_addrs = row_addrs.or_else(|| Some(in_batch?.values()));
        let (Some(distances), Some(row_addrs)) = (distances, row_addrs) else {
            let reason = "a search gave no distances or no addresses".to_string();
            return Err(Error::InvalidRequest { attempted: self.comparing(), reason }.into());
        };
        for (row, row_addr) in row_addrs.iter().enumerate() {
            if distances.is_valid(row) {
                // NaN without a sign comes after all numbers.
                let distance = if distances.value(row).is_nan() { f32::NAN } else { distances.value(row) };
                found.push(NearRow { distance, row_addr: *row_addr });
            }
        }
        Ok(())
    }

    pub(crate) fn comparing(&self) -> String {
        format!("comparing vectors of {}", self.snapshot())
    }
}

/// Returns how many candidates an index is asked for at first.
pub(crate) fn first_candidates(k: usize) -> usize {
    k.saturating_mul(CANDIDATES_PER_ROW).saturating_add(FIRST_CANDIDATES)
}

pub(crate) fn in_order(one: &NearRow, other: &NearRow) -> std::cmp::Ordering {
    one.distance.total_cmp(&other.distance).then(one.row_addr.cmp(&other.row_addr))
}

/// The rows whose stored vectors were compared.
#[derive(Default)]
struct Compared {
    /// The distance of each row; `None` for a row without a vector.
    exact: HashMap<u64, Option<f32>>,
}

impl Compared {
    /// The distance at rank `k`, or of the last row if there are fewer.
    fn kth(&self, k: usize) -> Option<f32> {
        let mut distances: Vec<f32> = self.exact.values().flatten().copied().collect();
        let index = k.min(distances.len()).checked_sub(1)?;
        let (_, kth, _) = distances.select_nth_unstable_by(index, f32::total_cmp);
        Some(*kth)
    }

    /// Returns how many of the nearest `k` rows are expected among the candidates from `until` on.
    fn missing(&self, candidates: &[NearRow], until: usize, k: usize) -> f64 {
        let Some(errors) = self.errors(&candidates[..until]) else { return f64::INFINITY };
        let is_known = |kth: &f32| self.exact.len() >= k && !kth.is_nan();
        let Some(kth) = self.kth(k).filter(is_known) else { return f64::INFINITY };
        let chances = candidates[until..].iter().map(|row| errors.chance(kth, row.distance));
        // The candidates come by distance, so that the chances only fall.
        chances.take_while(|chance| *chance > 1e-9).sum()
    }

    /// Returns how many of the nearest `k` rows are expected among the rows of a table that are no candidates, if the number
    /// of rows within a distance grows as it does in the later half of the candidates.
    fn missing_beyond(&self, candidates: &[NearRow], k: usize, num_rows: u64) -> f64 {
        let (Some(errors), Some(last), Some(kth)) = (self.errors(candidates), candidates.last(), self.kth(k)) else {
            return 0.0;
        };
        let (num, others) = (candidates.len() as f64, num_rows.saturating_sub(candidates.len() as u64) as f64);
        let chance = errors.chance(kth, last.distance);
        let span = f64::from(last.distance) - f64::from(candidates[candidates.len() / 2].distance);
        let margin = f64::from(kth) - f64::from(last.distance) - errors.mean;
        // All of them are farther than the last candidate.
        let most = others * chance;
        match num * chances_beyond(std::f64::consts::LN_2 / span, margin, errors.deviation) {
            // The candidates are equally far, or there are no errors.
            expected if expected.is_nan() => (num * chance).min(most),
            expected => expected.clamp(0.0, most),
        }
    }

    /// Returns the errors of the later half of these candidates.
    fn errors(&self, candidates: &[NearRow]) -> Option<Errors> {
        let later = &candidates[candidates.len() / 2..];
        let error = |row: &NearRow| {
            let exact = self.exact.get(&row.row_addr).copied().flatten()?;
            Some(f64::from(exact) - f64::from(row.distance)).filter(|error| error.is_finite())
        };
        let errors: Vec<f64> = later.iter().filter_map(error).collect();
        if errors.is_empty() {
            return None;
        }
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let variance = errors.iter().map(|error| (error - mean).powi(2)).sum::<f64>() / errors.len() as f64;
        Some(Errors { mean, deviation: variance.sqrt() })
    }

    fn into_rows(self) -> Vec<NearRow> {
        let rows = self.exact.into_iter().filter_map(|(row_addr, distance)| Some((row_addr, distance?)));
        let mut rows: Vec<NearRow> = rows.map(|(row_addr, distance)| NearRow { distance, row_addr }).collect();
        rows.sort_unstable_by(in_order);
        rows
    }
}

/// By how much exact distances exceed approximate ones.
#[derive(Clone, Copy, Debug)]
struct Errors {
    mean: f64,
    deviation: f64,
}

impl Errors {
    /// Returns the probability that the exact distance of a row is below `limit`.
    fn chance(&self, limit: f32, approximate: f32) -> f64 {
        let margin = f64::from(limit) - f64::from(approximate) - self.mean;
        if self.deviation > 0.0 {
            return normal(margin / self.deviation);
        }
        if margin > 0.0 { 1.0 } else { 0.0 }
    }
}

/// Returns the integral of `growth × e^(growth × x) × Φ((margin - x) / deviation)` over all positive `x`: how many rows
/// beyond a distance are expected nearer than another one, for each row within it. NaN unless all three are finite and the
/// deviation is positive.
fn chances_beyond(growth: f64, margin: f64, deviation: f64) -> f64 {
    if !(growth.is_finite() && margin.is_finite() && deviation > 0.0) {
        return f64::NAN;
    }
    let spread = growth * deviation;
    (growth * margin + spread * spread / 2.0).exp() * normal(margin / deviation + spread) - normal(margin / deviation)
}

/// The distribution function of the standard normal distribution, with an error below 8e-8 (Abramowitz and Stegun,
/// formula 26.2.17).
fn normal(value: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * value.abs());
    let factors = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = factors.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let beyond = sum * (-0.5 * value * value).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if value > 0.0 { 1.0 - beyond } else { beyond }
}

#[cfg(test)]
mod tests {
    use super::{Compared, NearRow, chances_beyond, normal};

    #[test]
    fn the_normal_distribution() {
        for (value, expected) in [(0.0, 0.5), (1.0, 0.841_344_75), (-2.0, 0.022_750_13), (6.0, 1.0), (-9.0, 0.0)] {
            assert!((normal(value) - expected).abs() < 1e-6, "{value}: {}", normal(value));
        }
    }

    #[test]
    fn rows_beyond_the_candidates_are_counted() {
        for (growth, margin, deviation) in [(0.1, 0.0, 1.0), (0.5, -2.0, 1.5), (2.0, 3.0, 0.7), (0.01, -1.0, 4.0)] {
            let step = 1e-3;
            let chance = |x: f64| growth * (growth * x).exp() * normal((margin - x) / deviation) * step;
            let expected: f64 = (0..60_000).map(|number| chance((f64::from(number) + 0.5) * step)).sum();
            let found = chances_beyond(growth, margin, deviation);
            assert!((found - expected).abs() < 1e-4 * expected.max(1.0), "{growth}, {margin}: {found} and {expected}");
        }
        assert!(chances_beyond(f64::INFINITY, 0.0, 1.0).is_nan() && chances_beyond(1.0, 0.0, 0.0).is_nan());
        // So many rows are at the distance of the last candidate that the number of all others is the bound.
        let mut compared = Compared::default();
        let crowd = |row: u64| NearRow { distance: 10.0 + row as f32 * 1e-6, row_addr: row };
        let candidates: Vec<NearRow> = (0..100).map(crowd).collect();
        compared.exact.extend(candidates.iter().map(|row| (row.row_addr, Some((row.row_addr % 10) as f32 + 5.0))));
        let expected = compared.missing_beyond(&candidates, 10, 1_000_100);
        assert!((1e4..1e6).contains(&expected), "{expected}");
    }

    #[test]
    fn rows_that_may_be_missing_are_counted() {
        let candidates: Vec<NearRow> = (0..100).map(|row| NearRow { distance: row as f32, row_addr: row }).collect();
        let mut compared = Compared::default();
        // Exact distances are one larger or one smaller than approximate ones.
        let exact = |row: u64| row as f32 + if row.is_multiple_of(2) { 1.0 } else { -1.0 };
        compared.exact.extend((0..20).map(|row| (row, Some(exact(row)))));
        assert!(compared.missing(&candidates, 20, 10) < 1e-6);
        let expected = compared.missing(&candidates, 20, 20);
        assert!((0.1..1.0).contains(&expected), "{expected}");
        assert_eq!(compared.missing(&candidates, 20, 21), f64::INFINITY);
        assert_eq!(Compared::default().missing(&candidates, 0, 1), f64::INFINITY);
        assert!(compared.missing_beyond(&candidates[..20], 5, 1_000) < 1e-9);
        let beyond = |num_rows| compared.missing_beyond(&candidates[..20], 20, num_rows);
        assert!((0.5..0.9).contains(&beyond(1_000)), "{}", beyond(1_000));
        assert_eq!((beyond(20), beyond(10)), (0.0, 0.0), "there are no others");
    }

    #[test]
    fn exact_candidates_need_no_more() {
        let candidates: Vec<NearRow> = (0..50).map(|row| NearRow { distance: row as f32, row_addr: row }).collect();
        let mut compared = Compared::default();
        compared.exact.extend((0..10).map(|row| (row, Some(row as f32))));
        assert!(compared.missing(&candidates, 10, 10) < 1e-9);
        let rows = compared.into_rows();
        assert!(rows.is_sorted_by(|one, other| one.distance <= other.distance) && rows.len() == 10);
    }
}
