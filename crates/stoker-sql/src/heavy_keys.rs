//! Refuses to group by tensors, which takes seconds for a few hundred rows.

use arrow_schema::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Distinct, ExprSchemable as _, LogicalPlan};
use datafusion::prelude::Expr;
use stoker_columns::{fixed_row_bytes, is_heavy};

use crate::{Error, Result};

/// Checks that no key of an aggregate is a heavy column of fixed width.
pub(crate) fn check(plan: &LogicalPlan) -> Result<()> {
    let mut refused = None;
    plan.apply_with_subqueries(|node| {
        refused = heavy_key(node)?;
        Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    match refused {
        None => Ok(()),
        Some((clause, column, bytes)) => Err(Error::refused(
            clause,
            format!(
                "column {column} is heavy ({bytes} bytes a row), and an aggregate compares whole values; \
                 use a light column that names the row, such as an id, or a number such as tensor_mean({column})"
            ),
        )),
    }
}

/// The clause, the column and the column's bytes per row.
type HeavyKey = (&'static str, String, usize);

fn heavy_key(node: &LogicalPlan) -> datafusion::common::Result<Option<HeavyKey>> {
    match node {
        LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, .. }) => {
            match first_heavy("GROUP BY", group_expr, input.schema())? {
                None => first_heavy("DISTINCT", &distinct_args(aggr_expr), input.schema()),
                found => Ok(found),
            }
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            Ok(input.schema().fields().iter().find_map(|field| heavy("DISTINCT (or UNION without ALL)", field)))
        }
        LogicalPlan::Distinct(Distinct::On(on)) => first_heavy("DISTINCT ON", &on.on_expr, on.input.schema()),
        _ => Ok(None),
    }
}

/// Returns the arguments of aggregates over distinct values.
fn distinct_args(aggr_expr: &[Expr]) -> Vec<Expr> {
    let args = aggr_expr.iter().filter_map(|expr| match expr.clone().unalias() {
        Expr::AggregateFunction(AggregateFunction { params, .. }) if params.distinct => Some(params.args),
        _ => None,
    });
    args.flatten().collect()
}

fn first_heavy(
    clause: &'static str,
    exprs: &[Expr],
    schema: &DFSchema,
) -> datafusion::common::Result<Option<HeavyKey>> {
    for expr in exprs {
        let exprs = match expr {
            Expr::GroupingSet(sets) => sets.distinct_expr().into_iter().cloned().collect(),
            expr => vec![expr.clone()],
        };
        for expr in exprs {
            if let Some(found) = heavy(clause, &expr.to_field(schema)?.1) {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

fn heavy(clause: &'static str, field: &Field) -> Option<HeavyKey> {
    let is_tensor = matches!(field.data_type(), DataType::FixedSizeList(..)) && is_heavy(field);
    is_tensor.then(|| (clause, field.name().clone(), fixed_row_bytes(field.data_type()).unwrap_or_default()))
}
