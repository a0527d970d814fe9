//! Rows that a client writes: the messages of DoPut.
//!
//! ```text
//! WriteRequest, schema ──first_message──► FlightData ┐
//! record batches ──────row_messages─────► FlightData ├─socket─► RowParts ──► whole messages
//! end ─────────────────end_message──────► FlightData ┘
//! ```

use arrow_array::RecordBatch;
use arrow_flight::{FlightData, FlightDescriptor};
use arrow_schema::Schema;
use bytes::{Bytes, BytesMut};
use prost::Message as _;
use stoker_types::calls::WriteKey;
use stoker_types::{TableName, WriteMode, WriteRequest};

use crate::convert::COMMAND_VERSION;
use crate::encode::{Message, MessageOptions, check_schema, record_batch_messages, schema_message};
use crate::proto::command::Kind;
use crate::proto::rows_metadata::End;
use crate::proto::{Command, RowsMetadata};
use crate::protocol::{PART_BYTES, WRITTEN_BYTES_MAX};
use crate::{Error, Result, proto};

/// Returns the first message: the request and the columns.
///
/// # Errors
/// A column with dictionaries; a request without a key.
pub fn first_message(request: &WriteRequest, columns: &Schema) -> Result<FlightData> {
    check_schema(columns)?;
    let key = request.key.as_ref().ok_or_else(|| Error::internal("a write through a server has no key"))?;
    let write = proto::WriteRequest {
        table: request.table.to_string(),
        mode: request.mode.as_str().into(),
        rows_per_fragment_max: request.rows_per_fragment_max.unwrap_or(0),
        page_bytes: request.page_bytes.unwrap_or(0),
        has_features: request.has_features,
        key: key.key.clone(),
        since_version: key.since_version,
    };
    let command = Command { version: COMMAND_VERSION, kind: Some(Kind::Write(write)) }.encode_to_vec();
    let descriptor = Some(FlightDescriptor::new_cmd(command));
    Ok(FlightData { flight_descriptor: descriptor, ..schema_message(columns).into_flight_data() })
}

/// Reads the request of a write.
///
/// # Errors
/// `InvalidRequest` for a name that no table has, an unknown mode, and a missing key.
pub fn write_from_proto(write: &proto::WriteRequest) -> Result<WriteRequest> {
    let mode = WriteMode::parse(&write.mode)
        .ok_or_else(|| Error::invalid(format!("mode {:?} is unknown; modes: {}", write.mode, mode_names())))?;
    let key = WriteKey { key: write.key.clone(), since_version: write.since_version };
    key.check().map_err(Error::invalid)?;
    Ok(WriteRequest {
        table: TableName::try_new(write.table.as_str())?,
        mode,
        rows_per_fragment_max: Some(write.rows_per_fragment_max).filter(|rows| *rows > 0),
        page_bytes: Some(write.page_bytes).filter(|bytes| *bytes > 0),
        has_features: write.has_features,
        key: Some(key),
    })
}

fn mode_names() -> String {
    WriteMode::ALL.map(WriteMode::as_str).join(", ")
}

/// Encodes rows. Messages aim at [`PART_BYTES`], and the body of a longer row is sent in parts. The result is lazy: each
/// message is copied when it is taken.
///
/// # Errors
/// A row of more than [`WRITTEN_BYTES_MAX`].
pub fn row_messages(batch: &RecordBatch) -> Result<impl Iterator<Item = FlightData> + use<>> {
    let options = MessageOptions { message_bytes: PART_BYTES, message_bytes_max: WRITTEN_BYTES_MAX, compression: None };
    Ok(record_batch_messages(batch, &options)?.into_iter().flat_map(parts))
}

