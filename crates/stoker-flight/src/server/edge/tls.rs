//! TLS of a server: each connection takes the settings that hold when it comes.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::server::TlsFiles;
use crate::tls::choose_ciphers;
use crate::{Error, Result};

const ALPN: &[u8] = b"h2";

/// Certificate and key of a server.
pub(crate) struct ServerTls {
    config: Arc<rustls::ServerConfig>,
}

impl ServerTls {
    /// Reads certificate and key.
    ///
    /// # Errors
    /// Files that cannot be read, hold something else, or do not belong together.
    pub fn try_new(files: &TlsFiles) -> Result<Self> {
        choose_ciphers();
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| Error::invalid(format!("cannot read {}: {source}", path.display())))
        };
        let invalid = |reason: String| Error::invalid(format!("the TLS files are not valid: {reason}"));
        let (cert, key) = (read(&files.cert)?, read(&files.key)?);
        let chain = CertificateDer::pem_slice_iter(&cert).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|source| invalid(format!("{}: {source}", files.cert.display())))?;
        if chain.is_empty() {
            return Err(invalid(format!("{} holds no certificate", files.cert.display())));
        }
        let key = PrivateKeyDer::from_pem_slice(&key)
            .map_err(|source| invalid(format!("{} holds no private key: {source}", files.key.display())))?;
        let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.map_err(|source| invalid(source.to_string()))?;
        config.alpn_protocols.push(ALPN.into());
        Ok(Self { config: Arc::new(config) })
    }

    /// What takes the next connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.config.clone().into()
    }
}
