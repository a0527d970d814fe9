//! The hidden plans of searches. They are inside the table scans of a logical plan, where DataFusion does not look for
//! them: whatever checks or rewrites whole plans uses these functions.

use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;

use super::Search;
use crate::Result;
use crate::provider::Relation;

/// Visits the operators of a plan, of its subqueries, and of the hidden plans of its searches.
pub(crate) fn apply_with_hidden(
    plan: &LogicalPlan,
    visit: &mut dyn FnMut(&LogicalPlan) -> DfResult<TreeNodeRecursion>,
) -> DfResult<TreeNodeRecursion> {
    plan.apply_with_subqueries(|node| {
        let next = visit(node)?;
        if next != TreeNodeRecursion::Stop {
            for plan in hidden(node)? {
                if apply_with_hidden(&plan, visit)? == TreeNodeRecursion::Stop {
                    return Ok(TreeNodeRecursion::Stop);
                }
            }
        }
        Ok(next)
    })
}

/// Replaces the hidden plans of all searches of a plan and of its subqueries. Hidden plans inside hidden plans are left
/// to `map`.
pub(crate) fn map_hidden(
    plan: LogicalPlan,
    map: &mut dyn FnMut(LogicalPlan) -> Result<LogicalPlan>,
) -> Result<LogicalPlan> {
    let mapped = plan.transform_up_with_subqueries(|node| {
        if hidden(&node)?.is_empty() {
            return Ok(Transformed::no(node));
        }
        let LogicalPlan::TableScan(mut scan) = node else { return Ok(Transformed::no(node)) };
        let provider = source_as_provider(&scan.source)?;
        if let Some(relation) = Relation::of(&provider) {
            scan.source = provider_as_source(Arc::new(relation.map_hidden(map)?));
        }
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok(mapped.data)
}

fn hidden(node: &LogicalPlan) -> DfResult<Vec<Arc<LogicalPlan>>> {
    let LogicalPlan::TableScan(scan) = node else { return Ok(Vec::new()) };
    let provider = source_as_provider(&scan.source)?;
    let search = Relation::of(&provider).and_then(Relation::search);
    Ok(search.map(Search::hidden).unwrap_or_default())
}

/// Creates the physical plan of an optimised hidden plan. It becomes a part of the query's physical plan, all of which
/// DataFusion's physical rules then rewrite; they must not rewrite a part twice.
pub(super) async fn physical_part(state: &dyn Session, plan: &LogicalPlan) -> DfResult<Arc<dyn ExecutionPlan>> {
    let Some(state) = state.as_any().downcast_ref::<SessionState>() else {
        return internal_err!("a search is planned by a session without a SessionState");
    };
    let without_rules = SessionStateBuilder::new_from_existing(state.clone());
    let state = without_rules.with_physical_optimizer_rules(Vec::new()).build();
    state.query_planner().create_physical_plan(plan, &state).await
}
