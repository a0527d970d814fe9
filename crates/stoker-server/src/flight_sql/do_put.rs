//! `DoPut` for commands of Flight SQL: parameters of prepared statements, statements that change the lake, and rows that
//! are inserted in bulk. Rows of Stoker's own clients are passed on to `flight::put_rows`.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_flight::sql::{
    Command, CommandStatementIngest, DoPutPreparedStatementResult, DoPutUpdateResult, TableExistsOption,
    TableNotExistOption,
};
use arrow_flight::{FlightData, PutResult};
use futures::future::join;
use futures::{FutureExt, Stream, StreamExt};
use prost::Message;
use stoker_dialect::is_change;
use stoker_flight_sql::{ParameterMessages, RowMessages, command_of, rows_of};
use stoker_session::{Error, Result};
use stoker_statements::{BulkInsert, IfMissing, IfPresent};
use stoker_types::{CATALOG, Context, Principal, SCHEMA, StatementOutcome, TableName, WriteRequest};
use stoker_wire::convert::{COMMAND_VERSION, params_to_json};
use stoker_wire::proto::BoundParameters;
use stoker_wire::proto::command::Kind;
use stoker_wire::written_rows::write_from_proto;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tonic::Status;

use crate::caller::Caller;
use crate::flight_sql::info::no_transaction;
use crate::flight_sql::prepared::{BOUND_BYTES_MAX, BOUND_ROWS_MAX};
use crate::state::ServerState;

/// What this server answers to rows that a client puts.
const NO_ROWS: &str = "a client puts rows with a stoker.v1.WriteRequest here, or statements of Flight SQL and their parameters: use \
                       a bulk insert (adbc_ingest) or Stoker's Python client";

/// What takes the role `write`.
pub(super) const CHANGING: &str = "a statement that changes the lake";
const INSERTING: &str = "a bulk insert";

/// The maximum number of rows of parameters of a statement that changes the lake.
const UPDATE_ROWS_MAX: usize = 65_536;

/// The number of messages with rows that wait to be written.
const ROWS_WAITING_MAX: usize = 1;

/// The maximum number of messages with parameters.
const MESSAGES_MAX: usize = 1_024;

/// The maximum number of parameters of a statement.
const PARAMETERS_MAX: usize = 4_096;

impl ServerState {
    /// Takes what a client puts: parameters of a prepared statement, or a statement that changes the lake.
    ///
    /// # Errors
    /// Anything else; parameters that cannot be read or are above a limit; those of [`ServerState::bind`] and of the
    /// statement.
    pub(crate) async fn do_put(
        self: Arc<Self>,
        caller: Caller,
        principal: Principal,
        mut data: impl Stream<Item = Result<FlightData, Status>> + Unpin,
    ) -> Result<PutResult> {
        let first = self.next_message(&mut data).await?;
        let first = first.ok_or_else(|| Error::invalid("the client put nothing"))?;
        let command = command_of(&first.flight_descriptor.clone().unwrap_or_default().cmd)?;
        match command {
            Some(Command::CommandPreparedStatementQuery(command)) => {
                let handle = command.prepared_statement_handle;
                // An invalid handle is refused before its parameters are read.
                let statement = self.prepared(&handle)?;
                let _permit = self.result_permit(caller).await?;
                let messages = self.messages(first, &mut data).await?;
                let state = self.clone();
                let bind = async move {
                    let rows_max = if is_change(&statement.sql) { UPDATE_ROWS_MAX } else { BOUND_ROWS_MAX };
                    let rows = json_rows(&messages.batches()?, rows_max)?;
                    state.bind(&principal, &handle, rows).await
                };
                let handle = Some(self.query_threads.run(bind.boxed()).await?);
                let result = DoPutPreparedStatementResult { prepared_statement_handle: handle };
                Ok(PutResult { app_metadata: result.encode_to_vec().into() })
            }
            Some(Command::CommandPreparedStatementUpdate(command)) => {
                let statement = self.prepared(&command.prepared_statement_handle)?;
                self.check_writes(&principal, CHANGING)?;
                let _permit = self.result_permit(caller).await?;
                let messages = self.messages(first, &mut data).await?;
                let state = self.clone();
                let update = async move {
                    // Some drivers send the parameters with the command, and others before it.
                    let rows = match messages.is_empty() {
                        true => Vec::new(),
                        false => json_rows(&messages.batches()?, UPDATE_ROWS_MAX)?,
                    };
                    let bound = match rows.is_empty() {
                        true => statement.bound,
                        false => Some(BoundParameters { rows, object: String::new() }),
                    };
                    state.change(&principal, &statement.sql, bound.as_ref()).await
                };
                Ok(updated(&self.query_threads.run(update.boxed()).await?))
            }
            Some(Command::CommandStatementUpdate(command)) => {
                no_transaction(command.transaction_id.as_deref())?;
                self.check_writes(&principal, CHANGING)?;
                let _permit = self.result_permit(caller).await?;
                let state = self.clone();
                let update = async move { state.change(&principal, &command.query, None).await };
                Ok(updated(&self.query_threads.run(update.boxed()).await?))
            }
            Some(Command::CommandStatementIngest(command)) => {
                let target = IngestTarget::try_new(&command)?;
                self.check_writes(&principal, INSERTING)?;
                let _permit = self.result_permit(caller).await?;
                Ok(updated(&self.ingest(&principal, target, first, &mut data).await?))
            }
            Some(_) => Err(Error::invalid(NO_ROWS)),
            None => match write_of(&first)? {
                Some(request) => self.put_rows(caller, &principal, request, first, &mut data).await,
                None => Err(Error::invalid(NO_ROWS)),
            },
        }
    }

