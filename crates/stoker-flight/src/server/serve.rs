//! Runs a server until it is told to stop.

use std::future::Future;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use stoker_sql::Engine;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::cache::open_cache;
use crate::server::listener::Listener;
use crate::server::service::StokerService;
use crate::server::state::ServerState;
use crate::server::{ServerConfig, TlsFiles};
use crate::tls::choose_ciphers;
use crate::wire::{FRAME_BYTES, SERVICE, WINDOW_BYTES};
use crate::{Error, Result, TicketSigner};

/// After the grace period, cut streams get so long to tell their clients.
const CUT_SECS: u64 = 2;

/// Serves a lake until `shutdown` resolves, then lets running streams finish within the grace period. `ready` is told the
/// URLs of all addresses once connections are taken.
///
/// Health checks (`grpc.health.v1`) need no token. A server that stops answers them with NOT_SERVING, takes no more
/// connections or requests, and cuts the streams that outlast the grace period with `Unavailable`, so that their clients go on
/// elsewhere.
///
/// # Errors
/// Settings out of range, a folder that cannot be the cache, an address that cannot be bound, a Unix socket where another server listens, unreadable TLS files,
/// invalid ticket keys.
pub async fn serve(
    engine: Engine,
    config: ServerConfig,
    ready: impl FnOnce(&[String]),
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    config.validate()?;
    let signer = TicketSigner::try_new(ticket_keys(&config)?, config.ticket_ttl())?;
    let servers = Servers::try_new(config.tls.as_ref())?;
    let cache = open_cache(engine.lake(), config.cache_dir.as_deref(), config.cache_bytes).await?;
    let mut listeners = Vec::new();
    for address in &config.listen {
        listeners.push(Listener::bind(address).await?);
    }
    let url = |listener: &Listener| listener.url(config.tls.is_some());
    let urls = listeners.iter().map(url).collect::<Result<Vec<_>>>()?;
    let grace = config.grace();
    let state = Arc::new(ServerState::new(engine, config, signer, cache));
    let (health, health_service) = tonic_health::server::health_reporter();
    set_health(&health, ServingStatus::Serving).await;
    let routes = Routes::new(health_service).add_service(StokerService::new(state.clone()));
    let serve_on = |listener| servers.serve(listener, routes.clone(), state.stopping.clone().cancelled_owned());
    let serving = try_join_all(listeners.into_iter().map(serve_on));
    // Connections of clients that never close them do not hold up the end.
    let cut = async {
        shutdown.await;
        tracing::info!("stopping");
        set_health(&health, ServingStatus::NotServing).await;
        state.stopping.cancel();
        tokio::time::sleep(grace).await;
        state.cut.cancel();
        tokio::time::sleep(Duration::from_secs(CUT_SECS)).await;
    };
    ready(&urls);
    tokio::select! {
        done = serving => done.map(|_| ()).map_err(Error::internal),
        () = cut => Ok(()),
    }
}

/// tonic's servers, one for each kind of address.
struct Servers {
    tcp: Server,
    unix: Server,
}

impl Servers {
    fn try_new(tls: Option<&TlsFiles>) -> Result<Self> {
        let plain = Server::builder()
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES);
        let Some(files) = tls else { return Ok(Self { tcp: plain.clone(), unix: plain }) };
        choose_ciphers();
        let tcp = plain.clone().tls_config(tls_config(files)?);
        let tcp = tcp.map_err(|source| Error::invalid(format!("the TLS files are not valid: {source}")))?;
        Ok(Self { tcp, unix: plain })
    }

    /// Takes connections until `stopping` resolves, and waits for them to end.
    fn serve(
        &self,
        listener: Listener,
        routes: Routes,
        stopping: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, Result<(), tonic::transport::Error>> {
        match listener {
            Listener::Tcp(listener) => {
                let connections = TcpIncoming::from(listener).with_nodelay(Some(true));
                self.tcp.clone().add_routes(routes).serve_with_incoming_shutdown(connections, stopping).boxed()
            }
            Listener::Unix(socket) => {
                let connections = socket.incoming();
                self.unix.clone().add_routes(routes).serve_with_incoming_shutdown(connections, stopping).boxed()
            }
        }
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