/// Splits the body of a message.
fn parts(message: Message) -> impl Iterator<Item = FlightData> {
    let FlightData { data_header, data_body, .. } = message.into_flight_data();
    let num_parts = data_body.len().div_ceil(PART_BYTES).max(1);
    (0..num_parts).map(move |part| {
        let end = data_body.len().min((part + 1) * PART_BYTES);
        let metadata = RowsMetadata { has_more: part + 1 < num_parts, ..RowsMetadata::default() };
        FlightData {
            flight_descriptor: None,
            data_header: if part == 0 { data_header.clone() } else { Bytes::new() },
            app_metadata: metadata.encode_to_vec().into(),
            data_body: data_body.slice(part * PART_BYTES..end),
        }
    })
}

/// Returns the message after the last rows.
pub fn end_message(num_rows: u64) -> FlightData {
    ended(End::NumRows(num_rows))
}

/// Returns the message that gives a write up.
pub fn given_up_message() -> FlightData {
    ended(End::GivenUp(true))
}

fn ended(end: End) -> FlightData {
    without_rows(&RowsMetadata { end: Some(end), ..RowsMetadata::default() })
}

/// Returns a message that says that the client is still there. It may come at any time.
pub fn waiting_message() -> FlightData {
    without_rows(&RowsMetadata { is_waiting: true, ..RowsMetadata::default() })
}

fn without_rows(metadata: &RowsMetadata) -> FlightData {
    FlightData { app_metadata: metadata.encode_to_vec().into(), ..FlightData::default() }
}

/// What a message of a client that writes rows says.
#[derive(Debug)]
pub enum Received {
    /// A whole message with a record batch, or with the schema.
    Rows(FlightData),
    /// A part of a message, of which more parts follow, or a sign of life.
    Part,
    /// All rows were sent: their number.
    End(u64),
    /// The client gives the write up.
    GivenUp,
}

/// Joins the parts of messages.
#[derive(Debug, Default)]
pub struct RowParts {
    /// The header of the message of which parts have come, and its body so far.
    open: Option<(Bytes, BytesMut)>,
}

