//! The recall of indexes of vectors: how it is estimated, and where the estimates are kept.
//!
//! ```text
//! vectors of some rows ─┬─ one pass over the column ──► the nearest rows of each
//!                       └─ searches by the index ─────► how many of them are found ──► _stoker/indexes/<table>/<id>.json
//! ```

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef};
use arrow_schema::DataType;
use bytes::Bytes;
use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use lance_index::vector::VectorIndex;
use lance_index::vector::flat::compute_distance;
use lance_linalg::distance::MetricType;
use lance_table::format::IndexMetadata;
use serde::{Deserialize, Serialize};
use stoker_types::{ErrorKind, ProgressSink, SnapshotRef, StatementProgress, TableName, to_usize};
use uuid::Uuid;

use crate::damage::caught;
use crate::index::is_of_vectors;
use crate::lake::BRANCHES_FOLDER;
use crate::probes::{RANKS, RankProbes, SearchedIndex};
use crate::rerank::{BATCH_ROWS, FIRST_ROWS, TakenVectors, in_order};
use crate::row_id_set::row_offset;
use crate::{Error, LakeStore, Metric, NearRow, Nearest, Result, ScanRequest, Table};

/// The rank up to which the rows of searches are compared to estimate the recall.
const RANK: usize = 10;
/// The most and the fewest queries of an estimate. In between, their number is such that the vectors that are compared have
/// this many bytes.
const QUERIES_MAX: u64 = 64;
const QUERIES_MIN: u64 = 16;
const COMPARED_BYTES: u64 = 64 << 30;
/// The bytes of vectors that all queries of an estimate are compared with at a time, so that a processor's cache holds them.
const BYTES_PER_BATCH: usize = 1 << 20;
/// The queries that tell how many candidates searches need.
const FIRST_QUERIES: usize = 16;
/// The queries that are compared at the same time.
const COMPARISONS_IN_FLIGHT: usize = 16;

/// The folder of a table that has a folder for each index.
const INDICES: &str = "_indices";

/// The folder of what was measured of indexes, relative to `_stoker`: `<table>/<id of the index>.json`.
const MEASURED: &str = "indexes";

/// The rows nearest to each query that are kept.
const CLOSEST: usize = RANKS[RANKS.len() - 1];

/// What was measured of an index of vectors, as it is stored.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The share of the nearest rows that searches found, from 0 to 1.
    pub recall: f64,
    /// How many partitions have the nearest rows, by ascending rank. Earlier versions did not measure it.
    #[serde(default)]
    pub probes: Vec<RankProbes>,
    /// How many candidates three quarters of the searches asked the index for at most.
    #[serde(default)]
    pub candidates: usize,
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
    /// Returns whether a row may be among the nearest.
    fn may_have(&self, row: &NearRow) -> bool {
        self.0.len() < CLOSEST || self.0.last().is_some_and(|last| row.distance <= last.distance)
    }

    /// Adds a row, if it is among the nearest.
    fn add(&mut self, row: NearRow) {
        if row.distance.is_nan() {
            return;
        }
        let rank = self.0.partition_point(|known| in_order(known, &row).is_lt());
        if rank < CLOSEST {
            self.0.insert(rank, row);
            self.0.truncate(CLOSEST);
        }
    }
}

impl LakeStore {
    /// Removes what was measured of indexes of a table that no version of it, and of its branches, has any more.
    pub(crate) async fn clean_measured(&self, table: &TableName) -> Result<()> {
        let objects = self.objects();
        let measured = objects.list(&format!("{MEASURED}/{}", table.root())).await?;
        if measured.is_empty() {
            return Ok(());
        }
        let attempted = || format!("listing the indexes of table {table}");
        let root = self.root_path(table);
        let branches = self.list(&root.clone().join(BRANCHES_FOLDER), attempted).await?;
        let mut folders = self.list(&root.clone().join(INDICES), attempted).await?;
        for branch in branches {
            let folder = root.clone().join(BRANCHES_FOLDER).join(branch.trim_end_matches('/')).join(INDICES);
            folders.extend(self.list(&folder, attempted).await?);
        }
        for path in measured {
            let uuid = path.rsplit('/').next().and_then(|name| name.strip_suffix(".json")).unwrap_or_default();
            if !folders.iter().any(|folder| folder.trim_end_matches('/') == uuid) {
                objects.delete(&path).await?;
            }
        }
        Ok(())
    }
}

