//! The engine: a lake, its limits, and the three things it does with a query.

use std::sync::Arc;

use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use stoker_chunks::{ChunkScan, ChunkScanOptions};
use stoker_lake::Lake;
use stoker_types::{Digest, ParamValue, Snapshot};

use crate::planning::{on_large_stack, plan};
use crate::{Error, Result, RowSet, SampleQuery, SqlQuery, row_set, sample};

/// Memory that is kept for the next batches of heavy columns, in bytes.
const POOL_BYTES: usize = 64 << 20;

/// Limits of an [`Engine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// The most memory that all running queries together may hold in sorts, joins, aggregates and searches, in bytes.
    /// Sorts and aggregates spill to temporary files before they fail. Default: 1 GiB.
    pub memory_limit_bytes: usize,
    /// How many partitions a plan has at most. Default: the number of CPU cores.
    pub target_partitions: usize,
    /// The longest query, in bytes. Default: 65,536.
    pub max_sql_bytes: usize,
    /// The most expressions and subqueries in a query. Default: 5,000.
    pub max_sql_nodes: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            memory_limit_bytes: 1 << 30,
            target_partitions: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            max_sql_bytes: 65_536,
            max_sql_nodes: 5_000,
        }
    }
}

/// Plans and runs SQL over one lake. Cheap to clone; clones share the memory pool.
///
/// All methods need a tokio runtime. Planning happens on a thread of its own with a large stack.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    lake: Lake,
    options: EngineOptions,
    runtime: Arc<RuntimeEnv>,
    chunks: ChunkScan,
}

impl Engine {
    /// An engine over a lake.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use futures::TryStreamExt as _;
    /// use stoker_lake::{Lake, StorageOptions};
    /// use stoker_sql::{Engine, EngineOptions};
    ///
    /// let lake = Lake::open("lake", &StorageOptions::default()).await?;
    /// let engine = Engine::new(lake, EngineOptions::default());
    /// let query = engine.query("SELECT count(*) FROM digits AT (TAG => 'v1')", &[]).await?;
    /// let batches: Vec<_> = query.execute().await?.try_collect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(lake: Lake, options: EngineOptions) -> Self {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(options.memory_limit_bytes, 1.0).build_arc();
        // Building fails only for directories that were configured; none is.
        let runtime = runtime.unwrap_or_default();
        let chunks = ChunkScan::new(ChunkScanOptions { pool_bytes: POOL_BYTES, ..ChunkScanOptions::default() });
        Self { inner: Arc::new(Inner { lake, options, runtime, chunks }) }
    }

    /// The lake.
    pub fn lake(&self) -> &Lake {
        &self.inner.lake
    }

    /// The limits.
    pub fn options(&self) -> &EngineOptions {
        &self.inner.options
    }

    pub(crate) fn runtime(&self) -> &Arc<RuntimeEnv> {
        &self.inner.runtime
    }

    /// How heavy columns are read; its counts tell requests and bytes.
    pub(crate) fn chunks(&self) -> &ChunkScan {
        &self.inner.chunks
    }

    /// Plans a plain `SELECT` (or `EXPLAIN [ANALYZE] SELECT`) at snapshots that are pinned now.
    ///
    /// # Errors
    /// `InvalidRequest` for what is not one valid `SELECT` within the limits, for missing or unused parameters, and for
    /// predicates that cannot be applied before a search; `NotFound` for a table, version or tag; storage errors.
    pub async fn query(&self, sql: &str, params: &[ParamValue]) -> Result<SqlQuery> {
        let (engine, sql, params) = (self.clone(), sql.to_string(), params.to_vec());
        on_large_stack(async move { SqlQuery::try_new(plan(&engine, &sql, &params, None).await?).await }).await
    }

    /// Plans a sample query at snapshots that are pinned now.
    ///
    /// # Errors
    /// As for [`Engine::query`], and [`Error::NotSampleQuery`] with the reason.
    pub async fn sample(&self, sql: &str, params: &[ParamValue]) -> Result<SampleQuery> {
        self.sample_pinned(sql, params, None).await
    }

    /// Plans a sample query at given snapshots, as [`SampleQuery::snapshots`] gave them for the same SQL.
    ///
    /// # Errors
    /// As for [`Engine::sample`]; `InvalidRequest` when the snapshots are not those of the query's tables in order.
    pub async fn sample_at(&self, sql: &str, params: &[ParamValue], snapshots: &[Snapshot]) -> Result<SampleQuery> {
        self.sample_pinned(sql, params, Some(snapshots.to_vec())).await
    }

    async fn sample_pinned(
        &self,
        sql: &str,
        params: &[ParamValue],
        pinned: Option<Vec<Snapshot>>,
    ) -> Result<SampleQuery> {
        let (engine, sql, params) = (self.clone(), sql.to_string(), params.to_vec());
        on_large_stack(async move {
            let planned = plan(&engine, &sql, &params, pinned.as_deref()).await?;
            if planned.explains {
                return Err(Error::NotSampleQuery { reason: "EXPLAIN gives text, not rows of a table".into() });
            }
            sample::compile(sql, params, planned)
        })
        .await
    }

    /// Evaluates a sample query: reads the columns that predicates and computed columns name, no other heavy column.
    ///
    /// The row set is stored at `_stoker/rowsets/<digest>`. A lake that cannot be written gives a warning; the row set
    /// is then kept in memory.
    ///
    /// # Errors
    /// Errors of running the query; `ResourceExhausted` past the memory limit.
    pub async fn row_set(&self, query: &SampleQuery) -> Result<Arc<RowSet>> {
        row_set::compute(self, query).await.map(Arc::new)
    }

    /// The row set with this digest: from the lake, else computed again.
    ///
    /// # Errors
    /// `StateMismatch` when the query selects other rows than the digest says; as for [`Engine::row_set`].
    pub async fn load_row_set(&self, query: &SampleQuery, digest: Digest) -> Result<Arc<RowSet>> {
        row_set::load_or_compute(self, query, digest).await.map(Arc::new)
    }
}
