//! Serves one connection, from its first byte to its last.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use stoker_types::Moment;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
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
    let shake_hands_until = edge.clock.now() + edge.times.handshake;
    let serving = async {
        let tls = edge.tls.as_ref().filter(|_| has_tls);
        let Some(tls) = tls else { return serve_http(io, None, &edge, &peer, shake_hands_until).await };
        let accepted = tokio::select! {
            accepted = edge.clock.timeout_at(shake_hands_until, tls.acceptor().accept(io)) => accepted,
            () = edge.stopping.cancelled() => return,
        };
        match accepted {
            Some(Ok(io)) => {
                let chain = io.get_ref().1.peer_certificates();
                let certificate = chain.and_then(|chain| Some(ClientCertificate(chain.first()?.clone())));
                serve_http(io, certificate, &edge, &peer, shake_hands_until).await;
            }
            Some(Err(error)) => tracing::debug!(%error, address = ?peer.address, "a TLS handshake failed"),
            None => tracing::debug!(address = ?peer.address, "a TLS handshake took too long"),
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
    shake_hands_until: Moment,
) where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (respond, asking) = (edge.respond.clone(), peer.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(asking.clone());
        certificate.iter().for_each(|certificate| {
            request.extensions_mut().insert(certificate.clone());
        });
        respond(request)
    });
    let io = TokioIo::new(MeteredIo::new(io, peer.clone(), edge.clock.clone()));
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
                edge.clock.timeout(LINGER, connection).await;
                return;
            }
            () = edge.clock.sleep_until(look_at) => match peer.idle_since() {
                _ if !peer.has_asked() => peer.end("its first request did not arrive in time"),
                None => look_at = edge.clock.now() + edge.times.idle,
                Some(since) if since + edge.times.idle > edge.clock.now() => look_at = since + edge.times.idle,
                // A request that comes before the client sees GOAWAY is still served.
                Some(_) if !closing => {
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                    look_at = edge.clock.now() + LINGER;
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

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::ready;
    use stoker_clock::{Clock, ManualClock};
    use tokio::io::duplex;
    use tokio_util::sync::CancellationToken;
    use tonic::Status;

    use super::super::peer::Address;
    use super::super::{ConnectionTimes, Responding};
    use super::*;
    use crate::permits::{Permits, Shares, Standing};

    const SECOND: Duration = Duration::from_secs(1);

    const TIMES: ConnectionTimes = ConnectionTimes {
        handshake: Duration::from_secs(10),
        idle: Duration::from_secs(60),
        keepalive: SECOND,
        stall: SECOND,
    };

    fn edge(time: &ManualClock) -> (Arc<Edge>, Arc<Peer>) {
        let clock = Clock::from(time);
        let places = Permits::new(Shares { total: 1, per_client: 1 }, clock.clone());
        let place = places.take(Address::Unix, Standing::Unproven(time.now()), time.now()).expect("a permit");
        let peer = Arc::new(Peer::new(Address::Unix, place, clock.clone()));
        let respond = Arc::new(|_| Responding::new(ready(Status::unimplemented("").into_http())));
        let stopping = CancellationToken::new();
        (Arc::new(Edge { respond, tls: None, places, times: TIMES, clock, stopping }), peer)
    }

    #[tokio::test]
    async fn a_connection_without_a_request_ends_at_its_deadline() {
        let time = ManualClock::new();
        let (edge, peer) = edge(&time);
        let (io, _client) = duplex(1 << 10);
        let mut serving = pin!(serve_connection(io, false, edge, peer.clone()));
        assert!(serving.as_mut().now_or_never().is_none());
        time.advance(TIMES.handshake - Duration::from_nanos(1));
        assert!(serving.as_mut().now_or_never().is_none());
        assert!(peer.ending().now_or_never().is_none());
        time.advance(Duration::from_nanos(1));
        assert!(serving.as_mut().now_or_never().is_none(), "the client gets GOAWAY");
        assert!(peer.ending().now_or_never().is_some());
        time.advance(LINGER);
        serving.now_or_never().expect("the client had its time");
    }

    #[tokio::test]
    async fn a_connection_ends_when_no_request_came_for_a_while() {
        let time = ManualClock::new();
        let (edge, peer) = edge(&time);
        let (io, _client) = duplex(1 << 10);
        let mut serving = pin!(serve_connection(io, false, edge, peer.clone()));
        peer.begin_request();
        assert!(serving.as_mut().now_or_never().is_none());
        // A request that runs for long does not end the connection, and neither does a shorter pause.
        let mut pass = |wait| {
            time.advance(wait);
            serving.as_mut().now_or_never().is_some()
        };
        assert!(!pass(TIMES.handshake) && !pass(TIMES.idle) && !pass(TIMES.idle));
        peer.end_request();
        assert!(!pass(TIMES.idle - SECOND));
        peer.begin_request();
        peer.end_request();
        assert!(!pass(TIMES.idle - SECOND), "a request came a minute less a second ago");
        assert!(!pass(SECOND), "the client gets GOAWAY");
        assert!(pass(LINGER), "no request came for a minute");
    }
}
