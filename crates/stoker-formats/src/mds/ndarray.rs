//! Arrays that say their shape, and their type if the column has none.
//!
//! Layout: one byte for the type (if the column has none), one byte with the number of dimensions in its upper six bits
//! and with the width of a size (1, 2, 4 or 8 bytes) in its lower two, the sizes, the elements in row-major order.

use std::fmt;

use arrow_schema::DataType;

use crate::values::BATCH_BYTES_MAX;

/// The type and the number of dimensions of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArrayType {
    pub element: DataType,
    pub num_dims: usize,
}

impl fmt::Display for ArrayType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.num_dims == 1 { "" } else { "s" };
        write!(f, "{} with {} dimension{plural}", self.element.to_string().to_lowercase(), self.num_dims)
    }
}

/// Splits a value into type, shape and elements. `declared` is the type of the column, if it has one.
///
/// # Errors
/// What is wrong with the value.
pub(super) fn read<'a>(
    value: &'a [u8],
    declared: Option<&DataType>,
) -> Result<(ArrayType, Vec<i32>, &'a [u8]), String> {
    let cut_off = "the array is cut off";
    let (element, rest) = match declared {
        Some(element) => (element.clone(), value),
        None => {
            let (code, rest) = value.split_first().ok_or(cut_off)?;
            (element_of(*code).ok_or_else(|| format!("the type {code} of arrays is unknown"))?, rest)
        }
    };
    let (byte, rest) = rest.split_first().ok_or(cut_off)?;
    let (num_dims, width) = (usize::from(byte >> 2), 1usize << (byte & 3));
    if num_dims == 0 {
        return Err("the array has no dimensions".into());
    }
    let (sizes, data) = rest.split_at_checked(num_dims * width).ok_or(cut_off)?;
    let sizes: Vec<u64> = sizes.chunks_exact(width).map(little_endian).collect();
    let shape: Option<Vec<i32>> = sizes.iter().map(|size| i32::try_from(*size).ok()).collect();
    let bytes = element.primitive_width().unwrap_or(1) as u64;
    let bytes = sizes.iter().try_fold(bytes, |product, size| product.checked_mul(*size));
    match shape {
        Some(shape) if bytes == Some(data.len() as u64) && data.len() < BATCH_BYTES_MAX => {
            Ok((ArrayType { element, num_dims }, shape, data))
        }
        _ => Err(format!("an array of shape {sizes:?} has {} bytes of elements", data.len())),
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the type of a code.
fn element_of(code: u8) -> Option<DataType> {
    Some(match code {
        8 => DataType::UInt8,
        9 => DataType::Int8,
        16 => DataType::UInt16,
        17 => DataType::Int16,
        18 => DataType::Float16,
        32 => DataType::UInt32,
        33 => DataType::Int32,
        34 => DataType::Float32,
        64 => DataType::UInt64,
        65 => DataType::Int64,
        66 => DataType::Float64,
        _ => return None,
    })
}
