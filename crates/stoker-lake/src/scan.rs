//! Scans and searches of a table through Lance.

use std::any::Any;
use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, SortOptions};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::metrics::{
    Count, CustomMetricValue, ExecutionPlanMetricsSet, MetricBuilder, MetricValue,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::{FutureExt, StreamExt, TryStreamExt};
use lance::dataset::scanner::Scanner;
use lance::index::DatasetIndexExt as _;
use lance::io::exec::scalar_index::ScalarIndexExec;
use lance::io::exec::{ANNIvfPartitionExec, KNNVectorDistanceExec};
use lance_datafusion::exec::{ExecutionSummaryCounts, collect_execution_metrics};
use lance_index::scalar::expression::ScalarIndexExpr;
use lance_linalg::distance::MetricType;
use parking_lot::Mutex;
use stoker_store::first_line;
use stoker_types::to_usize;
use uuid::Uuid;

use crate::damage::{Panicked, caught};
use crate::row_id_set::fragment_id;
use crate::{Error, Result, RowIdSet, Table};

/// The name of the column with row addresses: fragment id in the upper 32 bits, offset in the lower.
pub const ROW_ADDR: &str = "_rowaddr";

/// The name of the column with row ids. They equal the row addresses, except in tables with stable row ids.
pub const ROW_ID: &str = "_rowid";

/// The name of the column with distances to the query vector.
pub(crate) const DISTANCE: &str = "_distance";

/// The maximum number of bytes that a scan prefetches.
const IO_BUFFER_BYTES: u64 = 256 << 20;

/// Rows per record batch if a request does not set it.
const BATCH_ROWS: usize = 1024;

/// An exact search among given rows reads only these rows if they are at most one in this many rows of the table;
/// else it reads the whole column, with large reads, and skips the other rows.
const ROWS_PER_TAKEN_ROW: u64 = 16;

/// A request for a scan.
#[derive(Clone, Debug, Default)]
pub struct ScanRequest {
    /// The columns, in order.
    pub columns: Vec<String>,
    /// Returns only rows for which this expression is true.
    pub filter: Option<Expr>,
    /// Returns at most this many rows.
    pub limit: Option<u64>,
    /// Returns only rows with these ids.
    pub row_ids: Option<Arc<RowIdSet>>,
    /// Whether to append the column [`ROW_ID`].
    pub with_row_id: bool,
    /// Whether to append the column [`ROW_ADDR`], after the row ids.
    pub with_row_addr: bool,
    /// Scans only the fragments with these ids.
    pub fragments: Option<Vec<u32>>,
    /// Returns only the nearest of the rows that pass the filter and have one of the row ids, and appends the column
    /// `_distance`, before the row id.
    pub nearest: Option<Nearest>,
    /// Rows per record batch; 0 means 1,024. Stoker always sets this size, because Lance's default is thousands of rows
    /// of any width. (The environment variable `LANCE_DEFAULT_BATCH_SIZE` would override it: never set that.)
    pub batch_size: usize,
}

/// A nearest-neighbour search.
#[derive(Clone, Debug)]
pub struct Nearest {
    /// The vector column.
    pub column: String,
    /// The query: a float array of the column's dimension.
    pub query: ArrayRef,
    /// The number of rows to find.
    pub k: usize,
    /// The distance by which rows are compared.
    pub metric: Metric,
    /// Whether an index may answer, by the distances of compressed vectors; if false, the search is exact.
    pub use_index: bool,
    /// The number of partitions of the index to search: these, even if they have fewer than `k` rows.
    pub nprobes: Option<usize>,
    /// The number of partitions to search at least, without `nprobes`. Lance searches more if the distances of their
    /// centroids suggest it, or if it has not found `k` rows.
    pub nprobes_min: Option<usize>,
    /// The number of candidates that an index is asked for at least, if the search does not set it.
    pub num_candidates: usize,
}

/// A distance between vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Squared Euclidean distance.
    L2,
    /// One minus the cosine of the angle.
    Cosine,
    /// One minus the dot product.
    Dot,
}

impl From<Metric> for MetricType {
    fn from(metric: Metric) -> MetricType {
        match metric {
            Metric::L2 => MetricType::L2,
            Metric::Cosine => MetricType::Cosine,
            Metric::Dot => MetricType::Dot,
        }
    }
}

/// What a table was asked to read, as metrics of a plan of DataFusion. Clones count together.
#[derive(Clone, Debug)]
pub struct ScanStats {
    requests: Count,
    bytes_read: Count,
    indexes: Arc<IndexNames>,
}

/// The names of the indexes that were used.
#[derive(Debug, Default)]
struct IndexNames(Mutex<BTreeSet<String>>);

