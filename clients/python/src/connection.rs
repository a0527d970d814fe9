//! A connection to a lake or to a server, for Python.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::UInt64Array;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pythonize::depythonize;
use serde::Serialize;
use stoker_client::{ClientOptions, names_servers};
use stoker_dialect::{CreateIndex, OptionValue, QualifiedName};
use stoker_net::Secret;
use stoker_session::Lake;
use stoker_types::calls::{
    BoxedAnswers, Call, DescribeTable, ExamineTable, ExplainQuery, ListStreams, ListTables, ListVersions, ReadRunLog,
    TableAt, VerifyReceipts,
};
use stoker_types::{
    BadRowEntry, BadRows, BadShare, BucketOptions, Digest, ErrorKind, LongerRows, MixOptions, MixtureStop, PackOptions,
    PlanRequest, Query, QueryOptions, ReadOptions, Receipt, RunId, ShuffleMode, SnapshotRef, SqlOptions,
    StatementProgress, StreamOptions, StreamState, TableName, Topology,
};

use crate::arrow_export::ArrowArray;
use crate::batch::Batch;
use crate::column_writer::ColumnWriter;
use crate::compression::to_compression;
use crate::engine::{ColumnRequest, Engine, LakeOptions, engine};
use crate::exceptions::{Raise, error};
use crate::fork::PerProcess;
use crate::ingest::ingest;
use crate::params::params;
use crate::query_result::QueryResult;
use crate::runtime::{wait, wait_with};
use crate::stream_handle::StreamHandle;
use crate::table_info::TableInfo;
use crate::values::{from_python, to_python};
use crate::write::{PyWriteRequest, write};

/// What needs the lake itself, as messages name it.
const INGESTING: &str = "ingesting files";

/// A replayed step: epoch, origin, first step, rows per global batch, last-batch policy.
type Replayed = (u64, u64, u64, u64, String);

/// A connection to a lake in this process, or to a server. `open` connects at once; a pickled copy connects on its
/// first use, and a forked child connects again on its first use.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct Connection {
    target: String,
    client: ClientOptions,
    lake: LakeOptions,
    live: Mutex<Option<PerProcess<stoker_session::Connection>>>,
}

/// The keys of the `StreamRequest` mapping in `_native.pyi`; `None` means the engine's default.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct StreamRequest {
    seed: u64,
    shuffle: String,
    shuffle_window_bytes: Option<u64>,
    block_bytes: Option<u64>,
    num_lanes: Option<u32>,
    order_version: Option<u32>,
    weight: Option<String>,
    pack: Option<PackRequest>,
    bucket: Option<BucketRequest>,
    /// One weight for each query of a mixture; `None` for a stream of one query.
    weights: Option<Vec<f64>>,
    stop: String,
    epoch_rows: u64,
    run_id: Option<String>,
}

/// The keys of the `PackRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PackRequest {
    columns: Vec<String>,
    length: u64,
    lengths: Option<String>,
    pad: i64,
}

impl PackRequest {
    fn to_options(&self) -> PackOptions {
        let (columns, lengths) = (self.columns.clone(), self.lengths.clone());
        PackOptions { columns, length: self.length, lengths, pad: self.pad }
    }
}

/// The keys of the `BucketRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct BucketRequest {
    column: String,
    max_tokens: u64,
    max_rows: Option<u64>,
    multiple: u64,
    longer: String,
}

impl BucketRequest {
    fn to_options(&self, py: Python<'_>) -> PyResult<BucketOptions> {
        let Self { max_tokens, max_rows, multiple, .. } = *self;
        let Some(longer) = LongerRows::parse(&self.longer) else {
            let message = format!("longer is {:?}; it must be \"alone\" or \"error\"", self.longer);
            return Err(error(py, ErrorKind::InvalidRequest, &message));
        };
        Ok(BucketOptions { column: self.column.clone(), max_tokens, max_rows, multiple, longer })
    }
}

/// The keys of the `IndexRequest` mapping in `_native.pyi`; `None` means the engine's default.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct IndexRequest {
    table: String,
    column: String,
    kind: String,
    name: Option<String>,
    metric: Option<String>,
    num_partitions: Option<u64>,
    num_sub_vectors: Option<u64>,
}

