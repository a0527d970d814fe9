//! Runs a search. Rows come best first, and ties are ordered by row address.

use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt64Type;
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_schema::{DataType, SortOptions};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use datafusion::arrow::compute::{SortColumn, lexsort_to_indices};
use datafusion::catalog::Session;
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use stoker_lake::{RowIdSet, Table};

use super::hidden::physical_part;
use super::nearest::nearest;
use super::worded::{best_texts, fused, with_columns, with_scores};
use super::{DISTANCE, QuerySource, Search, SearchKind, TopKSearch, VectorSearch, WordSearch};
use crate::Error;
use crate::params::list_numbers;
use crate::provider::{HeavyTable, Layout, heavy, split};

/// The copies of the set of row ids that exist at the same time: Lance copies it for a search.
const SET_COPIES: usize = 3;

/// The physical plan of one search: one partition, rows ordered from the best to the worst.
#[derive(Clone, Debug)]
pub(crate) struct SearchExec {
    table: HeavyTable,
    search: SearchKind,
    layout: Arc<Layout>,
    limit: Option<usize>,
    inputs: SearchInputs,
    properties: Arc<PlanProperties>,
    /// The rows that the search gave, and what it read.
    metrics: ExecutionPlanMetricsSet,
}

/// The children of a [`SearchExec`], as far as it has them: the plans that are hidden in the logical plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchInputs {
    /// Gives the ids of the rows that may be found.
    prefilter: Option<Arc<dyn ExecutionPlan>>,
    /// Gives the query vector.
    query: Option<Arc<dyn ExecutionPlan>>,
    /// Gives the rows that come first by `ORDER BY`, by an index.
    by_index: Option<Arc<dyn ExecutionPlan>>,
    /// Gives the same rows exactly.
    exact: Option<Arc<dyn ExecutionPlan>>,
}