impl ScanStats {
    /// Adds the metrics `requests`, `bytes_read` and `index` to those of one partition of a plan. They are complete when
    /// the scans and searches have ended.
    pub fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let indexes = Arc::<IndexNames>::default();
        let value = MetricValue::Custom { name: "index".into(), value: indexes.clone() };
        MetricBuilder::new(metrics).with_partition(partition).build(value);
        let counter = |name: &'static str| MetricBuilder::new(metrics).counter(name, partition);
        Self { requests: counter("requests"), bytes_read: counter("bytes_read"), indexes }
    }

    /// Counts bytes that were read otherwise than by a scan or a search.
    pub fn add_bytes(&self, bytes: usize) {
        self.bytes_read.add(bytes);
    }

    /// Notes that an index was used.
    pub(crate) fn add_index(&self, name: &str) {
        self.indexes.0.lock().insert(name.to_string());
    }

    /// Adds what a plan of Lance measured.
    fn add_plan(&self, plan: &dyn ExecutionPlan) {
        let mut counts = ExecutionSummaryCounts::default();
        collect_execution_metrics(plan, &mut counts);
        self.requests.add(counts.requests);
        self.bytes_read.add(counts.bytes_read);
    }
}

impl fmt::Display for IndexNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.lock();
        match names.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&names.iter().map(String::as_str).collect::<Vec<_>>().join("+")),
        }
    }
}

impl CustomMetricValue for IndexNames {
    fn new_empty(&self) -> Arc<dyn CustomMetricValue> {
        Arc::<Self>::default()
    }

