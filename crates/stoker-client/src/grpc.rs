//! gRPC over one HTTP/2 connection: how a call is framed, and what its headers and trailers say.

use bytes::{BufMut, Bytes, BytesMut};
use stoker_net::http2::{Connection, Io, Patience, Request};
use stoker_wire::{Error, Result, protocol};
use tonic::codegen::http::header::CONTENT_TYPE;
use tonic::codegen::http::{HeaderMap, StatusCode};
use tonic::{Code, Status};

/// The headers of a call, besides those of HTTP/2:
/// <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#requests>.
pub const CALL_HEADERS: [(&str, &str); 2] = [("te", "trailers"), ("content-type", protocol::CONTENT_TYPE)];

/// A field with error details, which this client does not read. Its Base64 text may be invalid, but tonic relies on
/// valid text.
const STATUS_DETAILS: &str = "grpc-status-details-bin";

/// Frames a message for gRPC: the flag "not compressed", the length, the message.
pub fn grpc_frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.put_u8(0);
    // Every server refuses messages of 4 GiB and more.
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

/// Sends a call and waits for the headers of its answer.
///
/// # Errors
/// The server's error; `Unavailable` for a server that does not speak HTTP/2 or gRPC, and for connections that break.
pub async fn call(io: Box<dyn Io>, request: &Request<'_>, patience: Patience) -> Result<Connection> {
    let connection = Connection::open(io, request, patience).await?;
    let response = connection.response();
    let http_status = response.status.unwrap_or_default();
    match grpc_status(&response.fields) {
        Some(status) if status.code() != Code::Ok => return Err(status.into()),
        _ if http_status != StatusCode::OK => {
            return Err(Error::broken(format!("the answer has HTTP status {http_status}")));
        }
        _ => {}
    }
    match response.fields.get(CONTENT_TYPE) {
        Some(found) if !found.as_bytes().starts_with(protocol::CONTENT_TYPE.as_bytes()) => {
            Err(Error::broken(format!("the answer is {found:?}, not gRPC")))
        }
        _ => Ok(connection),
    }
}

/// Checks the gRPC status of an answer that was read to its end.
///
/// # Errors
/// The server's error; `Unavailable` for an answer that was cut off.
pub(crate) fn finish(connection: &mut Connection) -> Result<()> {
    match connection.end()?.as_ref().and_then(grpc_status) {
        Some(status) if status.code() != Code::Ok => Err(status.into()),
        Some(_) => Ok(()),
        None => Err(Error::broken("the answer ended before it was complete")),
    }
}

/// The status of a call; `None` when headers or trailers have none.
fn grpc_status(fields: &HeaderMap) -> Option<Status> {
    if !fields.contains_key(STATUS_DETAILS) {
        return Status::from_header_map(fields);
    }
    let mut fields = fields.clone();
    fields.remove(STATUS_DETAILS);
    Status::from_header_map(&fields)
}