impl Connection {
    /// Returns the engine's connection of this process, and connects if there is none yet.
    pub(crate) fn live(&self, py: Python<'_>) -> PyResult<stoker_session::Connection> {
        let (found, forked) = {
            let live = self.live.lock();
            (live.as_ref().and_then(PerProcess::get).cloned(), live.is_some())
        };
        if let Some(connection) = found {
            return Ok(connection);
        }
        if forked && self.target.starts_with("memory://") {
            let message = format!("{} is in memory of the process that opened it, not of its forks", self.target);
            return Err(error(py, ErrorKind::InvalidRequest, &message));
        }
        // The process that made this object, or the parent of the fork, did reach the target. A failure to connect is
        // therefore taken for an outage, and `reconnect` retries until the retry budget is spent.
        let connection = match self.engine(py)? {
            None => wait(py, async { stoker_client::reconnect(&self.target, &self.client) })?,
            Some(engine) => wait(py, engine.reconnect(&self.target, &self.client, &self.lake))?,
        }
        .raise(py)?;
        *self.live.lock() = Some(PerProcess::new(connection.clone()));
        Ok(connection)
    }

    /// Asks a call; the answer becomes dicts, lists, numbers and texts.
    fn call<'py, C: Call>(&self, py: Python<'py>, call: C) -> PyResult<Bound<'py, PyAny>>
    where
        C::Answer: Serialize,
        dyn Lake: BoxedAnswers<C, Error = stoker_session::Error>,
    {
        let answer = wait(py, self.live(py)?.call(call))?.raise(py)?;
        to_python(py, &answer)
    }

    /// The engine that opens the target, or `None` for a target that names servers.
    fn engine(&self, py: Python<'_>) -> PyResult<Option<&'static dyn Engine>> {
        if names_servers(&self.target, self.lake.given()).raise(py)? {
            return Ok(None);
        }
        let attempted = format!(
            "{:?} names a lake, not a server as in grpc://host:port, and opening a lake in this process",
            self.target
        );
        engine(py, &attempted).map(Some)
    }

    /// The engine, and the connection to a lake in this process.
    fn local(&self, py: Python<'_>, attempted: &str) -> PyResult<(&'static dyn Engine, stoker_session::Connection)> {
        let engine = engine(py, &format!("{attempted} in a lake of this process"))?;
        let connection = self.live(py)?;
        if !connection.lake().is_local() {
            let remedy = match attempted == INGESTING {
                true => {
                    ": connect to the lake's own URI, run `stoker ingest` on a machine that reaches the lake, or send rows with \
                     create_table and append"
                }
                false => "",
            };
            let message = format!("{attempted} needs a connection to the lake itself, not to a server{remedy}");
            return Err(error(py, ErrorKind::InvalidRequest, &message));
        }
        Ok((engine, connection))
    }
}

