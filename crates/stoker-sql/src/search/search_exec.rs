//! Runs a search. Rows come best first, and ties are ordered by row address.

use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt64Type;
use arrow_array::{Array as _, ArrayRef};
use arrow_schema::DataType;
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use stoker_lake::RowIdSet;

use super::fused::fused;
use super::nearest::nearest;
use super::worded::{best_texts, with_scores};
use super::{QuerySource, SearchKind, VectorSearch, WordSearch};
use crate::Error;
use crate::params::list_numbers;
use crate::provider::{HeavyTable, Layout, heavy, split};

/// The copies of the set of row ids that exist at the same time: Lance copies it for a search.
const SET_COPIES: usize = 3;

/// The physical plan of one search: one partition, rows ordered from the best to the worst.
///
/// Its children are the plan of the row ids that it may find, and the plan of its query vector, as far as it has them.
#[derive(Clone, Debug)]
pub(crate) struct SearchExec {
    table: HeavyTable,
    search: SearchKind,
    layout: Arc<Layout>,
    limit: Option<usize>,
    prefilter: Option<Arc<dyn ExecutionPlan>>,
    query: Option<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
}

impl SearchExec {
    pub(crate) fn new(
        table: HeavyTable,
        search: SearchKind,
        layout: Layout,
        limit: Option<usize>,
        prefilter: Option<Arc<dyn ExecutionPlan>>,
        query: Option<Arc<dyn ExecutionPlan>>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(layout.schema().clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let (layout, properties) = (Arc::new(layout), Arc::new(properties));
        Self { table, search, layout, limit, prefilter, query, properties }
    }
}

impl DisplayAs for SearchExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "SearchExec: table={}", self.table.table.snapshot())?;
        if let Some(VectorSearch { column, k, metric, use_index, .. }) = self.search.vector() {
            let search = match (*use_index, self.prefilter.is_some()) {
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
        self.prefilter.iter().chain(&self.query).collect()
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition; self.children().len()]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> DfResult<Arc<dyn ExecutionPlan>> {
        if children.len() != self.children().len() {
            return internal_err!("SearchExec has {} children", self.children().len());
        }
        let mut children = children.into_iter();
        let prefilter = self.prefilter.as_ref().and_then(|_| children.next());
        let query = self.query.as_ref().and_then(|_| children.next());
        Ok(Arc::new(Self { prefilter, query, ..self.as_ref().clone() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("SearchExec has one partition");
        }
        let (exec, searched) = (self.clone(), context.clone());
        let found = async move {
            let SearchExec { table, search, layout, limit, prefilter, query, .. } = exec;
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
                    nearest(&table.table, vector, query, allowed, &columns, &searched).await?
                }
                (SearchKind::Words(words), _) => {
                    let words = WordSearch { k: words.k.min(limit.max(1)), ..words.clone() };
                    let hits = best_texts(&table.table, &words, allowed, &searched).await?;
                    with_scores(&table.table, hits, &columns, &searched).await?
                }
                (SearchKind::Hybrid(hybrid), Some(query)) => {
                    fused(&table.table, hybrid, query, allowed, &columns, &searched).await?
                }
                (_, None) => return internal_err!("SearchExec has no query vector"),
            };
            let found = found.slice(0, found.num_rows().min(limit));
            Ok::<_, DataFusionError>(heavy::complete(table, layout, found))
        };
        let stream = stream::once(found).try_flatten();
        let schema = self.layout.schema().clone();
        Ok(split(Box::pin(RecordBatchStreamAdapter::new(schema, stream)), &context, partition))
    }
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
