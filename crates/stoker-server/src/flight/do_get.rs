//! `DoGet`: sends the batches of a ticket.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use futures::{FutureExt, StreamExt};
use stoker_clock::Clock;
use stoker_flight_sql::{command_of, plain_batch};
use stoker_session::{Error, Result};
use stoker_stream::StreamPlan;
use stoker_types::{Digest, ErrorKind, Principal, QueryOptions, ReadOptions, Slice, Snapshot, Topology};
use stoker_wire::convert::{
    clips_from_proto, compression_from_proto, params_from_json, policy_from_proto, slice_from_proto,
};
use stoker_wire::encode::{Message, MessageOptions, part_messages, record_batch_messages, schema_message, split_rows};
use stoker_wire::proto::{PinnedTable, SqlTicket, StreamTicket, ticket_body};
use stoker_wire::protocol::MESSAGE_BYTES_MAX;
use tokio::runtime::Handle;
use tracing::{Instrument, Span};

use crate::access_log::AccessEntry;
use crate::caller::Caller;
use crate::flight::answer_body::Answer;
use crate::flight::output::Output;
use crate::flight::status::status;
use crate::flight_sql::{PlannedStatement, RunningAnswer};
use crate::permits::{Permit, Permits, Shares};
use crate::request_id::for_request;
use crate::state::ServerState;
use crate::totals::CountedStream;

/// The maximum number of a query result's messages that wait for the connection.
const QUEUE_MESSAGES: usize = 8;

/// The maximum number of a stream's messages that wait for the connection. It is small, so that their bytes are still
/// in a processor's cache when they are sent. Prefetched rows wait as parts, within the memory budget.
const QUEUE_PART_MESSAGES: usize = 2;

/// The interval without rows after which the server sends an empty record batch as a keepalive. HTTP/2 pings do not
/// suffice, because proxies drop them.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// The maximum time for which a request without a permit waits for a response that may be displaced.
const PLACE_PATIENCE: Duration = Duration::from_millis(900);

/// An opened stream or a planned query.
enum Work {
    Stream(StreamPlan, Box<CountedStream>, Batches),
    Sql(PlannedStatement, AccessEntry),
    Catalog(RecordBatch, AccessEntry),
}

impl Work {
    /// The span of the work, under which logs show what is read and sent for it.
    fn span(&self) -> Span {
        match self {
            Work::Stream(_, stream, _) => tracing::info_span!("do_get", stream = stream.what()),
            Work::Sql(_, log) | Work::Catalog(_, log) => tracing::info_span!("do_get", query = log.what()),
        }
    }
}

/// The batches of a stream that are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Batches {
    All,
    First,
}

/// Verifies a ticket and starts the task that produces its response. The task ends when the response is dropped.
///
/// # Errors
/// A ticket that is not valid or not valid any more; no permit; errors of opening the stream or planning the query.
pub(crate) async fn do_get(
    state: Arc<ServerState>,
    caller: Caller,
    principal: &Principal,
    ticket: &[u8],
) -> Result<Answer> {
    let running = state.running.begin(&principal.name, ticket);
    let cancelled = running.cancelled();
    tokio::select! {
        biased;
        () = cancelled => Err(Error::Cancelled),
        answer = begin(state, caller, principal, ticket, running) => answer,
    }
}

