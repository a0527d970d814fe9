//! Builds the array of one column.

use std::sync::Arc;

use arrow_array::builder::{LargeBinaryBuilder, StringBuilder};
use arrow_array::{ArrayRef, FixedSizeListArray, ListArray, StructArray};
use arrow_buffer::{Buffer, MutableBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};

use super::FieldValue;
use super::numbers::numbers;

/// The values of a column, row after row. The type of the field says how they are kept.
#[derive(Debug)]
pub(super) struct ValueBuilder {
    values: BuiltValues,
}

#[derive(Debug)]
enum BuiltValues {
    Text(StringBuilder),
    Bytes(LargeBinaryBuilder),
    /// Numbers, and tensors with `list` as the type of a row.
    Fixed {
        element: DataType,
        list: Option<(FieldRef, i32)>,
        row_bytes: usize,
        data: MutableBuffer,
        nulls: NullBufferBuilder,
    },
    Arrays(Arrays),
}

/// Lists of numbers, and tensors of which each has its own shape.
#[derive(Debug)]
struct Arrays {
    item: FieldRef,
    width: usize,
    data: MutableBuffer,
    /// Where each row ends, in numbers; begins with zero.
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
    /// The sizes of all rows, and the members of the type, for tensors.
    shapes: Option<(Vec<i32>, Fields)>,
}

impl ValueBuilder {
    /// Makes a builder without rows.
    ///
    /// # Errors
    /// For types of columns that formats do not have.
    pub fn try_new(field: &Field) -> Result<Self, ArrowError> {
        let values = match field.data_type() {
            DataType::Utf8 => BuiltValues::Text(StringBuilder::new()),
            DataType::LargeBinary => BuiltValues::Bytes(LargeBinaryBuilder::new()),
            DataType::FixedSizeList(item, length) => fixed(item.data_type(), Some((item.clone(), *length)))?,
            list @ DataType::List(_) => BuiltValues::Arrays(Arrays::try_new(list, None)?),
            tensors @ DataType::Struct(members) => {
                let list = members.first().ok_or_else(|| unknown(tensors))?;
                BuiltValues::Arrays(Arrays::try_new(list.data_type(), Some(members.clone()))?)
            }
            number => fixed(number, None)?,
        };
        Ok(Self { values })
    }

    /// Adds a row. A value that is not of the column's type, which its format does not make, becomes null.
    pub fn push(&mut self, value: &FieldValue<'_>) {
        match &mut self.values {
            BuiltValues::Text(texts) => match value {
                FieldValue::Text(text) => texts.append_value(text),
                _ => texts.append_null(),
            },
            BuiltValues::Bytes(files) => match value {
                FieldValue::Bytes(bytes) => files.append_value(bytes),
                _ => files.append_null(),
            },
            BuiltValues::Fixed { row_bytes, data, nulls, .. } => {
                let written = match value {
                    FieldValue::Integer(number) => push_row(data, *row_bytes, &number.to_le_bytes()),
                    FieldValue::Float(number) => push_row(data, *row_bytes, &number.to_le_bytes()),
                    FieldValue::Bytes(bytes) => push_row(data, *row_bytes, bytes),
                    FieldValue::Null | FieldValue::Text(_) | FieldValue::Array { .. } => {
                        push_row(data, *row_bytes, &[])
                    }
                };
                nulls.append(written);
            }
            BuiltValues::Arrays(arrays) => arrays.push(value),
        }
    }

    /// Returns the array of the rows, and begins anew.
    ///
    /// # Errors
    /// For lengths that contradict each other.
    pub fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        match &mut self.values {
            BuiltValues::Text(texts) => Ok(Arc::new(texts.finish())),
            BuiltValues::Bytes(files) => Ok(Arc::new(files.finish())),
            BuiltValues::Fixed { element, list, data, nulls, .. } => {
                let (data, nulls) = (Buffer::from(std::mem::replace(data, MutableBuffer::new(0))), nulls.finish());
                match list {
                    None => numbers(element, data, nulls),
                    Some((item, length)) => {
                        let values = numbers(element, data, None)?;
                        Ok(Arc::new(FixedSizeListArray::try_new(item.clone(), *length, values, nulls)?))
                    }
                }
            }
            BuiltValues::Arrays(arrays) => arrays.finish(),
        }
    }
}

