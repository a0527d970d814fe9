//! The size of a plan once everything in it is written out.

use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;

use super::Activity;
use crate::Error;

/// Checks the number of operators and expressions of a plan: a common table expression that is named twice counts twice, as every
/// rule of the planner goes through both. Counting ends at the limit.
pub(crate) fn check_expanded(plan: &LogicalPlan, activity: &Activity) -> DfResult<()> {
    let mut nodes = Nodes { counted: 0, limit: activity.plan_nodes_max() };
    plan.apply_with_subqueries(|node| {
        activity.check()?;
        nodes.count_expressions(node)
    })?;
    Ok(())
}

/// Checks the expressions of an operator that a rule made, and those of the operators right below: a rule that puts expressions in
/// place of columns can double them at each level.
pub(super) fn check_rewritten(plan: &LogicalPlan, activity: &Activity) -> DfResult<()> {
    let mut nodes = Nodes { counted: 0, limit: activity.plan_nodes_max() };
    nodes.count_expressions(plan)?;
    for input in plan.inputs() {
        nodes.count_expressions(input)?;
    }
    Ok(())
}

struct Nodes {
    counted: usize,
    limit: usize,
}

impl Nodes {
    fn count(&mut self) -> DfResult<TreeNodeRecursion> {
        self.counted += 1;
        match self.counted > self.limit {
            true => {
                let (actual, limit) = (self.counted, self.limit);
                Err(Error::TooLarge { what: "plan nodes or more once expanded", actual, limit }.into())
            }
            false => Ok(TreeNodeRecursion::Continue),
        }
    }

    fn count_expressions(&mut self, node: &LogicalPlan) -> DfResult<TreeNodeRecursion> {
        self.count()?;
        node.apply_expressions(|expr| expr.apply(|_| self.count()))
    }
}