/// Begins an answer, which the client may cancel.
async fn begin(
    state: Arc<ServerState>,
    caller: Caller,
    principal: &Principal,
    ticket: &[u8],
    running: RunningAnswer,
) -> Result<Answer> {
    let body = state.signer.verify(ticket, state.now_unix_secs())?;
    let clock = state.environment.clock.clone();
    let who = format!("{} at {caller}", principal.name);
    let budget = state.lake.resources().for_client(&caller, &who);
    let place = place(&state, caller, body.kind.as_ref()).await?;
    let message_bytes = state.config.message_bytes;
    let mut message_bytes_max = MESSAGE_BYTES_MAX;
    let (work, compression) = match body.kind {
        Some(ticket_body::Kind::Stream(ticket)) => {
            let memory_budget_bytes = state.config.stream_budget_bytes();
            let options = ReadOptions { memory_budget_bytes, ..ReadOptions::default() };
            let options = policy_from_proto(ticket.read.as_ref(), options)?;
            let batches = if options.first_batch_only { Batches::First } else { Batches::All };
            let clips = clips_from_proto(ticket.read.as_ref())?;
            let (plan, slice) = open_stream(&state, ticket, principal).await?;
            let plan = plan.with_clips(&clips)?;
            let stream = plan.open_parts(&budget, &slice, &options, part_bytes(message_bytes))?;
            let log = AccessEntry::new("stream", about(&plan, &slice), who, &clock);
            let stream = Box::new(CountedStream::new(stream, state.totals.clone(), state.metrics.clone(), log));
            (Work::Stream(plan, stream, batches), options.compression)
        }
        Some(ticket_body::Kind::Sql(ticket)) => {
            let log = AccessEntry::new("query", Digest::of(ticket.sql.as_bytes()).to_string(), who, &clock);
            let compression = compression_from_proto(&ticket.compression)?;
            if ticket.is_flight_sql {
                message_bytes_max = stoker_flight_sql::MESSAGE_BYTES_MAX;
            }
            let opened = state.clone();
            let statement = state.query_threads.run(async move { open_sql(&opened, &ticket).await }.boxed()).await?;
            (Work::Sql(statement, log), compression)
        }
        Some(ticket_body::Kind::Catalog(ticket)) => {
            let log = AccessEntry::new("catalog", Digest::of(&ticket.command).to_string(), who, &clock);
            message_bytes_max = stoker_flight_sql::MESSAGE_BYTES_MAX;
            let command = command_of(&ticket.command.into())?;
            let unknown = || stoker_wire::Error::InvalidTicket { reason: "it is no question about the catalog" };
            let (asked, command) = (state.clone(), command.ok_or_else(unknown)?);
            let answering = async move { asked.catalog_answer(&command).await };
            let answer = state.query_threads.run(answering.boxed()).await?;
            (Work::Catalog(answer.ok_or_else(unknown)?, log), None)
        }
        Some(ticket_body::Kind::Prepared(_)) => {
            let reason = "it is the handle of a prepared statement; GetFlightInfo has the ticket";
            return Err(stoker_wire::Error::InvalidTicket { reason }.into());
        }
        Some(ticket_body::Kind::Session(_)) => {
            return Err(stoker_wire::Error::InvalidTicket { reason: "it is the cookie of a session" }.into());
        }
        Some(ticket_body::Kind::Poll(_)) => {
            return Err(stoker_wire::Error::InvalidTicket { reason: "it is the descriptor of a poll" }.into());
        }
        None => {
            return Err(stoker_wire::Error::InvalidTicket { reason: "it names neither a stream nor a query" }.into());
        }
    };
    let (queue, threads) = match &work {
        Work::Stream(..) => (QUEUE_PART_MESSAGES, Handle::current()),
        Work::Sql(..) | Work::Catalog(..) => (QUEUE_MESSAGES, state.query_threads.handle().clone()),
    };
    let (output, answer) = Output::new(queue, place, state.config.stall(), message_bytes, clock.clone());
    let message_bytes = message_bytes.min(message_bytes_max);
    let options = MessageOptions { message_bytes, message_bytes_max, compression };
    let span = work.span();
    let sending = async move {
        let sent = async {
            match work {
                Work::Stream(plan, stream, batches) => {
                    send_stream(&plan, *stream, batches, options, &output, &clock).await
                }
                Work::Sql(statement, log) => send_sql(&statement, log, options, &output, &clock).await,
                Work::Catalog(answer, log) => send_catalog(&answer, log, options, &output).await,
            }
        };
        let done = tokio::select! {
            biased;
            () = output.closed() => return,
            () = state.cut.cancelled() => Err(Error::Stopping),
            () = running.cancelled() => Err(Error::Cancelled),
            done = sent => done,
        };
        output.end(done, |error| state.place_filter.status(status(error))).await;
    };
    threads.spawn(for_request(sending.instrument(span)));
    Ok(answer)
}

impl ServerState {
    /// Acquires a permit for a query result.
    pub(crate) async fn result_permit(&self, caller: Caller) -> Result<Permit<Caller>> {
        permit(&self.results, "results", self.config.result_shares(), caller).await
    }
}