    /// Inserts the rows that a client puts. They are written as they come, on the threads of queries, and become one version
    /// when all of them were sent.
    ///
    /// # Errors
    /// Rows that cannot be read or do not fit; a client that sends no message for too long; those of a bulk insert.
    async fn ingest(
        self: &Arc<Self>,
        principal: &Principal,
        target: IngestTarget,
        first: FlightData,
        data: &mut (impl Stream<Item = Result<FlightData, Status>> + Unpin),
    ) -> Result<StatementOutcome> {
        let (sender, receiver) = mpsc::channel(ROWS_WAITING_MAX);
        let (state, table) = (self.clone(), target.table.clone());
        let insert = self.query_threads.run(async move { state.insert_all(target, receiver).await }.boxed());
        let (forwarded, inserted) = join(self.forward(first, data, sender), insert).await;
        forwarded?;
        let outcome = inserted?;
        let (name, version) = (&principal.name, outcome.version);
        tracing::info!(principal = %name, table = %table, version, num_rows = outcome.num_rows, "inserted rows in bulk");
        Ok(outcome)
    }

    /// Passes on the messages of a client, and `None` after the last one. Without the `None`, the rows are discarded when the
    /// channel ends.
    pub(crate) async fn forward(
        &self,
        first: FlightData,
        data: &mut (impl Stream<Item = Result<FlightData, Status>> + Unpin),
        sender: mpsc::Sender<Option<FlightData>>,
    ) -> Result<()> {
        let mut next = Some(first);
        while let Some(message) = next {
            // The receiver ends early if the insert fails.
            if sender.send(Some(message)).await.is_err() {
                return Ok(());
            }
            next = self.next_message(data).await?;
        }
        sender.send(None).await.ok();
        Ok(())
    }

    async fn insert_all(
        self: Arc<Self>,
        target: IngestTarget,
        mut messages: mpsc::Receiver<Option<FlightData>>,
    ) -> Result<StatementOutcome> {
        let mut insert = None;
        match self.insert_each(&target, &mut messages, &mut insert).await {
            Ok(()) => match insert {
                Some(insert) => Ok(BulkInsert::commit(insert).await?),
                None => Err(Error::invalid("the client put no columns")),
            },
            Err(error) => {
                if let Some(insert) = insert {
                    insert.abort().await;
                }
                Err(error)
            }
        }
    }

    /// Writes the rows of all messages. The insert begins when the columns are known.
    async fn insert_each(
        &self,
        target: &IngestTarget,
        messages: &mut mpsc::Receiver<Option<FlightData>>,
        insert: &mut Option<BulkInsert>,
    ) -> Result<()> {
        let mut rows = RowMessages::default();
        loop {
            let Some(message) = messages.recv().await else {
                return Err(Error::invalid("the client ended before all rows were sent"));
            };
            let Some(message) = message else { return Ok(()) };
            let batches = rows.add(&message, self.config.request_bytes_max)?;
            if let (None, Some(columns)) = (&insert, rows.schema()) {
                let IngestTarget { table, if_missing, if_present } = target.clone();
                *insert = Some(self.lake.bulk_insert(table, columns, if_missing, if_present).await?);
            }
            if let Some(insert) = insert.as_mut() {
                for batch in batches {
                    insert.write(&batch).await?;
                }
            }
        }
    }

    /// Executes a statement that changes the lake once for each row of its parameters.
    ///
    /// # Errors
    /// A principal or a server that must not write; no row of parameters; those of the statement.
    pub(super) async fn change(
        &self,
        principal: &Principal,
        sql: &str,
        bound: Option<&BoundParameters>,
    ) -> Result<StatementOutcome> {
        self.check_writes(principal, CHANGING)?;
        let context = Context { principal: principal.clone(), ..Context::local() };
        let executions = self.executions(bound).await?;
        self.execute(&context, sql, &executions, &|_| {}).await
    }

    /// Waits for all messages of a client after the first one.
    async fn messages(
        &self,
        first: FlightData,
        data: &mut (impl Stream<Item = Result<FlightData, Status>> + Unpin),
    ) -> Result<ParameterMessages> {
        let mut messages = ParameterMessages::default();
        messages.add(&first, BOUND_BYTES_MAX)?;
        let mut num_messages = 1;
        while let Some(message) = self.next_message(data).await? {
            num_messages += 1;
            if num_messages > MESSAGES_MAX {
                return Err(too_many("messages", MESSAGES_MAX));
            }
            messages.add(&message, BOUND_BYTES_MAX)?;
        }
        Ok(messages)
    }

