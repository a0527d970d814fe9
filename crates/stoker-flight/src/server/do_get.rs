//! `DoGet`: batches for a ticket.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_flight::FlightData;
use arrow_schema::SchemaRef;
use futures::StreamExt;
use stoker_stream::ReadOptions;
use tokio::sync::mpsc;
use tonic::Status;

use crate::convert::{params_from_json, slice_from_proto};
use crate::encode::{batch_messages, record_batch_messages, schema_message};
use crate::proto::{SqlTicket, StreamTicket, ticket_body};
use crate::server::state::{ServerState, now_unix_secs};
use crate::{Error, Result};

/// Messages that wait for the connection.
const QUEUE_MESSAGES: usize = 8;

/// After so much silence an empty record batch shows that the stream lives.
const KEEPALIVE: Duration = Duration::from_secs(5);

type Output = mpsc::Sender<Result<FlightData, Status>>;

/// Verifies a ticket and starts to answer it. The stream ends when the client goes.
pub(crate) async fn do_get(
    state: Arc<ServerState>,
    ticket: &[u8],
) -> Result<mpsc::Receiver<Result<FlightData, Status>>> {
    let body = state.signer.verify(ticket, now_unix_secs())?;
    let full = |_| Error::ResourceExhausted {
        reason: format!(
            "{} streams are running, the most that this server takes; try again later",
            state.config.streams_max
        ),
    };
    let permit = state.streams.clone().try_acquire_owned().map_err(full)?;
    let (output, input) = mpsc::channel(QUEUE_MESSAGES);
    match body.kind {
        Some(ticket_body::Kind::Stream(ticket)) => {
            let (plan, slice) = open_stream(&state, ticket).await?;
            let options =
                ReadOptions { memory_budget_bytes: state.config.memory_budget_bytes, ..ReadOptions::default() };
            let mut stream = plan.open(&slice, &options)?;
            let cut = state.cut.clone();
            tokio::spawn(async move {
                let _permit = permit;
                let work = send_stream(&state, &plan, &mut stream, &output);
                finish(&output, cut.run_until_cancelled(work).await).await;
            });
        }
        Some(ticket_body::Kind::Sql(ticket)) => {
            let query = open_sql(&state, &ticket).await?;
            let cut = state.cut.clone();
            tokio::spawn(async move {
                let _permit = permit;
                let work = send_sql(&state, &query, &output);
                finish(&output, cut.run_until_cancelled(work).await).await;
            });
        }
        None => return Err(Error::InvalidTicket { reason: "it names nothing" }),
    }
    Ok(input)
}

/// Sends the error that ended the work; `None` stands for a server that stops.
async fn finish(output: &Output, done: Option<Result<()>>) {
    let error = match done {
        Some(Ok(())) => return,
        Some(Err(error)) => error,
        None => Error::Stopping,
    };
    // A client that went away needs no answer.
    output.send(Err(error.into())).await.ok();
}

async fn open_stream(
    state: &ServerState,
    ticket: StreamTicket,
) -> Result<(stoker_stream::StreamPlan, stoker_types::Slice)> {
    let slice = ticket.slice.ok_or(Error::InvalidTicket { reason: "it has no slice" })?;
    let slice = slice_from_proto(&slice)?;
    let plan = match ticket.spec.as_slice() {
        [] => state.plan_by_id(ticket.stream_id.parse()?).await?,
        spec => state.plan_by_spec(spec).await?,
    };
    Ok((plan, slice))
}

async fn open_sql(state: &ServerState, ticket: &SqlTicket) -> Result<stoker_sql::SqlQuery> {
    let query = state.engine.query(&ticket.sql, &params_from_json(&ticket.params_json)?).await?;
    let changed = query
        .snapshots()
        .iter()
        .find(|now| ticket.tables.iter().any(|then| then.table == now.table.as_str() && then.version != now.version));
    match changed {
        Some(now) => Err(Error::ExpiredTicket { reason: format!("table {} has a newer version now", now.table) }),
        None => Ok(query),
    }
}

async fn send_stream(
    state: &ServerState,
    plan: &stoker_stream::StreamPlan,
    stream: &mut stoker_stream::BatchStream,
    output: &Output,
) -> Result<()> {
    send(output, schema_message(&plan.schema())).await?;
    loop {
        let batch = match tokio::time::timeout(KEEPALIVE, stream.next()).await {
            Ok(batch) => batch?,
            Err(_) => {
                send_empty(output, &plan.schema()).await?;
                continue;
            }
        };
        let Some(batch) = batch else { return Ok(()) };
        let (id, message_bytes) = (plan.stream_id(), state.config.message_bytes);
        let messages = tokio::task::spawn_blocking(move || batch_messages(&batch, id, message_bytes));
        for message in messages.await.map_err(Error::internal)?? {
            send(output, message).await?;
        }
    }
}

async fn send_sql(state: &ServerState, query: &stoker_sql::SqlQuery, output: &Output) -> Result<()> {
    let schema = query.schema();
    send(output, schema_message(&schema)).await?;
    let mut batches = query.execute().await?;
    loop {
        match tokio::time::timeout(KEEPALIVE, batches.next()).await {
            Err(_) => send_empty(output, &schema).await?,
            Ok(None) => return Ok(()),
            Ok(Some(batch)) => {
                let batch = batch.map_err(stoker_sql::Error::from)?;
                for message in record_batch_messages(&batch, state.config.message_bytes)? {
                    send(output, message).await?;
                }
            }
        }
    }
}

async fn send(output: &Output, message: FlightData) -> Result<()> {
    output.send(Ok(message)).await.map_err(|_| Error::Stopping)
}

async fn send_empty(output: &Output, schema: &SchemaRef) -> Result<()> {
    for message in record_batch_messages(&RecordBatch::new_empty(schema.clone()), 1)? {
        send(output, message).await?;
    }
    Ok(())
}
