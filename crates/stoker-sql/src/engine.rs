//! The engine: a lake and limits; it plans queries, runs them and evaluates sample queries.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use futures::FutureExt;
use futures::future::BoxFuture;
use stoker_catalog::{view_names, view_query};
use stoker_chunks::{ChunkScan, ChunkScanOptions};
use stoker_dialect::{SQL_BYTES_MAX, expand_view, relations};
use stoker_functions::Activity;
use stoker_lake::{LakeStore, Table, WriteAllowance};
use stoker_types::{Digest, ParamValue, QueryOptions, Snapshot, SnapshotRef, StatementProgress, TableName};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::description::{StatementDescription, describe};
use crate::planner_threads::{on_large_stack, parsed};
use crate::planning::{Planned, Resolved, analyse, resolved};
use crate::query::KeptQueries;
use crate::resolve::{Author, Opened, Pins, open};
use crate::running::{Permits, QueryPool};
use crate::{Error, QueryLimits, QueueStatus, Result, RowSet, RowSource, SampleQuery, SqlQuery, row_set, sample};

/// The bytes of buffers that the chunk scan keeps for the next batches of heavy columns.
const POOL_BYTES: usize = 64 << 20;

/// The most threads that plan at the same time.
const PLANNERS_MAX: usize = 8;

/// The most views that a query reads, with the views that these read.
const VIEWS_MAX: usize = 32;

/// The most queries that wait for a planner. All ranks of a large job plan at the same time.
const PLANS_WAITING_MAX: usize = 4_096;

/// Limits of an [`Engine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// The most memory that all running queries together may hold in sorts, joins, aggregates and searches, in bytes.
    /// Sorts and aggregates spill to temporary files before they fail. Default: 1 GiB.
    pub memory_limit_bytes: usize,
    /// The most partitions of a plan. Default: the number of CPU cores.
    pub target_partitions: usize,
    /// The longest query, in bytes. Default: 65,536.
    pub max_sql_bytes: usize,
    /// The most expressions and subqueries of a query. Default: 5,000.
    pub max_sql_nodes: usize,
    /// The limits of each query, and how many queries run at the same time.
    pub query: QueryLimits,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            memory_limit_bytes: 1 << 30,
            target_partitions: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            max_sql_bytes: SQL_BYTES_MAX,
            max_sql_nodes: 5_000,
            query: QueryLimits::default(),
        }
    }
}

/// Takes the progress of the row sets that an engine evaluates: the rows that their scans passed, of all rows of the
/// scanned fragments. Row sets add up, those that begin later, too. One that needs no scan has no total.
pub type ProgressReports = watch::Sender<StatementProgress>;

/// Plans and runs SQL over one lake. Cheap to clone; clones share the memory pool.
///
/// The async methods need a tokio runtime. Planning happens on separate threads with large stacks, as many as there are
/// CPU cores but at least two and at most eight. Plans run on the caller's runtime, or on the runtime that was given to
/// [`Engine::with_threads`].
#[derive(Clone, Debug)]
pub struct Engine {
    lake: LakeStore,
    inner: Arc<Inner>,
    threads: Option<Handle>,
    /// Takes the progress of row sets.
    progress: Option<ProgressReports>,
}

#[derive(Debug)]
struct Inner {
    options: EngineOptions,
    pool: Arc<dyn MemoryPool>,
    planners: Permits,
    queries: Permits,
    chunks: ChunkScan,
    kept: KeptQueries,
}

