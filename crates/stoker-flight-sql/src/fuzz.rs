//! Requests of clients.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_flight::FlightData;
use arrow_flight::sql::{CommandGetDbSchemas, CommandGetSqlInfo, CommandGetTables, ProstMessageExt};
use arrow_flight::utils::batches_to_flight_data;
use bytes::Bytes;
use prost::Message;
use stoker_fuzz::Target;
use stoker_types::{ErrorKind, HasKind};

use crate::{ParameterMessages, ServerLimits, TableList, catalog_answer, catalog_schema, command_of, rows_of};

const LIMITS: ServerLimits = ServerLimits { sql_bytes: 10, connections: 1, handle_millis: 1, is_read_only: true };

#[test]
fn commands_are_answered_or_refused() {
    let tables = CommandGetTables {
        catalog: Some("lake".into()),
        table_name_filter_pattern: Some("c_t%".into()),
        table_types: vec!["TABLE".into(), "VIEW".into()],
        include_schema: true,
        ..CommandGetTables::default()
    };
    let schemas = CommandGetDbSchemas { db_schema_filter_pattern: Some("pub%".into()), ..Default::default() };
    let infos = CommandGetSqlInfo { info: vec![0, 3, 509, 576] };
    let seeds = [tables.as_any(), schemas.as_any(), infos.as_any()].map(|any| any.encode_to_vec());
    Target::new("commands of Flight SQL").seeds(seeds).memory_bytes_max(8 << 20).run(|input| {
        let command = match command_of(&Bytes::copy_from_slice(input)) {
            Ok(Some(command)) => command,
            Ok(None) => return false,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
                return false;
            }
        };
        let schema = catalog_schema(&command).expect("columns, or no question about the catalog");
        let refused = |error: crate::Error| assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        let answer = match &command {
            arrow_flight::sql::Command::CommandGetTables(command) => {
                TableList::try_new(command, ["cat"], ["dog"]).and_then(TableList::answer).map(Some)
            }
            command => catalog_answer(command, &LIMITS),
        };
        match answer {
            Ok(answer) => assert_eq!(answer.map(|answer| answer.schema()), schema),
            Err(error) => refused(error),
        }
        true
    });
}

/// Writes messages one after the other, each part with its length before it.
fn joined(messages: &[FlightData]) -> Vec<u8> {
    let parts = messages.iter().flat_map(|message| [&message.data_header, &message.data_body]);
    let length = |part: &Bytes| u32::try_from(part.len()).expect("a short part").to_le_bytes();
    parts.flat_map(|part| length(part).into_iter().chain(part.iter().copied()).collect::<Vec<u8>>()).collect()
}

fn parts(mut input: &[u8]) -> Vec<Bytes> {
    let mut parts = Vec::new();
    while let Some((length, rest)) = input.split_first_chunk::<4>() {
        let (part, after) = rest.split_at((u32::from_le_bytes(*length) as usize).min(rest.len()));
        parts.push(Bytes::copy_from_slice(part));
        input = after;
    }
    parts
}

#[test]
fn parameters_are_read_or_refused() {
    let columns: [(&str, ArrayRef); 2] = [
        ("1", Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]))),
        ("2", Arc::new(StringArray::from(vec![Some("a"), Some("a longer text"), None]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("a batch");
    let messages = batches_to_flight_data(&batch.schema(), vec![batch]).expect("messages");
    Target::new("bound parameters").seeds([joined(&messages)]).memory_bytes_max(16 << 20).run(|input| {
        let mut all = ParameterMessages::default();
        for pair in parts(input).chunks(2) {
            let data_body = pair.get(1).cloned().unwrap_or_default();
            let message = FlightData { data_header: pair[0].clone(), data_body, ..FlightData::default() };
            if all.add(&message, 1 << 20).is_err() {
                return false;
            }
        }
        let rows = all.batches().and_then(|batches| {
            let few = batches.iter().filter(|batch| batch.num_rows() <= 256 && batch.num_columns() <= 16);
            few.map(rows_of).collect::<crate::Result<Vec<_>>>()
        });
        match rows {
            Ok(rows) => !rows.is_empty(),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
                false
            }
        }
    });
}
