//! Tells whether the selection of rows splits by fragment, and limits it to some fragments.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::{LogicalPlan, TableScan};
use stoker_functions::has_subquery;

use crate::provider::Relation;
use crate::{Error, Result};

/// How the rows of a sample query can be selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Fragment by fragment: which rows of a fragment are selected, and with which values, depends on no other
    /// fragment, and the row set has the rows of the fragments one after the other, by fragment id.
    ByFragment,
    /// Only in one pass over all tables.
    Whole {
        /// The part of the query that needs one pass, as a noun with its article.
        reason: &'static str,
    },
}

/// Returns how the rows of a lifted plan can be selected. `plan` has not got the sort by address yet.
///
/// A selection splits by fragment if its plan is a chain of projections, filters and aliases above the scan of one
/// table, and if no expression of the chain has a subquery. Then a table row gives at most one row, which depends on
/// that table row alone, and the row set has its rows by ascending address, so fragment by fragment. Every other
/// selection is done in one pass:
///
/// - `ORDER BY`, `LIMIT`, window functions and searches compare rows of all fragments;
/// - joins and `UNION` take rows from several scans, and the row set mixes them;
/// - `UNNEST` gives several rows for a table row, so that addresses do not identify rows;
/// - a subquery would be evaluated again for each part, and its sums of floating-point numbers may differ in the last
///   digit each time, so that the parts would not fit together.
pub(super) fn split_of(plan: &LogicalPlan) -> Result<Split> {
    let mut node = plan;
    loop {
        if uses_subquery(node)? {
            return Ok(Split::Whole { reason: "a subquery" });
        }
        let reason = match node {
            LogicalPlan::Projection(projection) => {
                node = &projection.input;
                continue;
            }
            LogicalPlan::Filter(filter) => {
                node = &filter.input;
                continue;
            }
            LogicalPlan::SubqueryAlias(alias) => {
                node = &alias.input;
                continue;
            }
            LogicalPlan::TableScan(scan) => return split_of_scan(scan),
            LogicalPlan::Sort(_) => "an order",
            LogicalPlan::Limit(_) => "a limit",
            LogicalPlan::Window(_) => "a window function",
            LogicalPlan::Join(_) => "a join",
            LogicalPlan::Union(_) => "a UNION",
            LogicalPlan::Unnest(_) => "an UNNEST",
            _ => "an operator over many rows",
        };
        return Ok(Split::Whole { reason });
    }
}

fn split_of_scan(scan: &TableScan) -> Result<Split> {
    let provider = source_as_provider(&scan.source)?;
    Ok(match Relation::of(&provider) {
        Some(relation) if relation.search().is_some() => Split::Whole { reason: "a search" },
        Some(_) if scan.fetch.is_none() => Split::ByFragment,
        Some(_) => Split::Whole { reason: "a limit" },
        None => Split::Whole { reason: "a relation that is not a table of the lake" },
    })
}

fn uses_subquery(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found |= has_subquery(expr);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Limits the scan of a plan that splits by fragment to these fragments.
pub(crate) fn limited(plan: LogicalPlan, fragments: &Arc<BTreeSet<u32>>) -> Result<LogicalPlan> {
    let mut num_scans = 0;
    let plan = plan.transform_down(|node| {
        let LogicalPlan::TableScan(mut scan) = node else { return Ok(Transformed::no(node)) };
        let provider = source_as_provider(&scan.source)?;
        let Some(relation) = Relation::of(&provider) else {
            return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
        };
        num_scans += 1;
        scan.source = provider_as_source(Arc::new(relation.with_fragments(fragments.clone())));
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    match num_scans {
        1 => Ok(plan.data),
        _ => Err(Error::internal(format!("a selection that splits by fragment has {num_scans} scans"))),
    }
}
