//! Runs a server until it is told to stop.

use std::future::Future;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stoker_sql::Engine;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::server::service::StokerService;
use crate::server::state::ServerState;
use crate::server::{ServerConfig, TlsFiles};
use crate::tls::choose_ciphers;
use crate::wire::{FRAME_BYTES, SERVICE, WINDOW_BYTES};
use crate::{Error, Result, TicketSigner};

/// After the grace period, cut streams get so long to tell their clients.
const CUT_SECS: u64 = 2;

/// Serves a lake until `shutdown` resolves, then lets running streams finish within the grace period. `ready` is told the
/// address once connections are taken.
///
/// Health checks (`grpc.health.v1`) need no token. A server that stops answers them with NOT_SERVING, takes no more
/// connections or requests, and cuts the streams that outlast the grace period with `Unavailable`, so that their clients go on
/// elsewhere.
///
/// # Errors
/// Settings out of range, an address that cannot be bound, unreadable TLS files, invalid ticket keys.
pub async fn serve(
    engine: Engine,
    config: ServerConfig,
    ready: impl FnOnce(SocketAddr),
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    config.validate()?;
    let signer = TicketSigner::try_new(ticket_keys(&config)?, config.ticket_ttl())?;
    let mut server = Server::builder()
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES);
    if let Some(files) = &config.tls {
        choose_ciphers();
        let tls = server.tls_config(tls_config(files)?);
        server = tls.map_err(|source| Error::invalid(format!("the TLS files are not valid: {source}")))?;
    }
    let cannot_bind = |source| Error::invalid(format!("cannot listen on {}: {source}", config.listen));
    let listener = TcpListener::bind(&config.listen).await.map_err(cannot_bind)?;
    let address = listener.local_addr().map_err(Error::internal)?;
    let connections = TcpIncoming::from(listener).with_nodelay(Some(true));
    let grace = config.grace();
    let state = Arc::new(ServerState::new(engine, config, signer));
    let (health, health_service) = tonic_health::server::health_reporter();
    set_health(&health, ServingStatus::Serving).await;
    let stop = {
        let state = state.clone();
        async move {
            shutdown.await;
            tracing::info!("stopping");
            state.stopping.cancel();
            set_health(&health, ServingStatus::NotServing).await;
        }
    };
    let serving = server
        .add_service(health_service)
        .add_service(StokerService::new(state.clone()))
        .serve_with_incoming_shutdown(connections, stop);
    // Connections of clients that never close them do not hold up the end.
    let cut = async {
        state.stopping.cancelled().await;
        tokio::time::sleep(grace).await;
        state.cut.cancel();
        tokio::time::sleep(Duration::from_secs(CUT_SECS)).await;
    };
    ready(address);
    tokio::select! {
        done = serving => done.map_err(Error::internal),
        () = cut => Ok(()),
    }
}

async fn set_health(health: &HealthReporter, status: ServingStatus) {
    for service in ["", SERVICE] {
        health.set_service_status(service, status).await;
    }
}

fn tls_config(files: &TlsFiles) -> Result<ServerTlsConfig> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| Error::invalid(format!("cannot read {}: {source}", path.display())))
    };
    Ok(ServerTlsConfig::new().identity(Identity::from_pem(read(&files.cert)?, read(&files.key)?)))
}

/// The configured keys, else one of random bytes.
fn ticket_keys(config: &ServerConfig) -> Result<Vec<(String, Vec<u8>)>> {
    if !config.ticket_keys.is_empty() {
        return Ok(config.ticket_keys.iter().map(|key| (key.id.clone(), key.secret.clone().into_bytes())).collect());
    }
    tracing::warn!("no ticket key is configured: other replicas will not accept this server's tickets");
    let mut bytes = [0; 36];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|source| {
        Error::invalid(format!("cannot make a ticket key from /dev/urandom: {source}; configure one"))
    })?;
    let (id, secret) = bytes.split_at(4);
    Ok(vec![(id.iter().map(|byte| format!("{byte:02x}")).collect(), secret.to_vec())])
}
