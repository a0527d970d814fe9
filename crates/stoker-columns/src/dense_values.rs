//! The numbers of columns whose rows have one shape.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, UInt8Array};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use half::f16;

/// Returns the numbers of a column of numbers, booleans, or lists of a fixed size of them: those of all rows, without
/// nulls, in the memory of the column unless it has nulls. Booleans are UInt8. `None` for other columns.
///
/// Null rows become zero, as do null integers and booleans. Null floats in rows that are not null become NaN.
pub fn dense_values(array: &ArrayRef) -> Option<ArrayRef> {
    let mut values = array.clone();
    let mut null_rows: Option<NullBuffer> = None;
    while let Some(lists) = values.as_fixed_size_list_opt() {
        let length = usize::try_from(lists.value_length()).ok()?;
        let nulls = NullBuffer::union(null_rows.as_ref(), lists.nulls()).filter(|nulls| nulls.null_count() > 0);
        null_rows = nulls.map(|nulls| nulls.expand(length));
        if lists.values().len() != lists.len() * length {
            return None;
        }
        values = lists.values().clone();
    }
    if let Some(flags) = values.as_boolean_opt() {
        return Some(bytes(flags, null_rows.as_ref()));
    }
    macro_rules! number {
        ($type:ty, $unknown:expr) => {
            Some(numbers::<$type>(values.as_primitive(), null_rows.as_ref(), $unknown))
        };
    }
    match values.data_type() {
        DataType::UInt8 => number!(UInt8Type, 0),
        DataType::Int8 => number!(Int8Type, 0),
        DataType::UInt16 => number!(UInt16Type, 0),
        DataType::Int16 => number!(Int16Type, 0),
        DataType::UInt32 => number!(UInt32Type, 0),
        DataType::Int32 => number!(Int32Type, 0),
        DataType::UInt64 => number!(UInt64Type, 0),
        DataType::Int64 => number!(Int64Type, 0),
        DataType::Float16 => number!(Float16Type, f16::NAN),
        DataType::Float32 => number!(Float32Type, f32::NAN),
        DataType::Float64 => number!(Float64Type, f64::NAN),
        _ => None,
    }
}

/// Returns numbers without nulls: `unknown` for null elements, and zero for those of null rows.
fn numbers<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    null_rows: Option<&NullBuffer>,
    unknown: T::Native,
) -> ArrayRef {
    let elements = array.nulls().filter(|nulls| nulls.null_count() > 0);
    if elements.is_none() && null_rows.is_none() {
        return Arc::new(PrimitiveArray::<T>::new(array.values().clone(), None));
    }
    let mut values = array.values().to_vec();
    for (nulls, value) in [(elements, unknown), (null_rows, T::Native::default())] {
        let Some(nulls) = nulls else { continue };
        for (start, end) in (!nulls.inner()).set_slices() {
            values[start..end].fill(value);
        }
    }
    Arc::new(PrimitiveArray::<T>::new(values.into(), None))
}

/// Returns booleans as bytes; nulls are false.
fn bytes(flags: &BooleanArray, null_rows: Option<&NullBuffer>) -> ArrayRef {
    let nulls = NullBuffer::union(flags.nulls(), null_rows);
    let known = match nulls {
        Some(nulls) => flags.values() & nulls.inner(),
        None => flags.values().clone(),
    };
    Arc::new(UInt8Array::from_iter_values(known.iter().map(u8::from)))
}
