//! A lake in this process.

use std::any::Any;
use std::ops::Deref;
use std::time::Duration;

use arrow_schema::{Schema, SchemaRef};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use stoker_client::ClientOptions;
use stoker_clock::Environment;
use stoker_session::{Connection, Lake, Patience, Result, RowWriter, SqlResult, StreamHandle, StreamSource};
use stoker_sql::Engine;
use stoker_statements::{BulkInsert, ColumnJob, ComputedColumn, IfMissing, IfPresent};
use stoker_stream::{Resources, StreamPlan};
use stoker_types::{Context, ParamValue, ProgressSink, SqlOptions, StatementOutcome, TableName, WriteRequest};

use crate::local_plan::LocalPlan;
use crate::local_writer::LocalWriter;

/// The engine of a lake in this process, and what its streams share. Cheap to clone; clones share both.
#[derive(Clone, Debug)]
pub struct LocalLake {
    engine: Engine,
    resources: Resources,
    retry_budget: Duration,
    patience: Patience,
}

impl LocalLake {
    /// Wraps an engine whose streams share resources, of which the lake has its clock.
    pub fn new(engine: Engine, resources: Resources) -> Self {
        Self::with_patience(engine, resources, Patience::new(ClientOptions::default().retry_budget))
    }

    /// As [`LocalLake::new`], with a retry policy. Calls to a lake on a local disk are never retried.
    pub(crate) fn with_patience(engine: Engine, resources: Resources, patience: Patience) -> Self {
        let retry_budget = patience.budget();
        let environment = Environment { clock: resources.clock().clone(), ..patience.environment().clone() };
        let patience = if engine.lake().is_local() { Patience::new(Duration::ZERO) } else { patience };
        Self { engine, resources, retry_budget, patience: patience.with_environment(environment) }
    }

    /// Returns the lake of a connection, if it is in this process.
    pub fn of(connection: &Connection) -> Option<&Self> {
        let lake: &dyn Any = connection.lake();
        lake.downcast_ref()
    }

    /// Returns what all streams share: the memory budget of batches that are being filled or wait to be taken, and the
    /// limits of reads.
    pub fn resources(&self) -> &Resources {
        &self.resources
    }

    /// Executes one statement for each row of parameters. The rows of an `INSERT` become one version; other statements
    /// are executed one after the other, up to the first one that fails.
    ///
    /// # Errors
    /// As for [`Lake::execute`].
    pub async fn execute_many(
        &self,
        sql: &str,
        rows_of_params: &[Vec<ParamValue>],
        progress: &ProgressSink<'_>,
    ) -> Result<StatementOutcome> {
        let environment = self.patience.environment();
        Ok(stoker_statements::execute_many(self, environment, sql, rows_of_params, progress).await?)
    }

    /// Begins a bulk insert of rows with these columns, which become one version of a table.
    ///
    /// # Errors
    /// Columns that the table does not have or cannot have; a table that does not exist or exists, as the options say;
    /// storage errors.
    pub async fn bulk_insert(
        &self,
        table: TableName,
        columns: &Schema,
        if_missing: IfMissing,
        if_present: IfPresent,
    ) -> Result<BulkInsert> {
        let environment = self.patience.environment();
        Ok(BulkInsert::begin(self, environment, table, columns, if_missing, if_present).await?)
    }

    /// Begins a column whose values the caller computes, or goes on with one that an earlier call began.
    ///
    /// # Errors
    /// A table or columns that do not exist; a new column that exists; storage errors.
    pub async fn compute_column(&self, column: ComputedColumn) -> Result<ColumnJob> {
        let environment = self.patience.environment();
        Ok(ColumnJob::begin(self.lake(), environment, column).await?)
    }

    /// Makes the handle of a stream that the engine planned.
    pub(crate) fn handle(&self, plan: StreamPlan) -> StreamHandle {
        let memory = self.resources.memory().clone();
        StreamHandle::new(LocalPlan::new(plan, self.clone()), self.retry_budget, memory)
    }
}

impl From<Engine> for LocalLake {
    /// Wraps an engine with the default resources.
    fn from(engine: Engine) -> Self {
        Self::new(engine, Resources::default())
    }
}

impl Deref for LocalLake {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Lake for LocalLake {
    fn is_local(&self) -> bool {
        true
    }

    fn patience(&self) -> &Patience {
        &self.patience
    }

    fn sql_schema<'a>(&'a self, sql: &'a str, params: &'a [ParamValue]) -> BoxFuture<'a, Result<SchemaRef>> {
        let plan = move || async move { Ok(self.columns(sql, params).await?) };
        self.patience.ask("planning a query", plan).boxed()
    }

    fn sql<'a>(
        &'a self,
        sql: &'a str,
        params: &'a [ParamValue],
        options: SqlOptions,
    ) -> BoxFuture<'a, Result<SqlResult>> {
        async move {
            let plan = || async { Ok(self.query_with_options(sql, params, &[], options.query).await?) };
            let query = self.patience.ask("planning a query", plan).await?;
            let rows = query.execute().await?.map(|batch| Ok(batch.map_err(stoker_sql::Error::from)?));
            Ok(SqlResult { schema: query.schema(), stream: rows.boxed() })
        }
        .boxed()
    }

    fn execute<'a>(
        &'a self,
        _: &'a Context,
        sql: &'a str,
        params: &'a [ParamValue],
        progress: &'a ProgressSink<'a>,
    ) -> BoxFuture<'a, Result<StatementOutcome>> {
        // It is not repeated: the statements themselves repeat what came into conflict with other commits.
        async move { self.execute_many(sql, &[params.to_vec()], progress).await }.boxed()
    }

    fn begin_write<'a>(
        &'a self,
        request: &'a WriteRequest,
        columns: &'a SchemaRef,
    ) -> BoxFuture<'a, Result<Box<dyn RowWriter>>> {
        async move { Ok(Box::new(LocalWriter::begin(self.lake(), request, columns).await?) as Box<dyn RowWriter>) }
            .boxed()
    }

    fn plan<'a>(&'a self, source: StreamSource<'a>) -> BoxFuture<'a, Result<StreamHandle>> {
        let attempted = match source {
            StreamSource::Request(_) => "planning a stream",
            StreamSource::Id(_) | StreamSource::Spec(_) => "loading a stream",
        };
        let plan = move || async move {
            Ok(match source {
                StreamSource::Request(request) => StreamPlan::plan(self, request).await?,
                StreamSource::Id(id) => StreamPlan::load_by_id(self, id).await?,
                StreamSource::Spec(spec) => StreamPlan::load(self, spec).await?,
            })
        };
        async move { Ok(self.handle(self.patience.ask(attempted, plan).await?)) }.boxed()
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        async {
            if let Some(cache) = self.resources.cache() {
                cache.settled().await;
            }
        }
        .boxed()
    }
}
