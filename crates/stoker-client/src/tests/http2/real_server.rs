//! The client's HTTP/2 against hyper's server.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use stoker_net::http2::Patience;
use stoker_types::ErrorKind;
use stoker_wire::decode::BufferSlot;
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};

use crate::grpc::grpc_frame;
use crate::message_reader::MessageReader;
use crate::tests::http2::script::*;

/// The data frames of an answer, then its trailers.
struct Pieces(VecDeque<Frame<Bytes>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

fn pieces(bytes: &Bytes, sizes: &[usize], status: u16) -> Pieces {
    let mut rest = bytes.clone();
    let mut frames = VecDeque::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        frames.push_back(Frame::data(rest.split_to((*size).min(rest.len()))));
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(status));
    trailers.insert("grpc-message", HeaderValue::from_static("Any%20text, long enough for Huffman's code"));
    trailers.insert("some-number", HeaderValue::from_static("1234567890"));
    frames.push_back(Frame::trailers(trailers));
    Pieces(frames)
}

/// Reads the body of a request.
async fn collect(mut body: Incoming) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        bytes.extend(frame.expect("a request").into_data().expect("data"));
    }
    bytes
}

/// Connects to a server whose answer begins with a message that repeats the ticket. `messages` follows; the whole
/// answer comes in pieces whose sizes cycle through `sizes`.
async fn ask(ticket: &[u8], messages: Bytes, sizes: &[usize], status: u16) -> MessageReader {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("an address");
    let address = listener.local_addr().expect("an address");
    let sizes = sizes.to_vec();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        let answer = service_fn(move |request: Request<Incoming>| {
            let (messages, sizes) = (messages.clone(), sizes.clone());
            async move {
                assert_eq!(request.uri().path(), "/DoGet");
                assert_eq!(request.headers()["authorization"], "Bearer t");
                assert_eq!(request.headers()["te"], "trailers");
                let ticket = message(&collect(request.into_body()).await, b"", b"");
                let body = pieces(&[ticket, messages].concat().into(), &sizes, status);
                Ok::<_, Infallible>(
                    Response::builder().header("content-type", "application/grpc").body(body).expect("one"),
                )
            }
        });
        let server = http2::Builder::new(TokioExecutor::new());
        // Serving fails when the client closes the connection, which it does after the last message.
        server.serve_connection(TokioIo::new(stream), answer).await.ok();
    });
    let stream = TcpStream::connect(address).await.expect("a server");
    open(Box::new(stream), grpc_frame(ticket), Patience::default()).await.expect("an answer")
}

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 7)) as u8).collect()
}

#[test]
fn answers_of_any_shape_arrive_whole() {
    runtime().block_on(async {
        let bodies: Vec<Vec<u8>> = [3_000_000, 0, 1, 70_000, 2_000_000].map(body).into();
        let messages: Vec<u8> = bodies.iter().flat_map(|body| message(b"header", b"some metadata", body)).collect();
        let messages = Bytes::from(messages);
        for sizes in [&[5_000_000][..], &[1 << 20], &[16_384], &[1, 100_000, 7], &[900, 2_000_000]] {
            let ticket = vec![9; 300_000];
            let mut reader = ask(&ticket, messages.clone(), sizes, 0).await;
            let echoed = reader.next().await.expect("a message").expect("the ticket");
            assert_eq!(echoed.header, grpc_frame(&ticket));
            for body in &bodies {
                let head = reader.next().await.expect("a message").expect("a message");
                assert_eq!((&head.metadata[..], head.body_bytes), (&b"some metadata"[..], body.len()));
                let middle = body.len() / 4..body.len() / 2;
                let mut memory = vec![0; middle.len()];
                let rest =
                    reader.body(vec![BufferSlot { begin: middle.start, memory: &mut memory }]).await.expect("a body");
                assert!(memory == body[middle.clone()]);
                assert!(rest.slice(0..middle.start).expect("bytes") == body[..middle.start]);
                assert!(rest.slice(middle.end..body.len()).expect("bytes") == body[middle.end..]);
            }
            assert!(reader.next().await.expect("the end").is_none());
        }
    });
}

#[test]
fn trailers_carry_the_error() {
    runtime().block_on(async {
        let mut reader = ask(b"t", message(b"header", b"", &body(50_000)), &[20_000], 8).await;
        let error = drain(&mut reader).await.expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        assert_eq!(error.to_string(), "Any text, long enough for Huffman's code");
    });
}
