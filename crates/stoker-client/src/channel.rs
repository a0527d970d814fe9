//! Configures tonic's connections to servers, for all calls but `DoGet`.

use std::path::Path;
use std::time::Duration;

use stoker_net::http2::{FRAME_BYTES, WINDOW_BYTES};
use stoker_net::{Address, choose_ciphers};
use stoker_wire::{Error, Result};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::ClientOptions;

/// The timeout of a connection attempt to one server.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The client sends an HTTP/2 ping after each interval, and closes a connection whose ping is not answered within the
/// timeout.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Configures the connection to the server at an address. Opens no connection.
pub(crate) fn endpoint(address: &Address, options: &ClientOptions) -> Result<Endpoint> {
    let uri = match address {
        Address::Tcp { authority, tls: false } => format!("http://{authority}"),
        Address::Tcp { authority, tls: true } => format!("https://{authority}"),
        Address::Unix(path) => path.to_string(),
    };
    let endpoint = Endpoint::from_shared(uri)
        .map_err(|source| Error::invalid(format!("{:?} is not a host and port: {source}", address.to_string())))?
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    if !address.is_tls() {
        return Ok(endpoint);
    }
    choose_ciphers();
    let mut config = ClientTlsConfig::new().with_native_roots();
    if let Some(path) = &options.tls_ca {
        config = config.ca_certificate(Certificate::from_pem(read("certificate authority", path)?));
    }
    if let Some((cert, key)) = options.identity()? {
        config = config.identity(Identity::from_pem(read("certificate", cert)?, read("private key", key)?));
    }
    endpoint.tls_config(config).map_err(|source| Error::invalid(format!("TLS cannot be set up: {source}")))
}

/// Reads a PEM file.
fn read(what: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| Error::invalid(format!("cannot read the {what} {}: {source}", path.display())))
}
