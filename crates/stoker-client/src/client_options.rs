//! Options of a connection to servers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stoker_net::{Secret, TlsFiles};
use stoker_wire::{Error, Result};

/// How a client reaches servers, and how much it may hold.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// A bearer token, which the client sends to servers.
    pub token: Option<Secret>,
    /// A PEM file with a certificate authority that the client trusts, in addition to those of the system; none by
    /// default.
    pub tls_ca: Option<PathBuf>,
    /// A PEM file with this client's certificate, for servers that ask for one. It needs `tls_key`.
    pub tls_cert: Option<PathBuf>,
    /// A PEM file with the private key of `tls_cert`.
    pub tls_key: Option<PathBuf>,
    /// The retry budget of calls that may be repeated: how long the client retries them while it cannot reach the
    /// servers, or the object store of a lake. Also the retry budget of reads for a stream without an option of its
    /// own. 120 s by default. A call to a target that has never answered fails after its first attempt.
    pub retry_budget: Duration,
    /// The number of endpoints into which servers split a rank's rows, each with a connection of its own; 1 by default.
    pub num_endpoints: u32,
    /// The most bytes of batches that all streams of the connection hold together, whether the batches are being filled
    /// or wait to be taken. By default 2 GiB, or the budget of the open stream with the largest one if that is more.
    pub memory_budget_bytes: Option<u64>,
}

impl ClientOptions {
    /// Returns the files of this client's certificate and its private key.
    ///
    /// # Errors
    /// A certificate without a key, or a key without a certificate.
    pub(crate) fn identity(&self) -> Result<Option<(&Path, &Path)>> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Ok(Some((cert, key))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(Error::invalid("tls_cert needs tls_key, the file with its private key")),
            (None, Some(_)) => Err(Error::invalid("tls_key needs tls_cert, the file with its certificate")),
        }
    }

    /// Returns the files for TLS.
    ///
    /// # Errors
    /// A certificate without a key, or a key without a certificate.
    pub(crate) fn tls_files(&self) -> Result<TlsFiles> {
        let identity = self.identity()?.map(|(cert, key)| (cert.to_path_buf(), key.to_path_buf()));
        Ok(TlsFiles { ca: self.tls_ca.clone(), identity })
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            token: None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            retry_budget: Duration::from_secs(120),
            num_endpoints: 1,
            memory_budget_bytes: None,
        }
    }
}
