//! Refuses queries that may select different rows when they are evaluated again.

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::{LogicalPlan, Volatility};
use datafusion::prelude::Expr;

use crate::{Error, Result};

/// Checks that every function of the plan and its subqueries always returns the same result for the same arguments.
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(function) = expr
                    && function.func.signature().volatility != Volatility::Immutable
                {
                    found = Some(function.func.name().to_string());
                    return Ok(TreeNodeRecursion::Stop);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    match found {
        None => Ok(()),
        Some(name) => Err(Error::NotSampleQuery {
            reason: format!(
                "function {name} may give another result each time, and a row set must be reproducible; \
                 pass its value as a parameter"
            ),
        }),
    }
}
