//! Computes sums of integers as decimals, so that a sum fails only if its final result does not fit into the integer
//! type.

use std::sync::Arc;

use arrow_schema::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Column, DFSchema, Result as DfResult};
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, ExprSchemable as _, LogicalPlan, Projection, Window, WindowFunctionDefinition, cast,
};
use datafusion::prelude::Expr;

/// Rewrites the integer sums of an aggregate or a window to decimal sums, and casts the results back to integers. The
/// cast fails where a result does not fit.
pub(super) fn widen(node: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    let exprs = match &node {
        LogicalPlan::Aggregate(aggregate) => widen_all(&aggregate.aggr_expr, &schema)?,
        LogicalPlan::Window(window) => widen_all(&window.window_expr, &schema)?,
        _ => None,
    };
    let narrow = node.schema().clone();
    let widened = match (node, exprs) {
        (LogicalPlan::Aggregate(Aggregate { input, group_expr, .. }), Some(exprs)) => {
            LogicalPlan::Aggregate(Aggregate::try_new(input, group_expr, exprs)?)
        }
        (LogicalPlan::Window(Window { input, .. }), Some(exprs)) => LogicalPlan::Window(Window::try_new(exprs, input)?),
        (other, _) => return Ok(Transformed::no(other)),
    };
    let columns = widened.schema().iter().zip(narrow.iter());
    let exprs = columns.map(|((qualifier, wide), (_, narrow))| {
        let column = Expr::Column(Column::from((qualifier, wide)));
        match wide.data_type() == narrow.data_type() {
            true => column,
            false => cast(column, narrow.data_type().clone()).alias_qualified(qualifier.cloned(), wide.name()),
        }
    });
    let projection = Projection::try_new(exprs.collect(), Arc::new(widened))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

/// Returns the expressions with decimal sums, or `None` if they contain no sum of integers.
fn widen_all(exprs: &[Expr], schema: &DFSchema) -> DfResult<Option<Vec<Expr>>> {
    let mut any = false;
    let mut widened = Vec::with_capacity(exprs.len());
    for expr in exprs {
        let expr = expr.clone().transform_up(|expr| widen_sum(expr, schema))?;
        any |= expr.transformed;
        widened.push(expr.data);
    }
    Ok(any.then_some(widened))
}

fn widen_sum(mut expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let args = match &mut expr {
        Expr::AggregateFunction(AggregateFunction { func, params }) if func.name() == "sum" => &mut params.args,
        Expr::WindowFunction(function) => match function.as_mut() {
            WindowFunction { fun: WindowFunctionDefinition::AggregateUDF(func), params } if func.name() == "sum" => {
                &mut params.args
            }
            _ => return Ok(Transformed::no(expr)),
        },
        _ => return Ok(Transformed::no(expr)),
    };
    let [arg] = args.as_mut_slice() else { return Ok(Transformed::no(expr)) };
    let precision = match arg.get_type(schema)? {
        DataType::Int64 => 19,
        DataType::UInt64 => 20,
        _ => return Ok(Transformed::no(expr)),
    };
    *arg = cast(std::mem::take(arg), DataType::Decimal128(precision, 0));
    Ok(Transformed::yes(expr))
}
