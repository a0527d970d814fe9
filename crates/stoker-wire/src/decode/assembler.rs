//! Assembles one record batch from the rows of several messages.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_ipc::FieldNode;
use arrow_schema::{FieldRef, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use stoker_batch::BufferPool;
use stoker_types::catch_panic;

use crate::decode::buffer_counts::buffer_counts;
use crate::decode::column_builder::{ColumnBuilder, FixedWidth};
use crate::decode::{
    BufferSlot, CompressedMessage, MessageBody, MessageHead, is_compressed, malformed, message, record_batch, rows,
};
use crate::encode::{BatchLayout, record_batch_header};
use crate::{Error, Result};

/// Assembles the rows of messages to a record batch. Fixed-width values are read from the socket to their final address
/// in the batch's memory. Other columns are kept message by message, and concatenated at the end.
pub struct RowAssembler {
    schema: SchemaRef,
    num_rows: usize,
    rows: usize,
    parts: Parts,
}

enum Parts {
    /// One builder for each column.
    Columns(Vec<Column>),
    /// One record batch for each message, for schemas with a type whose number of buffers is not known.
    Batches(Vec<RecordBatch>),
}

/// A column, and the indexes of its nodes and buffers in a message.
struct Column {
    field: FieldRef,
    nodes: Range<usize>,
    buffers: Range<usize>,
    builder: ColumnBuilder,
}

impl RowAssembler {
    /// Creates an assembler for a batch of exactly `num_rows` rows, with memory from `pool` for all fixed-width values.
    ///
    /// # Errors
    /// The operating system gives no memory.
    pub fn try_new(schema: SchemaRef, num_rows: usize, pool: &BufferPool) -> Result<Self> {
        let parts = columns(&schema, num_rows, pool)?.map_or_else(|| Parts::Batches(Vec::new()), Parts::Columns);
        Ok(Self { schema, num_rows, rows: 0, parts })
    }

    /// Returns the number of rows that were added.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the buffer slots for parts of a message's body, by ascending offset in the body. The caller reads those
    /// parts to the slots and then calls [`RowAssembler::add`]. A compressed message has no slots: its body is received
    /// whole.
    ///
    /// # Errors
    /// A message that cannot be parsed, does not have the columns of the schema, or has too many rows.
    pub fn places(&mut self, head: &MessageHead) -> Result<Vec<BufferSlot<'_>>> {
        let parsed = message(&head.header)?;
        let batch = rows(&parsed)?;
        let added = self.count(&batch)?;
        let Parts::Columns(columns) = &mut self.parts else { return Ok(Vec::new()) };
        if batch.compression().is_some() {
            return Ok(Vec::new());
        }
        let buffers: Vec<arrow_ipc::Buffer> = batch.buffers().into_iter().flatten().copied().collect();
        let mut places = Vec::new();
        for Column { field, buffers: range, builder, .. } in columns {
            if let ColumnBuilder::Fixed(fixed) = builder {
                let place = buffers.get(range.clone()).and_then(|buffers| fixed.place(added, buffers));
                places.push(place.ok_or_else(|| malformed(format!("column {:?} has missing bytes", field.name())))?);
            }
        }
        places.retain(|place| !place.memory.is_empty());
        places.sort_by_key(|place| place.begin);
        Ok(places)
    }

    /// Adds the rows of a message whose body was read to its buffer slots, and returns the number of rows. A compressed
    /// message is decompressed here, which takes processor time; its fixed-width values are written straight to their
    /// slots.
    ///
    /// # Errors
    /// The errors of [`RowAssembler::places`]; a body that cannot be decompressed.
    pub fn add(&mut self, head: &MessageHead, body: MessageBody) -> Result<usize> {
        if !is_compressed(head)? {
            return self.add_plain(head, body);
        }
        let schema = self.schema.clone();
        let message = CompressedMessage::try_new(head, body, &schema)?;
        let head = message.plain_head();
        let body = message.decompress(self.places(&head)?)?;
        self.add_plain(&head, body)
    }

    fn add_plain(&mut self, head: &MessageHead, body: MessageBody) -> Result<usize> {
        let parsed = message(&head.header)?;
        let batch = rows(&parsed)?;
        let added = self.count(&batch)?;
        match &mut self.parts {
            Parts::Batches(batches) => {
                batches.push(record_batch(&head.header, &body.into_rest().into(), &self.schema)?);
            }
            Parts::Columns(columns) => {
                let nodes: Vec<FieldNode> = batch.nodes().into_iter().flatten().copied().collect();
                let buffers: Vec<arrow_ipc::Buffer> = batch.buffers().into_iter().flatten().copied().collect();
                for column in columns {
                    let (Some(nodes), Some(buffers)) =
                        (nodes.get(column.nodes.clone()), buffers.get(column.buffers.clone()))
                    else {
                        return Err(malformed(format!("column {:?} is missing", column.field.name())));
                    };
                    column.add(added, nodes, buffers, &body)?;
                }
            }
        }
        self.rows += added;
        Ok(added)
    }

    /// Returns the number of rows of a message, if the batch still lacks as many.
    fn count(&self, batch: &arrow_ipc::RecordBatch<'_>) -> Result<usize> {
        let added = usize::try_from(batch.length()).map_err(malformed)?;
        match added <= self.num_rows - self.rows {
            true => Ok(added),
            false => Err(malformed(format!("{added} rows arrived after {} of {} rows", self.rows, self.num_rows))),
        }
    }

    /// Returns the complete batch. Arrow panics on lists that have more items together than their offsets can count.
    ///
    /// # Errors
    /// Missing rows; columns that do not fit the schema, or cannot be concatenated.
    pub fn finish(self) -> Result<RecordBatch> {
        catch_panic(|| self.joined(), malformed)
    }

    fn joined(self) -> Result<RecordBatch> {
        if self.rows != self.num_rows {
            return Err(malformed(format!("the batch ended after {} of {} rows", self.rows, self.num_rows)));
        }
        match self.parts {
            Parts::Batches(batches) => concat_batches(&self.schema, &batches).map_err(Error::internal),
            Parts::Columns(columns) => {
                let arrays: Result<Vec<ArrayRef>> =
                    columns.into_iter().map(|column| column.builder.finish(&column.field, self.num_rows)).collect();
                let options = RecordBatchOptions::new().with_row_count(Some(self.num_rows));
                RecordBatch::try_new_with_options(self.schema, arrays?, &options).map_err(malformed)
            }
        }
    }
}

