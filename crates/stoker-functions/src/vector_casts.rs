//! Casts of lists to vectors, such as `CAST(list AS FLOAT[4])` and `list::FLOAT[4]`.
//!
//! DataFusion 54 plans `FLOAT[4]` as a FixedSizeList. arrow-cast 58.4 takes the elements of a list array from the start
//! of its child array, also where the array is a slice that begins later, as the later batches of an aggregate are
//! (`cast_list_to_fixed_size_list` in `cast/list.rs`): rows would get the vectors of other rows. And nothing reserves
//! memory for NULL as a long vector. This rule replaces such casts by a function. It runs after type coercion. A plan
//! that the rule has already rewritten does not change again.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, FixedSizeListArray, UInt64Array};
use arrow_buffer::NullBuffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, FieldRef};
use arrow_select::take::take;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DFSchema, Result as DfResult, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Cast, ColumnarValue, ExprSchemable as _, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, TryCast, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::{Expr, lit};

use crate::vectors::elements_and_offsets;

/// The analyzer rule.
#[derive(Debug)]
pub(crate) struct VectorCasts;

impl AnalyzerRule for VectorCasts {
    fn name(&self) -> &str {
        "vector_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DfResult<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            if matches!(node, LogicalPlan::TableScan(_)) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let rewritten = expr.transform_up(|expr| rewrite(expr, &schema))?;
                Ok(rewritten.update_data(|expr| name.restore(expr)))
            })
        })?;
        Ok(rewritten.data)
    }
}

/// Replaces one cast of a list to a vector of numbers.
fn rewrite(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let (input, field, is_try) = match &expr {
        Expr::Cast(Cast { expr, field }) => (expr, field, false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field, true),
        _ => return Ok(Transformed::no(expr)),
    };
    let length = match field.data_type() {
        DataType::FixedSizeList(item, length) if item.data_type().is_numeric() => *length,
        _ => return Ok(Transformed::no(expr)),
    };
    match input.get_type(schema)? {
        DataType::List(_) | DataType::LargeList(_) | DataType::Null => {}
        DataType::FixedSizeList(item, found) if found != length && item.data_type().is_numeric() => {
            return plan_err!("a vector of {found} elements cannot be cast to a vector of {length} elements");
        }
        _ => return Ok(Transformed::no(expr)),
    }
    let function = VectorCast::new(expr.to_field(schema)?.1, is_try);
    let input = input.as_ref().clone();
    let args = vec![input, lit(u64::try_from(length).unwrap_or_default())];
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), args))))
}

/// The cast as a function of the list and of the number of elements of the vector, from which the size of the result is
/// estimated. A list of another length is an error that names its length, or NULL in `TRY_CAST`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct VectorCast {
    /// The field of the result, whose type is a FixedSizeList.
    field: FieldRef,
    is_try: bool,
    signature: Signature,
}

impl VectorCast {
    pub(crate) fn new(field: FieldRef, is_try: bool) -> Self {
        Self { field, is_try, signature: Signature::any(2, Volatility::Immutable) }
    }

    pub(crate) fn cast(&self, lists: &ArrayRef) -> DfResult<FixedSizeListArray> {
        let DataType::FixedSizeList(item, list_length) = self.field.data_type() else {
            return internal_err!("a list was cast to {}", self.field.data_type());
        };
        let length = usize::try_from(*list_length).unwrap_or_default();
        let Some((elements, offsets)) = elements_and_offsets(lists) else {
            return match lists.data_type() {
                DataType::Null => Ok(FixedSizeListArray::new_null(item.clone(), *list_length, lists.len())),
                other => internal_err!("{other} was cast as a list"),
            };
        };
        let mut valid = Vec::with_capacity(lists.len());
        for (row, bounds) in offsets.windows(2).enumerate() {
            let found = bounds[1] - bounds[0];
            if found != length && lists.is_valid(row) && !self.is_try {
                return exec_err!("a list of {found} elements cannot be cast to a vector of {length} elements");
            }
            valid.push(found == length && lists.is_valid(row));
        }
        let elements = if valid.iter().all(|valid| *valid) {
            elements.slice(offsets.first().copied().unwrap_or_default(), lists.len() * length)
        } else {
            let rows = offsets.iter().zip(&valid);
            let indices = rows
                .flat_map(|(&start, &valid)| (start..start + length).map(move |index| valid.then_some(index as u64)));
            take(&elements, &indices.collect::<UInt64Array>(), None)?
        };
        let options = CastOptions { safe: self.is_try, ..CastOptions::default() };
        let elements = cast_with_options(&elements, item.data_type(), &options)?;
        let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
        Ok(FixedSizeListArray::try_new_with_length(item.clone(), *list_length, elements, nulls, lists.len())?)
    }
}

impl ScalarUDFImpl for VectorCast {
    fn name(&self) -> &str {
        "cast_to_vector"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Returns the column name of the replaced cast, so that the names of result columns do not change.
    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        Ok(args.first().map(|list| list.schema_name().to_string()).unwrap_or_default())
    }

    fn return_type(&self, _arg_types: &[DataType]) -> DfResult<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn return_field_from_args(&self, _args: ReturnFieldArgs) -> DfResult<FieldRef> {
        Ok(self.field.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        match args.args.first() {
            Some(ColumnarValue::Array(lists)) => Ok(ColumnarValue::Array(Arc::new(self.cast(lists)?))),
            Some(ColumnarValue::Scalar(list)) => {
                let vector = self.cast(&list.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::FixedSizeList(Arc::new(vector))))
            }
            None => internal_err!("{} was called without a list", self.name()),
        }
    }
}
