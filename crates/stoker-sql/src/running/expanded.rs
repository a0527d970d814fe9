//! Limits the size of a plan in which all common table expressions are expanded.

use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;
use stoker_functions::Activity;

use crate::Error;
use crate::search::apply_with_hidden;

/// Checks the number of operators and expressions of a plan. A common table expression that is named twice counts
/// twice, as every rule of the planner walks through both copies. Hidden plans of searches count too. Counting stops at
/// the limit.
pub(crate) fn check_expanded(plan: &LogicalPlan, activity: &Activity) -> DfResult<()> {
    let mut nodes = Nodes { counted: 0, limit: activity.plan_nodes_max() };
    apply_with_hidden(plan, &mut |node| {
        activity.check()?;
        nodes.count_expressions(node)
    })?;
    Ok(())
}

/// Checks the number of expressions of an operator that a rule rewrote, and of the operators right below it. A rule
/// that replaces columns by expressions can double the expressions at each level.
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
