//! Refuses queries that may select different rows when they are evaluated again.

use std::any::Any;

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::datasource::{MemTable, source_as_provider};
use datafusion::logical_expr::{LogicalPlan, Volatility};
use datafusion::prelude::Expr;

use crate::provider::Relation;
use crate::search::apply_with_hidden;
use crate::{Error, Result};

/// Checks that every function of the plan, its subqueries and its hidden plans always returns the same result for the
/// same arguments, and that none of them reads the catalog, which changes without a new version of a table. The rows of
/// a parameter do not change.
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    let (mut found, mut catalog) = (None, None);
    apply_with_hidden(plan, &mut |node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source)?;
            let is_given = (provider.as_ref() as &dyn Any).is::<MemTable>();
            if Relation::of(&provider).is_none() && !is_given {
                catalog = Some(scan.table_name.to_string());
            }
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(function) = expr
                    && function.func.signature().volatility != Volatility::Immutable
                {
                    found = Some(function.func.name().to_string());
                    return Ok(TreeNodeRecursion::Stop);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    if let Some(name) = catalog {
        let name = name.split('#').next().unwrap_or_default();
        return Err(Error::NotSampleQuery {
            reason: format!(
                "it reads {name} of the catalog, which changes without a new version of a table, and a row set must be \
                 reproducible; pass what it tells as a parameter"
            ),
        });
    }
    match found {
        None => Ok(()),
        Some(name) => Err(Error::NotSampleQuery {
            reason: format!(
                "function {name} may give another result each time, and a row set must be reproducible; \
                 pass its value as a parameter"
            ),
        }),
    }
}
