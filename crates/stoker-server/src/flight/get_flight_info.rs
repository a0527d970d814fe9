//! `GetFlightInfo`, `PollFlightInfo`, `GetSchema` and `ListFlights`: from descriptors to schemas and tickets.
//!
//! A stream that is polled is planned in the background. The descriptor of the next poll is signed and carries the
//! request, so that any replica goes on, if need be by planning again.

use std::sync::Arc;

use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, Location, PollInfo, Ticket};
use arrow_schema::Schema;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, stream};
use prost::Message;
use stoker_flight_sql::command_of;
use stoker_flight_sql::session_options::SessionCookie;
use stoker_session::{Error, Result};
use stoker_sql::ProgressReports;
use stoker_stream::StreamPlan;
use stoker_types::{Principal, QueryOptions, ReadOptions, SnapshotRef, TableName};
use stoker_wire::convert::{
    COMMAND_VERSION, clips_from_proto, compression_from_proto, endpoint_slice, params_from_json, policy_from_proto,
    slice_from_proto, slice_to_proto,
};
use stoker_wire::encode::check_schema;
use stoker_wire::proto::{
    Command, PinnedTable, ReadPolicy, Slice, SqlRequest, SqlTicket, StreamPoll, StreamRequest, StreamTicket,
    TicketBody, command::Kind, ticket_body,
};
use tonic::Status;

use crate::caller::Caller;
use crate::flight::status::status;
use crate::plan_cache::{PlanKey, PolledPlan};
use crate::state::ServerState;

/// The maximum number of endpoints in a response.
const ENDPOINTS_MAX: u32 = 256;

/// The longest command of a stream that is planned in the background, because each poll carries it. The first poll of a
/// longer one is answered when the stream is planned.
const POLLED_BYTES_MAX: usize = 64 << 10;

/// The number of tables that ListFlights opens concurrently.
const TABLES_AT_ONCE: usize = 8;

/// The response to GetFlightInfo.
pub(crate) struct Planned {
    pub info: FlightInfo,
    /// For streams: whether the lake stores the specification, so that clients can request the stream by its id.
    pub spec_stored: Option<bool>,
    /// For Flight SQL: the header by which the session goes on, if the client has one.
    pub set_cookie: Option<String>,
}

/// A poll of a stream.
pub(crate) enum Poll {
    /// Begins to plan the stream.
    First(StreamPoll),
    /// Goes on with the plan.
    Next(StreamPoll),
}

impl ServerState {
    pub(crate) async fn get_flight_info(
        &self,
        caller: Caller,
        principal: &Principal,
        cookie: Option<&SessionCookie>,
        descriptor: FlightDescriptor,
    ) -> Result<Planned> {
        if let Some(command) = command_of(&descriptor.cmd)? {
            let options = self.session_options(cookie)?;
            let info = self.flight_sql_info(caller, principal, descriptor, command, options).await?;
            return Ok(Planned { info, spec_stored: None, set_cookie: self.set_cookie(cookie, options) });
        }
        match self.parse(&descriptor)? {
            Kind::Stream(request) => self.stream_info(principal, descriptor, request, ProgressReports::default()).await,
            Kind::Sql(request) => self.sql_info(descriptor, request).await,
            Kind::Poll(_) => Err(of_a_poll()),
            Kind::Write(_) => Err(of_a_write()),
        }
    }

    pub(crate) async fn get_schema(&self, principal: &Principal, descriptor: FlightDescriptor) -> Result<Schema> {
        if let Some(command) = command_of(&descriptor.cmd)? {
            return self.flight_sql_schema(command).await;
        }
        let schema = match self.parse(&descriptor)? {
            Kind::Stream(request) => self.plan(principal, request.source, ProgressReports::default()).await?.schema(),
            Kind::Sql(request) => self.lake.columns(&request.sql, &params_from_json(&request.params_json)?).await?,
            Kind::Poll(_) => return Err(of_a_poll()),
            Kind::Write(_) => return Err(of_a_write()),
        };
        Ok(schema.as_ref().clone())
    }

