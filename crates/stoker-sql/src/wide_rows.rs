//! Limits the rows of a batch when rows are wide.
//!
//! Joins and lists repeat values: a constant of 64 KiB beside each of 8,192 rows takes 512 MiB, for which no operator
//! reserves memory.

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::Expr;
use stoker_columns::fixed_row_bytes;

use crate::search::apply_with_hidden;

/// The approximate bytes of a batch.
const BATCH_BYTES: usize = 8 << 20;
/// The assumed bytes of a value of variable width, unless the query has longer constants.
const VARIABLE_BYTES: usize = 128;
/// The bytes from which a constant counts.
const CONSTANT_BYTES_MIN: usize = 64;
/// The bytes from which a constant list counts.
const LIST_BYTES_MIN: usize = 64 << 10;

/// Returns the most rows of a batch, computed from the widths of all columns and of the constants that become columns.
pub(crate) fn wide_rows(plan: &LogicalPlan) -> DfResult<usize> {
    let mut variable_bytes = VARIABLE_BYTES;
    each_constant(plan, |bytes| variable_bytes = variable_bytes.max(bytes))?;
    let mut row_bytes_max = 1;
    apply_with_hidden(plan, &mut |node| {
        let columns = node.schema().fields().iter();
        let widths = columns.map(|field| fixed_row_bytes(field.data_type()).unwrap_or(variable_bytes));
        row_bytes_max = row_bytes_max.max(widths.fold(0, usize::saturating_add));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok((BATCH_BYTES / row_bytes_max).max(1))
}

fn each_constant(plan: &LogicalPlan, mut found: impl FnMut(usize)) -> DfResult<()> {
    apply_with_hidden(plan, &mut |node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                found(constant_bytes(expr));
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// Returns the bytes of a large constant, or of the longest text that a call of `lpad` or `rpad` may create; 0 for
/// others.
fn constant_bytes(expr: &Expr) -> usize {
    let bytes = match expr {
        Expr::Literal(value, _) => value_bytes(value),
        Expr::ScalarFunction(call) if matches!(call.name(), "lpad" | "rpad") => match call.args.get(1) {
            Some(Expr::Literal(ScalarValue::Int64(Some(chars)), _)) => usize::try_from(*chars).unwrap_or(0),
            _ => 0,
        },
        _ => 0,
    };
    if bytes < CONSTANT_BYTES_MIN { 0 } else { bytes }
}

fn value_bytes(value: &ScalarValue) -> usize {
    match value {
        ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            text.len()
        }
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes)) => bytes.len(),
        // A shorter constant list is taken for a query vector, which does not become a column.
        value if value.data_type().is_nested() && value.size() >= LIST_BYTES_MIN => value.size(),
        _ => 0,
    }
}
