//! Makes Arrow arrays from bytes.

use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::DataType;

use crate::{Error, Result};

/// Makes an array of a FixedSizeList type from its row-major bytes, without a copy.
///
/// # Errors
/// [`Error::Internal`] when the bytes do not have the right length.
pub fn to_array(data_type: &DataType, num_rows: usize, values: Buffer) -> Result<ArrayRef> {
    let fail = |source: arrow_schema::ArrowError| Error::Internal { reason: source.to_string() };
    let mut types = vec![data_type.clone()];
    while let Some(DataType::FixedSizeList(item, _)) = types.last() {
        let item = item.data_type().clone();
        types.push(item);
    }
    let width = types.last().and_then(DataType::primitive_width).unwrap_or(1);
    let mut data: Option<ArrayData> = None;
    for data_type in types.into_iter().rev() {
        let builder = ArrayData::builder(data_type.clone());
        let built = match (&data_type, data.take()) {
            (DataType::FixedSizeList(_, length), Some(child)) => {
                let rows = child.len().checked_div(*length as usize).unwrap_or(num_rows);
                builder.len(rows).add_child_data(child)
            }
            _ => builder.len(values.len() / width).add_buffer(values.clone()),
        };
        data = Some(built.build().map_err(fail)?);
    }
    let array = make_array(data.ok_or_else(|| Error::Internal { reason: "a column without a type".into() })?);
    if array.len() != num_rows {
        return Err(Error::Internal { reason: format!("{} rows were read, {num_rows} were requested", array.len()) });
    }
    Ok(array)
}