impl Engine {
    /// Creates an engine over a lake.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use futures::TryStreamExt as _;
    /// use stoker_lake::{LakeStore, StorageOptions};
    /// use stoker_sql::{Engine, EngineOptions};
    ///
    /// let lake = LakeStore::open("lake", &StorageOptions::default()).await?;
    /// let engine = Engine::new(lake, EngineOptions::default());
    /// let query = engine.query("SELECT count(*) FROM digits AT (TAG => 'v1')", &[]).await?;
    /// let batches: Vec<_> = query.execute().await?.try_collect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(lake: LakeStore, options: EngineOptions) -> Self {
        let pool = Arc::new(GreedyMemoryPool::new(options.memory_limit_bytes));
        let QueryLimits { at_once, waiting, queued, .. } = options.query;
        let num_cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let planners =
            Permits::new("queries are being planned", num_cores.clamp(2, PLANNERS_MAX), PLANS_WAITING_MAX, queued);
        let queries = Permits::new("queries are running", at_once, waiting, queued);
        let chunks = ChunkScan::new(ChunkScanOptions { pool_bytes: POOL_BYTES, ..ChunkScanOptions::default() });
        let kept = KeptQueries::default();
        let inner = Inner { options, pool, planners, queries, chunks, kept };
        Self { lake, inner: Arc::new(inner), threads: None, progress: None }
    }

    /// Returns the engine with plans that run on this runtime instead of their callers' runtime, so that queries do not
    /// block a server's other work.
    #[must_use]
    pub fn with_threads(self, threads: Handle) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// Returns the engine with an allowance that limits what it may write beside the tables of the lake.
    #[must_use]
    pub fn within(&self, allowance: Arc<WriteAllowance>) -> Self {
        Self { lake: self.lake.within(allowance), ..self.clone() }
    }

    /// Returns the engine with a receiver of the progress of the row sets that it evaluates.
    #[must_use]
    pub fn reporting(self, progress: ProgressReports) -> Self {
        Self { progress: Some(progress), ..self }
    }

    pub(crate) fn progress(&self) -> Option<&ProgressReports> {
        self.progress.as_ref()
    }

    /// Returns the engine without a write allowance, for objects that are charged to no client, and without reports.
    pub(crate) fn unlimited(&self) -> Self {
        Self { lake: self.lake.unlimited(), progress: None, ..self.clone() }
    }

    /// The lake.
    pub fn lake(&self) -> &LakeStore {
        &self.lake
    }

    /// The limits.
    pub fn options(&self) -> &EngineOptions {
        &self.inner.options
    }

    /// Returns the runtime on which plans run.
    pub(crate) fn threads(&self) -> Result<Handle> {
        match &self.threads {
            Some(threads) => Ok(threads.clone()),
            None => Handle::try_current()
                .map_err(|source| Error::internal(format!("a query needs a tokio runtime: {source}"))),
        }
    }

    /// Returns how many queries run and how many wait.
    pub fn queue_status(&self) -> QueueStatus {
        self.inner.queries.status()
    }

    pub(crate) fn planner_permits(&self) -> &Permits {
        &self.inner.planners
    }

    pub(crate) fn query_permits(&self) -> &Permits {
        &self.inner.queries
    }

    /// Creates the [`Activity`] of a new query.
    pub(crate) fn activity(&self) -> Arc<Activity> {
        let pool = QueryPool::new(self.inner.pool.clone(), self.options().query.memory_bytes);
        Activity::new(Arc::new(pool), self.options().query.plan_nodes)
    }

    /// Creates the DataFusion runtime of one query, with limits on its memory and its temporary files.
    pub(crate) fn runtime_env(&self, activity: &Activity) -> Result<Arc<RuntimeEnv>> {
        let files = DiskManagerBuilder::default().with_max_temp_directory_size(self.options().query.temp_bytes);
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(activity.pool().clone());
        Ok(runtime.with_disk_manager_builder(files).build_arc()?)
    }

    /// Runs work on the runtime of plans. Dropping the returned future cancels the work.
    pub(crate) async fn on_threads<T: Send + 'static>(&self, work: BoxFuture<'static, Result<T>>) -> Result<T> {
        let task = AbortOnDropHandle::new(self.threads()?.spawn(work));
        task.await.map_err(|error| Error::internal(format!("a query ended early: {error}")))?
    }

    /// Returns the chunk scan that reads heavy columns. Its counters tell requests and bytes.
    pub(crate) fn chunks(&self) -> &ChunkScan {
        &self.inner.chunks
    }

    /// Plans a plain `SELECT`, an `EXPLAIN [ANALYZE] [FORMAT …] SELECT`, or a question about the catalog (`SHOW …`,
    /// `DESCRIBE t`). This call pins the snapshots.
    ///
    /// # Errors
    /// `InvalidRequest` for anything but one valid `SELECT` within the limits, for missing or unused parameters, and
    /// for predicates that cannot be applied before a search; `NotFound` for a table, version or tag; storage errors.
    pub async fn query(&self, sql: &str, params: &[ParamValue]) -> Result<SqlQuery> {
        self.query_pinned(sql, params, Pins::Named, QueryOptions::default()).await
    }

    /// Plans the same as [`Engine::query`], but reads tables for which the query names no version at these snapshots: the
    /// newest of each table. Tables without a snapshot are read at their newest version.
    ///
    /// # Errors
    /// As for [`Engine::query`].
    pub async fn query_at(&self, sql: &str, params: &[ParamValue], newest: &[Snapshot]) -> Result<SqlQuery> {
        self.query_with_options(sql, params, newest, QueryOptions::default()).await
    }

    /// Plans the same as [`Engine::query_at`], with options.
    ///
    /// # Errors
    /// As for [`Engine::query`].
    pub async fn query_with_options(
        &self,
        sql: &str,
        params: &[ParamValue],
        newest: &[Snapshot],
        options: QueryOptions,
    ) -> Result<SqlQuery> {
        self.query_pinned(sql, params, Pins::Newest(newest.to_vec()), options).await
    }

    /// Returns the columns of a query, and keeps the plan as [`Engine::keep`] does.
    ///
    /// # Errors
    /// As for [`Engine::query`].
    pub async fn columns(&self, sql: &str, params: &[ParamValue]) -> Result<SchemaRef> {
        let query = self.query(sql, params).await?;
        let columns = query.schema();
        self.keep(query);
        Ok(columns)
    }

    /// Keeps a plan for a moment. The first [`Engine::query_with_options`] of the same query takes it, if it reads the same
    /// snapshots.
    pub fn keep(&self, query: SqlQuery) {
        if let Ok(runtime) = self.threads() {
            self.inner.kept.put(query, &runtime);
        }
    }

    #[cfg(test)]
    pub(crate) fn num_kept(&self) -> usize {
        self.inner.kept.len()
    }

    /// Returns a function that counts what still holds the engine.
    #[cfg(test)]
    pub(crate) fn holders(&self) -> impl Fn() -> usize + use<> {
        let inner = Arc::downgrade(&self.inner);
        move || inner.strong_count()
    }

    /// Takes a plan that was kept, if it reads the pinned snapshots, or the newest ones without any.
    async fn kept(
        &self,
        sql: &str,
        params: &[ParamValue],
        pinned: &[Snapshot],
        options: QueryOptions,
    ) -> Option<SqlQuery> {
        let query = self.inner.kept.take(sql, params, options)?;
        if !pinned.is_empty() && query.snapshots() != pinned {
            return None;
        }
        for table in query.tables() {
            let is_same = match pinned.is_empty() {
                true => self.lake().table(table.name(), &SnapshotRef::Latest).await.map(|it| it.is_same_version(table)),
                false => self.lake().is_removed(&table.snapshot()).await.map(|is_removed| !is_removed),
            };
            // Planning again tells what is wrong.
            if !is_same.unwrap_or(false) {
                return None;
            }
        }
        Some(query)
    }

    async fn query_pinned(
        &self,
        sql: &str,
        params: &[ParamValue],
        pins: Pins,
        options: QueryOptions,
    ) -> Result<SqlQuery> {
        if let Pins::Newest(pinned) = &pins
            && let Some(kept) = self.kept(sql, params, pinned, options).boxed().await
        {
            return Ok(kept);
        }
        let (engine, values) = (self.clone(), params.to_vec());
        let finish = move |planned| async move { SqlQuery::try_new(&engine, planned, &values, options).await }.boxed();
        self.plan(sql, params, pins, Author::User, finish).await
    }

    /// Plans the query of a statement that changes a table. Such a query may read `__stoker_rows(t)`: the columns of a
    /// table and the address of each row, [`ROW_ADDRESS`](crate::ROW_ADDRESS). The table of the statement is read at
    /// this snapshot, and other tables as in [`Engine::query`].
    ///
    /// # Errors
    /// As for [`Engine::query`].
    pub async fn query_of_statement(&self, sql: &str, params: &[ParamValue], table: &Snapshot) -> Result<SqlQuery> {
        let engine = self.clone();
        let finish =
            |planned| async move { SqlQuery::try_new(&engine, planned, &[], QueryOptions::default()).await }.boxed();
        self.plan(sql, params, Pins::Newest(vec![table.clone()]), Author::Statement, finish).await
    }

    /// Plans a sample query. This call pins the snapshots.
    ///
    /// # Errors
    /// As for [`Engine::query`], and [`Error::NotSampleQuery`] with the reason.
    pub async fn sample(&self, sql: &str, params: &[ParamValue]) -> Result<SampleQuery> {
        self.sample_pinned(sql, params, Pins::Named).await
    }

    /// Plans a sample query at given snapshots, which [`SampleQuery::snapshots`] returned for the same SQL.
    ///
    /// # Errors
    /// As for [`Engine::sample`]; `InvalidRequest` when the snapshots are not those of the query's tables, in order.
    pub async fn sample_at(&self, sql: &str, params: &[ParamValue], snapshots: &[Snapshot]) -> Result<SampleQuery> {
        self.sample_pinned(sql, params, Pins::All(snapshots.to_vec())).await
    }

    async fn sample_pinned(&self, sql: &str, params: &[ParamValue], pins: Pins) -> Result<SampleQuery> {
        let values = params.to_vec();
        let finish = |planned: Planned| {
            let compiled = match planned.explain {
                Some(_) => Err(Error::NotSampleQuery { reason: "EXPLAIN gives text, not rows of a table".into() }),
                None => sample::compile(values, planned),
            };
            ready(compiled).boxed()
        };
        self.plan(sql, params, pins, Author::User, finish).await
    }

    /// Plans a query in three steps: parsing, opening tables, and planning. The time limit for planning applies to the
    /// first and the third step, not to opening tables, because the store may delay it.
    async fn plan<T: Send + 'static>(
        &self,
        sql: &str,
        params: &[ParamValue],
        pins: Pins,
        author: Author,
        finish: impl FnOnce(Planned) -> BoxFuture<'static, Result<T>> + Send + 'static,
    ) -> Result<T> {
        let activity = self.activity();
        let (resolved, tables) = self.opened(&activity, sql, Some(params), pins, author).await?;
        let (engine, session, values) = (self.clone(), activity.clone(), params.to_vec());
        let planning = async move { finish(analyse(&engine, &session, resolved, &tables, &values).await?).await };
        on_large_stack(self, &activity, planning.boxed()).await
    }

    /// Describes a statement that may have parameters, before it has their values: the columns of its result and the
    /// types of its parameters, as far as these follow from the statement.
    ///
    /// # Errors
    /// As for [`Engine::query`], apart from missing parameters.
    pub async fn describe(&self, sql: &str) -> Result<StatementDescription> {
        let activity = self.activity();
        let (resolved, tables) = self.opened(&activity, sql, None, Pins::Named, Author::User).await?;
        let (engine, session) = (self.clone(), activity.clone());
        let planning = async move { describe(&engine, &session, resolved, &tables).await };
        on_large_stack(self, &activity, planning.boxed()).await
    }

    /// Parses a query and opens its tables. A name that no table has may be that of a view: then its query is put into
    /// the text, which is parsed again. A query without views costs no request for views.
    async fn opened(
        &self,
        activity: &Arc<Activity>,
        sql: &str,
        params: Option<&[ParamValue]>,
        pins: Pins,
        author: Author,
    ) -> Result<(Resolved, Vec<Table>)> {
        let mut sql = sql.to_string();
        for _ in 0..=VIEWS_MAX {
            let (engine, text, values) = (self.clone(), sql.clone(), params.map(<[ParamValue]>::to_vec));
            let resolving = move || resolved(text, values.as_deref(), author, engine.options());
            let resolved = parsed(self, activity, sql.len(), resolving).await?;
            match self.open(resolved, &pins).await? {
                (resolved, Opened::Tables(tables)) => return Ok((resolved, tables)),
                (_, Opened::View(view, query)) => sql = self.with_view(activity, sql, view, query).await?,
            }
        }
        Err(too_many_views())
    }

    /// Opens the tables of a query. It does so on the caller's thread, unless plans have threads of their own.
    async fn open(&self, resolved: Resolved, pins: &Pins) -> Result<(Resolved, Opened)> {
        let (lake, pins) = (self.lake().clone(), pins.clone());
        let opening = async move {
            let opened = open(&lake, &resolved.requests.tables, &pins).await?;
            Ok((resolved, opened))
        };
        match self.threads {
            Some(_) => self.on_threads(opening.boxed()).await,
            None => opening.boxed().await,
        }
    }

    /// Puts the query of a view in place of its name.
    async fn with_view(&self, activity: &Arc<Activity>, sql: String, view: TableName, query: String) -> Result<String> {
        let expanding = async move {
            let expanded = expand_view(&sql, view.as_str(), &query)?;
            match expanded == sql {
                true => Err(Error::refused(
                    format!("view {view}"),
                    "searches and functions about tables need a table; read the view with SELECT … FROM",
                )),
                false => Ok(expanded),
            }
        };
        on_large_stack(self, activity, expanding.boxed()).await
    }

    /// Returns the names of the tables and views that a query reads, without the arguments of table functions.
    ///
    /// # Errors
    /// `InvalidRequest` for text that cannot be parsed.
    pub async fn relations(&self, sql: &str) -> Result<BTreeSet<String>> {
        let sql = sql.to_string();
        let reading = async move { Ok(relations(&sql)?) };
        on_large_stack(self, &self.activity(), reading.boxed()).await
    }

    /// Returns the text of a query with the queries of views in place of their names, as [`SqlQuery::sql`] and
    /// [`SampleQuery::sql`] return it for a planned query. The name of one view may be left as it is.
    ///
    /// # Errors
    /// `InvalidRequest` for text that cannot be parsed, and for more views than a query may read; storage errors.
    pub async fn expanded(&self, sql: &str, except: Option<&TableName>) -> Result<String> {
        let (lake, mut sql) = (self.lake(), sql.to_string());
        let mut views = view_names(lake).await?;
        views.retain(|view| Some(view) != except);
        for _ in 0..=VIEWS_MAX {
            let read = if views.is_empty() { BTreeSet::new() } else { self.relations(&sql).await? };
            let mut found = None;
            for name in views.iter().filter(|view| read.contains(view.as_str())) {
                if !lake.has_table(name).await? {
                    found = view_query(lake, name).await?.map(|query| (name.clone(), query));
                }
                if found.is_some() {
                    break;
                }
            }
            let Some((view, query)) = found else { return Ok(sql) };
            sql = self.with_view(&self.activity(), sql, view, query).await?;
        }
        Err(too_many_views())
    }

    /// Evaluates a sample query. This reads the columns that predicates and computed columns name, and no other heavy
    /// column.
    ///
    /// The row set is stored at `_stoker/rowsets/<digest>`. If the lake cannot be written, a warning is logged and the
    /// row set is kept in memory.
    ///
    /// # Errors
    /// Errors of running the query; `ResourceExhausted` when the query exceeds the memory limit.
    pub async fn row_set(&self, query: &SampleQuery) -> Result<Arc<RowSet>> {
        let (engine, query) = (self.clone(), query.clone());
        self.on_threads(async move { row_set::compute(&engine, &query).await.map(Arc::new) }.boxed()).await
    }

    /// Returns the source of a sample query's rows, which computes parts of its row set.
    pub fn row_source(&self, query: &SampleQuery) -> RowSource {
        RowSource::new(self, query)
    }

    /// Loads the row set with this digest from the lake, or computes it again if the lake does not have it.
    ///
    /// # Errors
    /// `StateMismatch` when the query selects other rows than those of the digest; else as for [`Engine::row_set`].
    pub async fn load_row_set(&self, query: &SampleQuery, digest: Digest) -> Result<Arc<RowSet>> {
        let (engine, query) = (self.clone(), query.clone());
        let work = async move { row_set::load_or_compute(&engine, &query, digest).await.map(Arc::new) };
        self.on_threads(work.boxed()).await
    }
}

fn too_many_views() -> Error {
    Error::refused(
        format!("a query reads more than {VIEWS_MAX} views"),
        "views may read other views, but not each other; copy a view with CREATE TABLE … AS SELECT …",
    )
}
