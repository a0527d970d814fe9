//! The body of a DoGet response: segments of messages, then trailers.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arrow_flight::FlightData;
use bytes::Buf;
use futures::Stream;
use hyper::body::{Body, Frame};
use stoker_wire::encode::{Message, Segments};
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

/// A response as an HTTP body. Messages that are ready are passed to hyper together, so that one call writes them and
/// wakes the client once; nothing is copied.
pub(crate) struct AnswerBody {
    answer: Answer,
    /// The size from which on nothing is added to a frame, in bytes. A frame is less than a message larger than that.
    frame_bytes: usize,
    end: Option<Status>,
}

impl AnswerBody {
    /// Makes the body of an answer whose messages usually have `message_bytes`.
    pub fn new(answer: Answer, message_bytes: usize) -> Self {
        Self { answer, frame_bytes: message_bytes / 2, end: None }
    }
}

impl Body for AnswerBody {
    type Data = Segments;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Segments>, Status>>> {
        let mut frame = Segments::default();
        while !self.answer.ended && (!frame.has_remaining() || frame.remaining() < self.frame_bytes) {
            match self.answer.poll_item(cx) {
                Poll::Ready(Item::Message(message)) => frame.append(message.into_frame()),
                Poll::Ready(Item::End(status)) => self.end = Some(status),
                Poll::Pending if frame.has_remaining() => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        if frame.has_remaining() {
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        let Some(status) = self.end.take() else { return Poll::Ready(None) };
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }
}
