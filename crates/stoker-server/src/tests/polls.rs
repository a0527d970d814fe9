//! Streams that are planned in the background, for clients that poll them.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{
    Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightDescriptor, FlightInfo, PollInfo,
    Ticket,
};
use prost::Message;
use stoker_clock::{Clock, Environment, ManualClock};
use stoker_lake::{LakeStore, StorageOptions};
use stoker_sql::{Engine, EngineOptions, QueryLimits};
use stoker_types::{BatchSize, ErrorKind, LastBatch, Principal, PrincipalName, Role};
use stoker_wire::TicketSigner;
use stoker_wire::convert::{COMMAND_VERSION, slice_to_proto};
use stoker_wire::proto::{
    Command, SignedTicket, StreamQuery, StreamRequest, TicketBody, command::Kind, stream_request::Source, ticket_body,
};
use tokio::task::yield_now;
use tonic::codegen::http::{Extensions, HeaderMap};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::caller::Caller;
use crate::plan_cache::{POLL_WAIT, UNPOLLED_MAX};
use crate::state::ServerState;
use crate::tests::fixture::*;
use crate::{ServerConfig, TicketKey};

type Client = FlightServiceClient<Channel>;

/// An engine that runs one query at a time, so that a query that runs holds the plans of all streams.
async fn narrow_engine(lake: &TestLake) -> Engine {
    let lake = LakeStore::open(&lake.uri(), &StorageOptions::default()).await.expect("a lake");
    let query = QueryLimits { at_once: 1, ..QueryLimits::default() };
    Engine::new(lake, EngineOptions { query, ..EngineOptions::default() })
}

async fn client(server: &TestServer) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
    FlightServiceClient::new(endpoint.connect().await.expect("a connection"))
}

/// Returns the descriptor of a stream with two endpoints.
fn stream(sql: &str) -> FlightDescriptor {
    let request = StreamRequest {
        source: Some(Source::Query(StreamQuery { sql: sql.into(), ..StreamQuery::default() })),
        slice: Some(slice_to_proto(&slice(0, 1, BatchSize::PerRank(8), LastBatch::Pad))),
        num_endpoints: 2,
        ..StreamRequest::default()
    };
    let command = Command { version: COMMAND_VERSION, kind: Some(Kind::Stream(request)) };
    FlightDescriptor::new_cmd(command.encode_to_vec())
}

/// Returns the descriptor of a poll with these bytes in place of those that a server signed.
fn poll_with(signed: Vec<u8>) -> FlightDescriptor {
    let command = Command { version: COMMAND_VERSION, kind: Some(Kind::Poll(signed)) };
    FlightDescriptor::new_cmd(command.encode_to_vec())
}

/// Returns what a server signed for the next poll.
fn signed(poll: &PollInfo) -> Vec<u8> {
    let descriptor = poll.flight_descriptor.clone().expect("a descriptor");
    match Command::decode(descriptor.cmd).expect("a command").kind {
        Some(Kind::Poll(signed)) => signed,
        kind => panic!("{kind:?} is no poll"),
    }
}

async fn poll(client: &mut Client, descriptor: FlightDescriptor) -> Result<PollInfo, Status> {
    Ok(client.poll_flight_info(descriptor).await?.into_inner())
}

/// Polls with the descriptor of the last answer.
async fn next(client: &mut Client, last: &PollInfo) -> Result<PollInfo, Status> {
    poll(client, last.flight_descriptor.clone().expect("a descriptor")).await
}

/// Begins to poll a stream while a query runs, and polls until the plan waits for that query.
async fn begin(client: &mut Client, engine: &Engine, sql: &str) -> PollInfo {
    let mut last = poll(client, stream(sql)).await.expect("an answer");
    while engine.queue_status().waiting == 0 {
        last = next(client, &last).await.expect("an answer");
    }
    next(client, &last).await.expect("an answer")
}

