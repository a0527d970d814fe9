//! TLS of clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::{Error, Result};

/// Installs aws-lc-rs as the cryptography provider of this process, unless the program has installed one. Several
/// providers are linked in, and rustls panics where none is chosen.
pub fn choose_ciphers() {
    // An error means that a provider is installed already.
    aws_lc_rs::default_provider().install_default().ok();
}

/// The protocol that a client asks for when it begins TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    /// The name in ALPN: <https://www.iana.org/assignments/tls-extensiontype-values>.
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Protocol::Http1 => b"http/1.1",
            Protocol::Http2 => b"h2",
        }
    }
}

/// PEM files of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// A certificate authority that is trusted beside those of the system.
    pub ca: Option<PathBuf>,
    /// The client's certificate and its private key, for servers that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Configures TLS: trusts the system's certificate authorities and the one of `files`, and uses this client's
/// certificate if there is one.
///
/// # Errors
/// A file that cannot be read or has no certificates; a key of another certificate; no certificate authorities at all.
pub fn client_config(files: &TlsFiles, protocol: Protocol) -> Result<Arc<ClientConfig>> {
    choose_ciphers();
    let builder = ClientConfig::builder().with_root_certificates(roots(files.ca.as_deref())?);
    let mut config = match &files.identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let invalid = |path: &Path, reason: String| {
                Error::invalid(format!("cannot use the client certificate {}: {reason}", path.display()))
            };
            let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let chain = chain.map_err(|source| invalid(cert, source.to_string()))?;
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|source| invalid(key, source.to_string()))?;
            builder.with_client_auth_cert(chain, secret).map_err(|source| invalid(cert, source.to_string()))?
        }
    };
    config.alpn_protocols = vec![protocol.alpn().to_vec()];
    Ok(Arc::new(config))
}

/// The certificate authorities of the system, and the one of a file.
fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // Some of the system's certificates may be unusable. A missing one shows as a server that is not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca {
        let cannot_read = |reason: String| {
            Error::invalid(format!("cannot read the certificate authority {}: {reason}", path.display()))
        };
        let pem = std::fs::read(path).map_err(|source| cannot_read(source.to_string()))?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let certificates = certificates.map_err(|source| cannot_read(source.to_string()))?;
        if let (0, _) = roots.add_parsable_certificates(certificates) {
            return Err(cannot_read("it has no certificate that can be used".into()));
        }
    }
    match roots.is_empty() {
        true => Err(Error::invalid("TLS cannot be set up: the system has no certificate authorities")),
        false => Ok(roots),
    }
}
