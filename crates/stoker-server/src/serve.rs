//! Runs a server until it is told to stop.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use stoker::open_cache;
use stoker_clock::{Clock, Environment};
use stoker_session::{Error, Result};
use stoker_sql::Engine;
use stoker_wire::TicketSigner;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;
use tonic_health::ServingStatus;

use crate::ServerConfig;
use crate::admin::Admin;
use crate::auth::Authenticator;
use crate::edge::{Edge, Responding, accept_connections, raise_file_limit};
use crate::exposure::check_exposure;
use crate::flight::StokerService;
use crate::heartbeat::Heartbeat;
use crate::listener::Listener;
use crate::permits::Permits;
use crate::readiness::{Readiness, set_health};
use crate::server_tls::{ClientCertificates, ServerTls};
use crate::state::ServerState;
use crate::ticket_key::ticket_keys;
use crate::watch::watch;

/// The time in seconds that streams get after the grace period to send their clients an error.
const CUT_SECS: u64 = 2;

/// Serves a lake until `shutdown` resolves, then lets running streams finish within the grace period. Calls `ready`
/// with the URLs of all addresses as soon as the server accepts connections.
///
/// Health checks (`grpc.health.v1`) need no token. A stopping server responds to them with NOT_SERVING and accepts no
/// more connections or requests. It cuts the streams that outlast the grace period with `Unavailable`, so that their
/// clients continue at another server.
///
/// # Errors
/// Settings out of range, addresses that other machines reach without a token or TLS, a folder that cannot be the
/// cache, an address that cannot be bound, a Unix socket on which another server listens, TLS or token files that
/// cannot be used, invalid ticket keys.
pub async fn serve(
    engine: Engine,
    config: ServerConfig,
    ready: impl FnOnce(&[String]),
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let environment = Environment::default();
    let clock = environment.clock.clone();
    config.validate()?;
    check_exposure(&config).await?;
    let authenticator = Arc::new(Authenticator::try_new(&config)?);
    let signer = TicketSigner::try_new(ticket_keys(&config)?, config.ticket_ttl())?;
    let client_certificates = match config.has_tokens() {
        true => ClientCertificates::Optional,
        false => ClientCertificates::Needed,
    };
    let tls =
        config.tls.as_ref().map(|files| ServerTls::try_new(files, client_certificates)).transpose()?.map(Arc::new);
    let reloading = reload(config.tokens_file.clone(), authenticator.clone(), tls.clone(), clock.clone());
    let _reloading = AbortOnDropHandle::new(tokio::spawn(reloading));
    let cache = open_cache(engine.lake(), config.cache_dir.as_deref(), config.cache_bytes).await?;
    let mut listeners = Vec::new();
    for address in &config.listen {
        listeners.push(Listener::bind(address).await?);
    }
    let url = |listener: &Listener| listener.url(config.tls.is_some());
    let urls = listeners.iter().map(url).collect::<Result<Vec<_>>>()?;
    let files_max = raise_file_limit().map_err(Error::internal)?;
    let (places, times, grace) =
        (Permits::new(config.connection_shares(files_max), clock.clone()), config.connection_times(), config.grace());
    let state = Arc::new(ServerState::try_new(engine, config, signer, cache, environment)?);
    let (health, health_service) = tonic_health::server::health_reporter();
    set_health(&health, ServingStatus::Serving).await;
    let (readiness, heartbeat) = (Arc::<Readiness>::default(), Heartbeat::new(clock.clone()));
    let _watching = AbortOnDropHandle::new(tokio::spawn(readiness.clone().watch(state.clone(), health.clone())));
    let _beating = AbortOnDropHandle::new(tokio::spawn(heartbeat.clone().beat()));
    if let Some(address) = &state.config.admin_listen {
        let admin = Admin { state: state.clone(), readiness, heartbeat };
        let url = admin.start(address).await?;
        tracing::info!("operators are answered at {url}");
    }
    let service = StokerService::new(state.clone(), authenticator, Routes::new(health_service));
    let respond = Arc::new(move |request| Responding::new(service.respond(request)));
    let edge = Arc::new(Edge { respond, tls, places, times, clock: clock.clone(), stopping: state.stopping.clone() });
    let serving = join_all(listeners.into_iter().map(|listener| accept_connections(listener, edge.clone())));
    // This deadline holds for connections that their clients never close, too.
    let cut = async {
        shutdown.await;
        tracing::info!("stopping");
        set_health(&health, ServingStatus::NotServing).await;
        state.stopping.cancel();
        clock.sleep(grace).await;
        state.cut.cancel();
        clock.sleep(Duration::from_secs(CUT_SECS)).await;
    };
    ready(&urls);
    tokio::select! {
        _ = serving => {}
        () = cut => {}
    }
    Ok(())
}

/// Reads the token file and the TLS files again when they change. Never ends if there is such a file.
async fn reload(
    tokens_file: Option<PathBuf>,
    authenticator: Arc<Authenticator>,
    tls: Option<Arc<ServerTls>>,
    clock: Clock,
) {
    let tokens = async {
        if let Some(path) = tokens_file {
            watch(vec![path.clone()], &clock, |contents| authenticator.reload(&path, &contents[0])).await;
        }
    };
    let certificates = async {
        if let Some(tls) = tls {
            watch(tls.paths(), &clock, |contents| tls.reload(contents)).await;
        }
    };
    tokio::join!(tokens, certificates);
}
