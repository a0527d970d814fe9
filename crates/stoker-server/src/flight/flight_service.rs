//! The methods of the Flight service: each delegates to the file that does its work.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaAsIpc, SchemaResult, Ticket,
};
use arrow_ipc::writer::IpcWriteOptions;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use stoker_clock::Clock;
use stoker_flight_sql::session_options::SessionCookie;
use stoker_flight_sql::{command_of, token_of};
use stoker_session::{Error, Result};
use stoker_types::calls::{Call, ExecuteStatement, VerifyReceipts};
use stoker_types::{Context, Principal};
use stoker_wire::protocol::SPEC_STORED;
use tonic::codegen::http::header::{AUTHORIZATION, COOKIE, SET_COOKIE};
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status, Streaming};

use crate::caller::Caller;
use crate::flight::do_action::action_types;
use crate::flight::do_get::do_get;
use crate::flight::get_flight_info::Planned;
use crate::flight::status::status;
use crate::flight_sql::is_action;
use crate::request_id::RequestId;
use crate::state::ServerState;

/// The maximum size in bytes of a request that is parsed on a thread that serves connections, which takes less than a
/// millisecond.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// The header that carries the time for which a gRPC client waits.
const GRPC_TIMEOUT: &str = "grpc-timeout";

type Stream<T> = BoxStream<'static, Result<T, Status>>;

/// The Flight service of one server.
pub(crate) struct StokerFlightService(pub Arc<ServerState>);

impl StokerFlightService {
    /// Runs work on the query threads if it `computes`, and on the current task otherwise.
    async fn run<T: Send + 'static>(&self, computes: bool, work: BoxFuture<'static, Result<T>>) -> Result<T> {
        match computes {
            true => self.0.query_threads.run(work).await,
            false => work.await,
        }
    }

    async fn planned(&self, request: Request<FlightDescriptor>) -> Result<Planned> {
        let (state, asking, cookie) = (self.0.clone(), principal(&request)?, cookie(&request));
        let caller = Caller::of(request.extensions(), request.metadata().as_ref());
        let descriptor = request.into_inner();
        let computes = computes(&descriptor);
        let planned = async move { state.get_flight_info(caller, &asking, cookie.as_ref(), descriptor).await };
        self.run(computes, planned.boxed()).await
    }
}