    /// Returns the poll that a descriptor begins or goes on with. `None` for descriptors that are planned at once: all
    /// but those of streams, and very large ones.
    ///
    /// # Errors
    /// A descriptor of a stream or of a poll that cannot be read or is not valid any more; one of another principal.
    pub(crate) fn poll_of(&self, principal: &Principal, descriptor: &FlightDescriptor) -> Result<Option<Poll>> {
        if descriptor.r#type() == DescriptorType::Path || descriptor.cmd.len() > 2 * POLLED_BYTES_MAX {
            return Ok(None);
        }
        match Command::decode(descriptor.cmd.clone()) {
            Ok(Command { version: COMMAND_VERSION, kind: Some(Kind::Poll(signed)) }) => {
                Ok(Some(Poll::Next(self.verified_poll(principal, &signed)?)))
            }
            Ok(Command { version: COMMAND_VERSION, kind: Some(Kind::Stream(_)) })
                if descriptor.cmd.len() <= POLLED_BYTES_MAX =>
            {
                Ok(Some(Poll::First(StreamPoll {
                    command: descriptor.cmd.to_vec(),
                    principal: principal.name.to_string(),
                    nonce: self.environment.random.number(),
                    progress: 0.0,
                })))
            }
            // `get_flight_info` tells what is wrong with other descriptors.
            _ => Ok(None),
        }
    }

    fn verified_poll(&self, principal: &Principal, signed: &[u8]) -> Result<StreamPoll> {
        let verified = self.signer.verify(signed, self.now_unix_secs()).map_err(|error| match error {
            stoker_wire::Error::InvalidTicket { reason } => stoker_wire::Error::InvalidPoll { reason },
            stoker_wire::Error::ExpiredTicket { reason } => stoker_wire::Error::ExpiredPoll { reason },
            other => other,
        });
        match verified?.kind {
            Some(ticket_body::Kind::Poll(poll)) if poll.principal == principal.name.as_str() => Ok(poll),
            Some(ticket_body::Kind::Poll(_)) => Err(Error::Forbidden {
                reason: "another client began these polls: poll with the descriptor of the stream".into(),
            }),
            _ => Err(stoker_wire::Error::InvalidPoll { reason: "it is a ticket" }.into()),
        }
    }

    /// Answers a poll: with the FlightInfo of the stream, or after a short wait with the descriptor of the next poll. A
    /// plan that this server does not have, or gave up, begins again.
    ///
    /// # Errors
    /// Those of planning the stream, no permit, and `Cancelled` if the client cancelled the plan.
    pub(crate) async fn poll_stream(
        self: &Arc<Self>,
        caller: Caller,
        principal: &Principal,
        poll: Poll,
    ) -> Result<PollInfo, Status> {
        let (poll, told) = match poll {
            Poll::First(poll) => (poll, None),
            Poll::Next(poll) => {
                let told = poll.progress;
                (poll, Some(told))
            }
        };
        let (plans, key) = (&self.polled_plans, (principal.name.clone(), poll.nonce));
        let plan = match plans.find(&key).map_err(status)? {
            Some(plan) => plan,
            None => {
                let plan = self.begin_plan(caller, principal, &key, &poll).map_err(status)?;
                // Until its first poll is answered, a plan is cancelled if the client goes away.
                if told.is_none() { plan } else { plans.keep(&key, plan).map_err(status)? }
            }
        };
        let outcome = plan.news(&self.environment.clock, told).await;
        match outcome {
            Some(outcome) => {
                plans.forget(&key);
                let info = Some(outcome?);
                Ok(PollInfo { info, flight_descriptor: None, progress: Some(1.0), expiration_time: None })
            }
            None => {
                let plan = plans.keep(&key, plan).map_err(status)?;
                Ok(self.unfinished(&plan, poll))
            }
        }
    }

    /// Begins to plan a stream in the background.
    fn begin_plan(
        self: &Arc<Self>,
        caller: Caller,
        principal: &Principal,
        key: &PlanKey,
        poll: &StreamPoll,
    ) -> Result<Arc<PolledPlan>> {
        let descriptor = FlightDescriptor::new_cmd(poll.command.clone());
        let Kind::Stream(request) = self.parse(&descriptor)? else {
            return Err(stoker_wire::Error::InvalidPoll { reason: "it is not that of a stream" }.into());
        };
        let (state, asking) = (self.clone(), principal.clone());
        let plan = move |reports: ProgressReports| {
            let planned = async move { state.stream_info(&asking, descriptor, request, reports).await };
            planned.map_ok(|planned| planned.info).boxed()
        };
        let (threads, stopping) = (self.query_threads.handle(), self.stopping.clone());
        self.polled_plans.begin(caller, key.clone(), threads, stopping, plan)
    }

    /// Returns the answer to a poll of a stream that is still being planned. Its FlightInfo has no schema and no
    /// endpoints yet; by its descriptor, CancelFlightInfo finds the plan.
    fn unfinished(&self, plan: &PolledPlan, poll: StreamPoll) -> PollInfo {
        let (now, progress) = (self.now_unix_secs(), plan.progress(poll.progress));
        let poll = StreamPoll { progress: progress.unwrap_or(poll.progress), ..poll };
        let body = TicketBody { kind: Some(ticket_body::Kind::Poll(poll)), ..TicketBody::default() };
        let command = Command { version: COMMAND_VERSION, kind: Some(Kind::Poll(self.signer.sign(body, now))) };
        let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
        PollInfo {
            info: Some(FlightInfo::new().with_descriptor(descriptor.clone())),
            flight_descriptor: Some(descriptor),
            progress,
            expiration_time: Some(self.expiry(now)),
        }
    }

    /// Returns all tables, each with a descriptor of type PATH.
    pub(crate) async fn list_flights(&self) -> Result<Vec<FlightInfo>> {
        let names = self.lake.lake().tables().await?;
        stream::iter(names).map(|name| self.table_info(name)).buffered(TABLES_AT_ONCE).try_collect().await
    }

    async fn table_info(&self, name: TableName) -> Result<FlightInfo> {
        let table = self.lake.lake().table(&name, &SnapshotRef::Latest).await?;
        let descriptor = FlightDescriptor::new_path(vec![name.to_string()]);
        let info = FlightInfo::new().try_with_schema(&table.schema()).map_err(Error::internal)?;
        let rows = i64::try_from(table.num_rows()).unwrap_or(-1);
        Ok(info.with_descriptor(descriptor).with_total_records(rows).with_total_bytes(-1))
    }

    fn parse(&self, descriptor: &FlightDescriptor) -> Result<Kind> {
        if descriptor.r#type() == DescriptorType::Path {
            let [name] = descriptor.path.as_slice() else {
                let path = &descriptor.path;
                return Err(Error::invalid(format!(
                    "a descriptor of type PATH names one table, and this one is {path:?}"
                )));
            };
            let name = TableName::try_new(name.as_str())?;
            return Ok(Kind::Sql(SqlRequest { sql: format!("SELECT * FROM \"{name}\""), ..SqlRequest::default() }));
        }
        let command = Command::decode(descriptor.cmd.clone());
        let command =
            command.map_err(|source| Error::invalid(format!("the descriptor is not a stoker.v1.Command: {source}")))?;
        if command.version != COMMAND_VERSION {
            let versions = (command.version, COMMAND_VERSION);
            return Err(Error::invalid(format!(
                "the descriptor's version is {}, this server knows {}",
                versions.0, versions.1
            )));
        }
        command.kind.ok_or_else(|| Error::invalid("the descriptor holds neither a stream nor a SQL request"))
    }

    async fn stream_info(
        &self,
        principal: &Principal,
        descriptor: FlightDescriptor,
        request: StreamRequest,
        reports: ProgressReports,
    ) -> Result<Planned> {
        let plan = self.plan(principal, request.source, reports).await?;
        check_schema(&plan.schema())?;
        let mut info = FlightInfo::new().try_with_schema(&plan.schema()).map_err(Error::internal)?;
        if let Some(slice) = &request.slice {
            let slice = slice_from_proto(slice)?;
            plan.check_slice(&slice)?;
            policy_from_proto(request.read.as_ref(), ReadOptions::default())?;
            plan.with_clips(&clips_from_proto(request.read.as_ref())?)?;
            let num_endpoints = request.num_endpoints.max(1);
            if num_endpoints > ENDPOINTS_MAX || slice.topology.world_size > u32::MAX / num_endpoints {
                return Err(Error::invalid(format!("num_endpoints is {num_endpoints}; the most is {ENDPOINTS_MAX}")));
            }
            for endpoint in 0..num_endpoints {
                let slice = slice_to_proto(&endpoint_slice(&slice, endpoint, num_endpoints));
                let ticket = self.stream_ticket(&plan, slice, request.read.clone());
                info = info.with_endpoint(self.endpoint(ticket_body::Kind::Stream(ticket)));
            }
        }
        let rows = i64::try_from(plan.num_rows()).unwrap_or(-1);
        let bytes = i64::try_from(plan.num_rows().saturating_mul(plan.row_bytes())).unwrap_or(-1);
        let info = info.with_descriptor(descriptor).with_total_records(rows).with_total_bytes(bytes);
        let info = info.with_ordered(request.num_endpoints <= 1).with_app_metadata(plan.spec().to_json());
        Ok(Planned { info, spec_stored: Some(plan.spec_stored()), set_cookie: None })
    }

    fn stream_ticket(&self, plan: &StreamPlan, slice: Slice, read: Option<ReadPolicy>) -> StreamTicket {
        let spec = if plan.spec_stored() { Vec::new() } else { plan.spec().to_json() };
        StreamTicket { stream_id: plan.stream_id().to_string(), spec, slice: Some(slice), read }
    }

    async fn sql_info(&self, descriptor: FlightDescriptor, request: SqlRequest) -> Result<Planned> {
        let (params, options) =
            (params_from_json(&request.params_json)?, QueryOptions::approximate(request.approximate));
        let query = self.lake.query_with_options(&request.sql, &params, &[], options).await?;
        check_schema(&query.schema())?;
        let tables = query.snapshots().iter();
        let tables = tables.map(|s| PinnedTable { table: s.table.to_string(), version: s.version }).collect();
        compression_from_proto(&request.compression)?;
        let SqlRequest { params_json, compression, approximate, .. } = request;
        // The text has the queries of views in it, so that the answer has these columns although a view is replaced.
        let sql = query.sql().to_string();
        let ticket = SqlTicket { sql, params_json, tables, compression, approximate, ..SqlTicket::default() };
        let info = FlightInfo::new().try_with_schema(&query.schema()).map_err(Error::internal)?;
        let info = info.with_descriptor(descriptor).with_endpoint(self.endpoint(ticket_body::Kind::Sql(ticket)));
        // DoGet takes the plan.
        self.lake.keep(query);
        let info = info.with_total_records(-1).with_total_bytes(-1).with_ordered(true);
        Ok(Planned { info, spec_stored: None, set_cookie: None })
    }

    /// Makes an endpoint with a ticket, which is valid from now on.
    pub(crate) fn endpoint(&self, kind: ticket_body::Kind) -> FlightEndpoint {
        let now = self.now_unix_secs();
        let ticket = self.signer.sign(TicketBody { kind: Some(kind), ..TicketBody::default() }, now);
        FlightEndpoint {
            ticket: Some(Ticket { ticket: ticket.into() }),
            location: self.config.advertise.iter().map(|uri| Location { uri: uri.clone() }).collect(),
            expiration_time: Some(self.expiry(now)),
            app_metadata: Default::default(),
        }
    }

    /// Returns the time at which expires what is signed now.
    fn expiry(&self, now_unix_secs: u64) -> prost_types::Timestamp {
        let expires = now_unix_secs.saturating_add(self.signer.ttl().as_secs());
        prost_types::Timestamp { seconds: i64::try_from(expires).unwrap_or(i64::MAX), nanos: 0 }
    }
}

/// The error of a request for the answer to a write.
fn of_a_write() -> Error {
    Error::invalid("the descriptor is that of a write, whose rows are put by DoPut")
}

fn of_a_poll() -> Error {
    Error::invalid(
        "the descriptor is that of a poll: send it to PollFlightInfo, or the descriptor of the stream to GetFlightInfo",
    )
}
