//! `tensor_mean`, `tensor_min`, `tensor_max`, `tensor_std` and `tensor_norm`: one number from all elements of a tensor.
//!
//! The argument is a tensor or a vector of numbers of any type and shape. The result is Float64, computed in `f64`:
//! NULL where the tensor is NULL or has no elements, and NaN where an element is NaN. NULL elements do not count.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Float64Array};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use stoker_columns::{SmallFloat, TensorType};

use crate::decompress::hint;
use crate::documented::documented;
use crate::vectors::to_f64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reduction {
    Mean,
    Min,
    Max,
    Std,
    Norm,
}

/// One of the functions.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct TensorReduction {
    reduction: Reduction,
    documentation: Documentation,
    signature: Signature,
}

impl TensorReduction {
    /// The mean of the elements.
    pub(crate) fn mean() -> Self {
        Self::new(Reduction::Mean, documented("tensor_mean(tensor)", "The mean of the values of a tensor"))
    }

    /// The least element.
    pub(crate) fn min() -> Self {
        Self::new(Reduction::Min, documented("tensor_min(tensor)", "The least value of a tensor"))
    }

    /// The greatest element.
    pub(crate) fn max() -> Self {
        Self::new(Reduction::Max, documented("tensor_max(tensor)", "The greatest value of a tensor"))
    }

    /// The population standard deviation of the elements: the divisor of the variance is their number.
    pub(crate) fn std() -> Self {
        let description = "The population standard deviation of the values of a tensor";
        Self::new(Reduction::Std, documented("tensor_std(tensor)", description))
    }

    /// The Euclidean norm: the square root of the sum of the squares of the elements.
    pub(crate) fn norm() -> Self {
        Self::new(Reduction::Norm, documented("tensor_norm(tensor)", "The Euclidean norm of the values of a tensor"))
    }

    fn new(reduction: Reduction, documentation: Documentation) -> Self {
        Self { reduction, documentation, signature: Signature::any(1, Volatility::Immutable) }
    }

    /// Reduces each row. Rows are converted one at a time, so that a batch of tensors is never held as `f64`.
    fn rows(&self, array: &ArrayRef, float: Option<SmallFloat>) -> DfResult<Float64Array> {
        let Some(list) = array.as_fixed_size_list_opt() else {
            return exec_err!("{}: {} is not a tensor", self.name(), array.data_type());
        };
        let mut reduced = Vec::with_capacity(list.len());
        for row in 0..list.len() {
            reduced.push(match list.is_valid(row) {
                true => self.reduction.of(present(to_f64(&list.value(row), float)?).values()),
                false => None,
            });
        }
        Ok(Float64Array::from(reduced))
    }
}

impl Reduction {
    /// Returns `None` if there are no elements.
    fn of(self, elements: &[f64]) -> Option<f64> {
        if elements.is_empty() {
            return None;
        }
        let num_elements = elements.len() as f64;
        let mean = || elements.iter().sum::<f64>() / num_elements;
        let reduced = match self {
            Reduction::Mean => mean(),
            Reduction::Min => elements.iter().copied().fold(f64::INFINITY, |least, element| {
                if element.is_nan() || element < least { element } else { least }
            }),
            Reduction::Max => elements.iter().copied().fold(f64::NEG_INFINITY, |greatest, element| {
                if element.is_nan() || element > greatest { element } else { greatest }
            }),
            // Two passes: the difference of the mean of the squares and the square of the mean would lose all digits
            // where the deviations are small beside the mean.
            Reduction::Std => {
                let mean = mean();
                norm(elements.iter().map(|element| element - mean)) / num_elements.sqrt()
            }
            Reduction::Norm => norm(elements.iter().copied()),
        };
        // Sorts compare bits: only a NaN without a sign sorts after all numbers.
        Some(if reduced.is_nan() { f64::NAN } else { reduced })
    }
}

/// Returns the square root of the sum of the squares. Elements whose squares overflow or underflow are scaled by the
/// greatest of them first.
fn norm(elements: impl Iterator<Item = f64> + Clone) -> f64 {
    let squares: f64 = elements.clone().map(|element| element * element).sum();
    if squares.is_normal() || squares.is_nan() {
        return squares.sqrt();
    }
    let greatest = elements.clone().map(f64::abs).fold(0.0, f64::max);
    if greatest == 0.0 || greatest.is_infinite() {
        return greatest;
    }
    greatest * elements.map(|element| (element / greatest) * (element / greatest)).sum::<f64>().sqrt()
}

/// Returns the elements that are not NULL.
fn present(elements: Float64Array) -> Float64Array {
    match elements.null_count() {
        0 => elements,
        _ => Float64Array::from_iter_values(elements.iter().flatten()),
    }
}

impl ScalarUDFImpl for TensorReduction {
    fn name(&self) -> &str {
        match self.reduction {
            Reduction::Mean => "tensor_mean",
            Reduction::Min => "tensor_min",
            Reduction::Max => "tensor_max",
            Reduction::Std => "tensor_std",
            Reduction::Norm => "tensor_norm",
        }
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
                let hint = hint(self.name(), field);
                plan_err!("{}: {} ({}) is not a tensor of numbers{hint}", self.name(), field.name(), field.data_type())
            }
            None => plan_err!("{} needs a tensor", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let float = args.arg_fields.first().and_then(|field| SmallFloat::of(field));
        match args.args.first() {
            Some(ColumnarValue::Array(array)) => Ok(ColumnarValue::Array(Arc::new(self.rows(array, float)?))),
            Some(ColumnarValue::Scalar(scalar)) => {
                let reduced = self.rows(&scalar.to_array()?, float)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&reduced, 0)?))
            }
            None => exec_err!("{} needs a tensor", self.name()),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
