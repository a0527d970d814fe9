//! From SQL text to an analysed plan over pinned tables.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::execution::FunctionRegistry as _;
use datafusion::execution::context::SessionContext;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::{ExplainStatement, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::Statement;
use stoker_lake::Table;
use stoker_types::{ParamValue, Snapshot};
use tokio::sync::oneshot;

use crate::guard::Parsed;
use crate::like_escapes::LikeEscapes;
use crate::operators::DistanceOperators;
use crate::overflow::CheckedIntegers;
use crate::projections::optimizer_rules;
use crate::provider::{HeavyTable, Relation, rows_per_batch};
use crate::search::push_prefilters;
use crate::single_rows::keep_single_rows;
use crate::{Engine, Error, Result, guard, heavy_keys, params, resolve};

/// The stack of the planner: its recursion over a query within the bounds of [`guard`] stays far below.
const PLANNER_STACK_BYTES: usize = 64 << 20;

/// An analysed plan and what it reads.
pub(crate) struct Planned {
    pub(crate) state: SessionState,
    pub(crate) plan: LogicalPlan,
    pub(crate) snapshots: Vec<Snapshot>,
    /// Whether the plan explains a query instead of running it.
    pub(crate) explains: bool,
}

/// Runs a future on a thread of its own with a large stack, on the caller's runtime.
///
/// Dropping the result does not stop the planner: it is bounded by the size of the query.
pub(crate) async fn on_large_stack<T, F>(work: F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let runtime = tokio::runtime::Handle::try_current()
        .map_err(|source| Error::internal(format!("planning needs a tokio runtime: {source}")))?;
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name("stoker-plan".to_string())
        .stack_size(PLANNER_STACK_BYTES)
        .spawn(move || drop(sender.send(runtime.block_on(work))))
        .map_err(|source| Error::internal(format!("cannot start a planner thread: {source}")))?;
    receiver.await.map_err(|_| Error::internal("the planner panicked"))?
}

/// Parses, pins and analyses a query. Call it on a large stack.
pub(crate) async fn plan(
    engine: &Engine,
    sql: &str,
    params: &[ParamValue],
    pinned: Option<&[Snapshot]>,
) -> Result<Planned> {
    let Parsed { mut query, explain } = guard::parse(sql, engine.options())?;
    let requests = resolve::rewrite(&mut query, params)?;
    let tables = resolve::open(engine.lake(), &requests.tables, pinned).await?;
    let context = session(engine, params)?;
    for (index, request) in requests.relations.iter().enumerate() {
        let table = &tables[request.table];
        let search = request.search.as_ref().map(|call| call.bind(table)).transpose()?;
        let heavy = HeavyTable { table: table.clone(), chunks: engine.chunks().clone() };
        let relation = Relation::new(heavy, search);
        let relation = if request.row_ids { relation.with_row_ids()? } else { relation };
        context.register_table(TableReference::bare(requests.relation_name(index)?), Arc::new(relation))?;
    }
    let statement = DfStatement::Statement(Box::new(Statement::Query(query)));
    let explains = explain.is_some();
    let statement = match explain {
        None => statement,
        Some(explain) => DfStatement::Explain(ExplainStatement {
            analyze: explain.analyze,
            verbose: explain.verbose,
            format: None,
            statement: Box::new(statement),
        }),
    };
    let state = context.state();
    let plan = state.statement_to_plan(statement).await?;
    let analysed = match explains {
        true => plan,
        false => state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})?,
    };
    heavy_keys::check(&analysed)?;
    let plan = push_prefilters(analysed)?;
    Ok(Planned { state, plan, snapshots: distinct_snapshots(&tables), explains })
}

/// One snapshot for each table and version that the query asks for, in order of first appearance.
fn distinct_snapshots(tables: &[Table]) -> Vec<Snapshot> {
    tables.iter().map(Table::snapshot).collect()
}

/// A session of its own for a query, over the engine's memory pool and functions.
fn session(engine: &Engine, values: &[ParamValue]) -> Result<SessionContext> {
    let mut config =
        SessionConfig::new().with_target_partitions(engine.options().target_partitions).with_information_schema(false);
    let options = config.options_mut();
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.enable_subquery_sort_elimination = false;
    options.execution.enable_recursive_ctes = false;
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(engine.runtime().clone())
        .with_default_features()
        .with_optimizer_rules(optimizer_rules())
        .build();
    let mut context = SessionContext::new_with_state(state);
    for function in crate::functions::all().into_iter().chain(params::functions(values)?) {
        context.register_udf(function);
    }
    context.register_expr_planner(Arc::new(DistanceOperators))?;
    context.add_analyzer_rule(Arc::new(CheckedIntegers));
    context.add_analyzer_rule(Arc::new(LikeEscapes));
    let functions: HashSet<String> = context.state().table_functions().keys().cloned().collect();
    for function in functions {
        context.deregister_udtf(&function);
    }
    Ok(context)
}

/// The plan as it is run.
pub(crate) fn optimized(state: &SessionState, plan: &LogicalPlan) -> Result<LogicalPlan> {
    Ok(state.optimize(&keep_single_rows(plan.clone())?)?)
}

/// Optimises a plan and makes it physical. Batches of operators are cut so that heavy columns stay within 8 MiB.
pub(crate) async fn physical(
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<(SessionState, Arc<dyn ExecutionPlan>)> {
    let optimized = optimized(state, plan)?;
    let mut batch_rows = state.config().batch_size();
    optimized.apply_with_subqueries(|node| {
        batch_rows = batch_rows.min(rows_per_batch(node.schema().as_arrow()));
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    })?;
    let mut state = state.clone();
    state.config_mut().options_mut().execution.batch_size = batch_rows;
    let physical = state.query_planner().create_physical_plan(&optimized, &state).await?;
    Ok((state, physical))
}
