//! Flight messages as record batches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_flight::FlightData;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::{Schema, SchemaRef};

use crate::{Error, Result};

/// The schema in a message, if it is a schema message.
pub(crate) fn schema(message: &FlightData) -> Result<Option<SchemaRef>> {
    let header = root_as_message(&message.data_header).map_err(|source| malformed(&source))?;
    if header.header_type() != MessageHeader::Schema {
        return Ok(None);
    }
    let schema = Schema::try_from(message).map_err(|source| malformed(&source))?;
    Ok(Some(Arc::new(schema)))
}

/// The record batch in a message. Its arrays point into the message where alignment allows.
pub(crate) fn record_batch(message: &FlightData, schema: &SchemaRef) -> Result<RecordBatch> {
    let header = root_as_message(&message.data_header).map_err(|source| malformed(&source))?;
    let Some(batch) = header.header_as_record_batch() else {
        return Err(malformed(&format!("a message of type {:?} came in place of rows", header.header_type())));
    };
    let body = Buffer::from(message.data_body.clone());
    read_record_batch(&body, batch, schema.clone(), &HashMap::new(), None, &header.version())
        .map_err(|source| malformed(&source))
}

fn malformed(source: &dyn std::fmt::Display) -> Error {
    Error::internal(format!("the server sent a message that cannot be read: {source}"))
}
