//! Writes rows through a server: one DoPut, which becomes one version.

use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_flight::{FlightData, PutResult};
use arrow_schema::Schema;
use futures::channel::mpsc::{Sender, channel};
use futures::future::BoxFuture;
use futures::{FutureExt, SinkExt};
use prost::Message;
use stoker_session::{Error, Result, RowWriter};
use stoker_types::WriteRequest;
use stoker_wire::proto::WriteResult;
use stoker_wire::written_rows::{end_message, first_message, given_up_message, row_messages, waiting_message};
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use crate::RemoteLake;

/// The time between two signs of life. A server ends writes whose clients send nothing for a minute.
const WAITING_INTERVAL: Duration = Duration::from_secs(5);

/// A write whose rows go to a server. The server takes them as fast as it writes them: at most three messages wait here.
pub(crate) struct RemoteWriter {
    lake: RemoteLake,
    messages: Sender<FlightData>,
    /// The call; `None` after its answer came.
    call: Option<BoxFuture<'static, Result<PutResult, Status>>>,
    num_rows: u64,
    /// Tells the server that this client is there, although it has no rows for a while.
    _waiting: AbortOnDropHandle<()>,
}

/// Sends the request and the columns.
///
/// # Errors
/// A server that cannot be reached; the errors of the server, which may also come later.
pub(crate) async fn begin_remote_write(
    lake: &RemoteLake,
    request: &WriteRequest,
    columns: &Schema,
) -> Result<Box<dyn RowWriter>> {
    let first = first_message(request, columns)?;
    let mut client = lake.client().await?;
    let (messages, waiting) = channel(1);
    let call = async move {
        let mut answers = client.do_put(waiting).await?.into_inner();
        answers.message().await?.ok_or_else(|| Status::unavailable("the server sent no answer"))
    };
    let (mut beside, clock) = (messages.clone(), lake.clock().clone());
    let wait = async move {
        loop {
            clock.sleep(WAITING_INTERVAL).await;
            if beside.send(waiting_message()).await.is_err() {
                return;
            }
        }
    };
    let waiting = AbortOnDropHandle::new(tokio::spawn(wait));
    let mut writer =
        RemoteWriter { lake: lake.clone(), messages, call: Some(call.boxed()), num_rows: 0, _waiting: waiting };
    writer.send(first).await?;
    Ok(Box::new(writer))
}

impl RemoteWriter {
    /// Sends a message as soon as the server takes it.
    async fn send(&mut self, message: FlightData) -> Result<()> {
        let Some(call) = self.call.as_mut() else { return Err(Error::internal("a write that failed goes on")) };
        let answer = tokio::select! {
            biased;
            answer = &mut *call => answer,
            sent = self.messages.send(message) => match sent {
                Ok(()) => return Ok(()),
                // The connection broke, and the call ends with the reason.
                Err(_) => (&mut *call).await,
            },
        };
        self.call = None;
        match answer {
            Ok(_) => Err(Error::internal("the server answered before all rows were sent")),
            Err(status) => Err(self.failure(status)),
        }
    }

    /// Waits for the answer of the server.
    async fn answer(&mut self) -> Result<u64> {
        self.messages.close_channel();
        let Some(call) = self.call.take() else { return Err(Error::internal("a write that failed ends")) };
        let answer = call.await.map_err(|status| self.failure(status))?;
        let result = WriteResult::decode(answer.app_metadata).map_err(Error::internal)?;
        Ok(result.version)
    }

    /// Converts a status to an error. The next call goes to another server if this one cannot be reached.
    fn failure(&self, status: Status) -> Error {
        let error = self.lake.failure(status);
        if error.kind().is_transient() {
            self.lake.leave();
        }
        error
    }
}

impl RowWriter for RemoteWriter {
    fn write(&mut self, batch: RecordBatch) -> BoxFuture<'_, Result<()>> {
        async move {
            if batch.num_rows() == 0 {
                return Ok(());
            }
            self.num_rows += batch.num_rows() as u64;
            for message in row_messages(&batch)? {
                self.send(message).await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn abort(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            // Without this message, the server waits for more rows until it sees that the connection is gone.
            if self.call.is_some() && self.send(given_up_message()).await.is_ok() {
                self.answer().await.ok();
            }
        }
        .boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<u64>> {
        async move {
            self.send(end_message(self.num_rows)).await?;
            self.answer().await
        }
        .boxed()
    }
}
