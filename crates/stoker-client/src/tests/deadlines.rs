//! The deadlines of calls, which travel in the header `grpc-timeout`.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use stoker_clock::{Clock, Environment, ManualClock};
use stoker_session::{Connection, Error, Patience};
use stoker_types::calls::{Answers, ListTables, TagVersion};
use stoker_types::{Context, ErrorKind, Moment};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::codegen::http::{Request, Response};

use crate::{ClientOptions, connect_in, open};

/// The header `grpc-timeout` of a request.
type Timeout = Option<String>;

/// Tells the timeout of a request. A request that has one gets no answer; the others are refused.
async fn answer(request: Request<Incoming>, asked: UnboundedSender<Timeout>) -> Result<Response<String>, Infallible> {
    let timeout = request.headers().get("grpc-timeout").map(|value| value.to_str().expect("ASCII").to_string());
    asked.send(timeout.clone()).expect("the test listens");
    if timeout.is_some() {
        return pending().await;
    }
    let refused = Response::builder().header("content-type", "application/grpc").header("grpc-status", "3");
    Ok(refused.body(String::new()).expect("an answer"))
}

/// Starts a server whose requests [`answer`] handles. Returns its URL.
async fn server() -> (String, UnboundedReceiver<Timeout>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("an address");
    let url = format!("grpc://{}", listener.local_addr().expect("an address"));
    let (sender, asked) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            let service = service_fn(move |request| answer(request, sender.clone()));
            tokio::spawn(async move {
                let server = http2::Builder::new(TokioExecutor::new());
                server.serve_connection(TokioIo::new(stream), service).await.ok();
            });
        }
    });
    (url, asked)
}

fn until(deadline: Moment) -> Context {
    Context { deadline: Some(deadline), ..Context::local() }
}

fn check(error: Error) {
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(error.to_string(), "action tables was cancelled: the deadline of the request passed");
}

#[tokio::test]
async fn servers_learn_the_deadlines_of_calls_that_may_be_repeated() {
    let (url, mut asked) = server().await;
    let (time, hour) = (ManualClock::new(), Duration::from_secs(3_600));
    let environment = Environment { clock: Clock::from(&time), ..Environment::default() };
    let connection = connect_in(&url, &ClientOptions::default(), environment).await.expect("a server");
    let in_an_hour = until(time.now() + hour);
    let mut answer = pin!(connection.answer(&in_an_hour, ListTables {}));
    let timeout = tokio::select! {
        timeout = asked.recv() => timeout.expect("a request"),
        _ = answer.as_mut() => unreachable!("the server does not answer"),
    };
    assert_eq!(timeout.as_deref(), Some("3600000m"));
    time.advance(hour);
    check(answer.await.expect_err("the deadline passed"));
    // A write that was begun is finished, also by the server.
    let tag = TagVersion { table: Some("t".into()), new_tag: "kept".into(), ..TagVersion::default() };
    let refused = connection.answer(&in_an_hour, tag).await.expect_err("the server refuses it");
    assert_eq!((refused.kind(), asked.recv().await), (ErrorKind::InvalidRequest, Some(None)));
}

#[tokio::test]
async fn the_end_of_a_call_at_its_deadline_is_worded_as_servers_do() {
    let (url, _asked) = server().await;
    let lake = open(&url, &ClientOptions::default(), Patience::new(Duration::ZERO)).expect("an address");
    let late = until(Clock::default().now());
    // The timer of the channel ends this call.
    check(lake.answer(&late, ListTables {}).await.expect_err("the deadline passed"));
    // Other calls without a deadline use the same server.
    let refused = Connection::new(lake).call(ListTables {}).await.expect_err("the server refuses it");
    assert_eq!(refused.kind(), ErrorKind::InvalidRequest);
}
