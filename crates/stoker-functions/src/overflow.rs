//! Makes integer overflow an error.
//!
//! DataFusion lets integers wrap around. This rule replaces `+`, `-`, `*` and negation on integers by functions that
//! check for overflow, and computes sums of integers as decimals. The rule runs after type coercion, when both sides of
//! an operator have one type. A plan that the rule has already rewritten does not change again.

mod arithmetic;
mod sums;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::logical_expr::expr::{BinaryExpr, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{ExprSchemable as _, LogicalPlan, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::Expr;

use arithmetic::{Arithmetic, Operation};

/// An analyzer rule that makes the arithmetic of a plan fail where an integer overflows.
#[derive(Debug)]
pub(crate) struct CheckedIntegers;

impl AnalyzerRule for CheckedIntegers {
    fn name(&self) -> &str {
        "checked_integers"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DfResult<LogicalPlan> {
        let checked = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Limit(_) | LogicalPlan::TableScan(_) => Ok(Transformed::no(node)),
            node => check_expressions(node)?.transform_data(sums::widen),
        })?;
        Ok(checked.data)
    }
}

fn check_expressions(node: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        let name = names.save(&expr);
        let checked = expr.transform_up(|expr| check(expr, &schema))?;
        Ok(checked.update_data(|expr| name.restore(expr)))
    })
}

/// Replaces one operator on integers by its checking function.
fn check(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let Some(operation) = Operation::of(&expr) else { return Ok(Transformed::no(expr)) };
    if !expr.get_type(schema)?.is_integer() {
        return Ok(Transformed::no(expr));
    }
    let args = match expr {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
        Expr::Negative(value) => vec![*value],
        other => return Ok(Transformed::no(other)),
    };
    let function = Arc::new(ScalarUDF::from(Arithmetic::new(operation)));
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, args))))
}