impl SearchInputs {
    /// Creates the physical plans of the hidden plans of a search.
    pub(crate) async fn plan(search: &Search, state: &dyn Session) -> DfResult<Self> {
        let top_k = search.kind.top_k();
        let by_index = top_k.and_then(|top_k| top_k.by_index.as_ref()).map(|by_index| &by_index.plan);
        Ok(Self {
            prefilter: planned(state, search.prefilter.as_ref()).await?,
            query: planned(state, search.query_plan()).await?,
            by_index: planned(state, by_index).await?,
            exact: planned(state, top_k.map(|top_k| &top_k.exact)).await?,
        })
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<dyn ExecutionPlan>> {
        [&self.prefilter, &self.query, &self.by_index, &self.exact].into_iter().flatten()
    }

    /// Returns the same inputs with other plans, in the order of [`SearchInputs::iter`].
    fn with_plans(&self, plans: Vec<Arc<dyn ExecutionPlan>>) -> Self {
        let mut plans = plans.into_iter();
        let mut next = |input: &Option<Arc<dyn ExecutionPlan>>| input.as_ref().and_then(|_| plans.next());
        Self {
            prefilter: next(&self.prefilter),
            query: next(&self.query),
            by_index: next(&self.by_index),
            exact: next(&self.exact),
        }
    }
}

async fn planned(state: &dyn Session, plan: Option<&Arc<LogicalPlan>>) -> DfResult<Option<Arc<dyn ExecutionPlan>>> {
    match plan {
        Some(plan) => Ok(Some(physical_part(state, plan).await?)),
        None => Ok(None),
    }
}

impl SearchExec {
    pub(crate) fn new(
        table: HeavyTable,
        search: SearchKind,
        layout: Layout,
        limit: Option<usize>,
        inputs: SearchInputs,
    ) -> Self {
        let by_rank = layout.rank_index().map(|index| {
            let options = SortOptions { descending: false, nulls_first: false };
            [PhysicalSortExpr::new(Arc::new(Column::new(layout.schema().field(index).name(), index)), options)]
        });
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(layout.schema().clone(), by_rank),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let (layout, properties) = (Arc::new(layout), Arc::new(properties));
        Self { table, search, layout, limit, inputs, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl DisplayAs for SearchExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "SearchExec: table={}", self.table.table.snapshot())?;
        if let Some(VectorSearch { column, k, metric, use_index, .. }) = self.search.vector() {
            let search = match (*use_index, self.inputs.prefilter.is_some()) {
                (false, _) => "exact",
                (true, false) => "by index if there is one",
                (true, true) => "by index if there is one and many rows pass",
            };
            write!(f, ", column={column}, k={k}, metric={metric:?}, search={search}")?;
        }
        if let Some(WordSearch { columns, k, use_index, .. }) = self.search.words() {
            let search = if *use_index { "by index if there is one" } else { "all texts" };
            write!(f, ", text={}, k={k}, search={search}", columns.join("+"))?;
        }
        if let SearchKind::Hybrid(hybrid) = &self.search {
            write!(f, ", weights={:?}, rrf_k={}, merged={}", hybrid.weights, hybrid.rrf_k, hybrid.k)?;
        }
        if let SearchKind::TopK(TopKSearch { column, function, k, by_index, .. }) = &self.search {
            let search = by_index.as_ref().map_or("exact".to_string(), |by_index| format!("index {}", by_index.index));
            write!(f, ", column={column}, k={k}, search={search} (ORDER BY {function})")?;
        }
        write!(f, ", {}", self.layout)
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
        self.inputs.iter().collect()
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition; self.children().len()]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> DfResult<Arc<dyn ExecutionPlan>> {
        if children.len() != self.children().len() {
            return internal_err!("SearchExec has {} children", self.children().len());
        }
        Ok(Arc::new(Self { inputs: self.inputs.with_plans(children), ..self.as_ref().clone() }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn reset_state(self: Arc<Self>) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { metrics: ExecutionPlanMetricsSet::new(), ..self.as_ref().clone() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("SearchExec has one partition");
        }
        let table = self.table.counted(&self.metrics, partition);
        let (exec, searched) = (Self { table, ..self.clone() }, context.clone());
        let output_rows = MetricBuilder::new(&self.metrics).output_rows(partition);
        let found = async move {
            let SearchExec { table, search, layout, limit, inputs, .. } = exec;
            let SearchInputs { prefilter, query, by_index, exact } = inputs;
            let limit = limit.unwrap_or(usize::MAX);
            let query = match (search.vector(), query) {
                (Some(VectorSearch { query: QuerySource::Given(query), .. }), _) => Some(query.clone()),
                (Some(vector), Some(plan)) => Some(query_vector(plan, vector, &searched).await?),
                _ => None,
            };
            let allowed = match prefilter {
                Some(plan) => Some(Allowed::collect(plan, &searched).await?),
                None => None,
            };
            if allowed.as_ref().is_some_and(|allowed| allowed.rows.is_empty()) {
                return Ok(stream::empty().boxed());
            }
            let (allowed, columns) = (allowed.as_ref(), layout.light_columns());
            let found = match (&search, &query) {
                (SearchKind::Vector(vector), Some(query)) => {
                    nearest(&table, vector, query, allowed, &columns, &searched).await?
                }
                (SearchKind::Words(words), _) => {
                    let words = WordSearch { k: words.k.min(limit.max(1)), ..words.clone() };
                    let hits = best_texts(&table.table, &words, allowed, &searched).await?;
                    with_scores(&table.table, hits, &columns, &searched).await?
                }
                (SearchKind::Hybrid(hybrid), Some(query)) => {
                    fused(&table, hybrid, query, allowed, &columns, &searched).await?
                }
                (SearchKind::TopK(top_k), _) => {
                    let Some(exact) = exact else { return internal_err!("SearchExec has no plan of the first rows") };
                    first_rows(&table.table, top_k, by_index, exact, &columns, &searched).await?
                }
                (_, None) => return internal_err!("SearchExec has no query vector"),
            };
            let found = found.slice(0, found.num_rows().min(limit));
            Ok::<_, DataFusionError>(heavy::complete(table, layout, stream::iter([Ok(found)])))
        };
        let stream = stream::once(found).try_flatten();
        let stream = stream.inspect_ok(move |batch: &RecordBatch| output_rows.add(batch.num_rows()));
        let schema = self.layout.schema().clone();
        Ok(split(Box::pin(RecordBatchStreamAdapter::new(schema, stream)), &context, partition))
    }
}

/// Returns the rows that come first by `ORDER BY`, with these light columns, distance, rank and address, in order.
async fn first_rows(
    table: &Table,
    search: &TopKSearch,
    by_index: Option<Arc<dyn ExecutionPlan>>,
    exact: Arc<dyn ExecutionPlan>,
    columns: &[String],
    context: &Arc<TaskContext>,
) -> DfResult<RecordBatch> {
    let memory = MemoryConsumer::new("rows of a search").register(context.memory_pool());
    let mut found = None;
    if let Some(by_index) = by_index {
        // No index has the rows without a distance, which come after all others.
        found = Some(collected(by_index, &memory, context).await?).filter(|rows| rows.num_rows() >= search.k);
    }
    let found = match found {
        Some(found) => found,
        None => collected(exact, &memory, context).await?,
    };
    let Some((addrs, values)) = found.columns().split_first() else {
        return internal_err!("the plan of the first rows gave no columns");
    };
    // The rows are the right ones, but the physical rules of DataFusion may have changed their order.
    let sorted_by =
        |(values, options): (&ArrayRef, &SortOptions)| SortColumn { values: values.clone(), options: Some(*options) };
    let mut keys: Vec<SortColumn> = values.iter().zip(&search.order).map(sorted_by).collect();
    keys.push(SortColumn { values: addrs.clone(), options: None });
    let found = take_record_batch(&found, &lexsort_to_indices(&keys, Some(search.k))?)?;
    let addrs = found.column(0).as_primitive_opt::<UInt64Type>();
    let Some(addrs) = addrs else { return internal_err!("the plan of the first rows gave no addresses") };
    let carried = search.carried.iter().zip(&found.columns()[1 + search.order.len()..]);
    let mut computed: Vec<(&str, ArrayRef)> = vec![(DISTANCE, found.column(1).clone())];
    computed.extend(carried.map(|(name, values)| (name.as_str(), values.clone())));
    let late: Vec<String> = columns.iter().filter(|name| !search.carried.contains(name)).cloned().collect();
    with_columns(table, addrs.values(), &late, computed, context).await
}

/// Runs a plan, and returns its rows.
async fn collected(
    plan: Arc<dyn ExecutionPlan>,
    memory: &MemoryReservation,
    context: &Arc<TaskContext>,
) -> DfResult<RecordBatch> {
    let schema = plan.schema();
    let mut batches = plan.execute(0, context.clone())?;
    let mut found = Vec::new();
    while let Some(batch) = batches.try_next().await? {
        let columns = batch.columns().iter();
        let bytes = columns.map(|column| column.to_data().get_slice_memory_size()).sum::<Result<usize, _>>()?;
        // The batches and their concatenation exist at the same time.
        memory.try_grow(bytes.saturating_mul(2))?;
        found.push(batch);
    }
    Ok(concat_batches(&schema, &found)?)
}

/// The rows that a search may find. Holds the memory of the set in the pool of the query.
pub(super) struct Allowed {
    pub(super) rows: Arc<RowIdSet>,
    _memory: MemoryReservation,
}

impl Allowed {
    /// Runs the plan of the row ids.
    async fn collect(plan: Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> DfResult<Self> {
        let memory = MemoryConsumer::new("rows of a search").register(context.memory_pool());
        let mut batches = plan.execute(0, context.clone())?;
        let mut rows = RowIdSet::default();
        while let Some(batch) = batches.try_next().await? {
            let ids = batch.columns().first().and_then(|column| column.as_primitive_opt::<UInt64Type>());
            let Some(ids) = ids else { return internal_err!("the plan of row ids gave no row ids") };
            rows.insert_all(ids);
            memory.try_resize(rows.bytes().saturating_mul(SET_COPIES))?;
        }
        Ok(Self { rows: Arc::new(rows), _memory: memory })
    }
}

/// Runs the plan of the query vector.
async fn query_vector(
    plan: Arc<dyn ExecutionPlan>,
    search: &VectorSearch,
    context: &Arc<TaskContext>,
) -> DfResult<ArrayRef> {
    let refuse =
        |reason: String| DataFusionError::from(Error::refused(format!("search of column {}", search.column), reason));
    let refuse_subquery = |what: &str| refuse(format!("the subquery of the query gives {what}"));
    let mut batches = plan.execute(0, context.clone())?;
    let mut found: Option<ArrayRef> = None;
    while let Some(batch) = batches.try_next().await? {
        if batch.num_rows() > usize::from(found.is_none()) {
            return Err(refuse_subquery("more than one row; select one row with WHERE, or with ORDER BY and LIMIT 1"));
        }
        if batch.num_rows() == 1 {
            found = batch.columns().first().cloned();
        }
    }
    let Some(found) = found else {
        return Err(refuse_subquery("no row; it must select the row whose vector is searched for"));
    };
    if found.is_null(0) || found.data_type() == &DataType::Null {
        return Err(refuse_subquery("NULL; select a row that has a vector"));
    }
    let Some(numbers) = list_numbers(&found) else {
        return Err(refuse_subquery("a vector that contains NULL"));
    };
    search.vector_type.query(&numbers, search.metric).map_err(refuse)
}
