//! Wraps the calls of a plan whose results can outgrow their arguments in [`Reserving`].

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::logical_expr::expr::{BinaryExpr, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{ExprSchemable as _, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::Expr;

use crate::allowed::{Size, size};
use crate::concatenate::Concatenate;
use crate::reserving::Reserving;
use crate::{Activity, cost};

/// The analyzer rule. It runs after type coercion. A plan that the rule has already rewritten does not change again.
#[derive(Debug)]
pub struct ReserveResults {
    activity: Arc<Activity>,
}

impl ReserveResults {
    /// Creates the rule for one query. The calls reserve memory in the pool of `activity`.
    pub fn new(activity: Arc<Activity>) -> Self {
        Self { activity }
    }

    /// Rewrites a plan so that its calls reserve memory for their results.
    pub fn reserve(&self, plan: LogicalPlan) -> DfResult<LogicalPlan> {
        let reserved = plan.transform_up_with_subqueries(|node| {
            if matches!(node, LogicalPlan::TableScan(_)) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let reserved = expr.transform_up(|expr| reserving_operator(expr, &schema, &self.activity))?;
                Ok(reserved.update_data(|expr| name.restore(expr)))
            })
        })?;
        Ok(reserved.data)
    }
}

impl AnalyzerRule for ReserveResults {
    fn name(&self) -> &str {
        "reserve_results"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DfResult<LogicalPlan> {
        self.reserve(plan)
    }
}

fn reserving_operator(expr: Expr, schema: &DFSchema, activity: &Arc<Activity>) -> DfResult<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) = expr else {
        return Ok(reserving(expr, activity));
    };
    let data_type = left.get_type(schema)?;
    if !Concatenate::takes(&data_type) || data_type != right.get_type(schema)? {
        let expr = Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right });
        return Ok(Transformed::no(expr));
    }
    let function = Reserving::new(ScalarUDF::from(Concatenate::new()).into(), cost::joined, activity.clone());
    let function = Arc::new(ScalarUDF::from(function));
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![*left, *right]))))
}

/// Replaces a call by one that reserves memory for its result.
pub(crate) fn reserving(expr: Expr, activity: &Arc<Activity>) -> Transformed<Expr> {
    let Expr::ScalarFunction(call) = expr else { return Transformed::no(expr) };
    if call.func.inner().is::<Reserving>() {
        return Transformed::no(Expr::ScalarFunction(call));
    }
    let Some(Size::Reserved(cost)) = size(call.func.name()) else { return Transformed::no(Expr::ScalarFunction(call)) };
    let function = Arc::new(ScalarUDF::from(Reserving::new(call.func, cost, activity.clone())));
    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, call.args)))
}
