//! A planned query over pinned snapshots.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, Volatility};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::Expr;
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use stoker_columns::fitting_schema;
use stoker_lake::Table;
use stoker_types::{ParamValue, QueryOptions, Snapshot};
use tokio::runtime::Handle;

use crate::explained::ExplainedExec;
use crate::guard::PlanFormat;
use crate::planner_threads::on_large_stack;
use crate::planning::{Planned, activity_of, optimized, physical};
use crate::running::{RowLimits, check_expanded, run};
use crate::search::{apply_with_hidden, search_by_order};
use crate::{Engine, QueryLimits, Result};

/// The most plans that are kept.
const KEPT_MAX: usize = 64;

/// How long a plan is kept. Time goes on meanwhile: `now()` is the time of the plan. Tests do not depend on it.
const KEPT_FOR: Duration = Duration::from_secs(if cfg!(test) { 300 } else { 1 });

/// The most bytes of the text, of a parameter, and of the constants of a query whose plan is kept.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// The most parameters of a query whose plan is kept.
const KEPT_PARAMS_MAX: usize = 64;

/// A planned and pinned `SELECT`, which can be run any number of times.
pub struct SqlQuery {
    engine: Engine,
    sql: String,
    state: SessionState,
    logical: LogicalPlan,
    physical: Arc<dyn ExecutionPlan>,
    snapshots: Vec<Snapshot>,
    tables: Vec<Table>,
    /// Whether the text names a version by a tag or a time.
    names_movable_version: bool,
    /// `None` for large parameters, which are not kept for the plan.
    origin: Option<Origin>,
}

impl SqlQuery {
    pub(crate) async fn try_new(
        engine: &Engine,
        planned: Planned,
        params: &[ParamValue],
        options: QueryOptions,
    ) -> Result<Self> {
        let Planned { sql, state, plan, tables, names_movable_version, explain } = planned;
        let activity = activity_of(&state)?;
        let logical = match search_by_order(&plan, options).await? {
            // Searches may hold a predicate twice; a plan that would be too large with them runs without them.
            Some(searching) if check_expanded(&searching, &activity).is_ok() => searching,
            _ => plan,
        };
        let (state, physical) = physical(&state, &logical).await?;
        let physical = match explain {
            Some(explain) if explain.format != PlanFormat::Text => Arc::new(ExplainedExec::new(physical, explain)),
            _ => physical,
        };
        Ok(Self {
            engine: engine.clone(),
            sql,
            state,
            logical,
            physical,
            snapshots: tables.iter().map(Table::snapshot).collect(),
            tables,
            names_movable_version,
            origin: Origin::of(params, options),
        })
    }

    /// The text of the query, with the queries of views in place of their names.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The columns of the result.
    pub fn schema(&self) -> SchemaRef {
        fitting_schema(&self.physical.schema())
    }

    /// The snapshots that the query reads: one for each table and version that the query names, in order of first
    /// appearance.
    pub fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    /// The tables that the query reads, at its snapshots.
    pub(crate) fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Runs the query. Rows arrive in the order of `ORDER BY`, else in any order. Dropping the stream stops the query.
    ///
    /// Errors in the stream are DataFusion's; [`crate::Error::from`] finds their kind.
    ///
    /// # Errors
    /// `ResourceExhausted` when too many queries run and wait; in the stream, when the query exceeds one of its limits.
    pub async fn execute(&self) -> Result<SendableRecordBatchStream> {
        let QueryLimits { rows, result_bytes: bytes, .. } = self.engine.options().query;
        self.execute_within(RowLimits { rows, bytes }).await
    }

    /// Runs the query as [`SqlQuery::execute`] does, without the limits on the rows and the bytes of a result: for rows
    /// that stay in the lake.
    ///
    /// # Errors
    /// As for [`SqlQuery::execute`].
    pub async fn execute_for_lake(&self) -> Result<SendableRecordBatchStream> {
        self.execute_within(RowLimits::NONE).await
    }

    /// Whether `unnest` stands in the columns of the query, so that a row below them may give none or several.
    pub fn unnests_rows(&self) -> bool {
        let mut node = &self.logical;
        while let LogicalPlan::Projection(projection) = node {
            node = &projection.input;
        }
        matches!(node, LogicalPlan::Unnest(_))
    }

    /// Returns the name of a function in the query that may give another result for each row, such as `random`.
    ///
    /// # Errors
    /// A bug in a plan.
    pub fn volatile_function(&self) -> Result<Option<String>> {
        let mut found = None;
        apply_with_hidden(&self.logical, &mut |node| {
            node.apply_expressions(|expr| {
                expr.apply(|expr| match expr {
                    Expr::ScalarFunction(call) if call.func.signature().volatility == Volatility::Volatile => {
                        found = Some(call.func.name().to_string());
                        Ok(TreeNodeRecursion::Stop)
                    }
                    _ => Ok(TreeNodeRecursion::Continue),
                })
            })
        })?;
        Ok(found)
    }

