//! Changes plans where rules of DataFusion 54 would give wrong results.
//!
//! - [`optimizer_rules`] keeps nested projections of the same text apart, so that all of them are computed. The rules
//!   drop a projection whose expressions have the same text as those of the projection below it: of
//!   `SELECT id + 1 AS id` over `SELECT id + 1 AS id` only one is left (fixed upstream in pull request 24686). A step
//!   before them makes the two texts differ.
//! - [`keep_single_rows`] keeps filters above aggregates without groups. The rules move a predicate that names no
//!   column (after other rules made it constant) below an aggregate. There the predicate removes the input rows, but an
//!   aggregate without groups returns one row even for no input. A limit of one row, which does not change the result,
//!   keeps the predicate above the aggregate.
//! - [`null_safe_subqueries`] gives `IN` with a subquery its three values. The rules make it a join, which takes NULL for
//!   false: under `NOT`, `x NOT IN (1, NULL)` would be true for 2. Where NULL is possible and matters, `IN` becomes what
//!   it means, by `EXISTS`.
//! - The rules also remove a key of a sort that depends on the keys before it, and take `k` to depend on `k % 3` below
//!   `GROUP BY k % 3, k`. Sorts keep their keys.
//! - [`guard_extremes`] makes `min` and `max` over a frame that moves NULL where all its values are NULL. DataFusion gives
//!   the extreme of an earlier frame there. A count of the values of the same frame tells.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as DfResult, ScalarValue, Spans};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{Alias, Exists, InSubquery, WindowFunction};
use datafusion::logical_expr::{
    BinaryExpr, ExprSchemable as _, Filter, Limit, LogicalPlan, Operator, Projection, Subquery, SubqueryAlias, Window,
    WindowFunctionDefinition, binary_expr, not, when,
};
use datafusion::optimizer::optimizer::{ApplyOrder, Optimizer};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::prelude::{Expr, lit};

/// Returns DataFusion's optimizer rules. The rule that merges projections keeps equal neighbours apart, and the one that
/// removes duplicate expressions leaves the keys of sorts alone.
pub(crate) fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let corrected = |rule: Arc<dyn OptimizerRule + Send + Sync>| -> Arc<dyn OptimizerRule + Send + Sync> {
        match rule.name() {
            "optimize_projections" => Arc::new(KeepProjections { rule }),
            "eliminate_duplicated_expr" => Arc::new(KeepSortKeys { rule }),
            _ => rule,
        }
    };
    Optimizer::new().rules.into_iter().map(corrected).collect()
}

/// The rule that merges projections, after a step that makes equal neighbouring projections differ.
#[derive(Debug)]
struct KeepProjections {
    rule: Arc<dyn OptimizerRule + Send + Sync>,
}

impl OptimizerRule for KeepProjections {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> DfResult<Transformed<LogicalPlan>> {
        // The walk goes from the bottom up, so that a third equal projection is compared with the changed second one.
        let apart = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Projection(upper) => keep_apart(upper),
            node => Ok(Transformed::no(node)),
        })?;
        apart.transform_data(|plan| self.rule.rewrite(plan, config))
    }
}

/// The rule that removes duplicate expressions, without its part for sorts.
#[derive(Debug)]
struct KeepSortKeys {
    rule: Arc<dyn OptimizerRule + Send + Sync>,
}

impl OptimizerRule for KeepSortKeys {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> DfResult<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Sort(_) => Ok(Transformed::no(plan)),
            plan => self.rule.rewrite(plan, config),
        }
    }
}

