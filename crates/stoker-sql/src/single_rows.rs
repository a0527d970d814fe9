//! Keeps filters above aggregates without groups.
//!
//! DataFusion 54 moves a predicate that names no column (after other rules made it constant) below an aggregate. There
//! the predicate removes the input rows, but an aggregate without groups returns one row even for no input. A limit of
//! one row, which does not change the result, keeps the predicate above the aggregate.

use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::{Limit, LogicalPlan};
use datafusion::prelude::lit;

/// Adds a limit of one row to aggregates without groups below filters and joins.
pub(crate) fn keep_single_rows(plan: LogicalPlan) -> DfResult<LogicalPlan> {
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
