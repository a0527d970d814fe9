//! Turns SQL text into an analysed plan over pinned tables.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field};
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::MemTable;
use datafusion::execution::context::SessionContext;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::Analyzer;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::{ExplainStatement, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{Expr, Query, Statement, visit_expressions};
use stoker_catalog::{CatalogRelation, LakeView};
use stoker_functions::{Activity, ChosenFunctions, ReserveResults};
use stoker_lake::Table;
use stoker_types::ParamValue;

use crate::corrections::{corrected, optimizer_rules};
use crate::guard::{Explain, Parsed, PlanFormat};
use crate::provider::{HeavyTable, OutputColumn, Relation, rows_per_batch};
use crate::resolve::{Author, ROW_ADDRESS, RelationRequest, Requests};
use crate::running::{
    HoldWindows, InterruptibleAnalyzer, InterruptibleJoins, InterruptibleOptimizer, InterruptiblePhysical,
    check_expanded,
};
use crate::search::{apply_with_hidden, map_hidden, push_prefilters};
use crate::wide_rows::wide_rows;
use crate::{Engine, EngineOptions, Error, Result, guard, heavy_keys, params, resolve};

/// How often a part of a statement may stand in the query that evaluates the statement, on average.
const STATEMENT_PARTS_MAX: usize = 4;

/// An analysed plan and the tables that it reads.
pub(crate) struct Planned {
    /// The text, with the queries of views in place of their names.
    pub(crate) sql: String,
    pub(crate) state: SessionState,
    pub(crate) plan: LogicalPlan,
    /// The tables that it reads: one for each table and version that the query names, in order of first appearance.
    pub(crate) tables: Vec<Table>,
    /// Whether the query names a version by a tag or a time.
    pub(crate) names_movable_version: bool,
    /// The `EXPLAIN` that the query stands below, if any.
    pub(crate) explain: Option<Explain>,
}

/// A parsed query whose relations and parameters are replaced by internal names.
pub(crate) struct Resolved {
    sql: String,
    parsed: Parsed,
    pub(crate) requests: Requests,
    functions: CalledFunctions,
}

/// The functions that the session of a query has.
enum CalledFunctions {
    /// All, for a query that lists them.
    All,
    /// Those that the query calls, by name.
    Named(BTreeSet<String>),
}

impl CalledFunctions {
    fn of(query: &Query, requests: &Requests) -> Self {
        let mut names = BTreeSet::new();
        add_function_names(query, &mut names);
        for request in &requests.relations {
            match request {
                RelationRequest::OfLake(LakeView::Functions) => return Self::All,
                RelationRequest::Search(_, call) => {
                    call.subquery().into_iter().for_each(|query| add_function_names(query, &mut names));
                }
                _ => {}
            }
        }
        Self::Named(names)
    }

    /// Returns the functions with these names, or `None` if the session needs all functions.
    fn choose(&self) -> Option<ChosenFunctions> {
        match self {
            Self::All => None,
            Self::Named(names) => ChosenFunctions::named(names.iter().map(String::as_str)),
        }
    }
}

/// Adds the names of the functions that a query calls, without those that stand for parameters.
fn add_function_names(query: &Query, names: &mut BTreeSet<String>) {
    let _: ControlFlow<()> = visit_expressions(query, |expr| {
        if let Expr::Function(function) = expr {
            let name = function.name.to_string().to_ascii_lowercase();
            if !params::is_parameter(&name) {
                names.insert(name);
            }
        }
        ControlFlow::Continue(())
    });
}

/// Parses a query, and finds the tables that it reads. It must be called on a large stack.
///
/// Without `params`, parameters stay in the query.
pub(crate) fn resolved(
    sql: String,
    params: Option<&[ParamValue]>,
    author: Author,
    options: &EngineOptions,
) -> Result<Resolved> {
    let mut parsed = match author {
        Author::User => guard::parse(&sql, options)?,
        // The parts of a statement stand in its query more than once.
        Author::Statement => {
            let max_sql_bytes = options.max_sql_bytes.saturating_mul(STATEMENT_PARTS_MAX);
            guard::parse(&sql, &EngineOptions { max_sql_bytes, ..options.clone() })?
        }
    };
    let requests = resolve::rewrite(&mut parsed.query, params, author)?;
    let functions = CalledFunctions::of(&parsed.query, &requests);
    Ok(Resolved { sql, parsed, requests, functions })
}

/// Analyses a query over its opened tables. It must be called on a large stack.
pub(crate) async fn analyse(
    engine: &Engine,
    activity: &Arc<Activity>,
    resolved: Resolved,
    tables: &[Table],
    params: &[ParamValue],
) -> Result<Planned> {
    let sql = resolved.sql.clone();
    let names_movable_version = resolved.requests.tables.iter().any(|request| request.at.is_movable());
    let NamedPlan { state, plan, explain } = named_plan(engine, activity, resolved, tables, params).await?;
    check_expanded(&plan, activity)?;
    let plan = prepared(&state, plan)?;
    Ok(Planned { sql, state, plan, tables: tables.to_vec(), names_movable_version, explain })
}

/// Coerces the types of a plan and of the plans that are hidden in it, and moves predicates into searches.
fn prepared(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let coerced = coerced(state, plan)?;
    push_prefilters(map_hidden(coerced, &mut |hidden| prepared(state, hidden))?)
}

/// Coerces the types of a plan, and refuses heavy keys.
pub(crate) fn coerced(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let coerced = match plan {
        // DataFusion analyses what it explains.
        LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) => plan,
        plan => state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})?,
    };
    heavy_keys::check(&coerced)?;
    Ok(coerced)
}