impl RowParts {
    /// Takes a message.
    ///
    /// # Errors
    /// `InvalidRequest` for parts in another order; `ResourceExhausted` for a message of more than [`WRITTEN_BYTES_MAX`].
    pub fn add(&mut self, message: FlightData) -> Result<Received> {
        let metadata = RowsMetadata::decode(message.app_metadata.clone());
        let RowsMetadata { has_more, end, is_waiting } =
            metadata.map_err(|source| Error::invalid(format!("cannot read a message with rows: {source}")))?;
        if is_waiting {
            return Ok(Received::Part);
        }
        let is_inner = self.open.is_some();
        if is_inner && (end.is_some() || !message.data_header.is_empty()) {
            return Err(Error::invalid("cannot read a message with rows: a part of it is missing"));
        }
        match end {
            Some(End::NumRows(num_rows)) => return Ok(Received::End(num_rows)),
            Some(End::GivenUp(_)) => return Ok(Received::GivenUp),
            None if !is_inner && !has_more => return Ok(Received::Rows(message)),
            None => {}
        }
        let (_, body) = self.open.get_or_insert_with(|| (message.data_header.clone(), BytesMut::new()));
        if body.len().saturating_add(message.data_body.len()) > WRITTEN_BYTES_MAX {
            let reason = format!("a row takes more than {WRITTEN_BYTES_MAX} bytes, which is the limit of a server");
            return Err(Error::ResourceExhausted { reason });
        }
        body.extend_from_slice(&message.data_body);
        if has_more {
            return Ok(Received::Part);
        }
        let (data_header, body) = self.open.take().unwrap_or_default();
        Ok(Received::Rows(FlightData { data_header, data_body: body.freeze(), ..FlightData::default() }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, LargeBinaryArray};
    use stoker_types::ErrorKind;

    use super::*;

    fn request() -> WriteRequest {
        WriteRequest {
            table: TableName::try_new("t").expect("a name"),
            mode: WriteMode::CreateOrAppend,
            rows_per_fragment_max: Some(7),
            page_bytes: None,
            has_features: true,
            key: Some(WriteKey { key: "k".into(), since_version: 3 }),
        }
    }

    fn batch(values: &[usize]) -> RecordBatch {
        let values: Vec<Vec<u8>> = values.iter().map(|bytes| vec![7; *bytes]).collect();
        let values = LargeBinaryArray::from_iter_values(values);
        RecordBatch::try_from_iter([("a", Arc::new(values) as ArrayRef)]).expect("a batch")
    }

    #[test]
    fn requests_are_the_same_after_they_were_sent() {
        let message = first_message(&request(), &batch(&[]).schema()).expect("a message");
        assert!(!message.data_header.is_empty());
        let command = Command::decode(message.flight_descriptor.expect("a descriptor").cmd).expect("a command");
        let Some(Kind::Write(write)) = command.kind else { panic!("not a write") };
        assert_eq!(write_from_proto(&write).expect("a request"), request());
        let check = |change: fn(&mut proto::WriteRequest), part: &str| {
            let mut write = write.clone();
            change(&mut write);
            let error = write_from_proto(&write).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            assert!(error.to_string().contains(part), "{error}");
        };
        check(|write| write.table = "../t".into(), "table name");
        check(|write| write.mode = "replace".into(), "create_or_append, overwrite");
        check(|write| write.key = String::new(), "key");
        check(|write| write.key = "k".repeat(300), "key");
        assert!(first_message(&WriteRequest { key: None, ..request() }, &batch(&[]).schema()).is_err());
    }

    /// Returns the bytes of the bodies of whole messages, and whether the rows ended.
    fn received(messages: impl IntoIterator<Item = FlightData>) -> Result<(Vec<usize>, Option<u64>)> {
        let (mut parts, mut bodies, mut num_rows) = (RowParts::default(), Vec::new(), None);
        for message in messages {
            match parts.add(message)? {
                Received::Rows(whole) => bodies.push(whole.data_body.len()),
                Received::Part => {}
                Received::End(rows) => num_rows = Some(rows),
                Received::GivenUp => return Err(Error::invalid("given up")),
            }
        }
        Ok((bodies, num_rows))
    }

    #[test]
    fn long_rows_travel_in_parts() {
        let sent = batch(&[10, 3 * PART_BYTES + 5, 10]);
        let messages: Vec<FlightData> = row_messages(&sent).expect("messages").collect();
        assert!(messages.len() > 4, "{}", messages.len());
        let longest = messages.iter().map(|message| message.data_body.len()).max();
        assert!(longest.is_some_and(|bytes| bytes <= PART_BYTES), "{longest:?}");
        let with_waits = messages.iter().flat_map(|message| [waiting_message(), message.clone()]);
        let (bodies, end) = received(with_waits.chain([end_message(3)])).expect("rows");
        assert_eq!(end, Some(3));
        assert!(bodies.iter().sum::<usize>() > 3 * PART_BYTES);
        // Without its last part, a message is not taken for a whole one.
        let cut = messages.iter().position(|message| message.data_header.is_empty()).expect("a part");
        for after in [end_message(3), given_up_message(), messages[0].clone()] {
            let error = received(messages[..cut].iter().cloned().chain([after])).expect_err("a part is missing");
            assert!(error.to_string().contains("a part of it is missing"), "{error}");
        }
        assert!(received([given_up_message()]).expect_err("given up").to_string().contains("given up"));
        let junk = FlightData { app_metadata: Bytes::from_static(b"\xff\xff"), ..FlightData::default() };
        assert!(received([junk]).is_err());
    }

    #[test]
    fn parts_are_limited() {
        let metadata = RowsMetadata { has_more: true, ..RowsMetadata::default() }.encode_to_vec();
        let part = |header: &'static [u8]| FlightData {
            data_header: Bytes::from_static(header),
            app_metadata: metadata.clone().into(),
            data_body: vec![0; 64 << 20].into(),
            ..FlightData::default()
        };
        let mut parts = RowParts::default();
        parts.add(part(b"header")).expect("a part");
        let mut more = || parts.add(part(b"")).map(|_| ()).map_err(|error| error.kind());
        assert_eq!([more(), more(), more(), more()], [Ok(()), Ok(()), Ok(()), Err(ErrorKind::ResourceExhausted)]);
    }
}
