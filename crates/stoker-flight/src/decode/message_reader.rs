//! From the body of a DoGet answer to messages, without copying.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Buf, Bytes};
use hyper::body::Body as _;
use prost::encoding::decode_varint;
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Status};

use crate::decode::malformed;
use crate::decode::rope::Rope;
use crate::encode::{APP_METADATA, DATA_BODY, DATA_HEADER};
use crate::wire::MESSAGE_BYTES_MAX;
use crate::{Error, Result};

/// Bytes of a gRPC frame before its message.
const PREFIX_BYTES: usize = 5;
/// The wire type of fields with a length.
const LENGTH_DELIMITED: u64 = 2;

/// A message whose body lies in the frames in which it came.
#[derive(Debug, Default)]
pub(crate) struct ReceivedMessage {
    pub header: Bytes,
    pub metadata: Bytes,
    pub body: Rope,
}

/// Reads the messages of one answer. Dropping it cancels the call.
pub(crate) struct MessageReader {
    body: tonic::body::Body,
    received: Rope,
    ended: bool,
}

impl MessageReader {
    pub fn new(body: tonic::body::Body) -> Self {
        Self { body, received: Rope::default(), ended: false }
    }

    /// The next message; `None` when the server ended the answer. Cancelling the future loses nothing.
    ///
    /// # Errors
    /// The server's error; `Unavailable` when the connection breaks.
    pub async fn next(&mut self) -> Result<Option<ReceivedMessage>> {
        loop {
            if let Some(message) = take_message(&mut self.received)? {
                return Ok(Some(message));
            }
            if self.ended {
                return Ok(None);
            }
            match poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.received.push(data),
                    Err(frame) => self.end(frame.into_trailers().ok().as_ref())?,
                },
                Some(Err(status)) => return Err(Error::broken(status.message())),
                None => self.end(None)?,
            }
        }
    }

    fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<()> {
        self.ended = true;
        match trailers.and_then(Status::from_header_map) {
            Some(status) if status.code() != Code::Ok => Err(status.into()),
            Some(_) if self.received.len() == 0 => Ok(()),
            Some(_) | None => Err(Error::broken("the answer was cut off")),
        }
    }
}

/// Takes a whole message off the front, if it is there.
fn take_message(received: &mut Rope) -> Result<Option<ReceivedMessage>> {
    let mut prefix = [0; PREFIX_BYTES];
    if !peek(received, &mut prefix) {
        return Ok(None);
    }
    let [compressed, length @ ..] = prefix;
    let length = u32::from_be_bytes(length) as usize;
    if compressed != 0 || length > MESSAGE_BYTES_MAX {
        return Err(malformed(format!("it has {length} bytes and compression flag {compressed}")));
    }
    if received.len() < PREFIX_BYTES + length {
        return Ok(None);
    }
    received.advance(PREFIX_BYTES);
    received.split_to(length).map(parse).transpose()
}

/// Copies the first bytes without taking them.
fn peek(rope: &Rope, out: &mut [u8]) -> bool {
    match rope.copy(0..out.len()) {
        Some(buffer) => {
            out.copy_from_slice(&buffer);
            true
        }
        None => false,
    }
}

/// The fields of `FlightData`, in any order.
pub(crate) fn parse(mut rest: Rope) -> Result<ReceivedMessage> {
    let mut message = ReceivedMessage::default();
    while rest.has_remaining() {
        let key = decode_varint(&mut rest).map_err(malformed)?;
        if key & 7 != LENGTH_DELIMITED {
            return Err(malformed("a field has an unknown type"));
        }
        let length = decode_varint(&mut rest).map_err(malformed)?;
        let value = usize::try_from(length).ok().and_then(|length| rest.split_to(length));
        let value = value.ok_or_else(|| malformed("a field is longer than its message"))?;
        match u32::try_from(key >> 3) {
            Ok(DATA_HEADER) => message.header = value.into_bytes(),
            Ok(APP_METADATA) => message.metadata = value.into_bytes(),
            Ok(DATA_BODY) => message.body = value,
            // Descriptors, and fields of later versions.
            _ => {}
        }
    }
    Ok(message)
}
