//! Serves one connection, from its first byte to its last.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep_until, timeout, timeout_at};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::Request;

use super::accept::Edge;
use super::metered_io::MeteredIo;
use super::peer::Peer;
use super::stream_tasks::StreamTasks;
use crate::auth::ClientCertificate;

/// The maximum number of concurrent requests of a connection.
const REQUESTS_MAX: u32 = 128;
/// The flow-control windows for requests, which are small, in bytes. Clients choose the windows for responses.
const REQUEST_WINDOW_BYTES: u32 = 1 << 20;
/// The maximum number of pending HTTP/2 streams that a client reset before the service saw them, and of those that the
/// server reset for errors of the client. More of either end the connection.
const RESETS_MAX: usize = 32;
/// The maximum size of the headers of a request in bytes.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// The time that a client gets to react to GOAWAY before its connection is cut.
const LINGER: Duration = Duration::from_secs(1);

/// Serves a connection until it ends. A connection that loses its permit to another one is cut without GOAWAY.
pub(super) async fn serve_connection<T>(io: T, has_tls: bool, edge: Arc<Edge>, peer: Arc<Peer>)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let shake_hands_until = Instant::now() + edge.times.handshake;
    let serving = async {
        let tls = edge.tls.as_ref().filter(|_| has_tls);
        let Some(tls) = tls else { return serve_http(io, None, &edge, &peer, shake_hands_until).await };
        let accepted = tokio::select! {
            accepted = timeout_at(shake_hands_until.into(), tls.acceptor().accept(io)) => accepted,
            () = edge.stopping.cancelled() => return,
        };
        match accepted {
            Ok(Ok(io)) => {
                let chain = io.get_ref().1.peer_certificates();
                let certificate = chain.and_then(|chain| Some(ClientCertificate(chain.first()?.clone())));
                serve_http(io, certificate, &edge, &peer, shake_hands_until).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, address = ?peer.address, "a TLS handshake failed"),
            Err(_) => tracing::debug!(address = ?peer.address, "a TLS handshake took too long"),
        }
    };
    tokio::select! {
        () = serving => {}
        () = peer.displaced() => tracing::debug!(address = ?peer.address, "closing a connection to accept another one"),
    }
}

async fn serve_http<T>(
    io: T,
    certificate: Option<ClientCertificate>,
    edge: &Edge,
    peer: &Arc<Peer>,
    shake_hands_until: Instant,
) where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(|request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        certificate.iter().for_each(|certificate| {
            request.extensions_mut().insert(certificate.clone());
        });
        edge.routes.clone().call(request)
    });
    let io = TokioIo::new(MeteredIo::new(io, peer.clone()));
    let mut connection = pin!(http(edge, peer).serve_connection(io, service));
    let mut closing = false;
    let mut look_at = shake_hands_until;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, address = ?peer.address, "a connection ended");
                }
                return;
            }
            () = edge.stopping.cancelled(), if !closing => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
            () = peer.ending() => {
                connection.as_mut().graceful_shutdown();
                timeout(LINGER, connection).await.ok();
                return;
            }
            () = sleep_until(look_at.into()) => match peer.idle_since() {
                _ if !peer.has_asked() => peer.end("its first request did not arrive in time"),
                None => look_at = Instant::now() + edge.times.idle,
                Some(since) if since + edge.times.idle > Instant::now() => look_at = since + edge.times.idle,
                // A request that comes before the client sees GOAWAY is still served.
                Some(_) if !closing => {
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                    look_at = Instant::now() + LINGER;
                }
                Some(_) => return,
            },
        }
    }
}

fn http(edge: &Edge, peer: &Arc<Peer>) -> http2::Builder<StreamTasks> {
    let mut http = http2::Builder::new(StreamTasks { peer: peer.clone() });
    http.timer(TokioTimer::new())
        .initial_stream_window_size(REQUEST_WINDOW_BYTES)
        .initial_connection_window_size(REQUEST_WINDOW_BYTES)
        .max_concurrent_streams(REQUESTS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(edge.times.keepalive)
        // A client that pauses reads nothing and thus does not respond to pings. With this timeout its response is cut
        // before its connection.
        .keep_alive_timeout(edge.times.stall + edge.times.keepalive);
    http
}
