//! `GetFlightInfo`, `GetSchema` and `ListFlights`: from descriptors to schemas and tickets.

use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, Location, Ticket};
use arrow_schema::Schema;
use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;
use stoker_flight_sql::command_of;
use stoker_flight_sql::session_options::SessionCookie;
use stoker_session::{Error, Result};
use stoker_stream::StreamPlan;
use stoker_types::{Principal, QueryOptions, ReadOptions, SnapshotRef, TableName};
use stoker_wire::convert::{
    COMMAND_VERSION, compression_from_proto, endpoint_slice, params_from_json, policy_from_proto, slice_from_proto,
    slice_to_proto,
};
use stoker_wire::encode::check_schema;
use stoker_wire::proto::{
    Command, PinnedTable, ReadPolicy, Slice, SqlRequest, SqlTicket, StreamRequest, StreamTicket, TicketBody,
    command::Kind, ticket_body,
};

use crate::caller::Caller;
use crate::state::ServerState;

/// The maximum number of endpoints in a response.
const ENDPOINTS_MAX: u32 = 256;

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
            Kind::Stream(request) => self.stream_info(principal, descriptor, request).await,
            Kind::Sql(request) => self.sql_info(descriptor, request).await,
        }
    }

    pub(crate) async fn get_schema(&self, principal: &Principal, descriptor: FlightDescriptor) -> Result<Schema> {
        if let Some(command) = command_of(&descriptor.cmd)? {
            return self.flight_sql_schema(command).await;
        }
        let schema = match self.parse(&descriptor)? {
            Kind::Stream(request) => self.plan(principal, request.source).await?.schema(),
            Kind::Sql(request) => {
                self.lake.query(&request.sql, &params_from_json(&request.params_json)?).await?.schema()
            }
        };
        Ok(schema.as_ref().clone())
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
    ) -> Result<Planned> {
        let plan = self.plan(principal, request.source).await?;
        check_schema(&plan.schema())?;
        let mut info = FlightInfo::new().try_with_schema(&plan.schema()).map_err(Error::internal)?;
        if let Some(slice) = &request.slice {
            let slice = slice_from_proto(slice)?;
            plan.check_slice(&slice)?;
            policy_from_proto(request.read.as_ref(), ReadOptions::default())?;
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
        let info = info.with_total_records(-1).with_total_bytes(-1).with_ordered(true);
        Ok(Planned { info, spec_stored: None, set_cookie: None })
    }

    /// Makes an endpoint with a ticket, which is valid from now on.
    pub(crate) fn endpoint(&self, kind: ticket_body::Kind) -> FlightEndpoint {
        let now = self.now_unix_secs();
        let ticket = self.signer.sign(TicketBody { kind: Some(kind), ..TicketBody::default() }, now);
        let expires = now.saturating_add(self.signer.ttl().as_secs());
        FlightEndpoint {
            ticket: Some(Ticket { ticket: ticket.into() }),
            location: self.config.advertise.iter().map(|uri| Location { uri: uri.clone() }).collect(),
            expiration_time: Some(prost_types::Timestamp {
                seconds: i64::try_from(expires).unwrap_or(i64::MAX),
                nanos: 0,
            }),
            app_metadata: Default::default(),
        }
    }
}