    /// Waits for the next message of a client, for a limited time.
    async fn next_message(
        &self,
        data: &mut (impl Stream<Item = Result<FlightData, Status>> + Unpin),
    ) -> Result<Option<FlightData>> {
        let stall = self.config.stall();
        let late = || Error::invalid(format!("the client sent no message for {} s", stall.as_secs()));
        let Some(message) = self.environment.clock.timeout(stall, data.next()).await.ok_or_else(late)? else {
            // tonic reports a reset by the client (RST_STREAM with CANCEL) like the end of a stream that is complete.
            // hyper looks for resets whenever the handler waits, and drops the handler of a stream that was reset. So
            // the handler waits once before it takes the messages for complete.
            yield_now().await;
            return Ok(None);
        };
        let invalid = |status: Status| Error::invalid(format!("cannot read the parameters: {}", status.message()));
        message.map(Some).map_err(invalid)
    }
}

/// Returns the write that a client of Stoker's begins; `None` for what is no command of Stoker's.
///
/// # Errors
/// A write that cannot be read.
fn write_of(first: &FlightData) -> Result<Option<WriteRequest>> {
    let descriptor = first.flight_descriptor.clone().unwrap_or_default();
    match stoker_wire::proto::Command::decode(descriptor.cmd) {
        Ok(stoker_wire::proto::Command { version: COMMAND_VERSION, kind: Some(Kind::Write(write)) }) => {
            Ok(Some(write_from_proto(&write)?))
        }
        _ => Ok(None),
    }
}

/// Returns the answer to a statement that changed the lake.
fn updated(outcome: &StatementOutcome) -> PutResult {
    let record_count = outcome.num_rows.and_then(|num_rows| i64::try_from(num_rows).ok()).unwrap_or(-1);
    PutResult { app_metadata: DoPutUpdateResult { record_count }.encode_to_vec().into() }
}

/// The table of a bulk insert, and what happens to it.
#[derive(Clone)]
struct IngestTarget {
    table: TableName,
    if_missing: IfMissing,
    if_present: IfPresent,
}

impl IngestTarget {
    /// Reads the command of a bulk insert.
    ///
    /// # Errors
    /// A name that no table can have; a temporary table, a transaction, another catalog or schema; options that this server
    /// does not have.
    fn try_new(command: &CommandStatementIngest) -> Result<Self> {
        no_transaction(command.transaction_id.as_deref())?;
        if command.temporary {
            return Err(Error::invalid("temporary tables are not supported: all tables are of the lake, and stay"));
        }
        let named = [("catalog", CATALOG, &command.catalog), ("schema", SCHEMA, &command.schema)];
        for (what, known, given) in named {
            if let Some(given) = given.as_ref().filter(|given| !given.is_empty() && *given != known) {
                return Err(Error::invalid(format!("there is no {what} {given}: all tables are in {what} {known}")));
            }
        }
        if let Some(option) = command.options.keys().min() {
            return Err(Error::invalid(format!("option {option} of a bulk insert is not supported: leave it out")));
        }
        let options = command.table_definition_options.unwrap_or_default();
        let if_missing = match TableNotExistOption::try_from(options.if_not_exist) {
            Ok(TableNotExistOption::Create) => IfMissing::Create,
            Ok(TableNotExistOption::Fail) => IfMissing::Fail,
            Ok(TableNotExistOption::Unspecified) | Err(_) => return Err(not_specified("does not exist")),
        };
        let if_present = match TableExistsOption::try_from(options.if_exists) {
            Ok(TableExistsOption::Fail) => IfPresent::Fail,
            Ok(TableExistsOption::Append) => IfPresent::Append,
            Ok(TableExistsOption::Replace) => IfPresent::Replace,
            Ok(TableExistsOption::Unspecified) | Err(_) => return Err(not_specified("exists")),
        };
        Ok(Self { table: TableName::try_new(command.table.as_str())?, if_missing, if_present })
    }
}

fn not_specified(what: &str) -> Error {
    Error::invalid(format!("the command of a bulk insert does not tell what to do if the table {what}"))
}

/// Returns the parameters of each row as JSON.
fn json_rows(batches: &[RecordBatch], rows_max: usize) -> Result<Vec<String>> {
    let num_rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if num_rows > rows_max {
        return Err(Error::ResourceExhausted {
            reason: format!(
                "a statement is bound to {num_rows} rows of parameters, the limit is {rows_max}: bind a list and use \
                 `= ANY($1)`, or write the rows to a table, for example by a bulk insert (adbc_ingest), and join it"
            ),
        });
    }
    let mut rows = Vec::with_capacity(num_rows);
    for batch in batches {
        if batch.num_columns() > PARAMETERS_MAX {
            return Err(too_many("parameters", PARAMETERS_MAX));
        }
        rows.extend(rows_of(batch)?.iter().map(|params| params_to_json(params)));
    }
    Ok(rows)
}

fn too_many(what: &str, limit: usize) -> Error {
    Error::ResourceExhausted { reason: format!("there are more than {limit} {what}, which is the limit") }
}
