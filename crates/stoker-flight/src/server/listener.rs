//! Where a server takes connections.

use tokio::net::TcpListener;

use crate::server::unix_socket::ListeningSocket;
use crate::unix_path::UnixPath;
use crate::{Error, Result};

/// One address of a server.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(ListeningSocket),
}

impl Listener {
    /// Listens on `host:port` or `unix:///path`.
    ///
    /// # Errors
    /// An address that cannot be bound.
    pub async fn bind(address: &str) -> Result<Self> {
        if let Some(path) = UnixPath::strip_scheme(address) {
            return Ok(Self::Unix(ListeningSocket::bind(UnixPath::try_new(path)?).await?));
        }
        let cannot_bind = |source| Error::invalid(format!("cannot listen on {address}: {source}"));
        Ok(Self::Tcp(TcpListener::bind(address).await.map_err(cannot_bind)?))
    }

    /// The URL for clients on this host, Arrow's own as well.
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
