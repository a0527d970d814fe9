//! Decodes Flight messages to record batches.
//!
//! ```text
//! MessageHead (IPC header, metadata) ─RowAssembler─► Places (memory of the batch) ◄─┐
//!                                                                                  ├─ MessageReader ◄─ socket
//! RecordBatch ◄─ RowAssembler or record_batch ◄─ MessageBody (all other bytes) ◄────┘
//! ```
//!
//! The client receives a compressed message whole. [`CompressedMessage`] then writes its values to the buffer slots
//! (`BufferSlot`), which otherwise are filled from the socket.

mod assembler;
mod buffer_counts;
mod column_builder;
mod compressed;
mod message;

use std::collections::HashMap;
use std::fmt::Display;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::{Message, MessageHeader};
use arrow_schema::{FieldRef, Schema, SchemaRef};
use stoker_types::{catch_panic, encapsulated_schema, ipc_message};

pub use assembler::RowAssembler;
pub use column_builder::fixed_bytes;
pub use compressed::CompressedMessage;
pub use message::{BufferSlot, MessageBody, MessageHead};

use crate::{Error, Result};

/// Returns the schema in the header of a message; `None` if it is not a schema message. Arrow's reader panics on a
/// schema that lacks a part.
fn schema(header: &[u8]) -> Result<Option<Schema>> {
    let message = message(header)?;
    let Some(schema) = message.header_as_schema() else { return Ok(None) };
    catch_panic(|| Ok(Some(fb_to_schema(schema))), malformed)
}

/// Decodes the schema in an encapsulated message, as responses to GetFlightInfo have it: a marker, the length, the
/// message.
///
/// # Errors
/// `Internal` for bytes that are no such message.
pub fn schema_of_answer(answer: &[u8]) -> Result<Schema> {
    encapsulated_schema(answer).map_err(malformed)
}

/// Returns the columns that a schema message declares, so that they are checked before memory is allocated for their
/// rows; `None` for other messages.
///
/// # Errors
/// Columns with other names or types than planned.
pub fn planned_schema(header: &[u8], planned: &Schema) -> Result<Option<SchemaRef>> {
    let Some(schema) = schema(header)? else { return Ok(None) };
    let (found, planned) = (schema.fields(), planned.fields());
    if found.len() != planned.len() {
        return Err(Error::internal(format!(
            "the server sends {} columns, the plan has {}",
            found.len(),
            planned.len()
        )));
    }
    let are_alike = |(found, planned): &(&FieldRef, &FieldRef)| {
        found.name() == planned.name() && found.data_type().equals_datatype(planned.data_type())
    };
    match found.iter().zip(planned).find(|pair| !are_alike(pair)) {
        None => Ok(Some(schema.into())),
        Some((found, planned)) => {
            Err(Error::internal(format!("the server sends column {}, the plan has {}", brief(found), brief(planned))))
        }
    }
}

fn brief(field: &FieldRef) -> String {
    format!("{:?} of type {}", field.name(), field.data_type())
}

/// Returns whether the body of a message is compressed.
pub fn is_compressed(head: &MessageHead) -> Result<bool> {
    Ok(message(&head.header)?.header_as_record_batch().is_some_and(|batch| batch.compression().is_some()))
}

/// Decodes a message that was received whole, compressed or not.
pub fn whole_record_batch(head: &MessageHead, body: MessageBody, schema: &SchemaRef) -> Result<RecordBatch> {
    if !is_compressed(head)? {
        return record_batch(&head.header, &body.into_rest().into(), schema);
    }
    let message = CompressedMessage::try_new(head, body, schema)?;
    let head = message.plain_head();
    record_batch(&head.header, &message.decompress(Vec::new())?.into_rest().into(), schema)
}

/// Decodes a message without compression. Its arrays point into the body where the alignment allows it.
fn record_batch(header: &[u8], body: &Buffer, schema: &SchemaRef) -> Result<RecordBatch> {
    let message = message(header)?;
    let batch = rows(&message)?;
    let read = || read_record_batch(body, batch, schema.clone(), &HashMap::new(), None, &message.version());
    catch_panic(|| read().map_err(malformed), malformed)
}

fn message(header: &[u8]) -> Result<Message<'_>> {
    ipc_message(header).map_err(malformed)
}

fn rows<'a>(message: &Message<'a>) -> Result<arrow_ipc::RecordBatch<'a>> {
    match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch().ok_or_else(|| malformed("it has no header")),
        other => Err(malformed(format!("it has type {other:?}, not rows"))),
    }
}

/// Creates the error for a message that violates the protocol.
pub fn malformed(reason: impl Display) -> Error {
    Error::internal(format!("the server sent a message that cannot be read: {reason}"))
}
