//! The listening sockets of a server.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use socket2::SockRef;
use stoker_net::UnixPath;
use stoker_session::{Error, Result};
use tokio::net::{TcpListener, TcpStream};

use crate::edge::Address;
use crate::unix_connection::UnixConnection;
use crate::unix_socket::ListeningSocket;

/// The listening socket of one address.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(ListeningSocket),
}

/// An accepted connection.
pub(crate) enum Accepted {
    Tcp(TcpStream, IpAddr),
    Unix(UnixConnection),
}

impl Accepted {
    /// Returns the address of the client.
    pub fn address(&self) -> Address {
        match self {
            Accepted::Tcp(_, ip) => Address::of(*ip),
            Accepted::Unix(_) => Address::Unix,
        }
    }
}

impl Listener {
    /// Listens on `host:port` or `unix:///path`.
    ///
    /// # Errors
    /// An address that cannot be bound.
    pub async fn bind(address: &str) -> Result<Self> {
        if let Some(path) = UnixPath::strip_scheme(address) {
            return Ok(Self::Unix(
                ListeningSocket::bind(UnixPath::try_new(path).map_err(stoker_wire::Error::from)?).await?,
            ));
        }
        let cannot_bind = |source| Error::invalid(format!("cannot listen on {address}: {source}"));
        Ok(Self::Tcp(TcpListener::bind(address).await.map_err(cannot_bind)?))
    }

    /// Accepts the next connection. For TCP, the operating system closes it if the client acknowledges no data for
    /// `silence_max` (`TCP_USER_TIMEOUT`).
    ///
    /// # Errors
    /// Errors of the operating system. Cancelling the future loses no connection.
    pub async fn accept(&self, silence_max: Duration) -> io::Result<Accepted> {
        match self {
            Listener::Tcp(listener) => {
                let (io, address) = listener.accept().await?;
                // A connection that has ended already refuses options.
                if let Err(error) = set_options(&io, silence_max) {
                    tracing::debug!(%error, %address, "cannot set the options of a connection");
                }
                Ok(Accepted::Tcp(io, address.ip()))
            }
            Listener::Unix(socket) => Ok(Accepted::Unix(socket.accept().await?)),
        }
    }

    /// Returns the URL for clients on this host, which Arrow's own clients understand too.
    pub fn url(&self, tls: bool) -> Result<String> {
        match self {
            Listener::Tcp(listener) => {
                let address = listener.local_addr().map_err(Error::internal)?;
                Ok(format!("{}://{address}", if tls { "grpc+tls" } else { "grpc" }))
            }
            Listener::Unix(socket) => Ok(format!("grpc+{}", socket.path())),
        }
    }
}

fn set_options(io: &TcpStream, silence_max: Duration) -> io::Result<()> {
    io.set_nodelay(true)?;
    SockRef::from(io).set_tcp_user_timeout(Some(silence_max))
}
