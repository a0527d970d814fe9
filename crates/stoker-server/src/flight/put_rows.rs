//! `DoPut` for rows that a client writes: they become one version of a table, once for each key.

use std::sync::Arc;

use arrow_flight::{FlightData, PutResult};
use futures::Stream;
use futures::future::join;
use prost::Message;
use stoker_flight_sql::RowMessages;
use stoker_session::{Error, Lake, Result, RowWriter};
use stoker_types::{Principal, WriteRequest};
use stoker_wire::proto::WriteResult;
use stoker_wire::protocol::WRITTEN_BYTES_MAX;
use stoker_wire::written_rows::{Received, RowParts};
use tokio::sync::mpsc;
use tonic::Status;

use crate::caller::Caller;
use crate::request_id::for_request;
use crate::state::ServerState;

/// What takes the role `write`.
const WRITING: &str = "writing rows";

/// The number of messages with rows that wait to be written.
const ROWS_WAITING_MAX: usize = 1;

impl ServerState {
    /// Writes the rows that a client puts, on the threads of queries, as they come. They are committed when the client says
    /// that all were sent. If the client goes away before, what was written is removed; after that, the write is finished.
    ///
    /// # Errors
    /// A principal or a server that must not write; rows that cannot be read or do not fit the table; a client that sends no
    /// message for too long, or gives up.
    pub(crate) async fn put_rows(
        self: &Arc<Self>,
        caller: Caller,
        principal: &Principal,
        request: WriteRequest,
        first: FlightData,
        data: &mut (impl Stream<Item = Result<FlightData, Status>> + Unpin),
    ) -> Result<PutResult> {
        self.check_writes(principal, WRITING)?;
        let permit = self.result_permit(caller).await?;
        let (sender, receiver) = mpsc::channel(ROWS_WAITING_MAX);
        let (state, name) = (self.clone(), principal.name.clone());
        let writing = async move {
            // The write keeps its permit after its client went away.
            let _permit = permit;
            let version = state.write_rows(&request, receiver).await?;
            tracing::info!(principal = %name, table = %request.table, version, "wrote rows");
            Ok::<u64, Error>(version)
        };
        // Dropping the handle does not cancel the task, which then finds the channel closed.
        let task = self.query_threads.handle().spawn(for_request(writing));
        let (forwarded, written) = join(self.forward(first, data, sender), task).await;
        forwarded?;
        let version = written.map_err(Error::internal)??;
        Ok(PutResult { app_metadata: WriteResult { version }.encode_to_vec().into() })
    }

    async fn write_rows(
        &self,
        request: &WriteRequest,
        mut messages: mpsc::Receiver<Option<FlightData>>,
    ) -> Result<u64> {
        let mut writer = None;
        match self.write_each(request, &mut messages, &mut writer).await {
            Ok(()) => match writer {
                Some(writer) => writer.finish().await,
                None => Err(Error::invalid("the client put no columns")),
            },
            Err(error) => {
                if let Some(writer) = writer {
                    writer.abort().await;
                }
                Err(error)
            }
        }
    }

    /// Writes the rows of all messages up to their end. The write begins when the columns are known.
    async fn write_each(
        &self,
        request: &WriteRequest,
        messages: &mut mpsc::Receiver<Option<FlightData>>,
        writer: &mut Option<Box<dyn RowWriter>>,
    ) -> Result<()> {
        let (mut parts, mut rows, mut num_rows) = (RowParts::default(), RowMessages::default(), 0);
        loop {
            let Some(Some(message)) = messages.recv().await else {
                return Err(Error::invalid("the client ended before all rows were sent"));
            };
            let message = match parts.add(message)? {
                Received::Rows(message) => message,
                Received::Part => continue,
                Received::End(sent) if sent == num_rows => return Ok(()),
                Received::End(sent) => {
                    return Err(Error::invalid(format!("the client sent {sent} rows, and {num_rows} arrived")));
                }
                Received::GivenUp => return Err(Error::Cancelled),
            };
            let batches = rows.add(&message, WRITTEN_BYTES_MAX.saturating_add(self.config.request_bytes_max))?;
            if let (None, Some(columns)) = (&writer, rows.schema()) {
                *writer = Some(self.lake.begin_write(request, columns).await?);
            }
            for batch in batches {
                num_rows += batch.num_rows() as u64;
                if let Some(writer) = writer.as_mut() {
                    writer.write(batch).await?;
                }
            }
        }
    }
}
