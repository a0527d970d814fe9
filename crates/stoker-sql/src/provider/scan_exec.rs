//! Scans fragments of a pinned table in partitions of whole fragments.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
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
use stoker_lake::{FragmentInfo, ScanRequest, ScanStats, row_offset};
use stoker_types::to_usize;

use super::{HeavyTable, Layout, heavy};
use crate::ProgressReports;

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
    fragments: Vec<FragmentInfo>,
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
            group.fragments.push(*fragment);
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
        if group.fragments.is_empty() {
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::empty())));
        }
        let request = ScanRequest {
            columns: self.layout.light_columns(),
            filter: self.filter.clone(),
            limit: self.limit.map(|limit| limit as u64),
            with_row_id: self.layout.needs_row_id(),
            with_row_addr: self.layout.needs_row_addr(),
            fragments: Some(group.fragments.iter().map(|fragment| fragment.id).collect()),
            batch_size: BATCH_ROWS,
            ..ScanRequest::default()
        };
        let (table, layout) = (self.table.counted(&self.metrics, partition), self.layout.clone());
        let output_rows = MetricBuilder::new(&self.metrics).output_rows(partition);
        let reports = context.session_config().get_extension::<ProgressReports>();
        let mut passed = reports.map(|reports| PassedRows::new(reports, group, self.layout.addr_index()));
        let batches = async move {
            let light = table.table.scan(&request).await?;
            Ok::<_, DataFusionError>(heavy::complete(table, layout, light))
        };
        let stream = stream::once(batches).try_flatten();
        let stream = stream.inspect_ok(move |batch| {
            output_rows.add(batch.num_rows());
            if let Some(passed) = &mut passed {
                passed.take(batch);
            }
        });
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

/// Returns the rows of all fragments that the scans of a plan read.
pub(crate) fn num_scanned_rows(plan: &dyn ExecutionPlan) -> u64 {
    let of_children: u64 = plan.children().into_iter().map(|child| num_scanned_rows(child.as_ref())).sum();
    let plan: &dyn Any = plan;
    match plan.downcast_ref::<ScanExec>() {
        Some(scan) => scan.partitions.iter().map(|group| group.num_rows).sum(),
        None => of_children,
    }
}

/// Reports the rows that the scan of a partition has passed: those that it gave, and those before them that its filter
/// left out. When the scan is dropped, it has passed all rows.
struct PassedRows {
    reports: Arc<ProgressReports>,
    /// For each fragment, the rows of the fragments before it, and its own rows.
    fragments: HashMap<u32, (u64, u64)>,
    num_rows: u64,
    passed: u64,
    /// The index of the column of row addresses, by which rows that were left out are known.
    addr_index: Option<usize>,
}

impl PassedRows {
    fn new(reports: Arc<ProgressReports>, group: &FragmentGroup, addr_index: Option<usize>) -> Self {
        let mut before = 0;
        let fragments = group.fragments.iter().map(|fragment| {
            let rows = (before, fragment.num_rows);
            before += fragment.num_rows;
            (fragment.id, rows)
        });
        Self { reports, fragments: fragments.collect(), num_rows: group.num_rows, passed: 0, addr_index }
    }

    /// Takes a batch that the scan gave.
    fn take(&mut self, batch: &RecordBatch) {
        let addrs = self.addr_index.and_then(|index| batch.column(index).as_primitive_opt::<UInt64Type>());
        let last = addrs.and_then(|addrs| addrs.values().last().copied());
        let passed = match last.map(|addr| (self.fragments.get(&((addr >> 32) as u32)), row_offset(addr))) {
            Some((Some((before, num_rows)), offset)) => before + (u64::from(offset) + 1).min(*num_rows),
            _ => self.passed.saturating_add(batch.num_rows() as u64),
        };
        self.advance(passed);
    }

    fn advance(&mut self, passed: u64) {
        let more = passed.min(self.num_rows).saturating_sub(self.passed);
        if more > 0 {
            self.passed += more;
            self.reports.send_modify(|progress| progress.done = progress.done.saturating_add(more));
        }
    }
}

impl Drop for PassedRows {
    fn drop(&mut self) {
        self.advance(self.num_rows);
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
