//! The engine, which this installation may have.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use arrow_array::RecordBatch;
use futures::future::BoxFuture;
use pyo3::prelude::*;
use stoker_client::{ClientOptions, LakeOptionsGiven};
use stoker_session::{Connection, Result};
use stoker_types::{ErrorKind, TableName};

use crate::exceptions::error;
use crate::ingest::{IngestOutcome, IngestWatch};

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

    /// Begins a column whose values Python computes, or goes on with one that an earlier call began.
    ///
    /// # Errors
    /// A table or columns that do not exist; a new column that exists; an unknown mode; storage errors.
    fn begin_column<'a>(
        &'a self,
        connection: &'a Connection,
        request: &'a ColumnRequest,
    ) -> BoxFuture<'a, Result<Box<dyn OpenColumn>>>;

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

    /// Looks at the sources of an ingest, and writes them or tells what would be written. `args` are the arguments of
    /// `stoker ingest`; `connection` is that of the lake, or `None` if nothing is written. Dropping the future ends the ingest,
    /// and the same call continues it.
    ///
    /// # Errors
    /// Options and sources that do not fit, rows that cannot be read; storage errors.
    fn ingest<'a>(
        &'a self,
        connection: Option<&'a Connection>,
        args: Vec<OsString>,
        watch: &'a IngestWatch,
    ) -> BoxFuture<'a, Result<IngestOutcome>>;

    /// Runs the `stoker` command with these arguments, of which the first is the name of the program.
    fn main(&self, args: Vec<OsString>) -> ExitCode;
}

/// A column whose values are computed in this process.
pub trait OpenColumn: Send {
    /// Finds the rows whose values are not known at the newest version; `None` if an earlier call committed the column.
    ///
    /// # Errors
    /// A table that others changed in a way that does not fit; storage errors.
    fn plan(&mut self) -> BoxFuture<'_, Result<Option<ColumnWork>>>;

    /// Writes the values of rows, by ascending address.
    ///
    /// # Errors
    /// Values that do not fit the column; storage errors.
    fn write<'a>(&'a mut self, row_addrs: &'a [u64], values: RecordBatch) -> BoxFuture<'a, Result<()>>;

    /// Commits the column; `None` if the table changed meanwhile.
    ///
    /// # Errors
    /// A column without a type; a table that changed again and again; storage errors.
    fn commit(&mut self) -> BoxFuture<'_, Result<Option<u64>>>;

    /// Forgets what earlier calls computed.
    ///
    /// # Errors
    /// Storage errors.
    fn forget(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Ends the work. What was recorded stays for the next call.
    fn abort(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// The work that is left of a column.
pub struct ColumnWork {
    /// The version of the table whose rows are to be read.
    pub version: u64,
    /// The rows of this version.
    pub num_rows: u64,
    /// The rows whose values are known.
    pub num_done: u64,
    /// The addresses of the rows that are left: ascending ranges, without their ends.
    pub ranges: Vec<(u64, u64)>,
}

/// The keys of the `ColumnRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ColumnRequest {
    /// The name of the table.
    pub table: String,
    /// The name of the column.
    pub name: String,
    /// `add`, `replace` or `fill`.
    pub mode: String,
    /// The columns from which the values are computed.
    pub inputs: Vec<String>,
    /// Whether only some rows are computed.
    pub has_predicate: bool,
    /// The type of the column in SQL; that of the first values if `None`.
    pub data_type: Option<String>,
    /// What makes the call another one, beside all this.
    pub key: String,
    /// The most bytes of a page of a heavy column; `None` means the engine's default.
    pub page_bytes: Option<usize>,
    /// The seconds after which the values of an unfinished fragment are recorded.
    pub checkpoint_secs: f64,
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
