//! `DoGet`, without tonic's codec: the frames of the answer are used as they come.

use std::future::poll_fn;

use arrow_flight::Ticket;
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::header::{AUTHORIZATION, CONTENT_TYPE, TE};
use tonic::codegen::http::{HeaderValue, Method, Request, StatusCode, Uri, Version};
use tonic::transport::Channel;

use crate::client::remote_lake::Token;
use crate::decode::MessageReader;
use crate::wire::{self, DO_GET_PATH, Pieces};
use crate::{Error, Result};

/// Asks for the messages of a ticket over a connection.
///
/// # Errors
/// The server's error; `Unavailable` for a connection that broke.
pub(crate) async fn do_get(mut channel: Channel, ticket: &Ticket, token: &Token) -> Result<MessageReader> {
    poll_fn(|cx| channel.poll_ready(cx)).await.map_err(|error| Error::broken(error.to_string()))?;
    let response = channel.call(request(ticket, token)).await.map_err(|error| Error::broken(error.to_string()))?;
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() != tonic::Code::Ok => Err(status.into()),
        _ if response.status() != StatusCode::OK => {
            Err(Error::broken(format!("the answer has HTTP status {}", response.status())))
        }
        _ => Ok(MessageReader::new(response.into_body())),
    }
}

fn request(ticket: &Ticket, token: &Token) -> Request<Body> {
    let pieces = Pieces([frame(ticket)].into());
    let mut request = Request::new(Body::new(pieces));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(DO_GET_PATH);
    *request.version_mut() = Version::HTTP_2;
    let headers = request.headers_mut();
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(wire::CONTENT_TYPE));
    if let Some(token) = token.value().and_then(|token| HeaderValue::from_bytes(token.as_bytes()).ok()) {
        headers.insert(AUTHORIZATION, token);
    }
    request
}

/// A gRPC frame: not compressed, the length, the message.
fn frame(ticket: &Ticket) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + ticket.encoded_len());
    frame.put_u8(0);
    frame.put_u32(ticket.encoded_len() as u32);
    frame.put_slice(&ticket.encode_to_vec());
    frame.freeze()
}
