//! An HTTP client that leaves response bodies in their sockets.

use std::io;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Method, StatusCode};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use parking_lot::Mutex;
use rustls::ClientConfig;
use stoker_net::http1::{Client, Failure, SocketBody, Timeouts, request_head};

/// The maximum size in bytes of a body that is read whole, such as the description of an error.
const WHOLE_BYTES_MAX: u64 = 1 << 20;

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
pub struct DirectConnector {
    tls: Option<Arc<ClientConfig>>,
    timeouts: Timeouts,
}

impl DirectConnector {
    /// A connector for a store in plain text, or over TLS where a configuration is given.
    pub(super) fn new(tls: Option<Arc<ClientConfig>>, timeouts: Timeouts) -> Self {
        Self { tls, timeouts }
    }
}

impl HttpConnector for DirectConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let (options, usual) = (options.clone(), OnceLock::new());
        let direct = Client::new(self.tls.clone(), self.timeouts);
        Ok(HttpClient::new(DirectService { options, usual, direct }))
    }
}

#[derive(Debug)]
struct DirectService {
    options: ClientOptions,
    /// The client for all other requests. The first of them creates it, because creating it loads the certificates of
    /// the system.
    usual: OnceLock<HttpClient>,
    direct: Client,
}

#[async_trait]
impl HttpService for DirectService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let handover = request.extensions().get::<Handover>().cloned();
        let scheme = if self.direct.is_tls() { Scheme::HTTPS } else { Scheme::HTTP };
        let is_ours = request.uri().scheme() == Some(&scheme);
        let is_get = *request.method() == Method::GET && request.body().is_empty();
        if let (Some(handover), Some(authority), true) = (handover, request.uri().authority(), is_ours && is_get) {
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
        let exchange = self.direct.send(authority, &request_head(request)).await.map_err(failed)?;
        let status = exchange.parts.status;
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            handover.refused();
        }
        // The usual client follows redirections.
        let length = exchange.body_length.filter(|_| !status.is_redirection());
        let Some(length) = length else { return Ok(None) };
        if status == StatusCode::PARTIAL_CONTENT {
            let (parts, body) = exchange.into_body(length);
            handover.put(Some(body));
            return Ok(Some(HttpResponse::from_parts(parts, Bytes::new().into())));
        }
        let whole = exchange.whole(length, WHOLE_BYTES_MAX).await.map_err(failed)?;
        Ok(whole.map(|(parts, body)| HttpResponse::from_parts(parts, body.into())))
    }
}

fn failed(failure: Failure) -> HttpError {
    match failure {
        Failure::Connect(source) => HttpError::new(HttpErrorKind::Connect, source),
        Failure::Interrupted(source) => HttpError::new(HttpErrorKind::Interrupted, source),
        Failure::Timeout => HttpError::new(HttpErrorKind::Timeout, io::Error::from(io::ErrorKind::TimedOut)),
    }
}
