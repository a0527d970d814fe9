//! Encoding and parsing of the heads of HTTP/1.1 messages.

use std::io;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Version, response};

/// The maximum number of headers in a response.
const HEADERS_MAX: usize = 96;

/// Encodes the head of a request without a body.
pub fn request_head<B>(request: &Request<B>) -> Vec<u8> {
    let uri = request.uri();
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut head = format!("{} {target} HTTP/1.1\r\n", request.method()).into_bytes();
    let mut put = |name: &str, value: &[u8]| {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    };
    if let Some(authority) = uri.authority().filter(|_| !request.headers().contains_key(HOST)) {
        put("host", authority.as_str().as_bytes());
    }
    request.headers().iter().for_each(|(name, value)| put(name.as_str(), value.as_bytes()));
    head.extend_from_slice(b"\r\n");
    head
}

/// The head of a response.
#[derive(Debug)]
pub(super) struct AnswerHead {
    pub parts: response::Parts,
    /// The length of the head in bytes, with the empty line after it.
    pub length: usize,
    /// The length of the body in bytes; `None` when the head does not say it.
    pub body_length: Option<u64>,
    /// Whether the connection can be used for another request.
    pub is_kept: bool,
}

/// Parses the head at the start of the received bytes. Returns `None` when the head is not complete yet.
///
/// # Errors
/// `InvalidData` for bytes that are no head of an HTTP/1.1 response.
pub(super) fn parse(bytes: &[u8]) -> io::Result<Option<AnswerHead>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let length = match answer.parse(bytes).map_err(invalid)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(answer.code.unwrap_or_default()).map_err(invalid)?;
    *response.version_mut() = Version::HTTP_11;
    for header in answer.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(invalid)?;
        response.headers_mut().append(name, HeaderValue::from_bytes(header.value).map_err(invalid)?);
    }
    let headers = response.headers();
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let body_length = match (lengths.next(), lengths.next(), headers.contains_key(TRANSFER_ENCODING)) {
        (Some(length), None, false) => number(length.as_bytes()),
        _ => None,
    };
    let closes = |value: &HeaderValue| value.as_bytes().to_ascii_lowercase().windows(5).any(|word| word == b"close");
    let is_kept = answer.version == Some(1) && !headers.get_all(CONNECTION).iter().any(closes);
    let (parts, ()) = response.into_parts();
    Ok(Some(AnswerHead { parts, length, body_length, is_kept }))
}

/// Reads a number that has only digits. The number of the standard library may have a sign.
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

fn invalid(source: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, source)
}
