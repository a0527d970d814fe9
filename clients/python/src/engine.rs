//! The engine, which this installation may have.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures::future::BoxFuture;
use pyo3::prelude::*;
use stoker_client::{ClientOptions, LakeOptionsGiven};
use stoker_session::{Connection, Result};
use stoker_types::{ErrorKind, TableName};

use crate::exceptions::error;

/// The engine of this process; unset where this installation has none.
static ENGINE: OnceLock<&'static dyn Engine> = OnceLock::new();

/// What needs the engine. A client of servers does without it.
///
/// The methods with a connection expect that of a lake in this process.
pub trait Engine: Sync {
    /// Opens the lake that a target names.
    ///
    /// # Errors
    /// A malformed target, options that do not fit; a lake or a cache that cannot be used.
    fn connect<'a>(
        &'a self,
        target: &'a str,
        client: &'a ClientOptions,
        lake: &'a LakeOptions,
    ) -> BoxFuture<'a, Result<Connection>>;

    /// As [`connect`](Engine::connect), for a lake that another process opened, or this process before a fork: even the
    /// first call is retried.
    ///
    /// # Errors
    /// As for [`connect`](Engine::connect).
    fn reconnect<'a>(
        &'a self,
        target: &'a str,
        client: &'a ClientOptions,
        lake: &'a LakeOptions,
    ) -> BoxFuture<'a, Result<Connection>>;

    /// Looks up the table of a write. Nothing is written yet.
    ///
    /// # Errors
    /// An invalid name, an unknown mode; a table that exists, for a mode that creates one; storage errors.
    fn plan_write<'a>(
        &'a self,
        connection: &'a Connection,
        request: &'a WriteRequest,
    ) -> BoxFuture<'a, Result<Box<dyn PlannedWrite>>>;

    /// Excludes rows from later versions of a table; returns the version that excludes them.
    ///
    /// # Errors
    /// A table or a row that does not exist; a reason that is too long; storage errors.
    fn quarantine<'a>(
        &'a self,
        connection: &'a Connection,
        table: &'a TableName,
        row_addrs: &'a [u64],
        reason: Option<&'a str>,
    ) -> BoxFuture<'a, Result<u64>>;

    /// Runs the `stoker` command with these arguments, of which the first is the name of the program.
    fn main(&self, args: Vec<OsString>) -> ExitCode;
}

/// A write to a table whose newest version is known.
pub trait PlannedWrite: Send {
    /// Begins to write batches of this schema.
    ///
    /// # Errors
    /// A schema that does not fit the table; storage errors.
    fn open(self: Box<Self>, incoming: SchemaRef) -> BoxFuture<'static, Result<Box<dyn OpenWrite>>>;
}

/// A write that has begun. Nothing is visible before [`finish`](OpenWrite::finish).
pub trait OpenWrite: Send {
    /// Writes a batch.
    ///
    /// # Errors
    /// Values that do not fit the table; storage errors. The write can then only be aborted.
    fn write(&mut self, batch: RecordBatch) -> BoxFuture<'_, Result<()>>;

    /// Deletes what was written.
    fn abort(self: Box<Self>) -> BoxFuture<'static, ()>;

    /// Commits all batches as one version, and returns it.
    ///
    /// # Errors
    /// A table that other processes changed in a way that does not fit; storage errors.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<u64>>;
}

/// Options of a lake in this process.
#[derive(Default)]
pub struct LakeOptions {
    /// Options of the object store.
    pub storage_options: BTreeMap<String, String>,
    /// A folder of this machine in which streams cache what they read from the object store.
    pub cache_dir: Option<PathBuf>,
    /// The most bytes that the cache folder holds.
    pub cache_bytes: Option<u64>,
    /// Whether streams read the tensors of a lake on a local disk around the page cache.
    pub direct_io: bool,
    /// The number of days for which cleanups keep a version of a table after a stream last read it.
    pub hold_days: Option<u32>,
}

impl LakeOptions {
    /// Which options are given that servers refuse.
    pub(crate) fn given(&self) -> LakeOptionsGiven {
        LakeOptionsGiven {
            cache_dir: self.cache_dir.is_some(),
            direct_io: self.direct_io,
            hold_days: self.hold_days.is_some(),
        }
    }
}

/// The keys of the `WriteRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct WriteRequest {
    /// The name of the table.
    pub table: String,
    /// `create`, `append`, `create_or_append` or `overwrite`.
    pub mode: String,
    /// The most rows of a fragment; `None` means the engine's default.
    pub rows_per_fragment_max: Option<u64>,
    /// The most bytes of a page of a heavy column; `None` means the engine's default.
    pub page_bytes: Option<usize>,
}

/// Makes an engine that of this process. The first one stays.
pub(crate) fn install(engine: &'static dyn Engine) {
    ENGINE.get_or_init(|| engine);
}

/// Returns the engine.
///
/// # Errors
/// `InvalidRequest`, which says what was attempted, if this installation has no engine.
pub(crate) fn engine(py: Python<'_>, attempted: &str) -> PyResult<&'static dyn Engine> {
    ENGINE.get().copied().ok_or_else(|| {
        let message = format!(
            "{attempted} needs the engine, which this installation of stoker does not have: add it with \
             `pip install 'stoker[engine]'`"
        );
        error(py, ErrorKind::InvalidRequest, &message)
    })
}
