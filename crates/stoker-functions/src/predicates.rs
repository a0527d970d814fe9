//! What a predicate needs beside the values of a row.

use datafusion::common::tree_node::TreeNode as _;
use datafusion::prelude::Expr;

/// Whether a predicate contains a subquery.
pub fn has_subquery(predicate: &Expr) -> bool {
    let is_subquery = |expr: &Expr| {
        matches!(expr, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_))
    };
    predicate.exists(|expr| Ok(is_subquery(expr))).unwrap_or(true)
}

/// Whether a predicate needs nothing but the columns of a row for which `is_known` is true: no subquery, no column of an
/// enclosing query, and no function whose result changes.
pub fn needs_only(predicate: &Expr, is_known: impl Fn(&str) -> bool) -> bool {
    let is_outer = |expr: &Expr| matches!(expr, Expr::OuterReferenceColumn(..));
    !has_subquery(predicate)
        && matches!(predicate.exists(|expr| Ok(is_outer(expr))), Ok(false))
        && !predicate.is_volatile()
        && predicate.column_refs().iter().all(|column| is_known(&column.name))
}
