//! Searches for the nearest vectors. Rows are in exact order of distance, and ties are ordered by row address.
//!
//! An index compares compressed vectors, in the partitions whose centroids are nearest to the query. The nearest of
//! them are the candidates, whose stored vectors are then compared exactly. With too few candidates or partitions, rows
//! that an exact search finds are missing. How many candidates are needed differs: for a recall of 0.95 of 10 rows, 100 of
//! 100,000 clustered vectors and more than 400 of uniform ones. So a search compares more until the errors of the
//! compressed distances say that it is enough ([`stoker_lake::Table::nearest_by_index`]), unless `refine` sets the number.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float32Array, RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::{Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use stoker_lake::{DenseColumn, NearRow, Nearest, ROW_ADDR, ReadVectors, RowIdSet, ScanRequest};
use stoker_types::to_usize;

use super::search_exec::Allowed;
use super::worded::with_columns;
use super::{DISTANCE, VectorSearch};
use crate::provider::HeavyTable;

/// The most rows in a batch from Lance.
const BATCH_ROWS: usize = 8192;
/// The rows that are requested beyond `k`, to find ties at rank `k`.
pub(super) const NUM_EXTRA: usize = 32;
/// About how many candidates a search compares for 10 rows, and how that grows with `k`.
const CANDIDATES_MIN: usize = 200;
const CANDIDATES_FACTOR: f64 = 40.0;
const CANDIDATES_POWER: f64 = 0.7;
/// An exact search pays up to this many vectors for each candidate of the search by an index.
const EXACT_PER_CANDIDATE: u64 = 4;
/// Single rows are read if they are at most one in this many rows of the table.
const ROWS_PER_FEW: u64 = 16;
/// The bytes of vectors that are read at a time.
const BYTES_PER_READ: usize = 8 << 20;
/// The bytes of a row with its distance in memory, before and after it is sorted.
const ROW_BYTES: usize = 64;
/// Reading and comparing a vector costs about as much as comparing this many compressed vectors.
const CODES_PER_VECTOR: u64 = 16;

/// Returns the `k` nearest rows with these light columns, distance and address, in order.
///
/// An index compares as many candidates as are needed. An exact search after which rows beyond rank `k` may have the
/// distance of rank `k` runs again for four times as many rows.
pub(super) async fn nearest(
    heavy: &HeavyTable,
    search: &VectorSearch,
    query: &ArrayRef,
    allowed: Option<&Allowed>,
    columns: &[String],
    context: &TaskContext,
) -> DfResult<RecordBatch> {
    let table = &heavy.table;
    let candidates = candidates(search.k, search.refine);
    let index = match search.use_index {
        true => table.searched_index(&search.column, search.metric).await?,
        false => None,
    };
    let num_rows = table.num_rows();
    let num_allowed = allowed.map_or(num_rows, |allowed| allowed.rows.len());
    let nprobes_min = index.as_ref().map(|index| index.default_probes(search.k, num_allowed, num_rows));
    let num_candidates = index.as_ref().map_or(0, |index| index.num_candidates(search.k));
    let use_index = index.is_some_and(|index| {
        let probes = search.nprobes.or(nprobes_min).unwrap_or(index.num_partitions);
        // An index that is asked for more rows than may be found gives some of them without a distance.
        let asked = search.refine.map_or(num_candidates, |_| candidates);
        let costs_less = || exact_costs_less(num_allowed, num_rows, candidates, probes, index.num_partitions);
        allowed.is_none() || !(num_allowed <= asked as u64 || costs_less())
    });
    let of_table = |k: usize, use_index: bool| Nearest {
        column: search.column.clone(),
        query: query.clone(),
        k,
        metric: search.metric,
        use_index,
        nprobes: search.nprobes,
        nprobes_min,
        num_candidates,
    };
    let rows = allowed.map(|allowed| allowed.rows.clone());
    let found = match (use_index, &rows) {
        (true, _) => {
            let candidates = search.refine.map(|_| candidates);
            let nearest = of_table(search.k, true);
            let vectors = Vectors::of(heavy, &search.column).await?;
            let (found, _) =
                table.nearest_by_index(&nearest, rows.clone(), candidates, &vectors, context.memory_pool()).await?;
            Some(found)
        }
        (false, Some(rows)) => nearest_of_few(heavy, &of_table(search.k, false), rows, context).await?,
        (false, None) => None,
    };
    if let Some(found) = found {
        let found = &found[..found.len().min(search.k)];
        let row_addrs: Vec<u64> = found.iter().map(|row| row.row_addr).collect();
        let distances: ArrayRef = Arc::new(Float32Array::from_iter_values(found.iter().map(|row| row.distance)));
        return with_columns(table, &row_addrs, columns, vec![(DISTANCE, distances)], context).await;
    }
    let mut fetch = search.k.saturating_add(NUM_EXTRA);
    loop {
        let request = ScanRequest {
            columns: columns.to_vec(),
            row_ids: rows.clone(),
            with_row_addr: true,
            nearest: Some(of_table(fetch, false)),
            batch_size: BATCH_ROWS,
            ..ScanRequest::default()
        };
        let mut batches = table.scan(&request).await?;
        let reservation = MemoryConsumer::new("vector_search").register(context.memory_pool());
        let schema: SchemaRef = batches.schema();
        let mut found = Vec::new();
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            reservation.try_grow(batch.get_array_memory_size())?;
            found.push(batch);
        }
        let found = concat_batches(&schema, &found)?;
        let sorted = sort(&found)?;
        let num_rows = sorted.num_rows();
        // The result is complete if the last row is farther than rank k, or if there are no more rows: then no tie is
        // cut off. Lance may sort NaN before numbers; if NaN is among the rows, nearer rows may be missing.
        let complete = num_rows < fetch || {
            let distances = distances(&sorted)?;
            distances.value(num_rows - 1) > distances.value(search.k - 1)
        };
        if complete || fetch as u64 >= table.num_rows() {
            return Ok(sorted.slice(0, num_rows.min(search.k)));
        }
        fetch = fetch.saturating_mul(4);
    }
}

