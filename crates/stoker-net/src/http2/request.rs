//! The one request of a connection.

use bytes::{Bytes, BytesMut};

use super::hpack;

/// A POST request.
pub struct Request<'a> {
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The server's name and port.
    pub authority: &'a str,
    /// The path of the method.
    pub path: &'a str,
    /// Further headers, which are not secret.
    pub headers: &'a [(&'a str, &'a str)],
    /// The value of the authorization header.
    pub authorization: Option<&'a [u8]>,
    /// The body of the request.
    pub body: Bytes,
}

/// Encodes the request's headers.
pub(super) fn header_block(request: &Request<'_>) -> BytesMut {
    let mut block = BytesMut::new();
    let scheme = if request.tls { "https" } else { "http" };
    let pseudo = [(":method", "POST"), (":scheme", scheme), (":path", request.path), (":authority", request.authority)];
    let agent = ("user-agent", concat!("stoker/", env!("CARGO_PKG_VERSION")));
    for (name, value) in pseudo.iter().chain(request.headers).chain([&agent]) {
        hpack::put_field(&mut block, hpack::Indexing::Without, name, value.as_bytes());
    }
    if let Some(value) = request.authorization {
        hpack::put_field(&mut block, hpack::Indexing::Never, "authorization", value);
    }
    block
}