/// A plan whose names are resolved and whose types are not yet coerced.
pub(crate) struct NamedPlan {
    pub(crate) state: SessionState,
    pub(crate) plan: LogicalPlan,
    /// The `EXPLAIN` that the query stands below, if any. For text, the plan is that of the `EXPLAIN`; for other
    /// formats, that of the query.
    pub(crate) explain: Option<Explain>,
}

/// Plans a query over its opened tables, up to the names in it. It must be called on a large stack.
pub(crate) async fn named_plan(
    engine: &Engine,
    activity: &Arc<Activity>,
    resolved: Resolved,
    tables: &[Table],
    params: &[ParamValue],
) -> Result<NamedPlan> {
    let chosen = resolved.functions.choose();
    if chosen.is_some() {
        // An error is made again by a session with all functions, because it may name functions like the one in the query.
        if let Ok(planned) = planned_in(&session(engine, activity, params, chosen)?, engine, &resolved, tables).await {
            return Ok(planned);
        }
        activity.check()?;
    }
    planned_in(&session(engine, activity, params, None)?, engine, &resolved, tables).await
}

/// Plans a query in a session, up to the names in it.
async fn planned_in(
    context: &SessionContext,
    engine: &Engine,
    resolved: &Resolved,
    tables: &[Table],
) -> Result<NamedPlan> {
    let Resolved { parsed: Parsed { query, explain }, requests, .. } = resolved;
    for (index, request) in requests.relations.iter().enumerate() {
        let rows = |table: &Table, search| {
            Relation::new(HeavyTable { table: table.clone(), chunks: engine.chunks().clone() }, search)
        };
        let relation: Arc<dyn TableProvider> = match request {
            RelationRequest::Rows(table) => Arc::new(rows(&tables[*table], None)),
            RelationRequest::RowIds(table) => Arc::new(rows(&tables[*table], None).with_row_ids()?),
            RelationRequest::Addressed(table) => {
                let address = Field::new(ROW_ADDRESS, DataType::UInt64, true);
                Arc::new(rows(&tables[*table], None).with_hidden(address, OutputColumn::RowAddr))
            }
            RelationRequest::Search(table, call) => {
                let subquery = match call.subquery() {
                    Some(query) => Some(query_plan(context, query).await?),
                    None => None,
                };
                let table = &tables[*table];
                Arc::new(rows(table, Some(call.bind(table, subquery)?)))
            }
            RelationRequest::OfTable(table, view) => Arc::new(CatalogRelation::OfTable(*view, tables[*table].clone())),
            RelationRequest::ColumnsOf(view) => Arc::new(CatalogRelation::ColumnsOf(*view)),
            RelationRequest::OfLake(view) => Arc::new(CatalogRelation::OfLake(*view, engine.lake().clone())),
            RelationRequest::Given(rows) => Arc::new(given(rows)?),
        };
        context.register_table(TableReference::bare(requests.relation_name(index)?), relation)?;
    }
    let statement = DfStatement::Statement(Box::new(Statement::Query(query.clone())));
    let explain = *explain;
    let statement = match explain {
        Some(Explain { analyze, verbose, format: PlanFormat::Text }) => {
            DfStatement::Explain(ExplainStatement { analyze, verbose, format: None, statement: Box::new(statement) })
        }
        _ => statement,
    };
    let state = context.state();
    let plan = state.statement_to_plan(statement).await?;
    Ok(NamedPlan { state, plan, explain })
}

