//! Checks of addresses that other machines reach.

use stoker_net::UnixPath;
use stoker_session::{Error, Result};
use tokio::net::lookup_host;

use crate::ServerConfig;

/// Checks that addresses which other machines reach are served only with authentication and TLS, unless `insecure` is
/// set. Loopback addresses and Unix sockets need neither. A host name counts as the addresses that it resolves to.
///
/// # Errors
/// The first address that other machines reach, with what it lacks; a host name without an address.
pub(crate) async fn check_exposure(config: &ServerConfig) -> Result<()> {
    let lacks = match (config.asks_who(), config.tls.is_some()) {
        (true, true) => return Ok(()),
        (false, true) => "a token: give --token-file or --tokens-file, or --tls-client-ca",
        (true, false) => "TLS, which keeps tokens and data secret on the network: give --tls-cert and --tls-key",
        (false, false) => "a token and TLS: give --token-file or --tokens-file, and --tls-cert with --tls-key",
    };
    for address in &config.listen {
        if !is_exposed(address).await? {
            continue;
        }
        if config.insecure {
            let what = lacks.split(':').next().unwrap_or(lacks);
            tracing::warn!("{address} is served to other machines without {what}");
            continue;
        }
        return Err(Error::invalid(format!(
            "cannot listen on {address}: other machines can reach it, so it needs {lacks}; or give --insecure, which \
             lets everyone who can reach it do everything"
        )));
    }
    Ok(())
}

/// Returns whether other machines reach an address.
async fn is_exposed(address: &str) -> Result<bool> {
    if UnixPath::strip_scheme(address).is_some() {
        return Ok(false);
    }
    let cannot_listen = |source| Error::invalid(format!("cannot listen on {address}: {source}"));
    let mut found = lookup_host(address).await.map_err(cannot_listen)?;
    Ok(found.any(|address| !address.ip().to_canonical().is_loopback()))
}
