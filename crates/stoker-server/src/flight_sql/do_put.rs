//! `DoPut` for commands of Flight SQL: parameters of prepared statements.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_flight::sql::{Command, CommandPreparedStatementQuery, DoPutPreparedStatementResult};
use arrow_flight::{FlightData, PutResult};
use futures::{FutureExt, Stream, StreamExt};
use prost::Message;
use stoker_flight_sql::{ParameterMessages, command_of, rows_of};
use stoker_session::{Error, Result};
use stoker_types::Principal;
use stoker_wire::convert::params_to_json;
use tonic::Status;

use crate::caller::Caller;
use crate::flight_sql::prepared::{BOUND_BYTES_MAX, BOUND_ROWS_MAX};
use crate::state::ServerState;

/// What this server answers to writes over Flight.
const READ_ONLY: &str =
    "this server does not support writing; use `stoker ingest` or the Python client on the lake itself";

/// The maximum number of messages with parameters.
const MESSAGES_MAX: usize = 1_024;

/// The maximum number of parameters of a statement.
const PARAMETERS_MAX: usize = 4_096;

impl ServerState {
    /// Takes what a client puts.
    ///
    /// # Errors
    /// Anything but parameters of a query; parameters that cannot be read or are above a limit; those of
    /// [`ServerState::bind`].
    pub(crate) async fn do_put(
        self: Arc<Self>,
        caller: Caller,
        principal: Principal,
        mut data: impl Stream<Item = Result<FlightData, Status>> + Unpin,
    ) -> Result<PutResult> {
        let first = self.next_message(&mut data).await?;
        let first = first.ok_or_else(|| Error::invalid("the client put nothing"))?;
        let command = command_of(&first.flight_descriptor.clone().unwrap_or_default().cmd)?;
        let Some(Command::CommandPreparedStatementQuery(command)) = command else {
            return Err(Error::invalid(READ_ONLY));
        };
        let CommandPreparedStatementQuery { prepared_statement_handle: handle } = command;
        // An invalid handle is refused before its parameters are read.
        self.prepared(&handle)?;
        let _permit = self.result_permit(caller).await?;
        let mut messages = ParameterMessages::default();
        messages.add(&first, BOUND_BYTES_MAX)?;
        let mut num_messages = 1;
        while let Some(message) = self.next_message(&mut data).await? {
            num_messages += 1;
            if num_messages > MESSAGES_MAX {
                return Err(too_many("messages", MESSAGES_MAX));
            }
            messages.add(&message, BOUND_BYTES_MAX)?;
        }
        let state = self.clone();
        let bind = async move {
            let rows = json_rows(&messages.batches()?)?;
            state.bind(&principal, &handle, rows).await
        };
        let handle = Some(self.query_threads.run(bind.boxed()).await?);
        let result = DoPutPreparedStatementResult { prepared_statement_handle: handle };
        Ok(PutResult { app_metadata: result.encode_to_vec().into() })
    }

    /// Waits for the next message of a client, for a limited time.
    async fn next_message(
        &self,
        data: &mut (impl Stream<Item = Result<FlightData, Status>> + Unpin),
    ) -> Result<Option<FlightData>> {
        let stall = self.config.stall();
        let late = || Error::invalid(format!("the client sent no message for {} s", stall.as_secs()));
        let message = self.environment.clock.timeout(stall, data.next()).await.ok_or_else(late)?;
        message
            .transpose()
            .map_err(|status| Error::invalid(format!("cannot read the parameters: {}", status.message())))
    }
}

/// Returns the parameters of each row as JSON.
fn json_rows(batches: &[RecordBatch]) -> Result<Vec<String>> {
    let num_rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    if num_rows > BOUND_ROWS_MAX {
        return Err(Error::ResourceExhausted {
            reason: format!(
                "a query is bound to {num_rows} rows of parameters, the limit is {BOUND_ROWS_MAX}: bind a list and use \
                 `= ANY($1)`, or write the rows to a table and join it"
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