/// Gives the first named expression of a projection its name twice if the projection below it has the same expressions.
/// Without a named expression, every expression returns the column that it reads, and dropping one of the two
/// projections is right.
fn keep_apart(upper: Projection) -> DfResult<Transformed<LogicalPlan>> {
    let is_same = matches!(upper.input.as_ref(), LogicalPlan::Projection(lower) if lower.expr == upper.expr);
    let named = upper.expr.iter().position(|expr| matches!(expr, Expr::Alias(_)));
    let (true, Some(named)) = (is_same, named) else {
        return Ok(Transformed::no(LogicalPlan::Projection(upper)));
    };
    let Projection { mut expr, input, schema, .. } = upper;
    if let Expr::Alias(Alias { relation, name, metadata, .. }) = &expr[named] {
        let (relation, name, metadata) = (relation.clone(), name.clone(), metadata.clone());
        expr[named] = expr[named].clone().alias_qualified_with_metadata(relation, name, metadata);
    }
    Projection::try_new_with_schema(expr, input, schema).map(|kept| Transformed::yes(LogicalPlan::Projection(kept)))
}

/// Corrects an analysed plan, before it is optimized.
pub(crate) fn corrected(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    keep_single_rows(guard_extremes(null_safe_subqueries(plan)?)?)
}

/// Adds a limit of one row to aggregates without groups below filters and joins.
fn keep_single_rows(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    Ok(kept(plan)?.data)
}

fn kept(plan: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
    plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::Filter(_) | LogicalPlan::Join(_) => {
            // The subqueries of an expression are separate plans, with their own filters.
            let below = |child: LogicalPlan| {
                child.transform_up(|node| limited(node)?.transform_data(|node| node.map_subqueries(kept)))
            };
            let mut done = node.map_subqueries(kept)?.transform_data(|node| node.map_children(below))?;
            done.tnr = TreeNodeRecursion::Jump;
            Ok(done)
        }
        node => Ok(Transformed::no(node)),
    })
}

fn limited(node: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
    match node {
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
            let input = Arc::new(LogicalPlan::Aggregate(aggregate));
            Ok(Transformed::yes(LogicalPlan::Limit(Limit { skip: None, fetch: Some(Box::new(lit(1_i64))), input })))
        }
        node => Ok(Transformed::no(node)),
    }
}

/// The name of the rows of `IN` with a subquery in plans. No table of a query has it, because their names end with a number.
const IN_SUBQUERY: &str = "in#";

/// Replaces `IN` with a subquery where NULL is possible and differs from false.
fn null_safe_subqueries(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Filter(filter) = node else { return Ok(Transformed::no(node)) };
        let predicate = null_safe(filter.predicate.clone(), filter.input.schema(), true)?;
        if predicate == filter.predicate {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
    })?;
    Ok(rewritten.data)
}

/// Makes a predicate null-safe. With `null_is_false`, NULL and false have the same effect.
fn null_safe(expr: Expr, schema: &DFSchema, null_is_false: bool) -> DfResult<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let left = null_safe(*left, schema, null_is_false)?;
            Ok(binary_expr(left, op, null_safe(*right, schema, null_is_false)?))
        }
        Expr::Not(inner) => match *inner {
            Expr::InSubquery(membership) => {
                let negated = InSubquery { negated: !membership.negated, ..membership };
                null_safe(Expr::InSubquery(negated), schema, null_is_false)
            }
            inner => Ok(not(null_safe(inner, schema, false)?)),
        },
        Expr::InSubquery(membership) if !null_is_false || membership.negated => {
            three_valued(membership, schema, null_is_false)
        }
        expr => Ok(expr.map_children(|child| Ok(Transformed::yes(null_safe(child, schema, false)?)))?.data),
    }
}

