//! Builds columns from the messages of a batch.

use std::ops::Range;

use arrow_array::{ArrayRef, make_array, new_empty_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, NullBufferBuilder};
use arrow_data::ArrayData;
use arrow_ipc::FieldNode;
use arrow_schema::{DataType, FieldRef, Schema};
use arrow_select::concat::concat;
use stoker_batch::{BufferPool, Pooled};

use crate::decode::{BufferSlot, MessageBody, malformed};
use crate::{Error, Result};

/// A column under construction.
pub enum ColumnBuilder {
    /// Fixed-width values, which are read to their final address.
    Fixed(FixedWidth),
    /// Other values: one array for each message.
    Parts(Vec<ArrayRef>),
}

impl ColumnBuilder {
    pub fn finish(self, field: &FieldRef, rows: usize) -> Result<ArrayRef> {
        match self {
            ColumnBuilder::Fixed(fixed) => fixed.finish(rows),
            ColumnBuilder::Parts(parts) => match parts.as_slice() {
                [] => Ok(new_empty_array(field.data_type())),
                [one] => Ok(one.clone()),
                many => concat(&many.iter().map(AsRef::as_ref).collect::<Vec<_>>()).map_err(Error::internal),
            },
        }
    }
}

/// Returns the bytes of a row, and for fixed-size lists the items of a row; `None` for types without a fixed width.
fn width_of(data_type: &DataType) -> Option<(usize, Option<usize>)> {
    match data_type {
        DataType::FixedSizeList(item, length) => {
            let items = usize::try_from(*length).ok().filter(|items| *items > 0)?;
            Some((item.data_type().primitive_width()?.checked_mul(items)?, Some(items)))
        }
        DataType::FixedSizeBinary(width) => Some((usize::try_from(*width).ok().filter(|width| *width > 0)?, None)),
        other => Some((other.primitive_width()?, None)),
    }
}

/// Returns the bytes of a row in the fixed-width columns of a schema.
pub fn fixed_bytes(schema: &Schema) -> u64 {
    let widths = schema.fields().iter().filter_map(|field| width_of(field.data_type()));
    widths.fold(0, |sum, (width, _)| sum.saturating_add(width as u64))
}

/// Builds a column of numbers, fixed-size binary values or fixed-size lists of numbers.
pub struct FixedWidth {
    data_type: DataType,
    /// The bytes of a row.
    width: usize,
    /// The items of a row, for lists.
    items: Option<usize>,
    values: Pooled,
    /// The number of bytes of `values` that were received.
    filled: usize,
    nulls: NullBufferBuilder,
    item_nulls: NullBufferBuilder,
}

impl FixedWidth {
    /// Creates a builder with memory for `rows` rows; `None` for types without a fixed width.
    ///
    /// # Errors
    /// The operating system gives no memory.
    pub fn try_new(data_type: &DataType, rows: usize, pool: &BufferPool) -> Result<Option<Self>> {
        let Some((width, items)) = width_of(data_type) else { return Ok(None) };
        let values = pool.take(rows.saturating_mul(width))?;
        Ok(Some(Self {
            data_type: data_type.clone(),
            width,
            items,
            values,
            filled: 0,
            nulls: NullBufferBuilder::new(rows),
            item_nulls: NullBufferBuilder::new(rows * items.unwrap_or(0)),
        }))
    }

    /// Returns the buffer slot for the values of a message; `None` if the message lacks bytes.
    pub fn place(&mut self, rows: usize, buffers: &[arrow_ipc::Buffer]) -> Option<BufferSlot<'_>> {
        let values = self.values(rows, buffers)?;
        let memory = self.values.as_mut().get_mut(self.filled..self.filled.checked_add(values.len())?)?;
        Some(BufferSlot { begin: values.start, memory })
    }

    /// Adds the rows of a message whose values were read to their buffer slot; `None` if the message lacks bytes, or does
    /// not have the declared number of nulls.
    pub fn add(
        &mut self,
        rows: usize,
        nodes: &[FieldNode],
        buffers: &[arrow_ipc::Buffer],
        body: &MessageBody,
    ) -> Option<()> {
        add_nulls(&mut self.nulls, rows, nodes.first()?, buffers.first()?, body)?;
        if let Some(items) = self.items {
            add_nulls(&mut self.item_nulls, rows * items, nodes.get(1)?, buffers.get(1)?, body)?;
        }
        let values = self.values(rows, buffers)?;
        if !values.is_empty() && !body.is_placed(&values) {
            return None;
        }
        self.filled += values.len();
        Some(())
    }

    /// Returns the range of the column's values in a body.
    fn values(&self, rows: usize, buffers: &[arrow_ipc::Buffer]) -> Option<Range<usize>> {
        let values = range(buffers.last()?)?;
        let bytes = rows.checked_mul(self.width)?;
        (values.len() >= bytes).then(|| values.start..values.start + bytes)
    }

    fn finish(mut self, rows: usize) -> Result<ArrayRef> {
        let nulls = self.nulls.finish();
        let data = match (&self.data_type, self.items) {
            (DataType::FixedSizeList(item, _), Some(items)) => {
                let items = ArrayData::builder(item.data_type().clone())
                    .len(rows * items)
                    .add_buffer(self.values.freeze())
                    .nulls(self.item_nulls.finish())
                    .build()
                    .map_err(malformed)?;
                ArrayData::builder(self.data_type.clone()).len(rows).add_child_data(items)
            }
            _ => ArrayData::builder(self.data_type.clone()).len(rows).add_buffer(self.values.freeze()),
        };
        Ok(make_array(data.nulls(nulls).build().map_err(malformed)?))
    }
}

/// Adds the nulls of a message; `None` if the message lacks bytes, or does not have the declared number of nulls.
fn add_nulls(
    nulls: &mut NullBufferBuilder,
    rows: usize,
    node: &FieldNode,
    validity: &arrow_ipc::Buffer,
    body: &MessageBody,
) -> Option<()> {
    if usize::try_from(node.length()).ok()? != rows {
        return None;
    }
    if node.null_count() == 0 {
        nulls.append_n_non_nulls(rows);
        return Some(());
    }
    let bits = Buffer::from(body.slice(range(validity)?)?);
    if bits.len() < rows.div_ceil(8) {
        return None;
    }
    let found = NullBuffer::new(BooleanBuffer::new(bits, 0, rows));
    if usize::try_from(node.null_count()).ok()? != found.null_count() {
        return None;
    }
    nulls.append_buffer(&found);
    Some(())
}

fn range(buffer: &arrow_ipc::Buffer) -> Option<Range<usize>> {
    let (start, length) = (usize::try_from(buffer.offset()).ok()?, usize::try_from(buffer.length()).ok()?);
    Some(start..start.checked_add(length)?)
}
