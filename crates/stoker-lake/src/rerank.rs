//! Searches for vectors by an index, and compares the stored vectors of its candidates.
//!
//! An index orders rows by the distances of compressed vectors. How many of its first rows must be compared exactly until
//! the nearest are among them depends on the data and on the compression. The rows that were compared tell: the mean and
//! the deviation of `exact − approximate distance`, taken from the later half of them, which is nearest to the rows that
//! were not compared. With errors of a normal distribution, each of the others is among the nearest `k` with a
//! probability that follows from its approximate distance. The search ends when the expected number of missing rows is at
//! most 1 % of `k`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation, UnboundedMemoryPool};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use lance_index::vector::flat::compute_distance;
use stoker_types::{ProgressSink, StatementProgress, to_usize};

use crate::address::row_offset;
use crate::caught::caught;
use crate::scan::DISTANCE;
use crate::{Error, Metric, Nearest, ROW_ADDR, RowIdSet, ScanRequest, Table};

/// The share of the `k` nearest rows that may be missing.
const MISSING_SHARE: f64 = 0.01;
/// The fewest rows that are compared first.
const FIRST_ROWS: usize = 64;
/// How many candidates an index is asked for first: this many, and this factor times `k`.
const FIRST_CANDIDATES: usize = 1_000;
const CANDIDATES_PER_ROW: usize = 8;
/// By how much more candidates are asked for, if all were compared and rows may be missing.
const MORE_CANDIDATES: usize = 4;
/// Rows in a batch of candidates.
const BATCH_ROWS: usize = 8_192;
/// The most bytes of vectors that are read at a time.
const BYTES_PER_READ: usize = 16 << 20;
/// The bytes of a candidate in memory.
const CANDIDATE_BYTES: usize = 32;
/// The partitions that are searched at least by default: this factor times the square root of their number.
const PROBES_FACTOR: f64 = 4.0;
/// The rank up to which the rows of searches are compared to estimate the recall.
const RECALL_RANK: usize = 10;
/// The most and the fewest queries of an estimate. In between, their number is such that the vectors that are compared have
/// this many bytes.
const RECALL_QUERIES_MAX: u64 = 64;
const RECALL_QUERIES_MIN: u64 = 16;
const RECALL_BYTES: u64 = 64 << 30;
/// The bytes of vectors that all queries of an estimate are compared with at a time, so that a processor's cache holds them.
const RECALL_BYTES_PER_BATCH: usize = 1 << 20;
/// The queries that are compared at the same time.
const COMPARISONS_IN_FLIGHT: usize = 16;

/// A row with its distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearRow {
    /// The distance of the stored vector.
    pub distance: f32,
    /// The address of the row.
    pub row_addr: u64,
}

