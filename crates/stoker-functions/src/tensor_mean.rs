//! `tensor_mean(column)`: the mean of all elements of a tensor.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt16Type};
use arrow_array::{Array, ArrayRef, Float64Array};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use stoker_columns::{TensorType, is_bfloat16};

/// The function. The result is Float64, the mean computed in `f64`; NULL where the tensor is NULL or has no elements.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct TensorMean {
    signature: Signature,
}

impl TensorMean {
    pub(crate) fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for TensorMean {
    fn name(&self) -> &str {
        "tensor_mean"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Float64)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        match args.arg_fields.first() {
            Some(field) if TensorType::of(field).is_some_and(|tensor| tensor.element.is_numeric()) => {
                Ok(Arc::new(Field::new(self.name(), DataType::Float64, true)))
            }
            Some(field) => {
                plan_err!("tensor_mean: {} ({}) is not a tensor of numbers", field.name(), field.data_type())
            }
            None => plan_err!("tensor_mean needs a tensor"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let is_bfloat16 = args.arg_fields.first().is_some_and(|field| is_bfloat16(field));
        match args.args.first() {
            Some(ColumnarValue::Array(array)) => Ok(ColumnarValue::Array(Arc::new(means(array, is_bfloat16)?))),
            Some(ColumnarValue::Scalar(scalar)) => {
                let means = means(&scalar.to_array()?, is_bfloat16)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&means, 0)?))
            }
            None => exec_err!("tensor_mean needs a tensor"),
        }
    }
}

/// Returns the mean of each row. Rows are converted one at a time, so that a batch of tensors is never held as `f64`.
fn means(array: &ArrayRef, is_bfloat16: bool) -> DfResult<Float64Array> {
    let Some(list) = array.as_fixed_size_list_opt() else {
        return exec_err!("tensor_mean: {} is not a tensor", array.data_type());
    };
    let mut means = Vec::with_capacity(list.len());
    for row in 0..list.len() {
        means.push(match list.is_valid(row) {
            true => mean(&list.value(row), is_bfloat16)?,
            false => None,
        });
    }
    Ok(Float64Array::from(means))
}

fn mean(elements: &ArrayRef, is_bfloat16: bool) -> DfResult<Option<f64>> {
    let num_elements = elements.len() - elements.null_count();
    if num_elements == 0 {
        return Ok(None);
    }
    let sum: f64 = if is_bfloat16 && elements.data_type() == &DataType::UInt16 {
        let bits = elements.as_primitive::<UInt16Type>();
        bits.iter().flatten().map(|bits| f64::from(half::bf16::from_bits(bits).to_f32())).sum()
    } else {
        let values = arrow_cast::cast(elements, &DataType::Float64)?;
        values.as_primitive::<Float64Type>().iter().flatten().sum()
    };
    Ok(Some(sum / num_elements as f64))
}
