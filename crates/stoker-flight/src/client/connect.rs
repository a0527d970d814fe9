//! From a target to a connection.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stoker_lake::{HOLD_DAYS, HOLD_DAYS_MAX, Lake, StorageOptions};
use stoker_sql::{Engine, EngineOptions};
use stoker_stream::MemoryBudget;

use crate::cache::open_cache;
use crate::client::address::Address;
use crate::client::patience::Patience;
use crate::client::{Connection, LocalLake, RemoteLake};
use crate::local_reads::local_reads;
use crate::secret::Secret;
use crate::{Error, Result};

/// Options of a connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// A bearer token for servers.
    pub token: Option<Secret>,
    /// A PEM file with the certificate authority of servers; the system's by default.
    pub tls_ca: Option<PathBuf>,
    /// PEM files with this client's certificate and its private key, for servers that ask for one; both or none.
    pub tls_cert: Option<PathBuf>,
    /// The private key of `tls_cert`.
    pub tls_key: Option<PathBuf>,
    /// Options of the object store, for lakes.
    pub storage_options: StorageOptions,
    /// How long calls that may be repeated are made again while the servers, or the object store of a lake, cannot be reached, and how
    /// long a stream without an option of its own goes on without receiving a batch; 120 s by default. A target that never answered
    /// fails at once.
    pub retry_budget: Duration,
    /// Groups of lanes that a server serves separately; 1 by default.
    pub num_endpoints: u32,
    /// Bytes of batches that all streams of the connection hold while these are filled or wait to be taken. By default 2 GiB,
    /// or as much as the option of an open stream, if that is more.
    pub memory_budget_bytes: Option<u64>,
    /// A folder of this machine that keeps what streams read from the object store of a lake, for later epochs and other
    /// processes; none by default. A lake on a local disk needs none, and does not use it.
    pub cache_dir: Option<PathBuf>,
    /// Bytes that the folder holds at most; half of the free space of its file system by default.
    pub cache_bytes: Option<u64>,
    /// Whether streams read the tensors of a lake on a local disk past the system's memory of files; not by default. A lake in
    /// an object store does not use it.
    pub direct_io: bool,
    /// Days for which the versions that streams of a lake read are kept from cleanups, from when they are last read; 30 by default, not
    /// at all for 0. A server has a setting of its own.
    pub hold_days: Option<u32>,
}

impl ConnectOptions {
    /// The files of this client's certificate and its key.
    ///
    /// # Errors
    /// One of them without the other.
    pub(crate) fn identity(&self) -> Result<Option<(&Path, &Path)>> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Ok(Some((cert, key))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(Error::invalid("tls_cert needs tls_key, the file with its private key")),
            (None, Some(_)) => Err(Error::invalid("tls_key needs tls_cert, the file with its certificate")),
        }
    }

    /// The budget of a connection.
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

/// Connects to servers, or opens a lake in this process (any other target). Servers are `grpc://host:port`, `grpc+tls://host:port`
/// or, on this host, `unix:///path` (`grpc+unix:///path`); several are separated by commas, and a scheme holds for those after
/// it as well.
///
/// # Errors
/// A target that is neither; servers that cannot be reached within five seconds; a cache or direct reads for a server; a cache
/// that cannot be used.
pub async fn connect(target: &str, options: &ConnectOptions) -> Result<Connection> {
    let connection = open(target, options, Patience::new(options.retry_budget)).await?;
    if let Connection::Remote(lake) = &connection {
        lake.reach().await?;
    }
    Ok(connection)
}

/// As [`connect`], for a target that another process was connected to, or this one before a fork. Nothing is asked yet, and calls wait
/// for servers from the first one on.
///
/// # Errors
/// As for [`connect`], without those of reaching servers.
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
