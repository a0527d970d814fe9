//! Streams that servers planned.

use std::ops::Range;

use arrow_schema::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use stoker_batch::RowsBeside;
use stoker_session::{BatchSource, Error, Lake, Patience, PlannedStream, Result, StreamHandle};
use stoker_types::calls::{Beside, FindNulls, FindRows, IpcBytes, ReadBeside};
use stoker_types::{ColumnClip, ErrorKind, ReadOptions, Slice, StreamSpec, to_millis};
use stoker_wire::beside_answer;
use stoker_wire::decode::fixed_bytes;
use stoker_wire::proto::command::Kind;
use stoker_wire::proto::stream_request::Source;
use stoker_wire::proto::{Reweigh, StreamRequest, reweigh};

use crate::RemoteLake;
use crate::remote_sql::schema_of;
use crate::remote_stream::{RemoteStream, Request};

/// A stream that servers planned.
#[derive(Clone)]
struct RemotePlan {
    lake: RemoteLake,
    spec: StreamSpec,
    /// Whether the servers store the specification.
    spec_stored: bool,
    schema: SchemaRef,
    row_bytes: u64,
    /// The clips that are decoded of columns of videos.
    clips: Vec<ColumnClip>,
}

/// Plans a stream on a server.
pub(crate) async fn plan_remote(lake: &RemoteLake, source: Source) -> Result<StreamHandle> {
    let request = StreamRequest { source: Some(source), slice: None, num_endpoints: 0, read: None };
    let call = || lake.get_flight_info(Kind::Stream(request.clone()));
    let (info, spec_stored) = lake.patience().ask("planning a stream", call).await?;
    let spec = StreamSpec::from_json(&info.app_metadata)?;
    let schema = schema_of(&info)?;
    let (bytes, rows) = (u64::try_from(info.total_bytes).unwrap_or(0), u64::try_from(info.total_records).unwrap_or(0));
    // A row takes the bytes that the server estimates, and at least those of its columns of fixed width.
    let row_bytes = bytes.checked_div(rows).unwrap_or(0).max(fixed_bytes(&schema));
    let plan = RemotePlan { lake: lake.clone(), spec, spec_stored, schema, row_bytes, clips: Vec::new() };
    Ok(StreamHandle::new(plan, lake.patience().budget(), lake.budget().clone()))
}

impl PlannedStream for RemotePlan {
    fn spec(&self) -> &StreamSpec {
        &self.spec
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn spec_stored(&self) -> bool {
        self.spec_stored
    }

    fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    fn open(&self, slice: &Slice, options: &ReadOptions) -> Result<Box<dyn BatchSource>> {
        Ok(Box::new(RemoteStream::start(Request {
            lake: self.lake.clone(),
            spec: self.spec.clone(),
            spec_stored: self.spec_stored,
            schema: self.schema.clone(),
            slice: *slice,
            options: *options,
            clips: self.clips.clone(),
        })))
    }

    fn with_clips(&self, clips: &[ColumnClip]) -> Result<Box<dyn PlannedStream>> {
        // The server estimated rows with whole files; clips take an unknown part of them.
        let row_bytes = if clips.is_empty() { self.row_bytes } else { fixed_bytes(&self.schema) };
        Ok(Box::new(Self { clips: clips.to_vec(), row_bytes, ..self.clone() }))
    }

    fn nulls(&self, columns: Vec<String>) -> BoxFuture<'_, Result<Vec<String>>> {
        async {
            let call = FindNulls { stream_id: self.spec.stream_id(), columns };
            match self.lake.call_patiently(&call, self.lake.patience()).await {
                // A server without the action, or one that cannot know a stream whose specification it could not store.
                Err(error) if matches!(error.kind(), ErrorKind::InvalidRequest | ErrorKind::NotFound) => Ok(Vec::new()),
                found => found,
            }
        }
        .boxed()
    }

    fn row_addrs(&self, epoch: u64, positions: Range<u64>) -> BoxFuture<'_, Result<Vec<Vec<u64>>>> {
        async move {
            let call = FindRows { stream_id: self.spec.stream_id(), epoch, positions };
            self.lake.call_patiently(&call, self.lake.patience()).await
        }
        .boxed()
    }

    /// Costs one request to a server, which is retried within the options' retry budget.
    fn rows_beside<'a>(
        &'a self,
        epoch: u64,
        wanted: &'a [Beside],
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<RowsBeside>> {
        self.read_beside(epoch, wanted, options).boxed()
    }

    fn reweigh<'a>(&'a self, epoch: u64, position: u64, weights: &'a [f64]) -> BoxFuture<'a, Result<StreamHandle>> {
        let stream = match self.spec_stored {
            true => reweigh::Stream::StreamId(self.spec.stream_id().to_string()),
            false => reweigh::Stream::Spec(self.spec.to_json()),
        };
        let weights = weights.to_vec();
        let reweigh = Reweigh { stream: Some(stream), epoch, position, weights, may_link: true };
        plan_remote(&self.lake, Source::Reweigh(reweigh)).boxed()
    }
}

impl RemotePlan {
    async fn read_beside(&self, epoch: u64, wanted: &[Beside], options: &ReadOptions) -> Result<RowsBeside> {
        let mut request = ReadBeside {
            epoch: Some(epoch),
            beside: wanted.to_vec(),
            unverified: !options.verify,
            retry_budget_millis: options.retry_budget.map(to_millis),
            clips: self.clips.clone(),
            ..ReadBeside::default()
        };
        match self.spec_stored {
            true => request.stream_id = Some(self.spec.stream_id()),
            false => request.spec = Some(String::from_utf8(self.spec.to_json()).map_err(Error::internal)?),
        }
        let own = self.lake.patience();
        let with_budget = |budget| Patience::with_known(budget).with_environment(own.environment().clone());
        let patience = options.retry_budget.map_or_else(|| own.clone(), with_budget);
        let mut answered = self.lake.call_patiently(&request, &patience).await;
        if let Err(error) = &answered
            && error.kind() == ErrorKind::InvalidRequest
            && !request.clips.is_empty()
        {
            // A server that does not know clips sends whole files.
            request.clips.clear();
            answered = self.lake.call_patiently(&request, &patience).await;
        }
        let IpcBytes(answer) = answered.map_err(may_be_older)?;
        let bytes = answer.len() as u64;
        let held = self.lake.budget().join(bytes).reserve(bytes).await;
        let rows = beside_answer::decode(answer, &self.schema, self.spec.tables().count(), wanted.len())?;
        Ok(RowsBeside { held: Some(held), ..rows })
    }
}

/// A server that does not know the action refuses its name, or what is in its body.
fn may_be_older(error: Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidRequest => Error::invalid(format!(
            "cannot find rows to replace those whose images cannot be decoded: the server may be older than this \
             client and lack this action; use bad_rows=\"error\" to see the first such row; the server said: {error}"
        )),
        _ => error,
    }
}