#[tonic::async_trait]
impl FlightService for StokerFlightService {
    type HandshakeStream = Stream<HandshakeResponse>;
    type ListFlightsStream = Stream<FlightInfo>;
    type DoGetStream = Stream<FlightData>;
    type DoPutStream = Stream<PutResult>;
    type DoExchangeStream = Stream<FlightData>;
    type DoActionStream = Stream<arrow_flight::Result>;
    type ListActionsStream = Stream<ActionType>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        // The request was authenticated already. Drivers send a token as the password of basic authentication, and take
        // the header of their later requests from the answer.
        let given = request.metadata().get(AUTHORIZATION.as_str()).and_then(|value| value.to_str().ok());
        let mut response = Response::new(stream::iter([Ok(HandshakeResponse::default())]).boxed());
        let bearer = given.and_then(token_of).map(|token| format!("Bearer {token}"));
        if let Some(Ok(value)) = bearer.as_deref().or(given).map(MetadataValue::try_from) {
            response.metadata_mut().insert(AUTHORIZATION.as_str(), value);
        }
        Ok(response)
    }

    async fn list_flights(&self, _request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        let infos = self.0.list_flights().await.map_err(status)?;
        Ok(Response::new(stream::iter(infos.into_iter().map(Ok)).boxed()))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        let planned = self.planned(request).await.map_err(status)?;
        let mut response = with_cookie(Response::new(planned.info), planned.set_cookie);
        if let Some(stored) = planned.spec_stored {
            let value = MetadataValue::from_static(if stored { "true" } else { "false" });
            response.metadata_mut().insert(SPEC_STORED, value);
        }
        Ok(response)
    }

    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        let asking = principal(&request).map_err(status)?;
        if let Some(poll) = self.0.poll_of(&asking, request.get_ref()).map_err(status)? {
            let caller = Caller::of(request.extensions(), request.metadata().as_ref());
            return Ok(Response::new(self.0.poll_stream(caller, &asking, poll).await?));
        }
        let planned = self.planned(request).await.map_err(status)?;
        let answer = Response::new(PollInfo {
            info: Some(planned.info),
            flight_descriptor: None,
            progress: Some(1.0),
            expiration_time: None,
        });
        Ok(with_cookie(answer, planned.set_cookie))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let (state, asking, descriptor) = (self.0.clone(), principal(&request).map_err(status)?, request.into_inner());
        let computes = computes(&descriptor);
        let schema = self
            .run(computes, async move { state.get_schema(&asking, descriptor).await }.boxed())
            .await
            .map_err(status)?;
        let result = SchemaAsIpc::new(&schema, &IpcWriteOptions::default()).try_into().map_err(Error::internal);
        Ok(Response::new(result.map_err(status)?))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let (asking, caller) =
            (principal(&request).map_err(status)?, Caller::of(request.extensions(), request.metadata().as_ref()));
        Ok(Response::new(
            do_get(self.0.clone(), caller, &asking, &request.into_inner().ticket).await.map_err(status)?.boxed(),
        ))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        let asking = principal(&request).map_err(status)?;
        let caller = Caller::of(request.extensions(), request.metadata().as_ref());
        let result = self.0.clone().do_put(caller, asking, request.into_inner()).await.map_err(status)?;
        Ok(Response::new(stream::iter([Ok(result)]).boxed()))
    }

    async fn do_exchange(
        &self,
        _request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(unsupported("DoExchange; use DoGet"))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let context = context(&request, &self.0.environment.clock).map_err(status)?;
        if request.get_ref().r#type == ExecuteStatement::NAME {
            let caller = Caller::of(request.extensions(), request.metadata().as_ref());
            let executing = self.0.clone().execute_action(caller, context, request.into_inner().body);
            return Ok(Response::new(executing.await.map_err(status)?));
        }
        let (cookie, action) = (cookie(&request), request.into_inner());
        if let Some(done) = self.0.session_action(&action.r#type, cookie.as_ref(), &action.body).map_err(status)? {
            let answer = stream::iter([Ok(arrow_flight::Result { body: done.body })]).boxed();
            return Ok(with_cookie(Response::new(answer), done.set_cookie));
        }
        let computes = action.body.len() > SMALL_BYTES_MAX || action.r#type == VerifyReceipts::NAME;
        let state = self.0.clone();
        if is_action(&action.r#type) {
            let asking = context.principal;
            let done = async move { state.flight_sql_action(&asking, &action.r#type, action.body).await };
            let body = self.run(computes, done.boxed()).await.map_err(status)?;
            return Ok(Response::new(stream::iter(body.map(|body| Ok(arrow_flight::Result { body }))).boxed()));
        }
        let done = async move { state.do_action(&context, &action.r#type, &action.body).await };
        let body = self.run(computes, done.boxed()).await.map_err(status)?;
        let result = arrow_flight::Result { body: body.into() };
        Ok(Response::new(stream::iter([Ok(result)]).boxed()))
    }

    async fn list_actions(&self, _request: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        Ok(Response::new(stream::iter(action_types().into_iter().map(Ok)).boxed()))
    }
}

/// Returns whether a descriptor is parsed on the query threads: a large one, and one of Flight SQL, whose handle may name
/// large parameters.
fn computes(descriptor: &FlightDescriptor) -> bool {
    descriptor.cmd.len() > SMALL_BYTES_MAX || !matches!(command_of(&descriptor.cmd), Ok(None))
}

/// Returns the principal that [`StokerService`](crate::flight::service::StokerService) found for a request.
fn principal<T>(request: &Request<T>) -> Result<Principal, Error> {
    let found = request.extensions().get::<Principal>();
    found.cloned().ok_or_else(|| Error::internal("a request was not checked"))
}

/// The context of a request: who asks, until when, and its name in logs.
fn context<T>(request: &Request<T>, clock: &Clock) -> Result<Context, Error> {
    let deadline = request.metadata().get(GRPC_TIMEOUT).and_then(|value| value.to_str().ok()).and_then(timeout);
    let deadline = deadline.map(|timeout| clock.now() + timeout);
    let trace = RequestId::current().map(|id| id.to_string().into());
    Ok(Context { principal: principal(request)?, deadline, trace })
}

/// The value of the header `grpc-timeout`: at most eight digits and a unit, as in gRPC's PROTOCOL-HTTP2.
fn timeout(value: &str) -> Option<Duration> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// Returns the cookie of the session that a request belongs to.
fn cookie<T>(request: &Request<T>) -> Option<SessionCookie> {
    let headers = request.metadata().get_all(COOKIE.as_str()).iter();
    SessionCookie::of(headers.filter_map(|value| value.to_str().ok()))
}

/// Adds the header `set-cookie`.
fn with_cookie<T>(mut response: Response<T>, set_cookie: Option<String>) -> Response<T> {
    if let Some(Ok(value)) = set_cookie.map(MetadataValue::try_from) {
        response.metadata_mut().insert(SET_COOKIE.as_str(), value);
    }
    response
}

fn unsupported(what: &str) -> Status {
    Status::unimplemented(format!("this server does not support {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_those_of_grpc() {
        for (value, timeout_wanted) in [
            ("5S", Some(Duration::from_secs(5))),
            ("100m", Some(Duration::from_millis(100))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("1n", Some(Duration::from_nanos(1))),
            ("S", None),
            ("", None),
            ("123456789S", None),
            ("+5S", None),
            ("5s", None),
            ("5é", None),
        ] {
            assert_eq!(timeout(value), timeout_wanted, "{value:?}");
        }
    }
}
