//! Runs a server until it is told to stop.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use arrow_flight::flight_service_server::FlightServiceServer;
use sha2::{Digest, Sha256};
use stoker_sql::Engine;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Status};
use tonic_health::ServingStatus;

use crate::server::ServerConfig;
use crate::server::flight_service::StokerFlightService;
use crate::server::state::ServerState;
use crate::{Error, Result, TicketSigner};

/// HTTP/2 windows: the bytes that may be under way before the peer acknowledges.
const WINDOW_BYTES: u32 = 32 << 20;
/// HTTP/2 frames; the default of 16 KiB costs CPU.
const FRAME_BYTES: u32 = 1 << 20;
/// Bytes of a request at most.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Bytes of an answer's message at most: one row may be larger than `message_bytes`.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// Serves a lake until `shutdown` resolves, then lets running streams finish within the grace period. `ready` is told the
/// address once connections are taken.
///
/// # Errors
/// An address that cannot be bound, unreadable TLS files, invalid ticket keys.
pub async fn serve(
    engine: Engine,
    config: ServerConfig,
    ready: impl FnOnce(SocketAddr),
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let signer = TicketSigner::try_new(ticket_keys(&config), config.ticket_ttl())?;
    let grace = config.grace();
    let check = token_check(config.token.as_deref());
    let cannot_bind = |source| Error::invalid(format!("cannot listen on {}: {source}", config.listen));
    let listener = TcpListener::bind(&config.listen).await.map_err(cannot_bind)?;
    let address = listener.local_addr().map_err(Error::internal)?;
    let mut builder = Server::builder()
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .tcp_nodelay(true);
    if let Some(tls) = &config.tls {
        let read = |path: &std::path::Path| {
            std::fs::read(path).map_err(|source| Error::invalid(format!("cannot read {}: {source}", path.display())))
        };
        let identity = Identity::from_pem(read(&tls.cert)?, read(&tls.key)?);
        let tls = ServerTlsConfig::new().identity(identity);
        builder = builder
            .tls_config(tls)
            .map_err(|source| Error::invalid(format!("the TLS files are not valid: {source}")))?;
    }
    let state = Arc::new(ServerState::new(engine, config, signer));
    let service = FlightServiceServer::new(StokerFlightService(state.clone()))
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_service_status("", ServingStatus::Serving).await;
    health.set_service_status("arrow.flight.protocol.FlightService", ServingStatus::Serving).await;
    let (stop, stopping) = tokio::sync::oneshot::channel();
    let cut = state.cut.clone();
    tokio::spawn(async move {
        shutdown.await;
        tracing::info!("stopping");
        health.set_service_status("", ServingStatus::NotServing).await;
        health.set_service_status("arrow.flight.protocol.FlightService", ServingStatus::NotServing).await;
        stop.send(()).ok();
        tokio::time::sleep(grace).await;
        cut.cancel();
    });
    let serving = builder
        .add_service(health_service)
        .add_service(InterceptedService::new(service, check))
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
            stopping.await.ok();
        });
    ready(address);
    // Connections of clients that never close them are dropped a little after their streams were cut.
    let hard_stop = async {
        state.cut.cancelled().await;
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    };
    tokio::select! {
        done = serving => done.map_err(Error::internal),
        () = hard_stop => Ok(()),
    }
}

fn ticket_keys(config: &ServerConfig) -> Vec<(String, Vec<u8>)> {
    if !config.ticket_keys.is_empty() {
        return config.ticket_keys.iter().map(|key| (key.id.clone(), key.secret.clone().into_bytes())).collect();
    }
    tracing::warn!("no ticket key is configured: tickets of this server are worthless to other replicas");
    let secret: [u8; 32] = random();
    let id: [u8; 32] = random();
    vec![(id[..4].iter().map(|byte| format!("{byte:02x}")).collect(), secret.to_vec())]
}

/// 32 bytes from the operating system's random numbers, which seed every `RandomState`.
fn random() -> [u8; 32] {
    use std::hash::{BuildHasher, RandomState};
    let mut seed = Sha256::new();
    if let Ok(mut file) = std::fs::File::open("/dev/urandom") {
        let mut bytes = [0; 32];
        if std::io::Read::read_exact(&mut file, &mut bytes).is_ok() {
            seed.update(bytes);
        }
    }
    (0..4u64).for_each(|word| seed.update(RandomState::new().hash_one(word).to_le_bytes()));
    seed.finalize().into()
}

/// Refuses requests without the token. Digests are compared, so that the time does not depend on the token.
fn token_check(
    token: Option<&str>,
) -> impl Fn(Request<()>) -> Result<Request<()>, Status> + Clone + Send + Sync + 'static {
    let expected = token.map(|token| Sha256::digest(format!("Bearer {token}")));
    move |request: Request<()>| {
        let Some(expected) = &expected else { return Ok(request) };
        let given = request.metadata().get("authorization").map(|value| Sha256::digest(value.as_bytes()));
        if given.as_ref() == Some(expected) {
            return Ok(request);
        }
        let reason = if given.is_some() { "the token is not valid" } else { "a bearer token is needed" };
        Err(Error::Remote { kind: stoker_types::ErrorKind::Unauthenticated, message: reason.into() }.into())
    }
}
