//! SQL queries through servers.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_flight::FlightInfo;
use arrow_schema::SchemaRef;
use futures::{StreamExt, stream};
use stoker_session::{Lake, Result, SqlResult};
use stoker_types::{ErrorKind, ParamValue, SqlOptions};
use stoker_wire::convert::{compression_to_proto, params_to_json};
use stoker_wire::decode;
use stoker_wire::decode::whole_record_batch;
use stoker_wire::proto::{SqlRequest, command::Kind};

use crate::RemoteLake;
use crate::decode_message::decode_message;
use crate::message_reader::MessageReader;

/// The fewest attempts to plan a query whose tables get new versions between planning and running. After that many,
/// attempts go on until the retry budget ends: when other clients commit all the time, a loaded machine may need more.
const PLANS_MIN: usize = 3;

/// Runs a query on a server. An interruption after the first rows is an error, because rows without an order cannot be
/// resumed.
pub(crate) async fn remote_sql(
    lake: &RemoteLake,
    sql: &str,
    params: &[ParamValue],
    options: SqlOptions,
) -> Result<SqlResult> {
    let (params_json, compression) = (params_to_json(params), compression_to_proto(options.compression));
    let approximate = options.query.is_approximate();
    let request = SqlRequest { sql: sql.to_string(), params_json, compression, approximate };
    lake.patience().ask("running a query", || begin(lake, &request)).await
}

/// Plans a query on a server.
pub(crate) async fn remote_sql_schema(lake: &RemoteLake, sql: &str, params: &[ParamValue]) -> Result<SchemaRef> {
    let request = SqlRequest { sql: sql.to_string(), params_json: params_to_json(params), ..SqlRequest::default() };
    let plan = || async { schema_of(&lake.get_flight_info(Kind::Sql(request.clone())).await?.0) };
    lake.patience().ask("planning a query", plan).await
}

/// Plans a query and requests its rows.
async fn begin(lake: &RemoteLake, request: &SqlRequest) -> Result<SqlResult> {
    let clock = lake.patience().clock();
    let (begun, mut plans) = (clock.now(), 1);
    loop {
        let (info, _) = lake.get_flight_info(Kind::Sql(request.clone())).await?;
        let schema = schema_of(&info)?;
        match lake.do_get(&info, |_| lake.current_server()).await {
            Err(error) => {
                let is_late = plans >= PLANS_MIN && clock.since(begun) >= lake.patience().budget();
                if error.kind() != ErrorKind::Expired || is_late {
                    return Err(error);
                }
                plans += 1;
            }
            Ok(readers) => {
                let answers: Vec<_> = readers.into_iter().map(|reader| rows(reader, schema.clone())).collect();
                return Ok(SqlResult { schema, stream: stream::iter(answers).flatten().boxed() });
            }
        }
    }
}

/// Decodes the schema in an answer.
pub(crate) fn schema_of(info: &FlightInfo) -> Result<SchemaRef> {
    Ok(Arc::new(decode::schema_of_answer(&info.schema)?))
}

/// Decodes the rows of an answer. The stream ends after its first error.
fn rows(reader: MessageReader, schema: SchemaRef) -> stream::BoxStream<'static, Result<RecordBatch>> {
    let next = |state: Option<(MessageReader, SchemaRef)>| async move {
        let (mut reader, schema) = state?;
        loop {
            match next_rows(&mut reader, &schema).await {
                Ok(None) => return None,
                // The server sends empty batches only to show that the query is still running.
                Ok(Some(batch)) if batch.num_rows() == 0 => {}
                Ok(Some(batch)) => return Some((Ok(batch), Some((reader, schema)))),
                Err(error) => return Some((Err(error), None)),
            }
        }
    };
    stream::unfold(Some((reader, schema)), next).boxed()
}

async fn next_rows(reader: &mut MessageReader, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
    let Some(head) = reader.next().await? else { return Ok(None) };
    if decode::planned_schema(&head.header, schema)?.is_some() {
        return Ok(Some(RecordBatch::new_empty(schema.clone())));
    }
    let (body, schema) = (reader.body(Vec::new()).await?, schema.clone());
    Ok(Some(decode_message(head, move |head| whole_record_batch(&head, body, &schema)).await?))
}
