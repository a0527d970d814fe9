//! Responses as HTTP bodies: which messages a frame holds, and how they end.

use std::pin::pin;

use bytes::{Buf, Bytes};
use futures::poll;
use hyper::body::{Body, Frame};
use stoker_wire::encode::{Message, Segments};
use tokio::sync::mpsc;
use tonic::Status;

use super::fixture::run;
use crate::flight::{Answer, AnswerBody, Item};

fn message(byte: u8, num_bytes: usize) -> Message {
    Message { body: vec![Bytes::from(vec![byte; num_bytes])], ..Message::default() }
}

/// The bytes that messages have as one body.
fn bytes_of(messages: impl IntoIterator<Item = Message>) -> Vec<u8> {
    messages.into_iter().flat_map(|message| read(message.into_frame())).collect()
}

fn read(mut segments: Segments) -> Vec<u8> {
    segments.copy_to_bytes(segments.remaining()).to_vec()
}

async fn next(body: &mut (impl Body<Data = Segments, Error = Status> + Unpin)) -> Option<Frame<Segments>> {
    futures::future::poll_fn(|cx| pin!(&mut *body).poll_frame(cx)).await.map(|frame| frame.expect("a frame"))
}

/// The bytes of a frame of data.
fn data(frame: Option<Frame<Segments>>) -> Vec<u8> {
    match frame.map(Frame::into_data) {
        Some(Ok(segments)) => read(segments),
        _ => panic!("a frame of data is expected"),
    }
}

async fn send(items: &mpsc::Sender<Item>, item: Item) {
    assert!(items.send(item).await.is_ok(), "the body is read");
}

#[test]
fn messages_that_are_ready_share_a_frame_up_to_a_limit() {
    run(async {
        let (items, received) = mpsc::channel(16);
        let mut body = AnswerBody::new(Answer::new(received), 2_000);
        // Nothing is ready.
        assert!(poll!(futures::future::poll_fn(|cx| pin!(&mut body).poll_frame(cx))).is_pending());
        for byte in 0..5 {
            send(&items, Item::Message(message(byte, 600))).await;
        }
        let frames = [next(&mut body).await, next(&mut body).await, next(&mut body).await].map(data);
        let expected = [0..2, 2..4, 4..5].map(|range| bytes_of(range.map(|byte| message(byte, 600))));
        assert_eq!(frames, expected, "half of the usual size of a message is reached with the second one");
        // A message is not held back for the next one, and one that is larger than the limit is sent.
        send(&items, Item::Message(message(9, 50_000))).await;
        assert_eq!(data(next(&mut body).await), bytes_of([message(9, 50_000)]));
    });
}

#[test]
fn an_end_follows_the_messages_before_it() {
    run(async {
        for (end, code) in [(Some(Status::ok("")), "0"), (Some(Status::internal("damaged")), "13"), (None, "14")] {
            let (items, received) = mpsc::channel(16);
            let mut body = AnswerBody::new(Answer::new(received), 2_000);
            send(&items, Item::Message(message(1, 10))).await;
            if let Some(end) = end {
                send(&items, Item::End(end)).await;
            }
            drop(items);
            assert_eq!(data(next(&mut body).await), bytes_of([message(1, 10)]));
            let trailers = next(&mut body).await.map(Frame::into_trailers);
            let Some(Ok(trailers)) = trailers else { panic!("trailers are expected") };
            assert_eq!(trailers["grpc-status"], code);
            assert!(next(&mut body).await.is_none());
        }
    });
}
