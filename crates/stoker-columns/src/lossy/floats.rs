//! Floats with fewer bits.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type, UInt16Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, FixedSizeListArray, PrimitiveArray};
use arrow_schema::{DataType, Field};
use half::{bf16, f16};

use super::bfloat16_name;
use crate::Mismatch;
use crate::tensor::fit_elements;

/// Returns the column of floats with 16 bits for one of tensors or vectors.
pub(super) fn field(plain: &Field, is_bfloat16: bool) -> Field {
    let DataType::FixedSizeList(_, length) = plain.data_type() else { return plain.clone() };
    let element = if is_bfloat16 { DataType::UInt16 } else { DataType::Float16 };
    let item = Arc::new(Field::new("item", element, false));
    let mut metadata = plain.metadata().clone();
    metadata.extend(is_bfloat16.then(bfloat16_name));
    plain.clone().with_data_type(DataType::FixedSizeList(item, *length)).with_metadata(metadata)
}

/// Converts tensors or vectors of float32 or float64. Returns the largest absolute error of a finite number.
pub(super) fn convert(field: &Field, column: &ArrayRef, is_bfloat16: bool) -> Result<(ArrayRef, f64), Mismatch> {
    let DataType::FixedSizeList(item, length) = field.data_type() else {
        return Err(Mismatch::new(None, "tensors", field.data_type().to_string()));
    };
    let wrong = |found: String| Mismatch::new(None, item.data_type().to_string(), found);
    let DataType::FixedSizeList(found, _) = column.data_type() else {
        return Err(wrong(column.data_type().to_string()));
    };
    let dense = Arc::new(Field::new("item", found.data_type().clone(), false));
    let dense = Field::new(field.name(), DataType::FixedSizeList(dense, *length), true);
    let column = fit_elements(&dense, column).map_err(|_| wrong("a null element".into()))?;
    let lists = column.as_fixed_size_list();
    let at = |index: usize| index / usize::try_from(*length).unwrap_or(1).max(1);
    let values = lists.values();
    let (values, max_abs_error) = match (values.data_type(), is_bfloat16) {
        (DataType::Float32, false) => halves(values.as_primitive::<Float32Type>(), at)?,
        (DataType::Float64, false) => halves(values.as_primitive::<Float64Type>(), at)?,
        (DataType::Float32, true) => brains(values.as_primitive::<Float32Type>(), at)?,
        (DataType::Float64, true) => brains(values.as_primitive::<Float64Type>(), at)?,
        (other, _) => return Err(wrong(other.to_string())),
    };
    let lists = FixedSizeListArray::try_new(item.clone(), *length, values, lists.nulls().cloned());
    lists.map(|lists| (Arc::new(lists) as ArrayRef, max_abs_error)).map_err(|error| wrong(error.to_string()))
}

fn halves<T: ArrowPrimitiveType<Native: Into<f64>>>(
    values: &PrimitiveArray<T>,
    at: impl Fn(usize) -> usize,
) -> Result<(ArrayRef, f64), Mismatch> {
    let mut error = Largest::default();
    let rounded = values.values().iter().enumerate().map(|(index, value)| {
        let rounded = f16::from_f64((*value).into());
        error.note("float16", at(index), (*value).into(), rounded.to_f64())?;
        Ok::<f16, Mismatch>(rounded)
    });
    let rounded = rounded.collect::<Result<Vec<f16>, Mismatch>>()?;
    Ok((Arc::new(PrimitiveArray::<Float16Type>::from(rounded)), error.max))
}

fn brains<T: ArrowPrimitiveType<Native: Into<f64>>>(
    values: &PrimitiveArray<T>,
    at: impl Fn(usize) -> usize,
) -> Result<(ArrayRef, f64), Mismatch> {
    let mut error = Largest::default();
    let rounded = values.values().iter().enumerate().map(|(index, value)| {
        let rounded = bf16::from_f64((*value).into());
        error.note("bfloat16", at(index), (*value).into(), rounded.to_f64())?;
        Ok::<u16, Mismatch>(rounded.to_bits())
    });
    let rounded = rounded.collect::<Result<Vec<u16>, Mismatch>>()?;
    Ok((Arc::new(PrimitiveArray::<UInt16Type>::from(rounded)), error.max))
}

/// The largest error so far.
#[derive(Default)]
struct Largest {
    max: f64,
}

impl Largest {
    /// Compares a number with what is held of it.
    fn note(&mut self, name: &str, row: usize, value: f64, rounded: f64) -> Result<(), Mismatch> {
        if !value.is_finite() {
            return Ok(());
        }
        if !rounded.is_finite() {
            return Err(Mismatch::new(Some(row), format!("numbers that {name} can hold"), value.to_string()));
        }
        self.max = self.max.max((value - rounded).abs());
        Ok(())
    }
}
