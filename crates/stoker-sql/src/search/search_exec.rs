//! Runs a search. Rows are in exact order of distance, and ties are ordered by row address.

use std::fmt;
use std::sync::Arc;

use arrow_array::{Array, Float32Array, RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use stoker_lake::{Nearest, ROW_ADDR, ScanRequest, Table};

use super::{DISTANCE, Search};
use crate::provider::{HeavyTable, Layout, heavy, split};

/// The number of rows that are requested beyond `k`, to find ties at rank `k`.
const NUM_EXTRA: usize = 32;
/// The most rows in a batch from Lance.
const BATCH_ROWS: usize = 8192;

/// The physical plan of one `vector_search`: one partition, rows ordered by (`_distance`, row address).
#[derive(Debug)]
pub(crate) struct SearchExec {
    table: HeavyTable,
    search: Search,
    layout: Arc<Layout>,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl SearchExec {
    pub(crate) fn new(table: HeavyTable, search: Search, layout: Layout, limit: Option<usize>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(layout.schema().clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self { table, search, layout: Arc::new(layout), limit, properties: Arc::new(properties) }
    }
}

impl DisplayAs for SearchExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let Search { column, k, metric, use_index, prefilter, .. } = &self.search;
        write!(f, "SearchExec: table={}, column={column}, k={k}, metric={metric:?}", self.table.table.snapshot())?;
        write!(f, ", use_index={use_index}, {}", self.layout)?;
        match prefilter {
            Some(prefilter) => write!(f, ", prefilter={prefilter}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for SearchExec {
    fn name(&self) -> &str {
        "SearchExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> DfResult<Arc<dyn ExecutionPlan>> {
        match children.is_empty() {
            true => Ok(self),
            false => internal_err!("SearchExec has no children"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("SearchExec has one partition");
        }
        let (table, search, layout) = (self.table.clone(), self.search.clone(), self.layout.clone());
        let limit = self.limit.unwrap_or(usize::MAX);
        let schema = layout.schema().clone();
        let searched = context.clone();
        let found = async move {
            let nearest = nearest(&table.table, &search, &layout, &searched).await?;
            let nearest = nearest.slice(0, nearest.num_rows().min(limit));
            Ok::<_, DataFusionError>(heavy::complete(table, layout, nearest))
        };
        let stream = stream::once(found).try_flatten();
        Ok(split(Box::pin(RecordBatchStreamAdapter::new(schema, stream)), &context, partition))
    }
}

/// Returns the `k` nearest rows with their light columns, distance and address, in order. If rows beyond rank `k` may
/// have the distance of rank `k`, the search runs again for four times as many rows.
async fn nearest(table: &Table, search: &Search, layout: &Layout, context: &TaskContext) -> DfResult<RecordBatch> {
    let mut fetch = search.k.saturating_add(NUM_EXTRA);
    loop {
        let request = ScanRequest {
            columns: layout.light_columns(),
            filter: search.prefilter.as_deref().cloned(),
            with_row_addr: true,
            nearest: Some(Nearest {
                column: search.column.clone(),
                query: search.query.clone(),
                k: fetch,
                metric: search.metric,
                use_index: search.use_index,
                nprobes: search.nprobes,
                refine: search.refine,
            }),
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
