//! `tensor_shape(column)`: the sizes of a tensor column's dimensions.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{Array, ListArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ExprSchemable as _, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::prelude::Expr;
use stoker_columns::tensor::logical_shape;

use crate::decompress::hint;
use crate::documented::documented;

/// The function. The result is a List of Int64, NULL where the tensor is NULL. For non-null columns the result is a
/// constant that follows from the column's type, so that the tensors are not read.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct TensorShape {
    documentation: Documentation,
    signature: Signature,
}

impl TensorShape {
    pub(crate) fn new() -> Self {
        Self {
            documentation: documented("tensor_shape(tensor)", "The shape of a tensor"),
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

fn result_type() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)))
}

fn shape(field: Option<&FieldRef>) -> DfResult<Vec<Option<i64>>> {
    let Some(shape) = field.and_then(|field| logical_shape(field)) else {
        return plan_err!(
            "tensor_shape: {} is not a tensor{}",
            field.map_or("nothing".to_string(), |field| format!("{} ({})", field.name(), field.data_type())),
            field.map_or_else(String::new, |field| hint("tensor_shape", field))
        );
    };
    Ok(shape.iter().map(|size| i64::try_from(*size).ok()).collect())
}

fn list(shape: Vec<Option<i64>>) -> ListArray {
    ListArray::from_iter_primitive::<Int64Type, _, _>([Some(shape)])
}

impl ScalarUDFImpl for TensorShape {
    fn name(&self) -> &str {
        "tensor_shape"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> DfResult<DataType> {
        Ok(result_type())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        shape(args.arg_fields.first())?;
        Ok(Arc::new(Field::new(self.name(), result_type(), true)))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> DfResult<ExprSimplifyResult> {
        let field = match args.first() {
            Some(arg) => arg.to_field(info.schema().as_ref())?.1,
            None => return Ok(ExprSimplifyResult::Original(args)),
        };
        if field.is_nullable() {
            return Ok(ExprSimplifyResult::Original(args));
        }
        let value = ScalarValue::List(Arc::new(list(shape(Some(&field))?)));
        Ok(ExprSimplifyResult::Simplified(Expr::Literal(value, None)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let shape = shape(args.arg_fields.first())?;
        let nulls = match args.args.first() {
            Some(ColumnarValue::Array(array)) => array.nulls().cloned(),
            _ => None,
        };
        let Some(nulls) = nulls else {
            return Ok(ColumnarValue::Scalar(ScalarValue::List(Arc::new(list(shape)))));
        };
        Ok(ColumnarValue::Array(Arc::new(repeated(&shape, nulls)?)))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

/// Returns a list array with the shape in each valid row.
fn repeated(shape: &[Option<i64>], nulls: NullBuffer) -> DfResult<ListArray> {
    let lengths = nulls.iter().map(|valid| if valid { shape.len() } else { 0 });
    let offsets = OffsetBuffer::from_lengths(lengths);
    let num_valid = nulls.len() - nulls.null_count();
    let values: arrow_array::Int64Array = (0..num_valid).flat_map(|_| shape.iter().copied()).collect();
    let item = Arc::new(Field::new_list_field(DataType::Int64, true));
    Ok(ListArray::try_new(item, offsets, Arc::new(values), Some(nulls))?)
}