/// Polls until the stream is planned. Checks that no progress is less than an earlier one.
async fn finish(client: &mut Client, mut last: PollInfo) -> Result<FlightInfo, Status> {
    for _ in 0..10_000 {
        if last.flight_descriptor.is_none() {
            assert_eq!((last.progress, &last.expiration_time), (Some(1.0), &None));
            return Ok(last.info.expect("a FlightInfo"));
        }
        check_unfinished(&last);
        let before = last.progress.unwrap_or(0.0);
        last = next(client, &last).await?;
        assert!(last.progress.unwrap_or(0.0) >= before, "{before}, then {:?}", last.progress);
    }
    panic!("the stream was never planned")
}

fn check_unfinished(poll: &PollInfo) {
    assert!(poll.progress.is_none_or(|progress| (0.0..1.0).contains(&progress)), "{:?}", poll.progress);
    assert!(poll.expiration_time.is_some());
    let info = poll.info.as_ref().expect("a FlightInfo");
    assert_eq!((info.endpoint.len(), &info.flight_descriptor), (0, &poll.flight_descriptor));
}

/// Checks that two FlightInfos are the same, except that their tickets may expire at different times.
fn assert_same_info(found: &FlightInfo, expected: &FlightInfo) {
    let tickets = |info: &FlightInfo| {
        let tickets = info.endpoint.iter().map(|endpoint| {
            let ticket = endpoint.ticket.clone().expect("a ticket").ticket;
            let body = SignedTicket::decode(ticket).expect("a ticket").body;
            TicketBody::decode(body.as_slice()).expect("a body").kind
        });
        tickets.collect::<Vec<Option<ticket_body::Kind>>>()
    };
    assert_eq!(tickets(found), tickets(expected));
    assert_eq!(found.endpoint.len(), 2);
    let without_endpoints = |info: &FlightInfo| FlightInfo { endpoint: Vec::new(), ..info.clone() };
    assert_eq!(without_endpoints(found), without_endpoints(expected));
}

/// Waits until a number of queries wait for one that runs.
async fn until_waiting(engine: &Engine, number: u64) {
    while engine.queue_status().waiting != number {
        yield_now().await;
    }
}

#[test]
fn polls_tell_the_progress_and_then_what_get_flight_info_tells() {
    run(async {
        let lake = TestLake::new(2_000).await;
        let engine = narrow_engine(&lake).await;
        let server = TestServer::start_with(engine.clone(), config()).await;
        let mut client = client(&server).await;
        let running = engine.query("SELECT id FROM t", &[]).await.expect("a query").execute().await.expect("rows");
        let first = begin(&mut client, &engine, ALL).await;
        check_unfinished(&first);
        assert_eq!(first.progress, Some(0.0), "no row was selected");
        drop(running);
        let found = finish(&mut client, first.clone()).await.expect("a plan");
        let expected = client.get_flight_info(stream(ALL)).await.expect("a plan").into_inner();
        assert_same_info(&found, &expected);
        // The server forgot the plan when it was told, and a poll that is repeated plans again.
        let again = next(&mut client, &first).await.expect("an answer");
        assert_same_info(&finish(&mut client, again).await.expect("a plan"), &expected);
        // A stream that is planned within the first poll needs no other.
        let mut polls = 0;
        while poll(&mut client, stream(ALL)).await.expect("an answer").flight_descriptor.is_some() {
            polls += 1;
            assert!(polls < 100, "no first poll was enough");
        }
    });
}

#[test]
fn errors_of_a_plan_are_those_of_get_flight_info() {
    run(async {
        let lake = TestLake::new(100).await;
        let engine = narrow_engine(&lake).await;
        let server = TestServer::start_with(engine.clone(), config()).await;
        let mut client = client(&server).await;
        let sql = "SELECT x, id FROM t WHERE 10 / id > 1";
        let running = engine.query("SELECT id FROM t", &[]).await.expect("a query").execute().await.expect("rows");
        let first = begin(&mut client, &engine, sql).await;
        drop(running);
        let found = finish(&mut client, first).await.expect_err("id is 0 in a row");
        let expected = client.get_flight_info(stream(sql)).await.expect_err("id is 0 in a row");
        assert_eq!((found.code(), found.message()), (expected.code(), expected.message()));
        let found = match poll(&mut client, stream("SELECT * FROM missing")).await {
            Ok(first) => finish(&mut client, first).await.map(|_| ()),
            Err(error) => Err(error),
        };
        assert_eq!(found.expect_err("no table").code(), Code::NotFound);
    });
}

