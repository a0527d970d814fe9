//! Servers that send nothing.

use std::time::Duration;

use stoker_net::http2::Patience;
use stoker_types::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::grpc::grpc_frame;
use crate::tests::http2::script::*;

const MOMENT: Duration = Duration::from_millis(30);

#[test]
fn a_silent_server_is_asked_whether_it_lives() {
    runtime().block_on(async {
        let socket = Socket::new(Script::answer(), &[100], End::Wait);
        let written = socket.written();
        let patience = Patience { ping: MOMENT, silence_max: None };
        let mut reader = open(Box::new(socket), grpc_frame(b"ticket"), patience).await.expect("an answer");
        let error = reader.next().await.expect_err("nobody answers");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("the server sent no data for "), "{error}");
        let pings = frames(&written.lock()).into_iter().filter(|frame| (frame.0, frame.1) == (PING, 0)).count();
        assert_eq!(pings, 1);
        assert_eq!(reader.next().await.expect_err("the answer is over").kind(), ErrorKind::Unavailable);
    });
}

/// A server that answers pings and sends nothing else.
async fn echo_pings(mut peer: tokio::io::DuplexStream) {
    let mut preface = [0; 24];
    peer.read_exact(&mut preface).await.expect("the preface");
    peer.write_all(&Script::answer().0).await.expect("a client");
    let mut head = [0; 9];
    while peer.read_exact(&mut head).await.is_ok() {
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        peer.read_exact(&mut payload).await.expect("a payload");
        if head[3] == PING && peer.write_all(&Script::default().frame(PING, ACK, 0, &payload).0).await.is_err() {
            return;
        }
    }
}

#[test]
fn a_server_that_only_answers_pings_is_gone_after_a_while() {
    runtime().block_on(async {
        let (io, peer) = tokio::io::duplex(1 << 10);
        tokio::spawn(echo_pings(peer));
        let patience = Patience { ping: MOMENT, silence_max: None };
        let mut reader = open(Box::new(io), grpc_frame(b"ticket"), patience).await.expect("an answer");
        let waits = tokio::time::timeout(10 * MOMENT, reader.next()).await;
        assert!(waits.is_err(), "it lives");
        let (io, peer) = tokio::io::duplex(1 << 10);
        tokio::spawn(echo_pings(peer));
        let mut reader = open(Box::new(io), grpc_frame(b"ticket"), patience).await.expect("an answer");
        reader.set_silence_max(5 * MOMENT);
        let error = tokio::time::timeout(200 * MOMENT, reader.next()).await.expect("an end").expect_err("no data");
        assert!(error.to_string().contains("the server sent no data for "), "{error}");
    });
}

#[test]
fn an_answer_that_was_given_up_stays_so() {
    runtime().block_on(async {
        let script = Script::answer().data(&message(b"header", b"", &[1; 100])[..50]);
        let socket = Socket::new(script, &[1_000], End::Wait);
        let mut reader = open(Box::new(socket), grpc_frame(b"ticket"), Patience::default()).await.expect("an answer");
        reader.next().await.expect("a message").expect("a message");
        assert!(tokio::time::timeout(MOMENT, reader.body(Vec::new())).await.is_err(), "half of it is missing");
        assert_eq!(reader.body(Vec::new()).await.expect_err("given up").kind(), ErrorKind::Unavailable);
    });
}
