//! The response to the action `rows_beside`: an Arrow IPC stream with one record batch.
//!
//! The schema's metadata carries what the columns of the rows do not: its entry `ABOUT` is the JSON of `About`.

use std::collections::{BTreeMap, HashMap};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use stoker_batch::RowsBeside;
use stoker_types::{IoTotals, check_ipc_stream};

use crate::{Error, Result};

/// The key of the entry in the schema's metadata.
const ABOUT: &str = "stoker.rows_beside";

/// The row addresses and the bad rows, which travel beside the columns.
#[derive(Serialize, Deserialize)]
struct About {
    /// The row addresses, as in [`RowsBeside::row_addrs`].
    row_addrs: Vec<Vec<u64>>,
    /// The bad rows, as in [`RowsBeside::bad`].
    bad: BTreeMap<usize, String>,
}

/// Encodes rows as the bytes of a response.
///
/// # Errors
/// `Internal` for columns that cannot be encoded.
pub fn encode(rows: &RowsBeside) -> Result<Vec<u8>> {
    let about = About { row_addrs: rows.row_addrs.clone(), bad: rows.bad.clone() };
    let about = serde_json::to_string(&about).map_err(Error::internal)?;
    let fields = rows.data.schema().fields().clone();
    let schema = Schema::new_with_metadata(fields, HashMap::from([(ABOUT.to_string(), about)]));
    let data = with_schema(&rows.data, schema.into())?;
    let written = || -> Result<Vec<u8>, ArrowError> {
        let mut writer = StreamWriter::try_new(Vec::new(), &data.schema())?;
        writer.write(&data)?;
        writer.into_inner()
    };
    written().map_err(Error::internal)
}

/// Decodes the bytes of a response to its rows: at least one, at most `rows_max`, with the columns of the stream and
/// row addresses in `num_tables` tables.
///
/// # Errors
/// `Internal` for bytes that are not such a response.
pub fn decode(bytes: Vec<u8>, schema: &SchemaRef, num_tables: usize, rows_max: usize) -> Result<RowsBeside> {
    let fail = |reason: String| Error::internal(format!("the answer to action rows_beside cannot be read: {reason}"));
    // Arrow's decoder panics on malformed input that it does not check.
    let data = stoker_types::catch_panic(|| record_batch(bytes), |_| ArrowError::IpcError("it is malformed".into()));
    let data = data.map_err(|source| fail(source.to_string()))?;
    let metadata = data.schema();
    let about = metadata.metadata().get(ABOUT).ok_or_else(|| fail("its metadata does not name its rows".into()))?;
    let About { row_addrs, bad } = serde_json::from_str(about).map_err(|source| fail(source.to_string()))?;
    let num_rows = data.num_rows();
    let fits = row_addrs.len() == num_tables && row_addrs.iter().all(|addrs| addrs.len() == num_rows);
    if !fits || !(1..=rows_max).contains(&num_rows) || bad.keys().any(|row| *row >= num_rows) {
        return Err(fail(format!("its {num_rows} rows, {rows_max} at most, do not match its metadata")));
    }
    let data = with_schema(&data, schema.clone()).map_err(|source| fail(source.to_string()))?;
    Ok(RowsBeside { data, row_addrs, bad, io: IoTotals::default(), held: None })
}

/// Reads the only record batch of an IPC stream. Its buffers are slices of `bytes`, so no length that the stream
/// declares causes an allocation.
fn record_batch(bytes: Vec<u8>) -> Result<RecordBatch, ArrowError> {
    check_ipc_stream(&bytes).map_err(ArrowError::IpcError)?;
    let (mut decoder, mut rest) = (StreamDecoder::new(), Buffer::from(bytes));
    let found = decoder.decode(&mut rest)?;
    found.ok_or_else(|| ArrowError::IpcError("it has no record batch".into()))
}

/// Returns the same rows with another schema: the same columns, other metadata.
fn with_schema(data: &RecordBatch, schema: SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(data.num_rows()));
    RecordBatch::try_new_with_options(schema, data.columns().to_vec(), &options).map_err(Error::internal)
}
