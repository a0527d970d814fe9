//! Scans fragments of a pinned table in partitions of whole fragments.

use std::fmt;
use std::sync::Arc;

use arrow_schema::Schema;
use datafusion::common::stats::Precision;
use datafusion::common::{Result as DfResult, Statistics, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, SplitMetrics};
use datafusion::physical_plan::stream::{BatchSplitStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use datafusion::prelude::Expr;
use futures::{TryStreamExt as _, stream};
use stoker_lake::{FragmentInfo, ScanRequest, ScanStats};
use stoker_types::to_usize;

use super::{HeavyTable, Layout, heavy};

/// The most rows of light columns in a batch from Lance.
const BATCH_ROWS: usize = 8192;
/// The rows per partition below which no further partition is added.
const PARTITION_ROWS_MIN: u64 = 8192;

/// The physical plan of a table scan. Each partition reads its own fragments.
#[derive(Clone, Debug)]
pub(crate) struct ScanExec {
    table: HeavyTable,
    layout: Arc<Layout>,
    filter: Option<Expr>,
    limit: Option<usize>,
    partitions: Vec<FragmentGroup>,
    properties: Arc<PlanProperties>,
    /// The rows that the scan gave, and what it read.
    metrics: ExecutionPlanMetricsSet,
}

/// The neighbouring fragments of one partition.
#[derive(Clone, Debug, Default)]
struct FragmentGroup {
    ids: Vec<u32>,
    num_rows: u64,
}

impl ScanExec {
    pub(crate) fn new(
        table: HeavyTable,
        fragments: &[FragmentInfo],
        layout: Layout,
        filter: Option<Expr>,
        limit: Option<usize>,
        target_partitions: usize,
    ) -> Self {
        let partitions = group_fragments(fragments, target_partitions);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(layout.schema().clone()),
            Partitioning::UnknownPartitioning(partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let (layout, properties) = (Arc::new(layout), Arc::new(properties));
        Self { table, layout, filter, limit, partitions, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

/// Groups the fragments into at most `target` groups of about equally many rows; at least one group.
fn group_fragments(fragments: &[FragmentInfo], target: usize) -> Vec<FragmentGroup> {
    let num_rows: u64 = fragments.iter().map(|fragment| fragment.num_rows).sum();
    let target = (target as u64).min(num_rows.div_ceil(PARTITION_ROWS_MIN)).max(1);
    let rows_per_group = num_rows.div_ceil(target).max(1);
    let mut groups = vec![FragmentGroup::default()];
    for fragment in fragments {
        if groups.last().is_some_and(|group| group.num_rows >= rows_per_group) {
            groups.push(FragmentGroup::default());
        }
        if let Some(group) = groups.last_mut() {
            group.ids.push(fragment.id);
            group.num_rows += fragment.num_rows;
        }
    }
    groups
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ScanExec: table={}, {}", self.table.table.snapshot(), self.layout)?;
        if let Some(filter) = &self.filter {
            write!(f, ", filter={filter}")?;
        }
        if let Some(limit) = self.limit {
            write!(f, ", limit={limit}")?;
        }
        write!(f, ", partitions={}", self.partitions.len())
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &str {
        "ScanExec"
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
            false => internal_err!("ScanExec has no children"),
        }
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn reset_state(self: Arc<Self>) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { metrics: ExecutionPlanMetricsSet::new(), ..self.as_ref().clone() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        let Some(group) = self.partitions.get(partition) else {
            return internal_err!("ScanExec has {} partitions", self.partitions.len());
        };
        let schema = self.layout.schema().clone();
        if group.ids.is_empty() {
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::empty())));
        }
        let request = ScanRequest {
            columns: self.layout.light_columns(),
            filter: self.filter.clone(),
            limit: self.limit.map(|limit| limit as u64),
            with_row_id: self.layout.needs_row_id(),
            with_row_addr: self.layout.needs_row_addr(),
            fragments: Some(group.ids.clone()),
            batch_size: BATCH_ROWS,
            ..ScanRequest::default()
        };
        let (table, layout) = (self.table.counted(&self.metrics, partition), self.layout.clone());
        let output_rows = MetricBuilder::new(&self.metrics).output_rows(partition);
        let batches = async move {
            let light = table.table.scan(&request).await?;
            Ok::<_, DataFusionError>(
                light
                    .and_then(move |light| {
                        let completed = heavy::complete(table.clone(), layout.clone(), light);
                        async move { Ok(completed) }
                    })
                    .try_flatten(),
            )
        };
        let stream = stream::once(batches).try_flatten();
        let stream = stream.inspect_ok(move |batch| output_rows.add(batch.num_rows()));
        Ok(split(Box::pin(RecordBatchStreamAdapter::new(schema, stream)), &context, partition))
    }

    fn partition_statistics(&self, partition: Option<usize>) -> DfResult<Arc<Statistics>> {
        let num_rows = match partition {
            None => self.partitions.iter().map(|group| group.num_rows).sum(),
            Some(partition) => self.partitions.get(partition).map_or(0, |group| group.num_rows),
        };
        let num_rows = to_usize(num_rows);
        let precision = match (&self.filter, self.limit) {
            (None, None) => Precision::Exact(num_rows),
            (_, limit) => Precision::Inexact(num_rows.min(limit.unwrap_or(usize::MAX))),
        };
        Ok(Arc::new(statistics(self.layout.schema(), precision)))
    }
}

impl HeavyTable {
    /// Returns the table with counts of what is read, which are metrics of one partition of a plan.
    pub(crate) fn counted(&self, metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        Self { table: self.table.with_stats(ScanStats::new(metrics, partition)), chunks: self.chunks.clone() }
    }
}

/// Cuts the batches so that none has more rows than the query's batch size. Operators above the scan may add long
/// constants to each row.
pub(crate) fn split(
    rows: SendableRecordBatchStream,
    context: &TaskContext,
    partition: usize,
) -> SendableRecordBatchStream {
    let metrics = SplitMetrics::new(&ExecutionPlanMetricsSet::new(), partition);
    Box::pin(BatchSplitStream::new(rows, context.session_config().batch_size(), metrics))
}

/// Returns statistics that contain only the number of rows.
pub(crate) fn statistics(schema: &Schema, num_rows: Precision<usize>) -> Statistics {
    Statistics::new_unknown(schema).with_num_rows(num_rows)
}