/// The values of numbers, or of tensors with the item and the length of their lists.
fn fixed(element: &DataType, list: Option<(FieldRef, i32)>) -> Result<BuiltValues, ArrowError> {
    let width = element.primitive_width().ok_or_else(|| unknown(element))?;
    let length = list.as_ref().map_or(1, |(_, length)| usize::try_from(*length).unwrap_or(0));
    let (data, nulls) = (MutableBuffer::new(0), NullBufferBuilder::new(0));
    Ok(BuiltValues::Fixed { element: element.clone(), list, row_bytes: length * width, data, nulls })
}

fn unknown(data_type: &DataType) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("formats have no values of type {data_type}"))
}

/// Adds the bytes of a row, or zeros if there are others than a row has. Returns which.
fn push_row(data: &mut MutableBuffer, row_bytes: usize, row: &[u8]) -> bool {
    match row.len() == row_bytes {
        true => data.extend_from_slice(row),
        false => data.extend_zeros(row_bytes),
    }
    row.len() == row_bytes
}

impl Arrays {
    fn try_new(list: &DataType, shapes: Option<Fields>) -> Result<Self, ArrowError> {
        let DataType::List(item) = list else { return Err(unknown(list)) };
        let width = item.data_type().primitive_width().ok_or_else(|| unknown(list))?;
        let shapes = shapes.map(|members| (Vec::new(), members));
        let (data, nulls) = (MutableBuffer::new(0), NullBufferBuilder::new(0));
        Ok(Self { item: item.clone(), width, data, ends: vec![0], nulls, shapes })
    }

    fn push(&mut self, value: &FieldValue<'_>) {
        let (shape, data): (&[i32], &[u8]) = match value {
            FieldValue::Array { shape, data } => (shape, data),
            _ => (&[], &[]),
        };
        self.nulls.append(matches!(value, FieldValue::Array { .. }));
        self.data.extend_from_slice(data);
        self.ends.push(i32::try_from(self.data.len() / self.width.max(1)).unwrap_or(i32::MAX));
        if let Some((shapes, members)) = &mut self.shapes {
            let num_dims = match members.last().map(|sizes| sizes.data_type()) {
                Some(DataType::FixedSizeList(_, num_dims)) => usize::try_from(*num_dims).unwrap_or(0),
                _ => 0,
            };
            let sizes = (0..num_dims).map(|dim| shape.get(dim).copied().unwrap_or(0));
            shapes.extend(sizes);
        }
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let data = Buffer::from(std::mem::replace(&mut self.data, MutableBuffer::new(0)));
        let ends = std::mem::replace(&mut self.ends, vec![0]);
        let values = numbers(self.item.data_type(), data, None)?;
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        let nulls = self.nulls.finish();
        let Some((shapes, members)) = &mut self.shapes else {
            return Ok(Arc::new(ListArray::try_new(self.item.clone(), offsets, values, nulls)?));
        };
        let lists = ListArray::try_new(self.item.clone(), offsets, values, None)?;
        let Some(DataType::FixedSizeList(size, num_dims)) = members.last().map(|sizes| sizes.data_type().clone())
        else {
            return Err(ArrowError::InvalidArgumentError("tensors without sizes".into()));
        };
        let sizes = numbers(&DataType::Int32, Buffer::from_vec(std::mem::take(shapes)), None)?;
        let sizes = FixedSizeListArray::try_new(size, num_dims, sizes, None)?;
        let columns: Vec<ArrayRef> = vec![Arc::new(lists), Arc::new(sizes)];
        Ok(Arc::new(StructArray::try_new(members.clone(), columns, nulls)?))
    }
}
