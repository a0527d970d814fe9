//! Arrays of numbers from their bytes.

use std::sync::Arc;

use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType};

/// Returns the type of numbers that has a name of NumPy, such as `float32`.
pub(crate) fn number_named(name: &str) -> Option<DataType> {
    Some(match name {
        "int8" => DataType::Int8,
        "int16" => DataType::Int16,
        "int32" => DataType::Int32,
        "int64" => DataType::Int64,
        "uint8" => DataType::UInt8,
        "uint16" => DataType::UInt16,
        "uint32" => DataType::UInt32,
        "uint64" => DataType::UInt64,
        "float16" => DataType::Float16,
        "float32" => DataType::Float32,
        "float64" => DataType::Float64,
        _ => return None,
    })
}

/// Returns the numbers whose bytes, the least significant first, are in an aligned buffer.
///
/// # Errors
/// For a type that is none of numbers.
pub(super) fn numbers(element: &DataType, data: Buffer, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
    macro_rules! array {
        ($type:ty) => {
            Arc::new(PrimitiveArray::<$type>::try_new(ScalarBuffer::from(data), nulls)?) as ArrayRef
        };
    }
    Ok(match element {
        DataType::Int8 => array!(Int8Type),
        DataType::Int16 => array!(Int16Type),
        DataType::Int32 => array!(Int32Type),
        DataType::Int64 => array!(Int64Type),
        DataType::UInt8 => array!(UInt8Type),
        DataType::UInt16 => array!(UInt16Type),
        DataType::UInt32 => array!(UInt32Type),
        DataType::UInt64 => array!(UInt64Type),
        DataType::Float16 => array!(Float16Type),
        DataType::Float32 => array!(Float32Type),
        DataType::Float64 => array!(Float64Type),
        other => return Err(ArrowError::InvalidArgumentError(format!("{other} is no type of numbers"))),
    })
}
