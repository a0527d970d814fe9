//! The HTTP endpoint for operators: `/healthz`, `/readyz` and `/metrics`, on an address of its own.
//!
//! A dedicated thread responds, so that a monitor does not take a server for dead whose other threads are busy.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use stoker_session::{Error, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::heartbeat::Heartbeat;
use crate::readiness::Readiness;
use crate::state::ServerState;

/// The maximum number of connections at once; further connections wait.
const CONNECTIONS_MAX: usize = 64;

/// The deadline for a connection: from accepting it to the end of its response.
const EXCHANGE_MAX: Duration = Duration::from_secs(10);

/// The pause after an error of `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const PLAIN: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The state that the endpoint reports.
pub(crate) struct Admin {
    pub state: Arc<ServerState>,
    pub readiness: Arc<Readiness>,
    pub heartbeat: Heartbeat,
}

impl Admin {
    /// Listens on `host:port` of this host, and serves it from a dedicated thread until the process ends. Returns the
    /// URL.
    ///
    /// # Errors
    /// An address that cannot be bound, or is not a loopback address.
    pub async fn start(self, address: &str) -> Result<String> {
        let cannot_bind = |source: io::Error| Error::invalid(format!("cannot listen on {address}: {source}"));
        let addresses: Vec<SocketAddr> = tokio::net::lookup_host(address).await.map_err(cannot_bind)?.collect();
        if addresses.iter().any(|address| !address.ip().is_loopback()) {
            return Err(Error::invalid(format!(
                "admin_listen is {address}, which other hosts can reach: use a loopback address such as 127.0.0.1:8816"
            )));
        }
        let listener = std::net::TcpListener::bind(&addresses[..]).map_err(cannot_bind)?;
        listener.set_nonblocking(true).map_err(cannot_bind)?;
        let url = format!("http://{}", listener.local_addr().map_err(cannot_bind)?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::internal)?;
        let serve = move || runtime.block_on(serve(listener, Arc::new(self)));
        std::thread::Builder::new().name("stoker-admin".into()).spawn(serve).map_err(Error::internal)?;
        Ok(url)
    }

    fn answer(&self, method: &Method, path: &str) -> (StatusCode, &'static str, String) {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "this address answers only GET and HEAD\n".into());
        }
        match path {
            "/healthz" => match self.heartbeat.stuck_for() {
                None => (StatusCode::OK, PLAIN, "alive\n".into()),
                Some(silent) => {
                    let text = format!("the threads that serve clients have been stuck for {} s\n", silent.as_secs());
                    (StatusCode::SERVICE_UNAVAILABLE, PLAIN, text)
                }
            },
            "/readyz" => match self.readiness.reasons(&self.state).as_slice() {
                [] => (StatusCode::OK, PLAIN, "ready\n".into()),
                reasons => (StatusCode::SERVICE_UNAVAILABLE, PLAIN, reasons.join("\n") + "\n"),
            },
            "/metrics" => {
                let is_ready = self.readiness.reasons(&self.state).is_empty();
                match self.state.metrics.text(&self.state, is_ready) {
                    Ok(text) => (StatusCode::OK, OPEN_METRICS, text),
                    Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, format!("{error}\n")),
                }
            }
            _ => (StatusCode::NOT_FOUND, PLAIN, "this address serves /healthz, /readyz and /metrics\n".into()),
        }
    }
}

async fn serve(listener: std::net::TcpListener, admin: Arc<Admin>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot serve admin_listen"),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let admin = admin.clone();
                tokio::spawn(async move {
                    let _place = place;
                    // A client that takes longer, or breaks off, gets no response.
                    let clock = admin.state.environment.clock.clone();
                    clock.timeout(EXCHANGE_MAX, exchange(stream, admin)).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection on admin_listen");
                admin.state.environment.clock.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves the one request of a connection.
async fn exchange(stream: TcpStream, admin: Arc<Admin>) -> hyper::Result<()> {
    let answer = service_fn(move |request: Request<Incoming>| {
        let (status, kind, text) = admin.answer(request.method(), request.uri().path());
        let mut response = Response::new(text);
        *response.status_mut() = status;
        response.headers_mut().insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
        std::future::ready(Ok::<_, Infallible>(response))
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer)
        .await
}