/// Acquires a permit for a stream or for a query result.
async fn place(state: &ServerState, caller: Caller, kind: Option<&ticket_body::Kind>) -> Result<Permit<Caller>> {
    match kind {
        Some(ticket_body::Kind::Sql(_) | ticket_body::Kind::Catalog(_)) => state.result_permit(caller).await,
        _ => permit(&state.streams, "streams", state.config.stream_shares(), caller).await,
    }
}

async fn permit(permits: &Permits<Caller>, what: &str, shares: Shares, caller: Caller) -> Result<Permit<Caller>> {
    let full = |_| Error::ResourceExhausted {
        reason: format!(
            "the limit of concurrent {what} is reached: {} for this server, {} for one client; try again later",
            shares.total, shares.per_client
        ),
    };
    permits.take_within(caller, PLACE_PATIENCE).await.map_err(full)
}

/// Returns the size of a part in bytes: 1/16 less than that of a message. The size of a row is an estimate, and a part
/// that is a little too large would be split into a full message and one with the last few rows.
fn part_bytes(message_bytes: usize) -> u64 {
    (message_bytes - message_bytes / 16) as u64
}

/// Describes a slice from its first step on, for the access log.
fn about(plan: &StreamPlan, slice: &Slice) -> String {
    let Topology { rank, world_size } = slice.topology;
    format!("{} epoch {} rank {rank}/{world_size} step {}", plan.spec().stream_id(), slice.epoch, slice.first_step)
}

fn wire_bytes(messages: &[Message]) -> u64 {
    messages.iter().map(|message| message.wire_bytes() as u64).sum()
}

async fn open_stream(state: &ServerState, ticket: StreamTicket, principal: &Principal) -> Result<(StreamPlan, Slice)> {
    let slice = ticket.slice.ok_or(stoker_wire::Error::InvalidTicket { reason: "it has no slice" })?;
    let slice = slice_from_proto(&slice)?;
    let plan = match ticket.spec.as_slice() {
        [] => state.plan_by_id(ticket.stream_id.parse()?).await?,
        spec => state.plan_by_spec(spec, principal).await?,
    };
    Ok((plan, slice))
}

async fn open_sql(state: &ServerState, ticket: &SqlTicket) -> Result<PlannedStatement> {
    let snapshot = |pinned: &PinnedTable| Ok(Snapshot { table: pinned.table.parse()?, version: pinned.version });
    let newest = ticket.tables.iter().map(snapshot).collect::<Result<Vec<_>>>()?;
    let options = QueryOptions::approximate(ticket.approximate);
    let planned = match ticket.is_flight_sql {
        true => state.plan_statement(&ticket.sql, ticket.bound.as_ref(), newest.clone(), options).await,
        false => {
            let params = params_from_json(&ticket.params_json)?;
            let query = state.lake.query_with_options(&ticket.sql, &params, &newest, options).await;
            query.map(|query| PlannedStatement { schema: query.schema(), queries: vec![query] }).map_err(Error::from)
        }
    };
    let planned = match planned {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(removed(state, &newest).await?.unwrap_or(error));
        }
        planned => planned?,
    };
    match changed_versions(&ticket.tables, &planned.snapshots()) {
        None => Ok(planned),
        Some(reason) => Err(stoker_wire::Error::ExpiredTicket { reason }.into()),
    }
}

/// Returns the error for a plan at snapshots of which a cleanup has removed one.
async fn removed(state: &ServerState, snapshots: &[Snapshot]) -> Result<Option<Error>> {
    for snapshot in snapshots {
        if state.lake.lake().is_removed(snapshot).await? {
            let reason = format!("{snapshot}, on which the query was planned, was removed since: plan it again");
            return Ok(Some(stoker_wire::Error::ExpiredTicket { reason }.into()));
        }
    }
    Ok(None)
}

/// Compares the versions on which a query was planned with those that it reads now. Returns a message if they differ.
fn changed_versions(then: &[PinnedTable], now: &[Snapshot]) -> Option<String> {
    let then: Vec<String> = then.iter().map(|pinned| format!("{}@{}", pinned.table, pinned.version)).collect();
    let now: Vec<String> = now.iter().map(Snapshot::to_string).collect();
    let changed = || {
        let (then, now) = (then.join(", "), now.join(", "));
        format!(
            "the query was planned on {then} and reads {now} now, because a tag or a time names another version: plan it again"
        )
    };
    (then != now).then(changed)
}

