//! Requests over a pool of connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::response;
use http::uri::Authority;
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::body::SocketBody;
use super::connections::Connections;
use super::head::{AnswerHead, parse};
use super::stream::Stream;

/// The size in bytes of the reads for the head of a response. Bytes of the body that arrive with the head are copied
/// once more.
const HEAD_BYTES: usize = 2 << 10;

/// The maximum size of a head in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Timeouts for the responses of servers.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For opening a connection, TLS included.
    pub connect: Duration,
    /// From the request to the head of the response; also for a body that is read whole.
    pub answer: Duration,
}

/// Why a request has no response.
#[derive(Debug)]
pub enum Failure {
    /// No connection could be opened.
    Connect(io::Error),
    /// The connection broke.
    Interrupted(io::Error),
    /// The server took longer than the timeout.
    Timeout,
}

/// A client with a pool of connections. Cheap to clone; clones share the pool.
#[derive(Clone)]
pub struct Client {
    connections: Connections,
    tls: Option<TlsConnector>,
    timeouts: Timeouts,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("is_tls", &self.tls.is_some()).field("timeouts", &self.timeouts).finish()
    }
}

/// A response whose head was read.
#[derive(Debug)]
pub struct Exchange {
    /// Status and headers.
    pub parts: response::Parts,
    /// The length of the body in bytes; `None` when the head does not say it.
    pub body_length: Option<u64>,
    stream: Stream,
    /// The beginning of the body, which arrived together with the head.
    before: Bytes,
    is_kept: bool,
    home: (Connections, Authority),
    answer_timeout: Duration,
}

impl Client {
    /// A client for plain text, or for TLS where a configuration is given.
    pub fn new(tls: Option<Arc<ClientConfig>>, timeouts: Timeouts) -> Self {
        Self { connections: Connections::default(), tls: tls.map(TlsConnector::from), timeouts }
    }

    /// Whether connections are encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Sends the head of a request without a body, and reads the head of the response.
    ///
    /// # Errors
    /// [`Failure`]. A connection of the pool that the server had closed while it was idle is replaced.
    pub async fn send(&self, authority: &Authority, head: &[u8]) -> Result<Exchange, Failure> {
        loop {
            let kept = self.connections.take(authority);
            let is_from_pool = kept.is_some();
            let mut stream = match kept {
                Some(stream) => stream,
                None => {
                    let opened = Stream::connect(authority, self.tls.as_ref());
                    within(self.timeouts.connect, Failure::Connect, opened).await?
                }
            };
            match within(self.timeouts.answer, Failure::Interrupted, ask(&mut stream, head)).await {
                Ok((AnswerHead { parts, body_length, is_kept, .. }, before)) => {
                    let home = (self.connections.clone(), authority.clone());
                    let answer_timeout = self.timeouts.answer;
                    return Ok(Exchange { parts, body_length, stream, before, is_kept, home, answer_timeout });
                }
                Err(Failure::Interrupted(_)) if is_from_pool => {}
                Err(failure) => return Err(failure),
            }
        }
    }
}

impl Exchange {
    /// Where the connection returns after a body of `length` bytes. A connection with bytes after the end of the body
    /// cannot be used again.
    fn home(&self, length: u64) -> Option<(Connections, Authority)> {
        (self.is_kept && self.before.len() as u64 <= length).then(|| self.home.clone())
    }

    /// The head, and the body of `length` bytes, which is still in the socket.
    pub fn into_body(self, length: u64) -> (response::Parts, SocketBody) {
        let home = self.home(length);
        (self.parts, SocketBody::new(self.stream, self.before, length, home))
    }

    /// Reads a body of `length` bytes. Returns `None` where more bytes came than that, or the body is longer than
    /// `length_max`.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn whole(mut self, length: u64, length_max: u64) -> Result<Option<(response::Parts, Bytes)>, Failure> {
        if length > length_max || self.before.len() as u64 > length {
            return Ok(None);
        }
        let home = self.home(length);
        let mut body = BytesMut::from(self.before.as_ref());
        let have = body.len();
        body.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
        within(self.answer_timeout, Failure::Interrupted, self.stream.read_exact(&mut body[have..])).await?;
        if let Some((connections, authority)) = home {
            connections.keep(&authority, self.stream);
        }
        Ok(Some((self.parts, body.freeze())))
    }
}

/// Work within a time limit.
async fn within<T>(
    limit: Duration,
    failure: fn(io::Error) -> Failure,
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, Failure> {
    match timeout(limit, work).await {
        Ok(done) => done.map_err(failure),
        Err(_) => Err(Failure::Timeout),
    }
}

/// Sends the head of a request, and reads the head of the response. Returns it with the bytes that arrived after it.
async fn ask(stream: &mut Stream, head: &[u8]) -> io::Result<(AnswerHead, Bytes)> {
    stream.write_all(head).await?;
    // TLS may hold the last bytes back until it is flushed.
    stream.flush().await?;
    let mut came = BytesMut::with_capacity(HEAD_BYTES);
    loop {
        if stream.read_buf(&mut came).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(head) = parse(&came)? {
            let before = came.split_off(head.length).freeze();
            return Ok((head, before));
        }
        if came.len() >= HEAD_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the head of the answer is too long"));
        }
        came.reserve(HEAD_BYTES);
    }
}

#[cfg(test)]
mod fuzz;