impl Table {
    /// Finds the nearest rows by an index, with the distances of their stored vectors: at least the nearest `nearest.k`
    /// that the index leads to, by ascending distance, then by address. Rows without a distance are left out.
    ///
    /// `candidates` is the number of rows of the index that are compared exactly; as many as needed if `None`.
    ///
    /// # Errors
    /// As for [`Table::scan`]; the error of the memory pool when it is exhausted.
    pub async fn nearest_by_index(
        &self,
        nearest: &Nearest,
        rows: Option<Arc<RowIdSet>>,
        candidates: Option<usize>,
        memory: &Arc<dyn MemoryPool>,
    ) -> Result<Vec<NearRow>> {
        let candidates_memory = MemoryConsumer::new("candidates of vector_search").register(memory);
        let memory = MemoryConsumer::new("vector_search").register(memory);
        let k = nearest.k;
        let first = k.saturating_mul(CANDIDATES_PER_ROW).saturating_add(FIRST_CANDIDATES);
        let mut limit = candidates.unwrap_or(first).max(k);
        let mut compared = Compared::default();
        loop {
            let approximate = self.approximate(nearest, rows.clone(), limit, &candidates_memory).await?;
            let is_all = approximate.len() < limit || limit as u64 >= self.num_rows();
            let mut until = if candidates.is_some() { limit } else { k.saturating_mul(2).max(FIRST_ROWS) };
            loop {
                until = until.min(approximate.len());
                let new: Vec<u64> = approximate[..until].iter().map(|row| row.row_addr).collect();
                self.compare(nearest, &new, &mut compared, &memory).await?;
                if until == approximate.len() || compared.missing(&approximate, until, k) <= MISSING_SHARE * k as f64 {
                    break;
                }
                until = until.saturating_mul(2);
            }
            // With more rows of the same distance than there are candidates, those with the least addresses are due.
            let is_tie = compared.kth(k) == compared.kth(usize::MAX);
            let is_done = is_all || candidates.is_some() || (until < approximate.len() && !is_tie);
            if is_done || (!is_tie && compared.missing_beyond(&approximate, k) <= MISSING_SHARE * k as f64) {
                return Ok(compared.into_rows());
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
        row_addrs: &[u64],
        compared: &mut Compared,
        memory: &MemoryReservation,
    ) -> Result<()> {
        let mut new: Vec<u64> = row_addrs.to_vec();
        new.retain(|row_addr| !compared.exact.contains_key(row_addr));
        if new.is_empty() {
            return Ok(());
        }
        memory.try_resize((compared.exact.len() + new.len()).saturating_mul(2 * CANDIDATE_BYTES))?;
        let row_bytes = nearest.query.get_array_memory_size().max(1);
        for some in new.chunks((BYTES_PER_READ / row_bytes).max(FIRST_ROWS)) {
            let vectors = self.take(std::slice::from_ref(&nearest.column), some).await?;
            let bytes = vectors.get_array_memory_size();
            memory.try_grow(bytes)?;
            let measuring = compute_distance(nearest.query.clone(), nearest.metric.into(), &nearest.column, vectors);
            let measured = caught(measuring).await.map_err(|source| Error::storage(self.comparing(), source))?;
            memory.shrink(bytes);
            let mut found = Vec::with_capacity(some.len());
            self.add_distances(&measured, Some(some), &mut found)?;
            // A row without a vector is not compared again.
            compared.exact.extend(some.iter().map(|row_addr| (*row_addr, None)));
            compared.exact.extend(found.into_iter().map(|row| (row.row_addr, Some(row.distance))));
        }
        Ok(())
    }

    /// Adds the rows of a batch that have a distance. Their addresses are given, or in the batch.
    fn add_distances(&self, batch: &RecordBatch, row_addrs: Option<&[u64]>, found: &mut Vec<NearRow>) -> Result<()> {
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

    fn comparing(&self) -> String {
        format!("comparing vectors of {}", self.snapshot())
    }
}

/// Returns the number of partitions that a search compares at least by default: 4 √n of n, which are all of up to 16, 64 of
/// 256, and 400 of 10,000.
#[expect(clippy::cast_possible_truncation, reason = "casts of numbers with fractions saturate")]
pub fn default_probes(num_partitions: usize) -> usize {
    let probes = (PROBES_FACTOR * (num_partitions as f64).sqrt()).ceil() as usize;
    probes.min(num_partitions).max(1)
}

/// A row whose vector is a query.
struct QueryRow {
    row_addr: u64,
    vector: ArrayRef,
}

/// The nearest rows of a query that were seen so far, in order.
#[derive(Default)]
struct Closest(Vec<NearRow>);

impl Closest {
    /// Adds a row, if it is among the nearest.
    fn add(&mut self, row: NearRow) {
        if row.distance.is_nan() {
            return;
        }
        let rank = self.0.partition_point(|known| in_order(known, &row).is_lt());
        if rank < RECALL_RANK {
            self.0.insert(rank, row);
            self.0.truncate(RECALL_RANK);
        }
    }
}

impl Table {
    /// Estimates the share of the nearest 10 rows that searches with the default effort find by the index of a column.
    ///
    /// The queries are up to 64 vectors of the table, always the same ones of a version, each without its own row. One pass
    /// over the column compares them with all vectors. Returns `None` for a column whose rows are no single vectors, and for
    /// a table without vectors.
    ///
    /// # Errors
    /// Storage errors.
    pub(crate) async fn estimated_recall(
        &self,
        column: &str,
        metric: Metric,
        num_partitions: usize,
        progress: &ProgressSink<'_>,
    ) -> crate::Result<Option<f64>> {
        let Some(row_bytes) = self.vector_bytes(column) else { return Ok(None) };
        let queries = self.query_rows(column, row_bytes).await?;
        if queries.is_empty() {
            return Ok(None);
        }
        let exact = self.closest(column, row_bytes, metric, &queries, progress).await?;
        let memory: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let (mut found, mut expected) = (0, 0);
        for (QueryRow { row_addr, vector }, Closest(exact)) in queries.iter().zip(&exact) {
            let Some(last) = exact.last() else { continue };
            let nearest = Nearest {
                column: column.to_string(),
                query: vector.clone(),
                k: RECALL_RANK + 1,
                metric,
                use_index: true,
                nprobes: None,
                nprobes_min: Some(default_probes(num_partitions)),
            };
            let by_index = self.nearest_by_index(&nearest, None, None, &memory).await;
            let by_index = by_index.map_err(|source| Error::of_scan(self.comparing(), source))?;
            let others = by_index.iter().filter(|row| row.row_addr != *row_addr).take(exact.len());
            found += others.filter(|row| row.distance <= last.distance).count();
            expected += exact.len();
        }
        Ok((expected > 0).then(|| found as f64 / expected as f64))
    }

    /// Returns the bytes of a vector of a column; `None` for a column without vectors that can be searched.
    pub(crate) fn vector_bytes(&self, column: &str) -> Option<usize> {
        let schema = self.schema();
        let DataType::FixedSizeList(item, length) = schema.field_with_name(column).ok()?.data_type() else {
            return None;
        };
        let width = item.data_type().primitive_width()?;
        Some(width.saturating_mul(usize::try_from(*length).ok()?).max(1))
    }

    /// Returns rows whose vectors are the queries of an estimate: one at a fixed random place of each of as many equal parts
    /// of the table, without deleted rows and rows without a vector.
    async fn query_rows(&self, column: &str, row_bytes: usize) -> crate::Result<Vec<QueryRow>> {
        let fragments = self.fragments();
        let num_rows: u64 = fragments.iter().map(|fragment| fragment.physical_rows).sum();
        let column_bytes = num_rows.saturating_mul(row_bytes as u64).max(1);
        let num_queries = (RECALL_BYTES / column_bytes).clamp(RECALL_QUERIES_MIN, RECALL_QUERIES_MAX).min(num_rows);
        let mut row_addrs = Vec::with_capacity(to_usize(num_queries));
        let (mut fragments, mut first_row) = (fragments.into_iter().peekable(), 0);
        for part in 0..num_queries {
            let bound = |part: u64| to_u64(u128::from(num_rows) * u128::from(part) / u128::from(num_queries));
            let (start, end) = (bound(part), bound(part + 1));
            let position = start + scrambled(part) % (end - start).max(1);
            while let Some(passed) = fragments.next_if(|fragment| first_row + fragment.physical_rows <= position) {
                first_row += passed.physical_rows;
            }
            let Some(fragment) = fragments.peek() else { break };
            row_addrs.push(u64::from(fragment.id) << 32 | (position - first_row));
        }
        let mut present = Vec::with_capacity(row_addrs.len());
        for of_fragment in row_addrs.chunk_by(|one, next| one >> 32 == next >> 32) {
            let Some(fragment) = self.dataset().get_fragment(to_usize(of_fragment[0] >> 32)) else { continue };
            let deleted = caught(fragment.get_deletion_vector()).await;
            let deleted = deleted.map_err(|source| Error::storage(self.comparing(), source))?;
            let is_deleted = |addr: u64| deleted.as_ref().is_some_and(|deleted| deleted.contains(row_offset(addr)));
            present.extend(of_fragment.iter().copied().filter(|addr| !is_deleted(*addr)));
        }
        let vectors = self.take(&[column.to_string()], &present).await?;
        let vectors = vectors.column(0).as_fixed_size_list();
        let rows = present.into_iter().enumerate().filter(|(row, _)| vectors.is_valid(*row));
        Ok(rows.map(|(row, row_addr)| QueryRow { row_addr, vector: vectors.value(row) }).collect())
    }

    /// Returns the nearest rows of each query, without its own row, by their stored vectors.
    async fn closest(
        &self,
        column: &str,
        row_bytes: usize,
        metric: Metric,
        queries: &[QueryRow],
        progress: &ProgressSink<'_>,
    ) -> crate::Result<Vec<Closest>> {
        let request = ScanRequest {
            columns: vec![column.to_string()],
            with_row_addr: true,
            batch_size: (RECALL_BYTES_PER_BATCH / row_bytes).clamp(FIRST_ROWS, BATCH_ROWS),
            ..ScanRequest::default()
        };
        let mut closest: Vec<Closest> = queries.iter().map(|_| Closest::default()).collect();
        let mut report = StatementProgress {
            phase: "estimating the recall".to_string(),
            done: 0,
            total: Some(self.num_rows()),
            unit: "rows".to_string(),
        };
        let mut batches = self.scan(&request).await?;
        let fail = |source| Error::of_scan(self.comparing(), source);
        while let Some(batch) = batches.try_next().await.map_err(fail)? {
            let num_rows = batch.num_rows() as u64;
            let measuring = queries.iter().enumerate().map(|(number, query)| {
                let (vector, column, batch) = (query.vector.clone(), column.to_string(), batch.clone());
                async move {
                    let measured = compute_distance(vector, metric.into(), &column, batch);
                    caught(measured).await.map(|measured| (number, measured))
                }
            });
            let measuring: Vec<_> = measuring.collect();
            let mut measured = stream::iter(measuring).buffer_unordered(COMPARISONS_IN_FLIGHT);
            while let Some(measured) = measured.next().await {
                let (number, measured) = measured.map_err(|source| Error::storage(self.comparing(), source))?;
                let mut rows = Vec::with_capacity(measured.num_rows());
                self.add_distances(&measured, None, &mut rows).map_err(fail)?;
                let others = rows.into_iter().filter(|row| row.row_addr != queries[number].row_addr);
                others.for_each(|row| closest[number].add(row));
            }
            report.done += num_rows;
            progress(report.clone());
        }
        Ok(closest)
    }
}

fn to_u64(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Returns a number that looks random, the same for each number. The constants are those of SplitMix64 (Steele, Lea and
/// Flood, OOPSLA 2014).
fn scrambled(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn in_order(one: &NearRow, other: &NearRow) -> std::cmp::Ordering {
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

    /// Returns how many of the nearest `k` rows are expected among the rows that are no candidates, if there are as many
    /// of these at the distance of the last candidate.
    fn missing_beyond(&self, candidates: &[NearRow], k: usize) -> f64 {
        let (Some(errors), Some(last), Some(kth)) = (self.errors(candidates), candidates.last(), self.kth(k)) else {
            return 0.0;
        };
        errors.chance(kth, last.distance) * candidates.len() as f64
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
    use super::{Closest, Compared, NearRow, RECALL_RANK, default_probes, normal};

    #[test]
    fn the_normal_distribution() {
        for (value, expected) in [(0.0, 0.5), (1.0, 0.841_344_75), (-2.0, 0.022_750_13), (6.0, 1.0), (-9.0, 0.0)] {
            assert!((normal(value) - expected).abs() < 1e-6, "{value}: {}", normal(value));
        }
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
        assert!(compared.missing_beyond(&candidates[..20], 5) < 1e-9);
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

    #[test]
    fn few_partitions_are_all_searched() {
        let found = [1, 2, 16, 17, 256, 10_000].map(default_probes);
        assert_eq!(found, [1, 2, 16, 17, 64, 400]);
        assert_eq!(default_probes(0), 1);
    }

    #[test]
    fn the_closest_rows_stay_in_order() {
        let mut closest = Closest::default();
        for row in (0..30).rev() {
            closest.add(NearRow { distance: (row / 2) as f32, row_addr: row });
            closest.add(NearRow { distance: f32::NAN, row_addr: 100 + row });
        }
        let found: Vec<u64> = closest.0.iter().map(|row| row.row_addr).collect();
        assert_eq!(found, (0..RECALL_RANK as u64).collect::<Vec<_>>());
    }
}