async fn send_stream(
    plan: &StreamPlan,
    mut stream: CountedStream,
    batches: Batches,
    options: MessageOptions,
    output: &Output,
    clock: &Clock,
) -> Result<()> {
    output.send(schema_message(&plan.schema())).await?;
    let mut held_back = pin!(stream.parts.until_held_back());
    loop {
        let next = clock.timeout(KEEPALIVE, stream.parts.next());
        let next = tokio::select! {
            next = next => next,
            // The stream does not prefetch its first batch, so the response ends without one. The client gets the batch
            // with its next call.
            () = &mut held_back => return Ok(()),
        };
        match next {
            None => send_empty(output, &plan.schema()).await?,
            Some(part) => {
                let Some(part) = part? else {
                    stream.complete();
                    return Ok(());
                };
                let (waited, is_last) = (stream.parts.stats().last_step, part.is_last());
                let messages = encoded(options, move || part_messages(&part, &waited, &options)).await?;
                stream.sent(wire_bytes(&messages));
                send_all(output, messages).await?;
                if batches == Batches::First && is_last {
                    stream.complete();
                    return Ok(());
                }
            }
        }
    }
}

async fn send_sql(
    statement: &PlannedStatement,
    mut log: AccessEntry,
    options: MessageOptions,
    output: &Output,
    clock: &Clock,
) -> Result<()> {
    let PlannedStatement { queries, schema } = statement;
    output.send(schema_message(schema)).await?;
    for query in queries {
        let is_plain = query.schema() == *schema;
        let mut batches = query.execute().await?;
        loop {
            match clock.timeout(KEEPALIVE, batches.next()).await {
                None => send_empty(output, schema).await?,
                Some(None) => break,
                Some(Some(batch)) => {
                    let batch = batch.map_err(stoker_sql::Error::from)?;
                    if batch.num_rows() > 0 && is_plain {
                        send_rows(output, batch, options, &mut log).await?;
                    } else if batch.num_rows() > 0 {
                        // Plain values may take more memory than views of them.
                        for rows in split_rows(&batch, options.message_bytes) {
                            let rows = plain_batch(&batch.slice(rows.start, rows.len()), schema)?;
                            send_rows(output, rows, options, &mut log).await?;
                        }
                    }
                }
            }
        }
    }
    log.is_complete = true;
    Ok(())
}

async fn send_catalog(
    answer: &RecordBatch,
    mut log: AccessEntry,
    options: MessageOptions,
    output: &Output,
) -> Result<()> {
    output.send(schema_message(&answer.schema())).await?;
    if answer.num_rows() > 0 {
        send_rows(output, answer.clone(), options, &mut log).await?;
    }
    log.is_complete = true;
    Ok(())
}

async fn send_rows(output: &Output, batch: RecordBatch, options: MessageOptions, log: &mut AccessEntry) -> Result<()> {
    log.rows += batch.num_rows() as u64;
    let messages = encoded(options, move || record_batch_messages(&batch, &options)).await?;
    log.bytes += wire_bytes(&messages);
    send_all(output, messages).await
}

/// Encodes messages. Compression takes long, so messages that are compressed are encoded on a blocking thread.
async fn encoded(
    options: MessageOptions,
    encode: impl FnOnce() -> stoker_wire::Result<Vec<Message>> + Send + 'static,
) -> Result<Vec<Message>> {
    Ok(match options.compression {
        None => encode()?,
        Some(_) => tokio::task::spawn_blocking(encode).await.map_err(Error::internal)??,
    })
}

async fn send_empty(output: &Output, schema: &Arc<Schema>) -> Result<()> {
    let options = MessageOptions { message_bytes: 1, message_bytes_max: MESSAGE_BYTES_MAX, compression: None };
    send_all(output, record_batch_messages(&RecordBatch::new_empty(schema.clone()), &options)?).await
}

async fn send_all(output: &Output, messages: Vec<Message>) -> Result<()> {
    for message in messages {
        output.send(message).await?;
    }
    Ok(())
}
