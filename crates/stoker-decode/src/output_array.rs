//! The arrays that decoded rows become.

use std::sync::Arc;

use arrow_array::{ArrayRef, LargeListArray};
use arrow_buffer::{BooleanBuffer, Buffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field};

use crate::value_decoder::{ListSpec, OutputSpec};
use crate::{Error, Result};

/// Returns the bytes of an output as an array: numbers, or fixed-size lists of them.
///
/// # Errors
/// [`Error::Internal`] when the length is wrong.
pub fn output_array(output: &OutputSpec, bytes: Buffer, num_rows: usize) -> Result<ArrayRef> {
    if bytes.len() != num_rows.saturating_mul(output.row_bytes()) {
        return Err(Error::internal(format!("{} bytes for {num_rows} rows of {output:?}", bytes.len())));
    }
    let bytes = match output.element {
        DataType::Boolean => BooleanBuffer::from_iter(bytes.iter().map(|byte| *byte != 0)).into_inner(),
        _ => bytes,
    };
    let values = ArrayData::builder(output.element.clone())
        .len(num_rows * output.row_elements())
        .add_buffer(bytes)
        .build()
        .map_err(Error::internal)?;
    if output.shape.is_empty() {
        return Ok(arrow_array::make_array(values));
    }
    let item = Field::new("item", output.element.clone(), true);
    let length = i32::try_from(output.row_elements()).map_err(Error::internal)?;
    let lists = ArrayData::builder(DataType::FixedSizeList(item.into(), length))
        .len(num_rows)
        .add_child_data(values)
        .build()
        .map_err(Error::internal)?;
    Ok(arrow_array::make_array(lists))
}

impl ListSpec {
    /// The type of the column of lists.
    pub fn data_type(&self) -> DataType {
        DataType::LargeList(Arc::new(Field::new("item", self.element_type(), true)))
    }

    /// The type of an element: a number, or fixed-size lists in each other.
    fn element_type(&self) -> DataType {
        self.shape.iter().rev().fold(self.number.clone(), |inner, size| {
            let size = i32::try_from(*size).unwrap_or(i32::MAX);
            DataType::FixedSizeList(Arc::new(Field::new("item", inner, true)), size)
        })
    }
}

/// Returns lists as an array: their elements, one list after the other, and the bytes of each list.
///
/// # Errors
/// [`Error::Internal`] when the lengths are wrong.
pub fn list_array(list: &ListSpec, bytes: Buffer, lengths: impl Iterator<Item = usize>) -> Result<ArrayRef> {
    let element_bytes = list.element_bytes();
    let mut offsets = vec![0i64];
    let mut end = 0;
    for length in lengths {
        end += length / element_bytes;
        offsets.push(i64::try_from(end).map_err(Error::internal)?);
    }
    if end.saturating_mul(element_bytes) != bytes.len() {
        return Err(Error::internal(format!("{} bytes for lists of {end} elements of {list:?}", bytes.len())));
    }
    let mut length = bytes.len() / list.number.primitive_width().unwrap_or(1).max(1);
    let values = ArrayData::builder(list.number.clone()).len(length).add_buffer(bytes);
    let mut values = values.build().map_err(Error::internal)?;
    for size in list.shape.iter().rev() {
        length /= (*size).max(1);
        let item = Arc::new(Field::new("item", values.data_type().clone(), true));
        let data_type = DataType::FixedSizeList(item, i32::try_from(*size).map_err(Error::internal)?);
        let rows = ArrayData::builder(data_type).len(length).add_child_data(values);
        values = rows.build().map_err(Error::internal)?;
    }
    let item = Arc::new(Field::new("item", values.data_type().clone(), true));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let values = arrow_array::make_array(values);
    Ok(Arc::new(LargeListArray::try_new(item, offsets, values, None).map_err(Error::internal)?))
}