#[test]
fn another_replica_goes_on_and_forged_descriptors_are_refused() {
    run(async {
        let lake = TestLake::new(500).await;
        let engine = narrow_engine(&lake).await;
        let first = TestServer::start_with(engine.clone(), config()).await;
        let second = TestServer::start(&lake, config()).await;
        let other_key = TicketKey { id: "other".into(), secret: "another secret of enough bytes".into() };
        let stranger = TestServer::start(&lake, ServerConfig { ticket_keys: vec![other_key], ..config() }).await;
        let (mut here, mut there) = (client(&first).await, client(&second).await);
        let _running = engine.query("SELECT id FROM t", &[]).await.expect("a query").execute().await.expect("rows");
        let begun = begin(&mut here, &engine, ALL).await;
        let found = finish(&mut there, begun.clone()).await.expect("a plan");
        let expected = there.get_flight_info(stream(ALL)).await.expect("a plan").into_inner();
        assert_same_info(&found, &expected);

        let ticket = found.endpoint[0].ticket.clone().expect("a ticket").ticket.to_vec();
        let mut changed = signed(&begun);
        *changed.last_mut().expect("bytes") ^= 1;
        for (descriptor, code, part) in [
            (poll_with(changed), Code::Unauthenticated, "its signature does not fit"),
            (poll_with(b"forged".to_vec()), Code::Unauthenticated, "it is not a ticket of Stoker"),
            (poll_with(ticket), Code::Unauthenticated, "it is a ticket"),
        ] {
            let error = poll(&mut there, descriptor).await.expect_err(part);
            assert_eq!(error.code(), code, "{error}");
            assert!(error.message().starts_with("the descriptor of the poll is not valid: "), "{error}");
            assert!(error.message().contains(part), "{error}");
        }
        let error = next(&mut client(&stranger).await, &begun).await.expect_err("a key that the server does not have");
        assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
        let descriptor = begun.flight_descriptor.clone().expect("a descriptor");
        let error = there.get_flight_info(descriptor.clone()).await.expect_err("it is not for GetFlightInfo");
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        let error = there.get_schema(descriptor).await.expect_err("it is not for GetSchema");
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        let error = there.do_get(Ticket::new(signed(&begun))).await.map(|_| ()).expect_err("it is no ticket");
        assert_eq!(error.code(), Code::Unauthenticated, "{error}");
    });
}

#[test]
fn a_cancelled_plan_stops_and_gives_its_permits_back() {
    run(async {
        let lake = TestLake::new(500).await;
        let engine = narrow_engine(&lake).await;
        let server = TestServer::start_with(engine.clone(), ServerConfig { streams_max: 1, ..config() }).await;
        let mut client = client(&server).await;
        let cancel = async |client: &mut Client, poll: &PollInfo| {
            let body = CancelFlightInfoRequest { info: poll.info.clone() }.encode_to_vec();
            let answer = client.do_action(Action::new("CancelFlightInfo", body)).await?.into_inner().message().await?;
            let result = CancelFlightInfoResult::decode(answer.expect("a result").body).expect("a result");
            Ok::<_, Status>(result.status())
        };
        let running = engine.query("SELECT id FROM t", &[]).await.expect("a query").execute().await.expect("rows");
        let begun = begin(&mut client, &engine, ALL).await;
        let error = poll(&mut client, stream(ALL)).await.expect_err("one plan is being polled");
        assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
        assert!(error.message().contains("1 for this server") && error.message().contains("GetFlightInfo"), "{error}");

        assert_eq!(cancel(&mut client, &begun).await.expect("an answer"), CancelStatus::Cancelled);
        until_waiting(&engine, 0).await;
        let error = next(&mut client, &begun).await.expect_err("the plan was cancelled");
        assert_eq!(error.code(), Code::Cancelled, "{error}");
        assert_eq!(cancel(&mut client, &begun).await.expect("an answer"), CancelStatus::NotCancellable);
        let forged = PollInfo {
            info: Some(FlightInfo::new().with_descriptor(poll_with(b"forged".to_vec()))),
            ..PollInfo::default()
        };
        let error = cancel(&mut client, &forged).await.expect_err("a forged descriptor");
        assert_eq!(error.code(), Code::Unauthenticated, "{error}");

        let another = begin(&mut client, &engine, ALL).await;
        drop(running);
        finish(&mut client, another).await.expect("a plan");
    });
}

