//! Makes window functions deterministic whose result depends on the order of equal rows.

use datafusion::logical_expr::expr::{Alias, WindowFunction};
use datafusion::logical_expr::{SortExpr, WindowFunctionDefinition};
use datafusion::prelude::Expr;

use crate::Result;

/// Functions that number rows or read neighbouring rows, with any frame.
const POSITIONAL: [&str; 4] = ["row_number", "ntile", "lag", "lead"];

/// Adds `keys` to the order of a positional window function. The column keeps its name.
pub(super) fn with_ties(expr: Expr, keys: &[SortExpr]) -> Result<Expr> {
    let name = expr.schema_name().to_string();
    let (inner, alias) = match expr {
        Expr::Alias(Alias { expr, relation, name, .. }) => (*expr, Some((relation, name))),
        other => (other, None),
    };
    let inner = match inner {
        Expr::WindowFunction(mut function) if is_positional(&function) => {
            function.params.order_by.extend(keys.iter().cloned());
            Expr::WindowFunction(function)
        }
        other => other,
    };
    Ok(match alias {
        Some((relation, name)) => inner.alias_qualified(relation, name),
        None if inner.schema_name().to_string() == name => inner,
        None => inner.alias(name),
    })
}

fn is_positional(function: &WindowFunction) -> bool {
    match &function.fun {
        WindowFunctionDefinition::WindowUDF(udf) => POSITIONAL.contains(&udf.name()),
        WindowFunctionDefinition::AggregateUDF(_) => false,
    }
}
