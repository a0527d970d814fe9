//! The one request of a connection.

use bytes::{BufMut, Bytes, BytesMut};

use super::hpack;
use crate::wire::CONTENT_TYPE;

/// A gRPC call with one message.
pub(crate) struct Request<'a> {
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The server's name and port.
    pub authority: &'a str,
    /// The path of the method.
    pub path: &'a str,
    /// The value of the authorization header.
    pub authorization: Option<&'a [u8]>,
    /// The message, framed for gRPC.
    pub body: Bytes,
}

/// Frames a message for gRPC: the flag "not compressed", the length, the message.
pub(crate) fn grpc_frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    frame.freeze()
}

/// Encodes the request's headers: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#requests>.
pub(super) fn header_block(request: &Request<'_>) -> BytesMut {
    let mut block = BytesMut::new();
    let scheme = if request.tls { "https" } else { "http" };
    for (name, value) in [
        (":method", "POST"),
        (":scheme", scheme),
        (":path", request.path),
        (":authority", request.authority),
        ("te", "trailers"),
        ("content-type", CONTENT_TYPE),
        ("user-agent", concat!("stoker/", env!("CARGO_PKG_VERSION"))),
    ] {
        hpack::put_field(&mut block, hpack::Indexing::Without, name, value.as_bytes());
    }
    if let Some(value) = request.authorization {
        hpack::put_field(&mut block, hpack::Indexing::Never, "authorization", value);
    }
    block
}
