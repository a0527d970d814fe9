//! TLS of a server. Each connection uses the files as they are when it is accepted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use stoker_net::{choose_ciphers, warn_of_readers};
use stoker_session::{Error, Result};
use tokio_rustls::TlsAcceptor;

use crate::TlsFiles;
use crate::watch::Contents;

const ALPN: &[u8] = b"h2";

/// The certificate and key of a server, and the certificate authority of its clients.
pub(crate) struct ServerTls {
    files: TlsFiles,
    client_certificates: ClientCertificates,
    config: RwLock<Arc<rustls::ServerConfig>>,
}

/// The rule for client certificates, which applies if an authority for them is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientCertificates {
    /// A client without a certificate may use a token.
    Optional,
    /// Every client needs a certificate.
    Needed,
}

impl ServerTls {
    /// Reads the certificate, the key and the authority.
    ///
    /// # Errors
    /// Files that cannot be read, have another content, or do not belong together.
    pub fn try_new(files: &TlsFiles, client_certificates: ClientCertificates) -> Result<Self> {
        choose_ciphers();
        warn_of_readers(&files.key);
        let read = |path: &PathBuf| std::fs::read(path).map_err(|source| source.to_string());
        let contents: Contents = paths(files).iter().map(read).collect();
        let config = RwLock::new(config(files, client_certificates, &contents)?);
        Ok(Self { files: files.clone(), client_certificates, config })
    }

    /// Returns the acceptor for the next connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.config.read().clone().into()
    }

    /// Returns the files whose contents [`ServerTls::reload`] takes, in this order.
    pub fn paths(&self) -> Vec<PathBuf> {
        paths(&self.files)
    }

    /// Uses changed files for new connections. If they are not valid, logs an error and keeps the previous ones.
    pub fn reload(&self, contents: &Contents) {
        match config(&self.files, self.client_certificates, contents) {
            Ok(renewed) => {
                *self.config.write() = renewed;
                tracing::info!("reloaded the certificate from {}", self.files.cert.display());
            }
            Err(error) => tracing::error!("cannot reload the certificate, so the earlier one stays in use: {error}"),
        }
    }
}

fn paths(files: &TlsFiles) -> Vec<PathBuf> {
    [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()].into_iter().flatten().cloned().collect()
}

/// Builds the TLS configuration from the contents of the files of [`paths`].
fn config(
    files: &TlsFiles,
    client_certificates: ClientCertificates,
    contents: &Contents,
) -> Result<Arc<rustls::ServerConfig>> {
    let mut texts = Vec::new();
    for (path, found) in paths(files).iter().zip(contents) {
        let text = found.as_ref();
        texts.push(text.map_err(|reason| Error::invalid(format!("cannot read {}: {reason}", path.display())))?);
    }
    let invalid = |reason: String| Error::invalid(format!("the TLS files are not valid: {reason}"));
    let chain = certificates(&files.cert, texts[0])?;
    let key = PrivateKeyDer::from_pem_slice(texts[1])
        .map_err(|source| invalid(format!("{} holds no private key: {source}", files.key.display())))?;
    let builder = rustls::ServerConfig::builder();
    let builder = match (&files.client_ca, texts.get(2)) {
        (Some(path), Some(text)) => {
            let mut roots = RootCertStore::empty();
            let authority = |source: String| invalid(format!("{} holds no authority: {source}", path.display()));
            for certificate in certificates(path, text)? {
                roots.add(certificate).map_err(|source| authority(source.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots));
            let verifier = match client_certificates {
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
                ClientCertificates::Needed => verifier,
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|source| authority(source.to_string()))?)
        }
        _ => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|source| invalid(source.to_string()))?;
    config.alpn_protocols.push(ALPN.into());
    Ok(Arc::new(config))
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let invalid = |reason: String| Error::invalid(format!("the TLS files are not valid: {reason}"));
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match chain.map_err(|source| invalid(format!("{}: {source}", path.display())))? {
        chain if chain.is_empty() => Err(invalid(format!("{} holds no certificate", path.display()))),
        chain => Ok(chain),
    }
}