#[pymethods]
impl Connection {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "the keywords of `stoker.connect`")]
    #[pyo3(signature = (
        target, *, token=None, tls_ca=None, tls_cert=None, tls_key=None, storage_options=None, retry_budget_secs=None, num_endpoints=None,
        memory_budget_bytes=None, cache_dir=None, cache_bytes=None, direct_io=false, hold_days=None
    ))]
    fn new(
        target: String,
        token: Option<String>,
        tls_ca: Option<PathBuf>,
        tls_cert: Option<PathBuf>,
        tls_key: Option<PathBuf>,
        storage_options: Option<BTreeMap<String, String>>,
        retry_budget_secs: Option<u64>,
        num_endpoints: Option<u32>,
        memory_budget_bytes: Option<u64>,
        cache_dir: Option<PathBuf>,
        cache_bytes: Option<u64>,
        direct_io: bool,
        hold_days: Option<u32>,
    ) -> Self {
        let defaults = ClientOptions::default();
        let client = ClientOptions {
            token: token.map(Secret::from),
            tls_ca,
            tls_cert,
            tls_key,
            retry_budget: retry_budget_secs.map_or(defaults.retry_budget, Duration::from_secs),
            num_endpoints: num_endpoints.unwrap_or(defaults.num_endpoints),
            memory_budget_bytes,
        };
        let storage_options = storage_options.unwrap_or_default();
        let lake = LakeOptions { storage_options, cache_dir, cache_bytes, direct_io, hold_days };
        Self { target, client, lake, live: Mutex::new(None) }
    }

    /// Connects, and fails at once if a server cannot be reached.
    fn open(&self, py: Python<'_>) -> PyResult<()> {
        let connection = match self.engine(py)? {
            None => wait(py, stoker_client::connect(&self.target, &self.client))?,
            Some(engine) => wait(py, engine.connect(&self.target, &self.client, &self.lake))?,
        }
        .raise(py)?;
        *self.live.lock() = Some(PerProcess::new(connection));
        Ok(())
    }

    /// Whether tables can be written, which is so for a lake in this process.
    fn is_local(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.live(py)?.lake().is_local())
    }

    /// Table names, sorted.
    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, ListTables {})
    }

    /// Returns a table at a version, at a tag, or at its newest version.
    #[pyo3(signature = (name, version=None, tag=None))]
    fn table(&self, py: Python<'_>, name: &str, version: Option<u64>, tag: Option<String>) -> PyResult<TableInfo> {
        let (connection, at) = (self.live(py)?, snapshot_ref(py, version, tag)?);
        let info = wait(py, connection.table(name, &at))?.raise(py)?;
        TableInfo::try_new(py, info)
    }

    /// All versions, oldest first.
    fn versions<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, ListVersions(TableAt::new(name, &SnapshotRef::Latest)))
    }

    /// How the columns are stored.
    fn describe<'py>(&self, py: Python<'py>, name: &str, version: u64) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, DescribeTable(TableAt::new(name, &SnapshotRef::Version(version))))
    }

    /// What in the layout costs speed.
    fn doctor<'py>(&self, py: Python<'py>, name: &str, version: u64) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, ExamineTable(TableAt::new(name, &SnapshotRef::Version(version))))
    }

    /// The streams that are open, oldest first.
    fn streams<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, ListStreams {})
    }

    /// Tags a version.
    fn tag(&self, py: Python<'_>, name: &str, version: u64, tag: &str) -> PyResult<()> {
        let connection = self.live(py)?;
        wait(py, connection.tag(name, &SnapshotRef::Version(version), tag))?.raise(py)
    }

    /// Plans a query without running it, to check that it can run.
    fn check_sql(&self, py: Python<'_>, sql: &str, values: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let (connection, params) = (self.live(py)?, params(&values)?);
        wait(py, connection.sql_schema(sql, &params))?.raise(py)?;
        Ok(())
    }

    /// Plans a query; it runs while its batches are read.
    #[pyo3(signature = (sql, values, compression=None, approximate=false))]
    fn sql(
        &self,
        py: Python<'_>,
        sql: &str,
        values: Vec<Bound<'_, PyAny>>,
        compression: Option<&str>,
        approximate: bool,
    ) -> PyResult<QueryResult> {
        let (query, compression) = (QueryOptions::approximate(approximate), to_compression(py, compression)?);
        let (connection, params) = (self.live(py)?, params(&values)?);
        let result = wait(py, connection.sql_with(sql, &params, SqlOptions { query, compression }))?.raise(py)?;
        Ok(QueryResult::new(result))
    }

    /// The plan of a query as text.
    #[pyo3(signature = (sql, values, approximate=false))]
    fn explain<'py>(
        &self,
        py: Python<'py>,
        sql: &str,
        values: Vec<Bound<'_, PyAny>>,
        approximate: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, ExplainQuery { sql: sql.into(), params: params(&values)?, approximate })
    }

    /// Evaluates sample queries, given as pairs of text and parameters, and pins their rows and order.
    fn plan_stream(
        slf: Bound<'_, Self>,
        queries: Vec<(String, Vec<Bound<'_, PyAny>>)>,
        request: StreamRequest,
    ) -> PyResult<StreamHandle> {
        let py = slf.py();
        let (connection, request) = (slf.get().live(py)?, request.to_plan(py, &queries)?);
        let handle = wait(py, connection.plan(&request))?.raise(py)?;
        Ok(StreamHandle::new(slf.unbind(), handle))
    }

    /// Adds rows to the table of bad rows.
    fn log_bad_rows(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows: Vec<BadRowEntry> = from_python(rows)?;
        wait(py, self.live(py)?.log_bad_rows(&rows))?.raise(py)
    }

    /// The log of a run, oldest entry first.
    fn run_entries<'py>(&self, py: Python<'py>, run_id: &str) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, ReadRunLog { run_id: RunId::try_new(run_id).raise(py)? })
    }

    /// Returns the stream that a run read at a step, with the epoch, origin, first step of the slice, rows per global
    /// batch and last-batch policy of that step.
    fn replay(slf: Bound<'_, Self>, run_id: &str, step: u64) -> PyResult<(StreamHandle, Replayed)> {
        let py = slf.py();
        let (connection, run_id) = (slf.get().live(py)?, RunId::try_new(run_id).raise(py)?);
        let topology = Topology { rank: 0, world_size: 1 };
        let (handle, slice) = wait(py, connection.replay(&run_id, step, topology))?.raise(py)?;
        let last_batch = slice.batching.last.as_str().to_string();
        let replayed = (slice.epoch, slice.origin, slice.first_step, slice.global_batch(), last_batch);
        Ok((StreamHandle::new(slf.unbind(), handle), replayed))
    }

    /// Returns the batch of all ranks at a step of a run, with substitutes for bad rows, or `None` if the step has no
    /// rows.
    fn replay_batch(&self, py: Python<'_>, run_id: &str, step: u64) -> PyResult<Option<Batch>> {
        let (connection, run_id) = (self.live(py)?, RunId::try_new(run_id).raise(py)?);
        let read =
            ReadOptions { bad_rows: BadRows::Substitute, max_bad_share: BadShare::ALL, ..ReadOptions::default() };
        let fetched = wait(py, async move { connection.replay_batch(&run_id, step, &read).await })?.raise(py)?;
        fetched.map(|fetched| Batch::try_new(py, fetched)).transpose()
    }

    /// Returns the addresses of the rows at positions `start..end` of an epoch: one list for each table.
    fn row_addrs(
        &self,
        py: Python<'_>,
        stream_id: &str,
        epoch: u64,
        start: u64,
        end: u64,
    ) -> PyResult<Vec<Py<ArrowArray>>> {
        let stream_id = stream_id.parse::<Digest>().raise(py)?;
        let addrs = wait(py, self.live(py)?.row_addrs(stream_id, epoch, start..end))?.raise(py)?;
        let array = |addrs: Vec<u64>| Py::new(py, ArrowArray::from_values(Arc::new(UInt64Array::from(addrs))));
        addrs.into_iter().map(array).collect()
    }

    /// Loads the stream that a state, given as JSON text, belongs to.
    fn load_stream(slf: Bound<'_, Self>, state: &str) -> PyResult<StreamHandle> {
        let py = slf.py();
        let connection = slf.get().live(py)?;
        let state = StreamState::from_json(state).raise(py)?;
        let handle = wait(py, connection.load_stream(&state))?.raise(py)?;
        Ok(StreamHandle::new(slf.unbind(), handle))
    }

    /// What receipts say about each epoch that they name.
    fn verify<'py>(&self, py: Python<'py>, receipts: Vec<Bound<'_, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let receipt = |receipt: &Bound<'_, PyAny>| {
            depythonize(receipt).map_err(|source| stoker_types::Error::Receipt { reason: source.to_string() })
        };
        let receipts = receipts.iter().map(receipt).collect::<Result<Vec<Receipt>, _>>().raise(py)?;
        self.call(py, VerifyReceipts { receipts })
    }

    /// Writes the record batches of an Arrow stream in one commit; returns the new version.
    fn write(&self, data: &Bound<'_, PyAny>, request: PyWriteRequest) -> PyResult<u64> {
        write(&self.live(data.py())?, data, request)
    }

    /// Writes files into a table, or tells what would be written. `args` are the arguments of `stoker ingest`. Meanwhile,
    /// `progress` is called with its progress. If that raises, the ingest ends.
    #[pyo3(signature = (args, dry_run, progress=None))]
    fn ingest<'py>(
        &self,
        py: Python<'py>,
        args: Vec<OsString>,
        dry_run: bool,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match dry_run {
            true => ingest(py, engine(py, "ingesting files")?, None, args, progress.as_ref()),
            false => {
                let (engine, connection) = self.local(py, INGESTING)?;
                ingest(py, engine, Some(&connection), args, progress.as_ref())
            }
        }
    }

    /// Begins a column whose values Python computes.
    fn begin_column(&self, py: Python<'_>, request: ColumnRequest) -> PyResult<ColumnWriter> {
        let (engine, connection) = self.local(py, "computing a column with a function")?;
        ColumnWriter::begin(py, engine, &connection, &request)
    }

    /// Executes a statement that changes the lake; returns its outcome. While it runs, `progress` is called with its newest
    /// progress. If that raises, the statement is cancelled.
    #[pyo3(signature = (sql, values, progress=None))]
    fn execute<'py>(
        &self,
        py: Python<'py>,
        sql: &str,
        values: Vec<Bound<'py, PyAny>>,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (connection, params) = (self.live(py)?, params(&values)?);
        let newest: Mutex<Option<StatementProgress>> = Mutex::new(None);
        let report = |progress| *newest.lock() = Some(progress);
        let tell = |py: Python<'_>| -> PyResult<()> {
            let told = newest.lock().take();
            if let (Some(progress), Some(told)) = (&progress, told) {
                progress.call1((to_python(py, &told)?,))?;
            }
            Ok(())
        };
        let outcome = wait_with(py, connection.execute(sql, &params, &report), tell)?.raise(py)?;
        to_python(py, &outcome)
    }

    /// Returns the statement that builds an index and replaces one of its name.
    #[staticmethod]
    fn index_statement(request: IndexRequest) -> String {
        request.into_statement().to_string()
    }

    /// Excludes rows from later versions; returns the version that excludes them.
    #[pyo3(signature = (name, row_addrs, reason=None))]
    fn quarantine(&self, py: Python<'_>, name: &str, row_addrs: Vec<u64>, reason: Option<String>) -> PyResult<u64> {
        let (engine, connection) = self.local(py, "excluding rows")?;
        let name = TableName::try_new(name).raise(py)?;
        wait(py, engine.quarantine(&connection, &name, &row_addrs, reason.as_deref()))?.raise(py)
    }
}