/// The vectors of a column, which are read by chunk scan if they are stored as plain bytes.
struct Vectors<'a> {
    heavy: &'a HeavyTable,
    name: &'a str,
    dense: Option<Arc<DenseColumn>>,
}

impl<'a> Vectors<'a> {
    async fn of(heavy: &'a HeavyTable, name: &'a str) -> DfResult<Self> {
        Ok(Self { heavy, name, dense: heavy.dense(name).await? })
    }
}

impl ReadVectors for Vectors<'_> {
    fn read<'a>(&'a self, row_addrs: &'a [u64]) -> BoxFuture<'a, DfResult<RecordBatch>> {
        async {
            let Some(column) = &self.dense else {
                return Ok(self.heavy.table.take(&[self.name.to_string()], row_addrs).await?);
            };
            dense_vectors(self.heavy, self.name, column, row_addrs).await
        }
        .boxed()
    }
}

/// Reads the vectors of rows by chunk scan, as a batch of the one column.
async fn dense_vectors(
    heavy: &HeavyTable,
    name: &str,
    column: &Arc<DenseColumn>,
    row_addrs: &[u64],
) -> DfResult<RecordBatch> {
    let vectors = heavy.dense_values(name, column, row_addrs).await?;
    let schema = Schema::new(vec![Field::new(name, column.data_type.clone(), true)]);
    Ok(RecordBatch::try_new(Arc::new(schema), vec![vectors])?)
}

/// Compares all vectors of a few rows, and returns the nearest `k`. The vectors are read by chunk scan, whose reads of
/// single rows cost a tenth of those of Lance's decoder. Returns `None` for many rows, which a scan reads faster, and for
/// vectors that are not stored as plain bytes.
async fn nearest_of_few(
    heavy: &HeavyTable,
    nearest: &Nearest,
    rows: &RowIdSet,
    context: &TaskContext,
) -> DfResult<Option<Vec<NearRow>>> {
    let (table, name) = (&heavy.table, &nearest.column);
    if rows.len().saturating_mul(ROWS_PER_FEW) > table.num_rows() || !table.row_ids_are_addresses() {
        return Ok(None);
    }
    let Some(column) = heavy.dense(name).await? else { return Ok(None) };
    let memory = MemoryConsumer::new("vector_search").register(context.memory_pool());
    let num_rows = to_usize(rows.len());
    let rows_per_read = (BYTES_PER_READ / column.row_bytes.max(1)).clamp(1, num_rows.max(1));
    // One read, the distances of its rows, and the nearest rows up to then.
    let of_read = rows_per_read.saturating_mul(column.row_bytes.saturating_add(ROW_BYTES));
    memory.try_grow(of_read.saturating_add(nearest.k.min(num_rows).saturating_mul(ROW_BYTES)))?;
    let mut addrs = rows.iter();
    let mut found: Vec<NearRow> = Vec::new();
    loop {
        let read: Vec<u64> = addrs.by_ref().take(rows_per_read).collect();
        if read.is_empty() {
            return Ok(Some(found));
        }
        let vectors = dense_vectors(heavy, name, &column, &read).await?;
        found.extend(table.distances(nearest, vectors, &read).await?);
        found.sort_unstable_by(|a, b| a.distance.total_cmp(&b.distance).then(a.row_addr.cmp(&b.row_addr)));
        found.truncate(nearest.k);
    }
}

