//! The body of a DoGet response: segments of messages, then trailers.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arrow_flight::FlightData;
use bytes::Bytes;
use futures::Stream;
use hyper::body::{Body, Frame};
use stoker_wire::encode::Message;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::codegen::http::HeaderMap;

/// One item of a response, from its producer to the connection.
pub(crate) enum Item {
    Message(Message),
    /// The end of the response: OK, or the error that ended it.
    End(Status),
}

/// The messages of a response, as a channel. If the producer closes the channel without [`Item::End`], the client gets
/// an error, so that no loss is silent.
pub(crate) struct Answer {
    items: mpsc::Receiver<Item>,
    ended: bool,
}

impl Answer {
    pub fn new(items: mpsc::Receiver<Item>) -> Self {
        Self { items, ended: false }
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Item> {
        let item = ready!(self.items.poll_recv(cx));
        let cut_off = || Status::unavailable("the answer ended before it was complete; repeat the request");
        let item = item.unwrap_or_else(|| Item::End(cut_off()));
        self.ended = matches!(item, Item::End(_));
        Poll::Ready(item)
    }
}

/// Implements the response of the Flight trait's `do_get`, for callers in this process.
impl Stream for Answer {
    type Item = Result<FlightData, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.poll_item(cx)) {
            Item::Message(message) => Some(Ok(message.into_flight_data())),
            Item::End(status) if status.code() == tonic::Code::Ok => None,
            Item::End(status) => Some(Err(status)),
        })
    }
}

/// A response as an HTTP body. Its segments are passed to hyper without copying them.
pub(crate) struct AnswerBody {
    answer: Answer,
    segments: VecDeque<Bytes>,
}

impl AnswerBody {
    pub fn new(answer: Answer) -> Self {
        Self { answer, segments: VecDeque::new() }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some(segment) = self.segments.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(segment))));
            }
            if self.answer.ended {
                return Poll::Ready(None);
            }
            match ready!(self.answer.poll_item(cx)) {
                Item::Message(message) => self.segments = message.into_frame(),
                Item::End(status) => {
                    let mut trailers = HeaderMap::new();
                    return Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))));
                }
            }
        }
    }
}