/// A server whose clock stands, without connections.
fn state(engine: Engine, time: &ManualClock) -> Arc<ServerState> {
    let keys = vec![("test".to_string(), b"a secret of enough bytes".to_vec())];
    let signer = TicketSigner::try_new(keys, Duration::from_secs(3_600)).expect("a key");
    let environment = Environment { clock: Clock::from(time), ..Environment::default() };
    Arc::new(ServerState::try_new(engine, config(), signer, None, environment).expect("a server"))
}

fn reader(name: &str) -> Principal {
    Principal { name: PrincipalName::try_new(name).expect("a name"), role: Role::Read }
}

/// Polls a server whose clock stands, and moves the clock by the longest wait of a poll.
async fn poll_by_clock(
    state: &Arc<ServerState>,
    time: &ManualClock,
    descriptor: &FlightDescriptor,
) -> Result<PollInfo, Status> {
    let anna = reader("anna");
    let begun = state.poll_of(&anna, descriptor).expect("a good descriptor").expect("a poll of a stream");
    let caller = Caller::of(&Extensions::new(), &HeaderMap::new());
    let polled = state.poll_stream(caller, &anna, begun);
    tokio::join!(polled, async { time.advance(POLL_WAIT) }).0
}

#[test]
fn a_plan_that_nobody_polls_is_given_up_and_begins_again() {
    run(async {
        let (lake, time) = (TestLake::new(500).await, ManualClock::new());
        let engine = narrow_engine(&lake).await;
        let state = state(engine.clone(), &time);
        let running = engine.query("SELECT id FROM t", &[]).await.expect("a query").execute().await.expect("rows");
        let first = poll_by_clock(&state, &time, &stream(ALL)).await.expect("an answer");
        until_waiting(&engine, 1).await;
        // The time counts from the last poll.
        time.advance(UNPOLLED_MAX - 2 * POLL_WAIT);
        let descriptor = first.flight_descriptor.expect("a descriptor");
        let second = poll_by_clock(&state, &time, &descriptor).await.expect("an answer");
        assert_eq!((second.progress, engine.queue_status().waiting), (Some(0.0), 1));
        time.advance(UNPOLLED_MAX);
        until_waiting(&engine, 0).await;
        let mut running = Some(running);
        let mut last = second;
        while let Some(descriptor) = &last.flight_descriptor {
            last = poll_by_clock(&state, &time, descriptor).await.expect("an answer");
            if engine.queue_status().waiting == 1 {
                running = None;
            }
        }
        assert!(running.is_none(), "the plan waited for the query again");
        assert_eq!(last.info.expect("a FlightInfo").endpoint.len(), 2);
    });
}

#[test]
fn descriptors_are_for_their_principal_and_expire() {
    run(async {
        let (lake, time) = (TestLake::new(500).await, ManualClock::new());
        let engine = narrow_engine(&lake).await;
        let state = state(engine.clone(), &time);
        let _running = engine.query("SELECT id FROM t", &[]).await.expect("a query").execute().await.expect("rows");
        let poll = poll_by_clock(&state, &time, &stream(ALL)).await.expect("an answer");
        let descriptor = poll.flight_descriptor.expect("a descriptor");
        let refused = |name: &str| state.poll_of(&reader(name), &descriptor).map(|_| ()).expect_err("refused");
        assert_eq!(refused("ben").kind(), ErrorKind::PermissionDenied);
        assert!(state.poll_of(&reader("anna"), &descriptor).expect("a good descriptor").is_some());
        let expires = poll.expiration_time.expect("a time").seconds;
        assert_eq!(u64::try_from(expires), Ok(state.now_unix_secs() + 3_600));
        time.advance(Duration::from_secs(3_600));
        let error = refused("anna");
        assert_eq!(error.kind(), ErrorKind::Expired);
        assert!(error.to_string().starts_with("the descriptor of the poll is no longer valid: it expired"), "{error}");
    });
}