    fn aggregate(&self, other: Arc<dyn CustomMetricValue + 'static>) {
        if let Some(other) = other.as_any().downcast_ref::<Self>() {
            let names = other.0.lock().clone();
            self.0.lock().extend(names);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_eq(&self, other: &Arc<dyn CustomMetricValue>) -> bool {
        let Some(other) = other.as_any().downcast_ref::<Self>() else { return false };
        let names = other.0.lock().clone();
        *self.0.lock() == names
    }
}

/// A plan of Lance that runs. When it ends or is cancelled, what it measured is counted.
struct CountedPlan {
    plan: Arc<dyn ExecutionPlan>,
    stats: ScanStats,
}

impl Drop for CountedPlan {
    fn drop(&mut self) {
        self.stats.add_plan(self.plan.as_ref());
    }
}

/// Notes the names of the scalar indexes that a plan asks, and the ids of its vector indexes.
fn note_indexes(plan: &Arc<dyn ExecutionPlan>, stats: &ScanStats, of_vectors: &mut Vec<Uuid>) {
    if let Some(asked) = plan.downcast_ref::<ScalarIndexExec>() {
        note_expression(asked.expr(), stats);
    }
    if let Some(asked) = plan.downcast_ref::<ANNIvfPartitionExec>() {
        of_vectors.extend(&asked.index_uuids);
    }
    for child in plan.children() {
        note_indexes(child, stats, of_vectors);
    }
}

fn note_expression(expression: &ScalarIndexExpr, stats: &ScanStats) {
    match expression {
        ScalarIndexExpr::Not(inner) => note_expression(inner, stats),
        ScalarIndexExpr::And(one, other) | ScalarIndexExpr::Or(one, other) => {
            note_expression(one, stats);
            note_expression(other, stats);
        }
        ScalarIndexExpr::Query(search) => stats.add_index(&search.index_name),
    }
}

impl Table {
    /// Returns a physical plan for a scan, with one partition.
    ///
    /// # Errors Unknown columns, a filter that Lance cannot evaluate, storage errors; `DataCorrupt` for files that are
    /// found to be damaged before they are read.
    pub async fn scan_plan(&self, request: &ScanRequest) -> Result<Arc<dyn ExecutionPlan>> {
        let taken = self.taken(request);
        let scanner = self.scanner(taken.as_ref().map_or(request, |(rows, _)| rows))?;
        if let Err(error) = self.check_scan(request).await {
            return Err(self.check_error(self.scanning(), error).await);
        }
        let plan = caught(scanner.create_plan().boxed()).await;
        let plan = plan.map_err(|source| Error::storage(self.scanning(), source))?;
        let plan: Arc<dyn ExecutionPlan> = match plan.output_partitioning().partition_count() {
            1 => plan,
            _ => Arc::new(CoalescePartitionsExec::new(plan)),
        };
        let plan = match taken {
            None => plan,
            Some((_, nearest)) => self.nearest_of(plan, &nearest, request.limit)?,
        };
        self.with_columns(plan, request)
    }

    /// Splits an exact search among few rows into a scan of these rows with their vectors, and the comparison. Lance
    /// itself would read the vectors of all rows. Returns `None` for other requests.
    fn taken(&self, request: &ScanRequest) -> Option<(ScanRequest, Nearest)> {
        let (nearest, rows) = (request.nearest.clone()?, request.row_ids.as_ref()?);
        if nearest.use_index || rows.len().saturating_mul(ROWS_PER_TAKEN_ROW) > self.num_rows() {
            return None;
        }
        let mut columns = request.columns.clone();
        if !columns.contains(&nearest.column) {
            columns.push(nearest.column.clone());
        }
        Some((ScanRequest { columns, nearest: None, limit: None, ..request.clone() }, nearest))
    }

    /// Keeps the nearest rows of a plan, in the order of their distances, and appends the distances.
    fn nearest_of(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        nearest: &Nearest,
        limit: Option<u64>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let metric = nearest.metric.into();
        let measured = KNNVectorDistanceExec::try_new(plan, &nearest.column, nearest.query.clone(), metric);
        let measured = measured.map_err(|source| Error::storage(self.scanning(), source))?;
        let distance = measured.schema().index_of(DISTANCE);
        let distance = distance.map_err(|source| Error::storage(self.scanning(), source))?;
        let order = PhysicalSortExpr {
            expr: Arc::new(Column::new(DISTANCE, distance)),
            options: SortOptions { descending: false, nulls_first: false },
        };
        let num_rows = nearest.k.min(limit.map_or(usize::MAX, to_usize));
        Ok(Arc::new(SortExec::new([order].into(), Arc::new(measured)).with_fetch(Some(num_rows))))
    }

    /// Starts a scan and returns its record batches as a stream.
    ///
    /// # Errors As for [`Table::scan_plan`]. In the stream, errors of storage and of the filter are
    /// [`DataFusionError::External`] with an [`Error`] inside; other errors, such as exceeded memory limits, stay
    /// DataFusion's.
    pub async fn scan(&self, request: &ScanRequest) -> Result<SendableRecordBatchStream> {
        let plan = self.scan_plan(request).await?;
        let counted = self.counted(&plan).await?;
        let batches = plan.execute(0, Arc::new(TaskContext::default()));
        let batches = batches.map_err(|source| Error::storage(self.scanning(), source))?;
        let (schema, table) = (batches.schema(), self.clone());
        let batches = StreamExt::catch_unwind(AssertUnwindSafe(batches)).map(move |polled| {
            // The plan is counted when the stream is dropped.
            let _counted = &counted;
            match polled {
                Ok(batch) => batch,
                Err(payload) => Err(DataFusionError::External(Box::new(Panicked::new(payload.as_ref())))),
            }
        });
        let batches = batches.or_else(move |source| {
            let table = table.clone();
            async move { Err(table.scan_error(source).await) }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    /// Notes which indexes a plan asks, and counts what it reads, if anybody wants to know.
    async fn counted(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<CountedPlan>> {
        let Some(stats) = self.stats() else { return Ok(None) };
        let mut of_vectors = Vec::new();
        note_indexes(plan, stats, &mut of_vectors);
        if !of_vectors.is_empty() {
            let indexes = caught(self.dataset().load_indices()).await;
            let indexes = indexes.map_err(|source| Error::storage(self.scanning(), source))?;
            let asked = indexes.iter().filter(|index| of_vectors.contains(&index.uuid));
            asked.for_each(|index| stats.add_index(&index.name));
        }
        Ok(Some(CountedPlan { plan: plan.clone(), stats: stats.clone() }))
    }

    /// Projects a plan to exactly the columns of the request, in its order: Lance adds columns and moves them.
    fn with_columns(&self, plan: Arc<dyn ExecutionPlan>, request: &ScanRequest) -> Result<Arc<dyn ExecutionPlan>> {
        let distance = request.nearest.as_ref().map(|_| DISTANCE);
        let hidden = [(request.with_row_id, ROW_ID), (request.with_row_addr, ROW_ADDR)];
        let hidden = hidden.into_iter().filter_map(|(is_asked, name)| is_asked.then_some(name));
        let names: Vec<&str> = request.columns.iter().map(String::as_str).chain(distance).chain(hidden).collect();
        let schema = plan.schema();
        if schema.fields().iter().map(|field| field.name().as_str()).eq(names.iter().copied()) {
            return Ok(plan);
        }
        let mut columns: Vec<(Arc<dyn PhysicalExpr>, String)> = Vec::with_capacity(names.len());
        for name in names {
            let index = schema.index_of(name).map_err(|source| Error::storage(self.scanning(), source))?;
            columns.push((Arc::new(Column::new(name, index)), name.to_string()));
        }
        let projection = ProjectionExec::try_new(columns, plan);
        Ok(Arc::new(projection.map_err(|source| Error::storage(self.scanning(), source))?))
    }

    /// Translates an error of a scan that is under way.
    async fn scan_error(&self, source: DataFusionError) -> DataFusionError {
        let error = match Fault::of(&source) {
            Fault::Engine => return source,
            Fault::Filter(reason) => Error::InvalidRequest { attempted: self.scanning(), reason },
            Fault::Storage => self.read_error(self.scanning(), source).await,
        };
        DataFusionError::External(Box::new(error))
    }

    fn scanning(&self) -> String {
        format!("scanning table {}", self.snapshot())
    }

    fn scanner(&self, request: &ScanRequest) -> Result<Scanner> {
        self.check_columns(&request.columns)?;
        self.check_blobs(request)?;
        let fail = |source| Error::storage(self.scanning(), source);
        let mut scanner = self.dataset().scan();
        let batch_size = if request.batch_size == 0 { BATCH_ROWS } else { request.batch_size };
        let mut columns = request.columns.clone();
        if request.nearest.is_some() {
            columns.push(DISTANCE.into());
        }
        scanner.project(&columns).map_err(fail)?;
        scanner.batch_size(batch_size).io_buffer_size(IO_BUFFER_BYTES);
        if let Some(filter) = &request.filter {
            scanner.filter_expr(filter.clone());
        }
        if let Some(ids) = &request.fragments {
            let wanted = |fragment: &&lance_table::format::Fragment| ids.contains(&fragment_id(fragment.id));
            scanner.with_fragments(self.dataset().fragments().iter().filter(wanted).cloned().collect());
        }
        if let Some(nearest) = &request.nearest {
            scanner.prefilter(true);
            scanner.nearest(&nearest.column, nearest.query.as_ref(), nearest.k).map_err(fail)?;
            scanner.distance_metric(nearest.metric.into());
            scanner.use_index(nearest.use_index);
            match (nearest.nprobes, nearest.nprobes_min) {
                (Some(nprobes), _) => scanner.nprobes(nprobes),
                (None, Some(nprobes_min)) => scanner.minimum_nprobes(nprobes_min),
                (None, None) => &mut scanner,
            };
        }
        if let Some(rows) = &request.row_ids {
            scanner.with_row_id_prefilter(rows.mask());
        }
        if let Some(limit) = request.limit {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            scanner.limit(Some(limit), None).map_err(fail)?;
        }
        if request.with_row_id {
            scanner.with_row_id();
        }
        if request.with_row_addr || (columns.is_empty() && !request.with_row_id) {
            // Lance refuses scans without any column, so such a scan reads row addresses, by which the rows are
            // counted.
            scanner.with_row_address();
        }
        Ok(scanner)
    }
}

/// The part of a scan that failed.
enum Fault {
    /// Reading or decoding.
    Storage,
    /// Evaluating the filter on the values of a row; with the reason.
    Filter(String),
    /// The query engine: a memory limit, a cancelled task.
    Engine,
}

impl Fault {
    /// Finds the failed part by following the chain of sources: Lance and DataFusion wrap each other's errors.
    fn of(source: &DataFusionError) -> Self {
        let mut current: Option<&(dyn StdError + 'static)> = Some(source);
        while let Some(error) = current {
            if let Some(lance_core::Error::Execution { message, .. }) = error.downcast_ref::<lance_core::Error>()
                && let Some((_, reason)) = message.split_once("filter expression to batch: ")
            {
                return Fault::Filter(format!("the filter cannot be evaluated: {}", first_line(reason)));
            }
            if let Some(lance_core::Error::CorruptFile { .. }) = error.downcast_ref::<lance_core::Error>() {
                return Fault::Storage;
            }
            if let Some(DataFusionError::ExecutionJoin(join)) = error.downcast_ref::<DataFusionError>()
                && join.is_panic()
            {
                return Fault::Storage;
            }
            let is_wrapper = match (error.downcast_ref::<DataFusionError>(), error.downcast_ref::<ArrowError>()) {
                (Some(error), _) => matches!(
                    error,
                    DataFusionError::External(_)
                        | DataFusionError::ArrowError(..)
                        | DataFusionError::IoError(_)
                        | DataFusionError::Context(..)
                        | DataFusionError::Diagnostic(..)
                        | DataFusionError::Shared(_)
                        | DataFusionError::Collection(_)
                ),
                (_, Some(error)) => matches!(error, ArrowError::ExternalError(_) | ArrowError::IoError(..)),
                (None, None) => true,
            };
            if !is_wrapper {
                return Fault::Engine;
            }
            current = error.source();
        }
        Fault::Storage
    }
}