/// Returns the relation of given rows, in batches of at most 8 MiB or one row.
fn given(rows: &RecordBatch) -> Result<MemTable> {
    let step = rows_per_batch(rows.schema_ref());
    let batches = (0..rows.num_rows()).step_by(step).map(|first| rows.slice(first, step.min(rows.num_rows() - first)));
    Ok(MemTable::try_new(rows.schema(), vec![batches.collect()])?)
}

/// Plans a query whose relations are registered by their internal names, up to the names in it.
async fn query_plan(context: &SessionContext, query: &Query) -> Result<LogicalPlan> {
    let statement = DfStatement::Statement(Box::new(Statement::Query(Box::new(query.clone()))));
    Ok(context.state().statement_to_plan(statement).await?)
}

/// Creates the session of one query, whose memory is the query's share of the engine's memory. Without `chosen`, it has all
/// functions.
fn session(
    engine: &Engine,
    activity: &Arc<Activity>,
    values: &[ParamValue],
    chosen: Option<ChosenFunctions>,
) -> Result<SessionContext> {
    let mut config =
        SessionConfig::new().with_target_partitions(engine.options().target_partitions).with_information_schema(false);
    let options = config.options_mut();
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.enable_subquery_sort_elimination = false;
    options.execution.enable_recursive_ctes = false;
    // The check fails for sound plans, such as `SELECT a > 0 … INTERSECT SELECT b > 0 …` where `b` alone can be NULL:
    // rules of the optimiser learn that a column has no NULL, and the plan before them does not. Aggregates take what can
    // be NULL from the physical plan, which is right.
    options.execution.skip_physical_aggregate_schema_check = true;
    let analyzer = |rule| Arc::new(InterruptibleAnalyzer { rule, activity: activity.clone() }) as _;
    let optimizer = |rule| Arc::new(InterruptibleOptimizer { rule, activity: activity.clone() }) as _;
    let physical = |rule| Arc::new(InterruptiblePhysical { rule, activity: activity.clone() }) as _;
    let mut physical_rules = PhysicalOptimizer::new().rules;
    physical_rules.push(Arc::new(HoldWindows));
    physical_rules.push(Arc::new(InterruptibleJoins { activity: activity.clone() }));
    let has_all = chosen.is_none();
    let functions = match chosen {
        Some(chosen) => chosen.build_into(SessionStateBuilder::new()),
        None => SessionStateBuilder::new().with_default_features(),
    };
    let state = functions
        .with_config(config.with_extension(activity.clone()))
        .with_runtime_env(engine.runtime_env(activity)?)
        .with_analyzer_rules(Analyzer::new().rules.into_iter().map(analyzer).collect())
        .with_optimizer_rules(optimizer_rules().into_iter().map(optimizer).collect())
        .with_physical_optimizer_rules(physical_rules.into_iter().map(physical).collect())
        .build();
    let mut context = SessionContext::new_with_state(state);
    if has_all {
        stoker_functions::add_to(&mut context)?;
    }
    for function in params::functions(values)? {
        context.register_udf(function);
    }
    for rule in stoker_functions::analyzer_rules() {
        context.add_analyzer_rule(analyzer(rule));
    }
    context.add_analyzer_rule(Arc::new(ReserveResults::new(activity.clone())));
    Ok(context)
}

/// Returns the [`Activity`] of a session state.
pub(crate) fn activity_of(state: &SessionState) -> Result<Arc<Activity>> {
    let activity = state.config().get_extension::<Activity>();
    activity.ok_or_else(|| Error::internal("a session has no activity"))
}

/// Optimizes a plan, and the plans that are hidden in it, to the form in which it runs.
pub(crate) fn optimized(state: &SessionState, plan: &LogicalPlan) -> Result<LogicalPlan> {
    let shown = state.optimize(&corrected(plan.clone())?)?;
    // Optimizer rules create function calls, which do not yet reserve memory for their results.
    let shown = ReserveResults::new(activity_of(state)?).reserve(shown)?;
    map_hidden(shown, &mut |hidden| optimized(state, &hidden))
}

/// Optimizes a plan and creates its physical plan. The batch size is set so that the heavy columns of an operator's
/// batch take at most 8 MiB.
pub(crate) async fn physical(
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<(SessionState, Arc<dyn ExecutionPlan>)> {
    let optimized = optimized(state, plan)?;
    let mut batch_rows = state.config().batch_size();
    batch_rows = batch_rows.min(wide_rows(&optimized)?);
    apply_with_hidden(&optimized, &mut |node| {
        batch_rows = batch_rows.min(rows_per_batch(node.schema().as_arrow()));
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut state = state.clone();
    state.config_mut().options_mut().execution.batch_size = batch_rows;
    let physical = state.query_planner().create_physical_plan(&optimized, &state).await?;
    Ok((state, physical))
}