impl IndexRequest {
    fn into_statement(self) -> CreateIndex {
        let number = |number: Option<u64>| number.map(|number| OptionValue::Number(number.to_string()));
        let options = [
            ("num_partitions", number(self.num_partitions)),
            ("num_sub_vectors", number(self.num_sub_vectors)),
            ("metric", self.metric.map(OptionValue::Text)),
        ];
        CreateIndex {
            or_replace: true,
            name: self.name,
            table: QualifiedName(vec![self.table]),
            method: Some(self.kind),
            column: self.column,
            options: options.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect(),
            ..CreateIndex::default()
        }
    }
}

impl StreamRequest {
    fn to_plan(&self, py: Python<'_>, queries: &[(String, Vec<Bound<'_, PyAny>>)]) -> PyResult<PlanRequest> {
        let query = |(sql, values): &(String, Vec<Bound<'_, PyAny>>)| Ok(Query::new(sql, &params(values)?));
        let Some(stop) = MixtureStop::parse(&self.stop) else {
            let message = format!("stop is {:?}; it must be \"first\" or \"all\"", self.stop);
            return Err(error(py, ErrorKind::InvalidRequest, &message));
        };
        let epoch_rows = self.epoch_rows;
        Ok(PlanRequest {
            queries: queries.iter().map(query).collect::<PyResult<_>>()?,
            mix: self.weights.as_ref().map(|weights| MixOptions { weights: weights.clone(), stop, epoch_rows }),
            options: self.to_options(py)?,
            run_id: self.run_id.as_ref().map(RunId::try_new).transpose().raise(py)?,
        })
    }

    fn to_options(&self, py: Python<'_>) -> PyResult<StreamOptions> {
        let shuffle = match self.shuffle.as_str() {
            "block" => ShuffleMode::Block,
            "full" => ShuffleMode::Full,
            "sequential" => ShuffleMode::Sequential,
            other => {
                let message = format!("shuffle is {other:?}; it must be \"block\", \"full\" or False");
                return Err(error(py, ErrorKind::InvalidRequest, &message));
            }
        };
        let defaults = StreamOptions::default();
        Ok(StreamOptions {
            seed: self.seed,
            shuffle,
            shuffle_window_bytes: self.shuffle_window_bytes,
            block_bytes: self.block_bytes.unwrap_or(defaults.block_bytes),
            num_lanes: self.num_lanes.unwrap_or(defaults.num_lanes),
            order_version: self.order_version,
            weight: self.weight.clone(),
            pack: self.pack.as_ref().map(PackRequest::to_options),
            bucket: self.bucket.as_ref().map(|bucket| bucket.to_options(py)).transpose()?,
        })
    }
}

fn snapshot_ref(py: Python<'_>, version: Option<u64>, tag: Option<String>) -> PyResult<SnapshotRef> {
    match (version, tag) {
        (None, None) => Ok(SnapshotRef::Latest),
        (Some(version), None) => Ok(SnapshotRef::Version(version)),
        (None, Some(tag)) => Ok(SnapshotRef::Tag(tag)),
        (Some(_), Some(_)) => Err(error(py, ErrorKind::InvalidRequest, &"give either a version or a tag")),
    }
}
