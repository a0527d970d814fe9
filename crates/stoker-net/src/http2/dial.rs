//! Connects sockets to servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Io;
use super::frame::PREFACE;
use crate::tls::Protocol;
use crate::{Address, Error, Result, UnixPath};

/// The `:authority` of requests over a Unix socket. gRPC's own clients use it too.
const UNIX_AUTHORITY: &str = "localhost";

/// The first bytes of an alert of TLS, with which servers answer what is not TLS: the type of the record, and the major
/// version (<https://www.rfc-editor.org/rfc/rfc8446#section-5.1>).
const TLS_ALERT: [u8; 2] = [21, 3];

/// A server's address, and the TLS configuration for it.
pub struct Server {
    /// The address for messages.
    name: String,
    authority: String,
    way: Way,
}

enum Way {
    Tcp { host: String, port: u16, tls: Option<Arc<ClientConfig>> },
    Unix(UnixPath),
}

impl Server {
    /// Creates a server from its address. A server that is reached over TLS needs `tls`.
    ///
    /// # Errors
    /// An authority that is not a host and port.
    pub fn try_new(address: &Address, tls: Option<&Arc<ClientConfig>>) -> Result<Self> {
        match address {
            Address::Tcp { authority, tls: false } => Self::tcp(authority, None),
            Address::Tcp { authority, tls: true } => match tls {
                Some(config) => Self::tcp(authority, Some(config.clone())),
                None => Err(Error::invalid(format!("{authority} is reached over TLS, which is not set up"))),
            },
            Address::Unix(path) => {
                let (name, authority) = (path.to_string(), UNIX_AUTHORITY.into());
                Ok(Self { name, authority, way: Way::Unix(path.clone()) })
            }
        }
    }

    fn tcp(authority: &str, tls: Option<Arc<ClientConfig>>) -> Result<Self> {
        let invalid = || Error::invalid(format!("{authority:?} is not a host and port"));
        let uri: Uri = format!("http://{authority}").parse().map_err(|_| invalid())?;
        let found = uri.authority().ok_or_else(invalid)?;
        // The host of a URI has its IPv6 address in brackets.
        let host = found.host().trim_start_matches('[').trim_end_matches(']').into();
        let port = found.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
        Ok(Self { name: found.to_string(), authority: found.to_string(), way: Way::Tcp { host, port, tls } })
    }

    /// The value of `:authority`.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether connections are encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self.way, Way::Tcp { tls: Some(_), .. })
    }

    /// Opens a connection within `wait`.
    ///
    /// # Errors
    /// `Unreachable`, with the reason.
    pub async fn connect(&self, wait: Duration) -> Result<Box<dyn Io>> {
        let unreachable = |reason: String| Error::Unreachable { target: self.name.clone(), reason };
        match timeout(wait, self.dial(wait)).await {
            Ok(dialed) => dialed.map_err(unreachable),
            Err(_) => Err(unreachable(format!("it does not answer within {wait:?}"))),
        }
    }

    /// Whether a server that is reached without TLS expects it: it answers HTTP/2 with an alert of TLS within `wait`. The
    /// question takes a connection of its own.
    pub async fn expects_tls(&self, wait: Duration) -> bool {
        if self.is_tls() {
            return false;
        }
        let answer = async {
            let mut io = self.dial(wait).await.ok()?;
            io.write_all(PREFACE).await.ok()?;
            let mut head = [0; TLS_ALERT.len()];
            io.read_exact(&mut head).await.ok()?;
            Some(head)
        };
        timeout(wait, answer).await.is_ok_and(|head| head == Some(TLS_ALERT))
    }

    async fn dial(&self, wait: Duration) -> Result<Box<dyn Io>, String> {
        let (host, port, tls) = match &self.way {
            Way::Tcp { host, port, tls } => (host, *port, tls),
            Way::Unix(path) => {
                let unix = UnixStream::connect(path).await.map_err(|error| error.to_string())?;
                return Ok(Box::new(unix));
            }
        };
        let tcp = dial_tcp(host, port, wait).await.map_err(|error| error.to_string())?;
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        let Some(config) = tls else { return Ok(Box::new(tcp)) };
        let name = ServerName::try_from(host.clone()).map_err(|error| error.to_string())?;
        let tls = TlsConnector::from(config.clone()).connect(name, tcp).await.map_err(|error| error.to_string())?;
        match tls.get_ref().1.alpn_protocol() == Some(Protocol::Http2.alpn()) {
            true => Ok(Box::new(tls)),
            false => Err("it does not offer HTTP/2".into()),
        }
    }
}

/// Tries the addresses of a host one after the other. Each address gets an equal share of the timeout.
async fn dial_tcp(host: &str, port: u16, wait: Duration) -> std::io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
    let mut failure = std::io::Error::other("its host name has no address");
    let share = wait / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    for address in &addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => failure = error,
            Err(elapsed) => failure = elapsed.into(),
        }
    }
    Err(failure)
}
