//! Schemas in JSON answers: an IPC message in base 64.

use arrow_flight::{IpcMessage, SchemaAsIpc};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::Schema;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::decode::schema_of_answer;
use crate::{Error, Result};

/// The schema as text.
///
/// # Errors
/// `Internal` for a schema that has no IPC message.
pub(crate) fn schema_to_text(schema: &Schema) -> Result<String> {
    let message: IpcMessage =
        SchemaAsIpc::new(schema, &IpcWriteOptions::default()).try_into().map_err(Error::internal)?;
    Ok(BASE64_STANDARD.encode(&message.0))
}

/// The schema of a text.
///
/// # Errors
/// `Internal` for a text that is no schema.
pub(crate) fn schema_from_text(text: &str) -> Result<Schema> {
    let bytes = BASE64_STANDARD.decode(text).map_err(Error::internal)?;
    schema_of_answer(bytes.into())
}
