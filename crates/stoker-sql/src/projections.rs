//! Keeps nested projections of the same text apart, so that all of them are computed.
//!
//! DataFusion 54 drops a projection whose expressions have the same text as those of the projection below it: of
//! `SELECT id + 1 AS id` over `SELECT id + 1 AS id` only one is left (fixed upstream in pull request 24686). This rule
//! first makes the two texts differ.

use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::{LogicalPlan, Projection};
use datafusion::optimizer::optimizer::{ApplyOrder, Optimizer};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::prelude::Expr;

/// Returns DataFusion's optimizer rules, in which the rule that merges projections keeps equal neighbours apart.
pub(crate) fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let kept_apart = |rule: Arc<dyn OptimizerRule + Send + Sync>| match rule.name() {
        "optimize_projections" => Arc::new(KeepProjections { rule }),
        _ => rule,
    };
    Optimizer::new().rules.into_iter().map(kept_apart).collect()
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
