//! Filters stay above aggregates without groups.
//!
//! DataFusion 54 moves a predicate that names no column, once other rules made it a constant, below an aggregate: there it
//! takes all rows, but an aggregate without groups gives one row of none. A limit of one row, which changes nothing, keeps them apart.

use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::{Limit, LogicalPlan};
use datafusion::prelude::lit;

/// Limits aggregates without groups below filters and joins to their single row.
pub(crate) fn keep_single_rows(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    Ok(kept(plan)?.data)
}

fn kept(plan: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
    plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::Filter(_) | LogicalPlan::Join(_) => {
            // Subqueries of its expressions are plans of their own, with filters of their own.
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