    async fn execute_within(&self, limits: RowLimits) -> Result<SendableRecordBatchStream> {
        let physical = reset_plan_states(self.physical.clone())?;
        let running = activity_of(&self.state)?.begin();
        let rows = run(&self.engine, physical, self.state.task_ctx(), limits, running).await?;
        let schema = self.schema();
        let fitted = schema.clone();
        // The two sides of a UNION return batches with different schemas, which differ in nullability.
        let rows = rows.map(move |batch| {
            let batch = batch?;
            if batch.schema_ref() == &fitted {
                return Ok(batch);
            }
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            Ok::<_, DataFusionError>(RecordBatch::try_new_with_options(
                fitted.clone(),
                batch.columns().to_vec(),
                &options,
            )?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    /// Returns the logical and the physical plan as text.
    ///
    /// # Errors
    /// `InvalidRequest` when the plan cannot be optimized.
    pub async fn explain(&self) -> Result<String> {
        let (state, logical, physical) = (self.state.clone(), self.logical.clone(), self.physical.clone());
        let work = async move {
            let optimized = optimized(&state, &logical)?;
            let logical = optimized.display_indent();
            let physical = displayable(physical.as_ref()).indent(false).to_string();
            Ok(format!("logical plan\n{logical}\n\nphysical plan\n{}", physical.trim_end()))
        };
        on_large_stack(&self.engine, &activity_of(&self.state)?, work.boxed()).await
    }
}

impl fmt::Debug for SqlQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlQuery").field("snapshots", &self.snapshots).finish_non_exhaustive()
    }
}

/// What a plan is made of, beside its text, and by which it is found again.
#[derive(Debug, PartialEq)]
struct Origin {
    params: Vec<ParamValue>,
    options: QueryOptions,
}

impl Origin {
    /// Returns `None` for large parameters.
    fn of(params: &[ParamValue], options: QueryOptions) -> Option<Self> {
        let is_small = |param: &ParamValue| match param {
            ParamValue::Text(text) => text.len() <= KEPT_BYTES_MAX,
            ParamValue::Vector(numbers) => numbers.len() <= KEPT_BYTES_MAX / size_of::<f64>(),
            ParamValue::Arrow(_) => false,
            _ => true,
        };
        let is_kept = params.len() <= KEPT_PARAMS_MAX && params.iter().all(is_small);
        is_kept.then(|| Self { params: params.to_vec(), options })
    }
}

/// A plan that is about to run. It is gone once it was taken.
type Kept = Mutex<Option<SqlQuery>>;

/// The plans of queries that are about to run: a client checks a query, or asks a server for its columns and a ticket,
/// and then runs it. Each plan is taken once.
///
/// A plan holds its engine, and with it these plans. So a task that ends after a moment, or with its runtime, holds the
/// plan in their place.
#[derive(Debug, Default)]
pub(crate) struct KeptQueries(Mutex<VecDeque<Weak<Kept>>>);

impl KeptQueries {
    /// Keeps a plan, unless it is large, or its text may name other versions later. The runtime lets go of it in time.
    pub fn put(&self, query: SqlQuery, runtime: &Handle) {
        // The memory that the plan holds is that of its constants.
        let held_bytes = activity_of(&query.state).map_or(0, |activity| activity.pool().reserved());
        let is_large = query.origin.is_none() || query.sql.len() > KEPT_BYTES_MAX || held_bytes > KEPT_BYTES_MAX;
        if is_large || query.names_movable_version {
            return;
        }
        let kept = Arc::new(Mutex::new(Some(query)));
        let oldest = {
            let mut all = self.0.lock();
            all.retain(|kept| kept.strong_count() > 0);
            let oldest = if all.len() >= KEPT_MAX { all.pop_front() } else { None };
            all.push_back(Arc::downgrade(&kept));
            oldest
        };
        drop(oldest.and_then(|kept| kept.upgrade()?.lock().take()));
        runtime.spawn(async move {
            tokio::time::sleep(KEPT_FOR).await;
            drop(kept);
        });
    }

    /// Takes out a plan.
    pub fn take(&self, sql: &str, params: &[ParamValue], options: QueryOptions) -> Option<SqlQuery> {
        let is_asked = |query: &mut SqlQuery| {
            let origin = query.origin.as_ref();
            query.sql == sql && origin.is_some_and(|origin| origin.params == params && origin.options == options)
        };
        let all: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().find_map(|kept| kept.lock().take_if(is_asked))
    }

    /// The number of plans.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        let all = self.0.lock();
        all.iter().filter_map(Weak::upgrade).filter(|kept| kept.lock().is_some()).count()
    }
}
