//! Tests of bodies that arrive slowly, over real sockets.

use std::io::IoSliceMut;
use std::time::Duration;

use http::uri::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Client, SocketBody, Timeouts};

const PATIENT: Duration = Duration::from_secs(30);

/// Returns a body of `length` bytes. Its server sends `first` of them, and the others when it is told to.
async fn body(length: usize, first: usize) -> (SocketBody, oneshot::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let authority: Authority = listener.local_addr().expect("an address").to_string().parse().expect("a host");
    let (tell, told) = oneshot::channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut head = [0; 1_024];
        assert!(stream.read(&mut head).await.expect("a request") > 0);
        let answer = format!("HTTP/1.1 206 Partial Content\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.expect("a head");
        stream.write_all(&vec![7; first]).await.expect("the first bytes");
        told.await.ok();
        stream.write_all(&vec![7; length - first]).await.expect("the other bytes");
        // The client closes the connection.
        stream.read_to_end(&mut Vec::new()).await.ok();
    });
    let client = Client::new(None, Timeouts { connect: PATIENT, answer: PATIENT });
    let exchange = client.send(&authority, b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.expect("an answer");
    (exchange.into_body(length as u64).1, tell)
}

/// Reads until there are `wanted` bytes, and checks them.
async fn read(body: &mut SocketBody, wanted: usize) {
    let mut bytes = vec![0; wanted];
    let mut done = 0;
    while done < wanted {
        let mut slices = [IoSliceMut::new(&mut bytes[done..])];
        let read = timeout(PATIENT, body.read(&mut slices)).await;
        let count = read.expect("bytes that have arrived are reported").expect("no error");
        assert!(count > 0, "the body ends after {done} bytes");
        done += count;
    }
    assert!(bytes.iter().all(|byte| *byte == 7));
}

#[tokio::test]
async fn bodies_of_any_length_are_read_to_their_end() {
    for length in [1, 2_000, (128 << 10) - 1, 128 << 10, (128 << 10) + 1, 1_000_003] {
        let (mut body, tell) = body(length, length).await;
        tell.send(()).expect("a server");
        read(&mut body, length).await;
        assert_eq!(body.read(&mut [IoSliceMut::new(&mut [0; 1])]).await.expect("no error"), 0);
    }
}

#[tokio::test]
async fn a_few_bytes_of_a_slow_body_are_read_when_that_is_asked_for() {
    let (mut body, tell) = body(1_000_000, 10_000).await;
    // The bytes that came with the head are there at once. Then the reader waits for many.
    let mut early = vec![0; 10_000];
    let mut count = 0;
    while count < early.len()
        && let Ok(read) = timeout(Duration::ZERO, body.read(&mut [IoSliceMut::new(&mut early[count..])])).await
    {
        count += read.expect("no error");
    }
    body.wait_for_any();
    assert!(!body.wait_for_any(), "that changes nothing any more");
    read(&mut body, 10_000 - count).await;
    tell.send(()).expect("a server");
    read(&mut body, 990_000).await;
}