/// Returns `IN` by `EXISTS`: with a value that is equal; else NULL with a NULL on either side, unless the subquery has no
/// row; else false.
fn three_valued(membership: InSubquery, schema: &DFSchema, null_is_false: bool) -> DfResult<Expr> {
    let of_subquery = match membership.subquery.outer_ref_columns.is_empty() {
        // The query around may have tables of the same names.
        true => {
            let named = SubqueryAlias::try_new(membership.subquery.subquery.clone(), IN_SUBQUERY)?;
            Arc::new(LogicalPlan::SubqueryAlias(named))
        }
        // A subquery that refers to the tables around it has other names for its own.
        false => membership.subquery.subquery.clone(),
    };
    let (qualifier, field) = of_subquery.schema().qualified_field(0);
    let (value_is_nullable, row_is_nullable) = (membership.expr.nullable(schema)?, field.is_nullable());
    let is_plain = !membership.expr.exists(|expr| {
        Ok(matches!(
            expr,
            Expr::OuterReferenceColumn(..) | Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_)
        ))
    })?;
    if !is_plain || (!value_is_nullable && !row_is_nullable) {
        return Ok(Expr::InSubquery(membership));
    }
    let column = Expr::Column(Column::from((qualifier, field)));
    let value = outer(membership.expr.as_ref().clone(), schema)?;
    let rows_with = |condition: Expr| -> DfResult<Expr> {
        let plan = LogicalPlan::Filter(Filter::try_new(condition, of_subquery.clone())?);
        Ok(exists(plan))
    };
    let is_equal = rows_with(column.clone().eq(value))?;
    let has_null = if row_is_nullable { rows_with(column.is_null())? } else { lit(false) };
    let value_is_null = match value_is_nullable {
        true => membership.expr.as_ref().clone().is_null().and(exists(of_subquery.as_ref().clone())),
        false => lit(false),
    };
    if null_is_false && membership.negated {
        return Ok(not(is_equal).and(not(has_null)).and(not(value_is_null)));
    }
    let unknown = lit(ScalarValue::Boolean(None));
    let is_in = when(is_equal, lit(true)).when(has_null.or(value_is_null), unknown).otherwise(lit(false))?;
    Ok(if membership.negated { not(is_in) } else { is_in })
}

fn exists(plan: LogicalPlan) -> Expr {
    let outer_ref_columns = plan.all_out_ref_exprs();
    let subquery = Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Spans::new() };
    Expr::Exists(Exists { subquery, negated: false })
}

/// Makes the columns of an expression those of the query around a subquery.
fn outer(expr: Expr, schema: &DFSchema) -> DfResult<Expr> {
    let made = expr.transform(|expr| match expr {
        Expr::Column(column) => {
            let field = schema.qualified_field_from_column(&column)?.1.clone();
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        expr => Ok(Transformed::no(expr)),
    })?;
    Ok(made.data)
}

/// Guards `min` and `max` over frames that move.
fn guard_extremes(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let guarded = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Window(window) => guarded(window),
        node => Ok(Transformed::no(node)),
    })?;
    Ok(guarded.data)
}

fn guarded(window: Window) -> DfResult<Transformed<LogicalPlan>> {
    let counts: Vec<Option<Expr>> = window.window_expr.iter().map(count_of_extreme).collect();
    if counts.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let mut window_expr = window.window_expr.clone();
    for count in counts.iter().flatten() {
        if !window_expr.contains(count) {
            window_expr.push(count.clone());
        }
    }
    let counted = Window::try_new(window_expr, window.input.clone())?;
    let num_inputs = window.input.schema().fields().len();
    let mut columns = Vec::with_capacity(window.schema.fields().len());
    for (index, (qualifier, field)) in window.schema.iter().enumerate() {
        let column = Expr::Column(Column::from((qualifier, field)));
        let count = index.checked_sub(num_inputs).and_then(|index| counts.get(index)?.as_ref());
        columns.push(match count {
            Some(count) => {
                let count = Expr::Column(Column::from_name(count.schema_name().to_string()));
                when(count.gt(lit(0_i64)), column).end()?.alias_qualified(qualifier.cloned(), field.name())
            }
            None => column,
        });
    }
    let input = Arc::new(LogicalPlan::Window(counted));
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, input)?)))
}

/// Returns the count of the values of which an expression is the `min` or `max`, if their frame moves.
fn count_of_extreme(expr: &Expr) -> Option<Expr> {
    let Expr::WindowFunction(call) = expr else { return None };
    let moves = !call.params.window_frame.start_bound.is_unbounded();
    (moves && ["min", "max"].contains(&call.fun.name())).then(|| {
        let fun = WindowFunctionDefinition::AggregateUDF(count_udaf());
        Expr::WindowFunction(Box::new(WindowFunction { fun, params: call.params.clone() }))
    })
}
