//! `DoPut` for commands of Flight SQL: parameters of prepared statements.

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::{Command, CommandPreparedStatementQuery, DoPutPreparedStatementResult};
use arrow_flight::{FlightData, PutResult};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use prost::Message;
use stoker_flight_sql::{command_of, rows_of};
use stoker_session::{Error, Result};
use stoker_types::Principal;
use stoker_wire::convert::params_to_json;
use tonic::Status;

use crate::flight_sql::prepared::{BOUND_BYTES_MAX, BOUND_ROWS_MAX};
use crate::state::ServerState;

/// What this server answers to writes over Flight.
const READ_ONLY: &str = "this server does not support writing; use `stoker ingest` or the Python client on the lake itself";

impl ServerState {
    /// Takes what a client puts.
    ///
    /// # Errors
    /// Anything but parameters of a query; parameters that cannot be read or are above a limit; those of
    /// [`ServerState::bind`].
    pub(crate) async fn do_put(
        &self,
        principal: &Principal,
        data: impl Stream<Item = Result<FlightData, Status>> + Send + Unpin + 'static,
    ) -> Result<PutResult> {
        let mut data = data;
        let first = data.next().await.transpose().map_err(unreadable)?;
        let first = first.ok_or_else(|| Error::invalid("the client put nothing"))?;
        let descriptor = first.flight_descriptor.clone().unwrap_or_default();
        let Some(command) = command_of(&descriptor.cmd)? else { return Err(Error::invalid(READ_ONLY)) };
        let Command::CommandPreparedStatementQuery(CommandPreparedStatementQuery { prepared_statement_handle: handle }) =
            command
        else {
            return Err(Error::invalid(READ_ONLY));
        };
        // An invalid handle is refused before its parameters are read.
        self.prepared(&handle)?;
        let rows = rows(stream::iter([Ok(first)]).chain(data)).await?;
        let handle = Some(self.bind(principal, &handle, rows).await?);
        let result = DoPutPreparedStatementResult { prepared_statement_handle: handle };
        Ok(PutResult { app_metadata: result.encode_to_vec().into() })
    }
}

/// Reads rows of parameters.
async fn rows(data: impl Stream<Item = Result<FlightData, Status>> + Send + 'static) -> Result<Vec<String>> {
    let mut batches = FlightRecordBatchStream::new_from_flight_data(data.map_err(FlightError::from));
    let mut rows: Vec<String> = Vec::new();
    let mut bytes = 0;
    while let Some(batch) = batches.try_next().await.map_err(unreadable)? {
        bytes += batch.get_array_memory_size();
        // The number of rows that were sent is part of the message, as far as it is known.
        if bytes > 2 * BOUND_BYTES_MAX || rows.len() + batch.num_rows() > 2 * BOUND_ROWS_MAX {
            return Err(Error::ResourceExhausted {
                reason: format!(
                    "the parameters have more than {BOUND_BYTES_MAX} bytes or {BOUND_ROWS_MAX} rows, which is the limit: \
                     bind a list and use `IN ($1)`, or write them to a table and join it"
                ),
            });
        }
        rows.extend(rows_of(&batch)?.iter().map(|params| params_to_json(params)));
    }
    Ok(rows)
}

fn unreadable(source: impl std::fmt::Display) -> Error {
    Error::invalid(format!("cannot read the parameters: {source}"))
}
