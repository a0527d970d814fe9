//! An HTTP client that leaves response bodies in their sockets.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::uri::{Authority, Scheme};
use http::{Method, StatusCode};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::direct::body::SocketBody;
use crate::direct::connections::{Connections, connect};
use crate::direct::head::{AnswerHead, parse, request_head};

/// The size in bytes of the reads for the head of a response. Bytes of the body that arrive with the head are copied
/// once more.
const HEAD_BYTES: usize = 2 << 10;

/// The maximum size of a head in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The maximum size in bytes of a body that is read whole, such as the description of an error.
const WHOLE_BYTES_MAX: u64 = 1 << 20;

/// Timeouts for the responses of servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub connect: Duration,
    /// From the request to the head of the response; also for a body that is read whole.
    pub answer: Duration,
}

/// A slot into which the service puts the body of a request. object_store may send the request several times; the
/// slot has the body of the last response.
#[derive(Clone, Debug, Default)]
pub(super) struct Handover(Arc<Mutex<Left>>);

#[derive(Debug, Default)]
struct Left {
    body: Option<SocketBody>,
    was_refused: bool,
}

impl Handover {
    /// Takes the body that was put last.
    pub fn take(&self) -> Option<SocketBody> {
        let mut left = self.0.lock();
        let body = left.body.take()?;
        Some(if left.was_refused { body.after_refusal() } else { body })
    }

    fn put(&self, body: Option<SocketBody>) {
        self.0.lock().body = body;
    }

    fn refused(&self) {
        self.0.lock().was_refused = true;
    }
}

/// Makes HTTP clients that leave response bodies in their sockets.
#[derive(Debug)]
pub(super) struct DirectConnector {
    timeouts: Timeouts,
}

impl DirectConnector {
    pub fn new(timeouts: Timeouts) -> Self {
        Self { timeouts }
    }
}

impl HttpConnector for DirectConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let (options, usual, connections) = (options.clone(), OnceLock::new(), Connections::default());
        Ok(HttpClient::new(DirectService { options, usual, connections, timeouts: self.timeouts }))
    }
}

#[derive(Debug)]
struct DirectService {
    options: ClientOptions,
    /// The client for all other requests. The first of them creates it, because creating it loads the certificates of
    /// the system.
    usual: OnceLock<HttpClient>,
    connections: Connections,
    timeouts: Timeouts,
}

#[async_trait]
impl HttpService for DirectService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let handover = request.extensions().get::<Handover>().cloned();
        let is_plain = request.uri().scheme() == Some(&Scheme::HTTP);
        let is_get = *request.method() == Method::GET && request.body().is_empty();
        if let (Some(handover), Some(authority), true) = (handover, request.uri().authority(), is_plain && is_get) {
            handover.put(None);
            if let Some(response) = self.exchange(authority, &request, &handover).await? {
                return Ok(response);
            }
        }
        self.usual()?.execute(request).await
    }
}

impl DirectService {
    fn usual(&self) -> Result<&HttpClient, HttpError> {
        if let Some(usual) = self.usual.get() {
            return Ok(usual);
        }
        let made = ReqwestConnector::default().connect(&self.options);
        let made = made.map_err(|source| HttpError::new(HttpErrorKind::Connect, source))?;
        Ok(self.usual.get_or_init(|| made))
    }

    /// Sends a request and reads the head of its response. Returns `None` when the usual client has to make the
    /// request again to read the response.
    async fn exchange(
        &self,
        authority: &Authority,
        request: &HttpRequest,
        handover: &Handover,
    ) -> Result<Option<HttpResponse>, HttpError> {
        let asked = request_head(request);
        let (mut stream, head, before) = loop {
            let kept = self.connections.take(authority);
            let is_kept = kept.is_some();
            let mut stream = match kept {
                Some(stream) => stream,
                None => self.within(self.timeouts.connect, HttpErrorKind::Connect, connect(authority)).await?,
            };
            let answered = self.within(self.timeouts.answer, HttpErrorKind::Interrupted, ask(&mut stream, &asked));
            match answered.await {
                Ok((head, before)) => break (stream, head, before),
                // The server had closed the connection while it was idle.
                Err(error) if is_kept && !matches!(error.kind(), HttpErrorKind::Timeout) => {}
                Err(error) => return Err(error),
            }
        };
        if matches!(head.parts.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            handover.refused();
        }
        // The usual client follows redirections.
        let length = head.body_length.filter(|_| !head.parts.status.is_redirection());
        let Some(length) = length else { return Ok(None) };
        // A connection with bytes after the end of the body cannot be used again.
        let is_kept = head.is_kept && before.len() as u64 <= length;
        let home = is_kept.then(|| (self.connections.clone(), authority.clone()));
        if head.parts.status == StatusCode::PARTIAL_CONTENT {
            handover.put(Some(SocketBody::new(stream, before, length, home)));
            return Ok(Some(HttpResponse::from_parts(head.parts, Bytes::new().into())));
        }
        if length > WHOLE_BYTES_MAX || before.len() as u64 > length {
            return Ok(None);
        }
        let mut body = BytesMut::from(before.as_ref());
        let have = body.len();
        body.resize(length as usize, 0);
        let rest = async { stream.read_exact(&mut body[have..]).await };
        self.within(self.timeouts.answer, HttpErrorKind::Interrupted, rest).await?;
        if let Some((connections, authority)) = home {
            connections.keep(&authority, stream);
        }
        Ok(Some(HttpResponse::from_parts(head.parts, body.freeze().into())))
    }

    async fn within<T>(
        &self,
        limit: Duration,
        kind: HttpErrorKind,
        work: impl Future<Output = io::Result<T>>,
    ) -> Result<T, HttpError> {
        match timeout(limit, work).await {
            Ok(done) => done.map_err(|source| HttpError::new(kind, source)),
            Err(elapsed) => Err(HttpError::new(HttpErrorKind::Timeout, elapsed)),
        }
    }
}

/// Sends the head of a request, and reads the head of the response. Returns it with the bytes that arrived after it.
async fn ask(stream: &mut TcpStream, asked: &[u8]) -> io::Result<(AnswerHead, Bytes)> {
    stream.write_all(asked).await?;
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
