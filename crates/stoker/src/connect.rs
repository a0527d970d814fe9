//! Opens the connection that a target names.

use std::path::PathBuf;

use stoker_client::{ClientOptions, LakeOptionsGiven, names_servers};
use stoker_lake::{HOLD_DAYS, HOLD_DAYS_MAX, LakeStore, StorageOptions};
use stoker_session::{Connection, Error, Patience, Result};
use stoker_sql::{Engine, EngineOptions};
use stoker_stream::Resources;

use crate::cache::open_cache;
use crate::local_lake::LocalLake;
use crate::local_reads::local_reads;

/// Options of a connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// How servers are reached, how long calls are retried, and how much memory streams may hold.
    pub client: ClientOptions,
    /// Options of the object store, for lakes in this process.
    pub storage_options: StorageOptions,
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
    /// Which options of lakes are given that servers refuse.
    fn given(&self) -> LakeOptionsGiven {
        LakeOptionsGiven {
            cache_dir: self.cache_dir.is_some(),
            direct_io: self.direct_io,
            hold_days: self.hold_days.is_some(),
        }
    }

    /// Makes what the streams of a lake share.
    fn resources(&self) -> Resources {
        Resources::with_budget(self.client.memory_budget_bytes).with_local_reads(local_reads(self.direct_io))
    }
}

impl From<ClientOptions> for ConnectOptions {
    /// The options of a connection to servers, with defaults for lakes.
    fn from(client: ClientOptions) -> Self {
        Self { client, ..Self::default() }
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
    match names_servers(target, options.given())? {
        true => stoker_client::connect(target, &options.client).await,
        false => open(target, options, Patience::new(options.client.retry_budget)).await,
    }
}

/// As [`connect`], for a target to which another process was connected, or this process before a fork. It sends no
/// request to a server, and even the first call retries until a server answers or the retry budget ends.
///
/// # Errors
/// As for [`connect`], without the errors of reaching servers.
pub async fn reconnect(target: &str, options: &ConnectOptions) -> Result<Connection> {
    match names_servers(target, options.given())? {
        true => stoker_client::reconnect(target, &options.client),
        false => open(target, options, Patience::with_known(options.client.retry_budget)).await,
    }
}

/// Opens a lake in this process.
async fn open(target: &str, options: &ConnectOptions, patience: Patience) -> Result<Connection> {
    let hold_days = options.hold_days.unwrap_or(HOLD_DAYS);
    if hold_days > HOLD_DAYS_MAX {
        return Err(Error::invalid(format!("hold_days is {hold_days}; the most is {HOLD_DAYS_MAX}")));
    }
    let lake = LakeStore::open(target, &options.storage_options.clone().with_env()).await?;
    lake.hold_versions_for(hold_days);
    let cache = open_cache(&lake, options.cache_dir.as_deref(), options.cache_bytes).await?;
    let engine = Engine::new(lake, EngineOptions::default());
    Ok(Connection::new(LocalLake::with_patience(engine, options.resources().with_cache(cache), patience)))
}