impl Column {
    fn add(
        &mut self,
        rows: usize,
        nodes: &[FieldNode],
        buffers: &[arrow_ipc::Buffer],
        body: &MessageBody,
    ) -> Result<()> {
        let name = self.field.name();
        match &mut self.builder {
            ColumnBuilder::Fixed(fixed) => fixed.add(rows, nodes, buffers, body).ok_or_else(|| {
                malformed(format!("column {name:?} has missing bytes, or other nulls than it declares"))
            }),
            ColumnBuilder::Parts(parts) => {
                parts.push(decode_column(&self.field, rows, nodes, buffers, body)?);
                Ok(())
            }
        }
    }
}

/// Decodes one column by treating its buffers as a message with one column.
fn decode_column(
    field: &FieldRef,
    rows: usize,
    nodes: &[FieldNode],
    buffers: &[arrow_ipc::Buffer],
    body: &MessageBody,
) -> Result<ArrayRef> {
    let begin = buffers.iter().map(|buffer| buffer.offset()).min().unwrap_or(0);
    let end = buffers.iter().map(|buffer| buffer.offset().saturating_add(buffer.length())).max().unwrap_or(0);
    let region = match (usize::try_from(begin), usize::try_from(end)) {
        (Ok(begin), Ok(end)) => body.slice(begin..end),
        _ => None,
    };
    let region: Buffer =
        region.ok_or_else(|| malformed(format!("column {:?} lies beyond the body", field.name())))?.into();
    let moved: Vec<_> =
        buffers.iter().map(|buffer| arrow_ipc::Buffer::new(buffer.offset() - begin, buffer.length())).collect();
    let layout = BatchLayout { rows, nodes, buffers: &moved, body_bytes: region.len(), ..BatchLayout::default() };
    let header = record_batch_header(&layout);
    let batch = record_batch(&header, &region, &Arc::new(Schema::new(vec![field.clone()])))?;
    Ok(batch.column(0).clone())
}

/// Creates the builders of a schema's columns; `None` if the number of buffers of a type is not known.
fn columns(schema: &Schema, num_rows: usize, pool: &BufferPool) -> Result<Option<Vec<Column>>> {
    let counts: Option<Vec<(usize, usize)>> =
        schema.fields().iter().map(|field| buffer_counts(field.data_type())).collect();
    let Some(counts) = counts else { return Ok(None) };
    let (mut node, mut buffer) = (0, 0);
    let column = |(field, (nodes, buffers)): (&FieldRef, (usize, usize))| {
        let builder = match FixedWidth::try_new(field.data_type(), num_rows, pool)? {
            Some(fixed) => ColumnBuilder::Fixed(fixed),
            None => ColumnBuilder::Parts(Vec::new()),
        };
        let column =
            Column { field: field.clone(), nodes: node..node + nodes, buffers: buffer..buffer + buffers, builder };
        (node, buffer) = (node + nodes, buffer + buffers);
        Ok(column)
    };
    schema.fields().iter().zip(counts).map(column).collect::<Result<_>>().map(Some)
}
