//! Nested projections of the same text are all computed.
//!
//! DataFusion 54 drops a projection whose expressions read like those of the projection below it, so that of `SELECT id + 1 AS id` over
//! `SELECT id + 1 AS id` one is left (mended upstream in pull request 24686). This rule makes the two read differently first.

use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::{LogicalPlan, Projection};
use datafusion::optimizer::optimizer::{ApplyOrder, Optimizer};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::prelude::Expr;

/// DataFusion's rules, with projections that are kept apart.
pub(crate) fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let kept_apart = |rule: Arc<dyn OptimizerRule + Send + Sync>| match rule.name() {
        "optimize_projections" => Arc::new(KeepProjections { rule }),
        _ => rule,
    };
    Optimizer::new().rules.into_iter().map(kept_apart).collect()
}

/// The rule that merges projections, behind one that makes equal neighbours differ.
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
        // From below, so that a third one differs from the second one as that is now.
        let apart = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Projection(upper) => keep_apart(upper),
            node => Ok(Transformed::no(node)),
        })?;
        apart.transform_data(|plan| self.rule.rewrite(plan, config))
    }
}

/// Gives the first named expression of a projection its name twice where the projection below it has the same expressions. Without
/// a named one, every expression keeps the column that it reads, and dropping one of the two is right.
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