impl Table {
    /// Estimates the recall of an index of vectors, and keeps the estimate, which [`Table::indexes`] then tells. Returns
    /// `None` for another index, and for one that is not that of the searches of its column.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn measure_recall(&self, index: &str, progress: &ProgressSink<'_>) -> Result<Option<f64>> {
        let segments = self.segments(index).await?;
        let column = segments.first().and_then(|segment| {
            let field = self.dataset().schema().field_by_id(*segment.fields.first()?)?;
            Some(field.name.clone())
        });
        let Some(column) = column else { return Ok(None) };
        let Some(searched) = self.vector_index(&column).await?.filter(|searched| searched.name == index) else {
            return Ok(None);
        };
        let opened = self.opened_vectors(&column, &searched).await?;
        let metric = match opened.metric_type() {
            MetricType::L2 => Metric::L2,
            MetricType::Cosine => Metric::Cosine,
            MetricType::Dot => Metric::Dot,
            _ => return Ok(None),
        };
        let Some(measured) = self.measure(&column, metric, opened, progress).await? else { return Ok(None) };
        self.store_measured(index, &segments, &measured).await?;
        Ok(Some(measured.recall))
    }

    /// Returns how many bytes of vectors [`Table::measure_recall`] reads of the column of an index; `None` for an index
    /// that is not of vectors.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn indexed_vector_bytes(&self, index: &str) -> Result<Option<u64>> {
        let segments = self.segments(index).await?;
        let field = segments.iter().find(|segment| is_of_vectors(segment)).and_then(|segment| segment.fields.first());
        let column = field.and_then(|id| self.dataset().schema().field_by_id(*id));
        let row_bytes = column.and_then(|column| self.vector_bytes(&column.name));
        Ok(row_bytes.map(|row_bytes| self.num_rows().saturating_mul(row_bytes as u64)))
    }

    /// Keeps what was measured of an index in the version before this one for this version too, which is for an index that
    /// rows were added to. Returns the recall.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the version before is gone; storage errors.
    pub async fn keep_recall(&self, index: &str) -> Result<Option<f64>> {
        let before = self.version().saturating_sub(1);
        let before = self.lake().table(self.name(), &SnapshotRef::Version(before)).await?;
        let newest = before.segments(index).await?.into_iter().max_by_key(|segment| segment.dataset_version);
        let Some(newest) = newest.filter(is_of_vectors) else { return Ok(None) };
        let Some(measured) = before.measured(newest.uuid).await? else { return Ok(None) };
        self.store_measured(index, &self.segments(index).await?, &measured).await?;
        Ok(Some(measured.recall))
    }

    /// Keeps what was measured of a segment of an index for one that took its place with the same vectors.
    pub(crate) async fn copy_measured(&self, from: Uuid, to: Uuid) -> Result<()> {
        let path = measured_path(self.name(), from);
        let Some(json) = self.lake().objects().get(&path).await? else { return Ok(()) };
        self.lake().objects().put(&measured_path(self.name(), to), json).await?;
        self.lake().inner.measured.forget(to);
        Ok(())
    }

    async fn store_measured(&self, index: &str, segments: &[IndexMetadata], measured: &Measured) -> Result<()> {
        let json = serde_json::to_vec(measured).map_err(|source| Error::Storage {
            attempted: format!("measuring index {index} of {}", self.snapshot()),
            kind: ErrorKind::Internal,
            source: source.into(),
        })?;
        for segment in segments {
            let path = measured_path(self.name(), segment.uuid);
            self.lake().objects().put(&path, Bytes::from(json.clone())).await?;
            self.lake().inner.measured.forget(segment.uuid);
        }
        Ok(())
    }

    /// Returns what was measured of an index that has this segment.
    pub(crate) async fn measured(&self, segment: Uuid) -> Result<Option<Measured>> {
        let path = measured_path(self.name(), segment);
        let Some(json) = self.lake().objects().get(&path).await? else { return Ok(None) };
        match serde_json::from_slice::<Measured>(&json) {
            Ok(measured) => Ok(Some(measured)),
            Err(error) => {
                tracing::warn!(%path, %error, "what was measured of an index cannot be read");
                Ok(None)
            }
        }
    }

    /// Estimates the share of the nearest 10 rows that searches with the default effort find by the index of a column, and
    /// how many partitions have them.
    ///
    /// The queries are up to 64 vectors of the table, always the same ones of a version, each without its own row. One pass
    /// over the column compares them with all vectors. Returns `None` for a column whose rows are no single vectors, and for
    /// a table without vectors.
    ///
    /// # Errors
    /// Storage errors.
    async fn measure(
        &self,
        column: &str,
        metric: Metric,
        index: Arc<dyn VectorIndex>,
        progress: &ProgressSink<'_>,
    ) -> Result<Option<Measured>> {
        let Some(row_bytes) = self.vector_bytes(column) else { return Ok(None) };
        let queries = self.query_rows(column, row_bytes).await?;
        if queries.is_empty() {
            return Ok(None);
        }
        let exact = self.closest(column, row_bytes, metric, &queries, progress).await?;
        let row_addrs = |Closest(exact): &Closest| exact.iter().map(|row| row.row_addr).collect();
        let nearest: Vec<(ArrayRef, Vec<u64>)> =
            queries.iter().zip(&exact).map(|(query, exact)| (query.vector.clone(), row_addrs(exact))).collect();
        let num_partitions = index.total_partitions();
        let probes = self.measured_probes(column, metric, index, &nearest).await?;
        let mut measured = Measured { probes, ..Measured::default() };
        let searched = SearchedIndex::new(num_partitions, Arc::new(measured.clone()));
        let probes = searched.default_probes(RANK, self.num_rows(), self.num_rows());
        let memory: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let vectors = TakenVectors { table: self, column };
        let search = async |vector: &ArrayRef, num_candidates: usize| {
            let nearest = Nearest {
                column: column.to_string(),
                query: vector.clone(),
                k: RANK + 1,
                metric,
                use_index: true,
                nprobes: None,
                nprobes_min: Some(probes),
                num_candidates,
            };
            let searched = self.nearest_by_index(&nearest, None, None, &vectors, &memory).await;
            searched.map_err(|source| Error::of_scan(self.comparing(), source))
        };
        let mut candidates = Vec::with_capacity(FIRST_QUERIES);
        for query in queries.iter().take(FIRST_QUERIES) {
            candidates.push(search(&query.vector, 0).await?.1);
        }
        candidates.sort_unstable();
        measured.candidates = candidates.get(candidates.len() * 3 / 4).copied().unwrap_or(0);
        let (mut found, mut expected) = (0, 0);
        for (QueryRow { row_addr, vector }, Closest(exact)) in queries.iter().zip(&exact) {
            let exact = &exact[..exact.len().min(RANK)];
            let Some(last) = exact.last() else { continue };
            let (by_index, _) = search(vector, measured.candidates).await?;
            let others = by_index.iter().filter(|row| row.row_addr != *row_addr).take(exact.len());
            found += others.filter(|row| row.distance <= last.distance).count();
            expected += exact.len();
        }
        measured.recall = found as f64 / expected.max(1) as f64;
        Ok((expected > 0).then_some(measured))
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
    async fn query_rows(&self, column: &str, row_bytes: usize) -> Result<Vec<QueryRow>> {
        let fragments = self.fragments();
        let num_rows: u64 = fragments.iter().map(|fragment| fragment.physical_rows).sum();
        let column_bytes = num_rows.saturating_mul(row_bytes as u64).max(1);
        let num_queries = (COMPARED_BYTES / column_bytes).clamp(QUERIES_MIN, QUERIES_MAX).min(num_rows);
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
    ) -> Result<Vec<Closest>> {
        let request = ScanRequest {
            columns: vec![column.to_string()],
            with_row_addr: true,
            batch_size: (BYTES_PER_BATCH / row_bytes).clamp(FIRST_ROWS, BATCH_ROWS),
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
                let closest = &mut closest[number];
                rows.retain(|row| closest.may_have(row) && row.row_addr != queries[number].row_addr);
                rows.into_iter().for_each(|row| closest.add(row));
            }
            report.done += num_rows;
            progress(report.clone());
        }
        Ok(closest)
    }
}

fn measured_path(table: &TableName, index: Uuid) -> String {
    format!("{MEASURED}/{}/{index}.json", table.root())
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

#[cfg(test)]
mod tests {
    use super::{CLOSEST, Closest};
    use crate::NearRow;

    #[test]
    fn the_closest_rows_stay_in_order() {
        let mut closest = Closest::default();
        for row in (0..3 * CLOSEST as u64).rev() {
            closest.add(NearRow { distance: (row / 2) as f32, row_addr: row });
            closest.add(NearRow { distance: f32::NAN, row_addr: 100_000 + row });
        }
        let found: Vec<u64> = closest.0.iter().map(|row| row.row_addr).collect();
        assert_eq!(found, (0..CLOSEST as u64).collect::<Vec<_>>());
    }
}
