//! Opens the connection that a target names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stoker_lake::{HOLD_DAYS, HOLD_DAYS_MAX, Lake, StorageOptions};
use stoker_net::{Address, TlsFiles};
use stoker_sql::{Engine, EngineOptions};
use stoker_stream::MemoryBudget;

use crate::cache::open_cache;
use crate::client::patience::Patience;
use crate::client::{Connection, LocalLake, RemoteLake};
use crate::local_reads::local_reads;
use crate::secret::Secret;
use crate::{Error, Result};

/// Options of a connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// A bearer token, which the client sends to servers.
    pub token: Option<Secret>,
    /// A PEM file with a certificate authority that the client trusts, in addition to those of the system; none by
    /// default.
    pub tls_ca: Option<PathBuf>,
    /// A PEM file with this client's certificate, for servers that ask for one. It needs `tls_key`.
    pub tls_cert: Option<PathBuf>,
    /// A PEM file with the private key of `tls_cert`.
    pub tls_key: Option<PathBuf>,
    /// Options of the object store, for lakes in this process.
    pub storage_options: StorageOptions,
    /// The retry budget of calls that may be repeated: how long the client retries them while it cannot reach the
    /// servers, or the object store of a lake. Also the retry budget of reads for a stream without an option of its
    /// own. 120 s by default. A call to a target that has never answered fails after its first attempt.
    pub retry_budget: Duration,
    /// The number of endpoints into which servers split a rank's rows, each with a connection of its own; 1 by default.
    pub num_endpoints: u32,
    /// The most bytes of batches that all streams of the connection hold together, whether the batches are being filled
    /// or wait to be taken. By default 2 GiB, or the budget of the open stream with the largest one if that is more.
    pub memory_budget_bytes: Option<u64>,
    /// A folder of this machine in which streams cache what they read from the object store of a lake, for later epochs
    /// and other processes; none by default. A lake on a local disk needs no cache and does not use it.
    pub cache_dir: Option<PathBuf>,
    /// The most bytes that the cache folder holds; by default half of the free space of its file system.
    pub cache_bytes: Option<u64>,
    /// Whether streams read the tensors of a lake on a local disk around the page cache (`O_DIRECT`); false by default.
    /// A lake in an object store ignores this option.
    pub direct_io: bool,
    /// The number of days for which cleanups keep a version of a table after a stream of a lake last read it; 30 by
    /// default, and 0 keeps no version. A server has a setting of its own.
    pub hold_days: Option<u32>,
}

impl ConnectOptions {
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

    /// Builds the memory budget of a connection.
    pub(crate) fn budget(&self) -> MemoryBudget {
        let budget = self.memory_budget_bytes.map_or_else(MemoryBudget::default, MemoryBudget::new);
        budget.with_local_reads(local_reads(self.direct_io))
    }
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            token: None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            storage_options: StorageOptions::default(),
            retry_budget: Duration::from_secs(120),
            num_endpoints: 1,
            memory_budget_bytes: None,
            cache_dir: None,
            cache_bytes: None,
            direct_io: false,
            hold_days: None,
        }
    }
}

/// Connects to servers, or opens a lake in this process when the target names no server. A server is
/// `grpc://host:port`, `grpc+tls://host:port` or, on this host, `unix:///path` (`grpc+unix:///path`). Commas separate
/// several servers, and a scheme also applies to the addresses after it.
///
/// # Errors
/// A malformed target; no server that takes a connection within five seconds each; a `cache_dir`, `direct_io` or
/// `hold_days` for a server; a cache that cannot be used; `hold_days` above the maximum.
pub async fn connect(target: &str, options: &ConnectOptions) -> Result<Connection> {
    let connection = open(target, options, Patience::new(options.retry_budget)).await?;
    if let Connection::Remote(lake) = &connection {
        lake.reach().await?;
    }
    Ok(connection)
}

/// As [`connect`], for a target to which another process was connected, or this process before a fork. It sends no
/// request to a server, and even the first call retries until a server answers or the retry budget ends.
///
/// # Errors
/// As for [`connect`], without the errors of reaching servers.
pub async fn reconnect(target: &str, options: &ConnectOptions) -> Result<Connection> {
    open(target, options, Patience::with_known(options.retry_budget)).await
}

async fn open(target: &str, options: &ConnectOptions, patience: Patience) -> Result<Connection> {
    match Address::parse_all(target)? {
        Some(_) if options.cache_dir.is_some() => Err(Error::invalid(format!(
            "cache_dir is for lakes, and {target} is a server, which has the cache: start it with `stoker serve --cache-dir`"
        ))),
        Some(_) if options.direct_io => Err(Error::invalid(format!(
            "direct_io is for lakes, and {target} is a server, which reads the files: start it with `stoker serve --direct-io`"
        ))),
        Some(_) if options.hold_days.is_some() => Err(Error::invalid(format!(
            "hold_days is for lakes, and {target} is a server, which holds the versions: start it with `stoker serve --hold-days`"
        ))),
        Some(addresses) => Ok(Connection::Remote(RemoteLake::try_new(&addresses, options, patience)?)),
        None => {
            let hold_days = options.hold_days.unwrap_or(HOLD_DAYS);
            if hold_days > HOLD_DAYS_MAX {
                return Err(Error::invalid(format!("hold_days is {hold_days}; the most is {HOLD_DAYS_MAX}")));
            }
            let lake = Lake::open(target, &options.storage_options.clone().with_env()).await?;
            lake.hold_versions_for(hold_days);
            let cache = open_cache(&lake, options.cache_dir.as_deref(), options.cache_bytes).await?;
            let engine = Engine::new(lake, EngineOptions::default());
            Ok(Connection::Local(LocalLake::with_patience(engine, options.budget().with_cache(cache), patience)))
        }
    }
}
