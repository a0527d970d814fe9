//! The HTTP service: authenticates and authorizes every Flight request, handles `DoGet` itself and passes the other
//! methods, and the other services, to tonic.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::Ticket;
use arrow_flight::flight_service_server::FlightServiceServer;
use futures::future::BoxFuture;
use prost::Message;
use stoker_clock::Environment;
use stoker_session::{Error, Result};
use stoker_types::Principal;
use stoker_wire::protocol::{self, DO_GET_PATH, MESSAGE_BYTES_MAX, SERVICE};
use tonic::body::Body;
use tonic::codec::{DecodeBuf, Decoder};
use tonic::codegen::Service;
use tonic::codegen::http::header::CONTENT_TYPE;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tonic::service::Routes;
use tonic::{Code, Status, Streaming};
use tracing::Instrument;

use crate::auth::{Authenticator, ClientCertificate, check_role, role_of_method};
use crate::caller::Caller;
use crate::edge::{Peer, ResponseBody};
use crate::flight::answer_body::AnswerBody;
use crate::flight::do_get::do_get;
use crate::flight::flight_service::StokerFlightService;
use crate::flight::status::status;
use crate::metrics::Method;
use crate::request_id::{REQUEST_ID, RequestId};
use crate::state::ServerState;

/// The timeout for the ticket of a DoGet, from the headers of the request on.
const TICKET_TIMEOUT: Duration = Duration::from_secs(30);

/// The HTTP service of one server.
#[derive(Clone)]
pub(crate) struct StokerService {
    state: Arc<ServerState>,
    flight: FlightServiceServer<StokerFlightService>,
    authenticator: Arc<Authenticator>,
    /// The services beside Flight, which anyone may ask: whether the server is healthy.
    others: Routes,
}

impl StokerService {
    pub fn new(state: Arc<ServerState>, authenticator: Arc<Authenticator>, others: Routes) -> Self {
        let flight = FlightServiceServer::new(StokerFlightService(state.clone()))
            .max_decoding_message_size(state.config.request_bytes_max)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Self { state, flight, authenticator, others }
    }

    /// Returns the principal of a request, if its role allows the method.
    fn check(&self, request: &Request<Body>) -> Result<Principal> {
        if self.state.stopping.is_cancelled() {
            return Err(Error::Stopping);
        }
        let certificate = request.extensions().get::<ClientCertificate>();
        let principal = self.authenticator.principal(request.headers(), certificate, self.state.now_unix_secs())?;
        let path = request.uri().path();
        check_role(&principal, role_of_method(path), path.rsplit('/').next().unwrap_or_default())?;
        Ok(principal)
    }

    /// Responds to a request.
    pub fn respond(&self, request: Request<Body>) -> BoxFuture<'static, Response<ResponseBody>> {
        if !is_of_flight(request.uri().path()) {
            let responding = self.others.clone().call(request);
            return Box::pin(async move {
                let Ok(response) = responding.await;
                ResponseBody::of_tonic(response)
            });
        }
        let Environment { clock, random } = &self.state.environment;
        let (begun, method) = (clock.now(), Method::of(request.uri().path()));
        let id = RequestId::of(request.headers(), random);
        let (state, span) = (self.state.clone(), tracing::info_span!("request", %id, ?method));
        let checked = self.check(&request);
        if let Some(peer) = request.extensions().get::<Arc<Peer>>() {
            match &checked {
                Ok(_) | Err(Error::Forbidden { .. }) => peer.prove(),
                Err(Error::Unauthenticated { .. }) => peer.refuse(),
                Err(_) => {}
            }
        }
        let answering = match checked {
            Err(error) => Box::pin(async move { status(error).into_http() }),
            Ok(principal) => self.answer(request, principal),
        };
        let answered = async move {
            let mut response = id.clone().scope(answering).await;
            state.metrics.answered(method, code(&response), state.environment.clock.since(begun));
            if let Some(value) = id.to_header() {
                response.headers_mut().insert(REQUEST_ID, value);
            }
            response
        };
        Box::pin(answered.instrument(span))
    }

    fn answer(&self, mut request: Request<Body>, principal: Principal) -> BoxFuture<'static, Response<ResponseBody>> {
        request.extensions_mut().insert(principal.clone());
        let state = self.state.clone();
        if request.uri().path() == DO_GET_PATH {
            return Box::pin(async move {
                let answered = answer(state.clone(), request, &principal).await;
                answered.unwrap_or_else(|status| state.place_filter.status(status).into_http())
            });
        }
        let answering = self.flight.clone().call(request);
        Box::pin(async move {
            let Ok(response) = answering.await;
            ResponseBody::of_tonic(state.place_filter.response(response))
        })
    }
}

/// Returns whether a path is that of a method of Flight.
fn is_of_flight(path: &str) -> bool {
    let method = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE));
    method.is_some_and(|method| method.starts_with('/'))
}

/// Returns the gRPC code of a response. A response with a body counts as OK, even if its trailers carry an error later.
fn code(response: &Response<ResponseBody>) -> Code {
    let status = response.headers().get(Status::GRPC_STATUS);
    status.map_or(Code::Ok, |status| Code::from_bytes(status.as_bytes()))
}

/// Responds to `DoGet` with a body of segments, which tonic's codec would copy.
async fn answer(
    state: Arc<ServerState>,
    request: Request<Body>,
    principal: &Principal,
) -> Result<Response<ResponseBody>, Status> {
    let request_bytes_max = Some(state.config.request_bytes_max);
    let caller = Caller::of(request.extensions(), request.headers());
    let mut tickets = Streaming::new_request(TicketDecoder, request.into_body(), None, request_bytes_max);
    let ticket = state.environment.clock.timeout(TICKET_TIMEOUT, tickets.message()).await;
    let ticket = ticket.ok_or_else(|| Error::invalid("the ticket of the request did not arrive in time"));
    let ticket = ticket.map_err(status)??;
    let ticket = ticket.ok_or_else(|| status(Error::invalid("the request has no ticket")))?;
    let answer = do_get(state.clone(), caller, principal, &ticket.ticket).await.map_err(status)?;
    let mut response = Response::new(ResponseBody::new(AnswerBody::new(answer, state.config.message_bytes)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(protocol::CONTENT_TYPE));
    Ok(response)
}

struct TicketDecoder;

impl Decoder for TicketDecoder {
    type Item = Ticket;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Ticket>, Status> {
        let invalid = |_| status(stoker_wire::Error::InvalidTicket { reason: "the request holds no ticket" });
        Ok(Some(Ticket::decode(bytes).map_err(invalid)?))
    }
}