fn distances(batch: &RecordBatch) -> DfResult<&Float32Array> {
    let column = batch.column_by_name(DISTANCE).and_then(|column| column.as_any().downcast_ref::<Float32Array>());
    column.ok_or_else(|| DataFusionError::Internal(format!("a search gave no {DISTANCE}")))
}

/// Sorts the rows by distance (NaN last), then by address. Rows without a distance are left out.
fn sort(batch: &RecordBatch) -> DfResult<RecordBatch> {
    let addrs = batch.column_by_name(ROW_ADDR).and_then(|column| column.as_any().downcast_ref::<UInt64Array>());
    let Some(addrs) = addrs else { return internal_err!("a search gave no {ROW_ADDR}") };
    let num_rows = u32::try_from(batch.num_rows())
        .map_err(|_| DataFusionError::Internal("a search gave more than 2^32 rows".into()))?;
    let distances = without_signed_nan(distances(batch)?);
    let mut order: Vec<u32> = (0..num_rows).filter(|row| distances.is_valid(*row as usize)).collect();
    order.sort_unstable_by(|a, b| {
        let (a, b) = (*a as usize, *b as usize);
        distances.value(a).total_cmp(&distances.value(b)).then(addrs.value(a).cmp(&addrs.value(b)))
    });
    let mut columns = batch.columns().to_vec();
    columns[batch.schema().index_of(DISTANCE)?] = Arc::new(distances);
    let batch = RecordBatch::try_new(batch.schema(), columns)?;
    Ok(take_record_batch(&batch, &UInt32Array::from(order))?)
}

/// Replaces every NaN by one without a sign, which `total_cmp` sorts after all numbers.
fn without_signed_nan(distances: &Float32Array) -> Float32Array {
    distances.unary(|distance| if distance.is_nan() { f32::NAN } else { distance })
}

/// Returns the number of candidates: `refine × k`, or about as many as a search without `refine` compares. Always a few
/// more than `k`.
#[expect(clippy::cast_possible_truncation, reason = "casts of numbers with fractions saturate")]
fn candidates(k: usize, refine: Option<u32>) -> usize {
    let candidates = match refine {
        Some(refine) => k.saturating_mul(refine as usize),
        None => CANDIDATES_MIN.max((CANDIDATES_FACTOR * (k as f64).powf(CANDIDATES_POWER)) as usize),
    };
    candidates.max(k.saturating_add(NUM_EXTRA))
}

/// Tells whether an exact search among `num_allowed` of `num_rows` rows costs less than a search by an index: if the
/// rows are at most four for each candidate, or at most a sixteenth of those in the searched partitions.
fn exact_costs_less(num_allowed: u64, num_rows: u64, candidates: usize, probes: usize, num_partitions: usize) -> bool {
    let compressed = u128::from(num_rows) * probes as u128 / num_partitions.max(1) as u128;
    let compressed = u64::try_from(compressed).unwrap_or(u64::MAX).min(num_rows);
    num_allowed <= (candidates as u64).saturating_mul(EXACT_PER_CANDIDATE).max(compressed / CODES_PER_VECTOR)
}

#[cfg(test)]
mod tests {
    use super::{NUM_EXTRA, candidates, exact_costs_less};

    #[test]
    fn candidates_taper() {
        for (k, expected) in [(1, 200), (10, 200), (100, 1_005), (1_000, 5_036), (1_000_000, 1_000_032)] {
            let found = candidates(k, None);
            assert!(found.abs_diff(expected) <= expected / 1_000, "{k}: {found}");
        }
        assert_eq!((candidates(10, Some(1)), candidates(10, Some(20))), (10 + NUM_EXTRA, 200));
        assert_eq!(candidates(usize::MAX, Some(1_000)), usize::MAX);
    }

    #[test]
    fn few_rows_are_searched_exactly() {
        assert!(exact_costs_less(0, 100, 400, 1, 1));
        assert!(exact_costs_less(1_600, 100_000, 400, 64, 256));
        assert!(!exact_costs_less(1_601, 100_000, 400, 64, 256));
        assert!(exact_costs_less(62_500, 10_000_000, 400, 100, 1_000));
        assert!(!exact_costs_less(62_501, 10_000_000, 400, 100, 1_000));
        assert!(!exact_costs_less(u64::MAX, u64::MAX, 400, usize::MAX, 0));
    }
}
