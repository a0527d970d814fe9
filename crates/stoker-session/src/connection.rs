//! A connection to a lake.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures::stream::BoxStream;
use stoker_types::calls::{
    Answering, Answers, BoxedAnswers, Call, OpenTable, TableAnswer, TableAt, TableSize, TagVersion, check_call,
};
use stoker_types::{
    Compression, Context, Digest, ErrorKind, ParamValue, PlanRequest, ProgressSink, Query, SnapshotRef, SqlOptions,
    StatementOutcome, StreamOptions, StreamState, TableName,
};

use crate::{Error, Lake, Patience, Result, StreamHandle, StreamSource};

/// A connection to a lake, in this process or through servers. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    lake: Arc<dyn Lake>,
}

/// A table's description.
#[derive(Clone, Debug)]
pub struct TableInfo {
    /// The table's name.
    pub name: String,
    /// The pinned version.
    pub version: u64,
    /// The number of rows at that version.
    pub num_rows: u64,
    /// The Arrow schema.
    pub schema: SchemaRef,
    /// The table's tags, each with its version.
    pub tags: BTreeMap<String, u64>,
    /// What the version takes in storage; `None` from servers that do not tell it.
    pub size: Option<TableSize>,
}

/// The result of a SQL query.
pub struct SqlResult {
    /// The columns.
    pub schema: SchemaRef,
    /// The rows, in record batches, as the query produces them.
    pub stream: BoxStream<'static, Result<RecordBatch>>,
}

impl Connection {
    /// Makes a connection to a lake.
    pub fn new(lake: impl Lake) -> Self {
        Self { lake: Arc::new(lake) }
    }

    /// Returns the lake.
    pub fn lake(&self) -> &dyn Lake {
        self.lake.as_ref()
    }

    /// Asks one of the calls of [`stoker_types::calls`]. A call that may be repeated is repeated for the retry budget
    /// while nobody answers.
    ///
    /// # Errors
    /// As the documentation of the call says; storage errors; servers that cannot be reached.
    pub async fn call<C: Call>(&self, call: C) -> Result<C::Answer>
    where
        dyn Lake: BoxedAnswers<C, Error = Error>,
    {
        self.answer(&Context::local(), call).await
    }

    /// Asks a call once, of one server.
    pub(crate) async fn call_once<C: Call>(&self, call: C) -> Result<C::Answer>
    where
        dyn Lake: BoxedAnswers<C, Error = Error>,
    {
        check_call(&call)?;
        self.lake.boxed_answer(&Context::local(), call).await
    }

    /// Describes a table at a snapshot.
    ///
    /// # Errors
    /// An unknown table, version or tag; storage errors.
    pub async fn table(&self, name: &str, at: &SnapshotRef) -> Result<TableInfo> {
        TableName::try_new(name)?;
        let TableAnswer { name, version, num_rows, schema, tags, size } =
            self.call(OpenTable(TableAt::new(name, at))).await?;
        let schema = schema.0;
        Ok(TableInfo { name, version, num_rows, schema, tags, size })
    }

    /// Gives a version of a table a tag. Where an answer is lost, the next attempt looks whether the tag was made.
    ///
    /// # Errors
    /// An unknown table or version, a tag that exists or is not valid; storage errors.
    pub async fn tag(&self, name: &str, at: &SnapshotRef, tag: &str) -> Result<()> {
        let version = match at {
            SnapshotRef::Version(version) => *version,
            at => self.table(name, at).await?.version,
        };
        let (table, new_tag) = (Some(name.to_string()), tag.to_string());
        let tagging = TagVersion { table, version: Some(version), tag: None, new_tag };
        let num_asked = AtomicU32::new(0);
        let call = || async {
            let is_first = num_asked.fetch_add(1, Ordering::Relaxed) == 0;
            match self.call_once(tagging.clone()).await {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && !is_first => {
                    let tags = self.table(name, &SnapshotRef::Latest).await?.tags;
                    if tags.get(tag) == Some(&version) { Ok(()) } else { Err(error) }
                }
                done => done.map(|_| ()),
            }
        };
        self.patience().ask(TagVersion::DOING, call).await
    }

    /// Returns the retry policy of the connection's calls.
    pub fn patience(&self) -> &Patience {
        self.lake.patience()
    }

    /// Plans a SELECT at snapshots that are pinned now, and does not run it: the columns that it gives.
    ///
    /// # Errors
    /// Malformed SQL, unknown tables and columns; storage errors.
    pub async fn sql_schema(&self, sql: &str, params: &[ParamValue]) -> Result<SchemaRef> {
        self.lake.sql_schema(sql, params).await
    }

    /// Runs a SELECT at the tables' current versions.
    ///
    /// # Errors
    /// Malformed SQL, unknown tables and columns; storage errors, which may also come later in the stream.
    pub async fn sql(&self, sql: &str, params: &[ParamValue]) -> Result<SqlResult> {
        self.sql_compressed(sql, params, None).await
    }

    /// As [`Connection::sql`], with rows that a server compresses on the wire. The engine in this process ignores
    /// `compression`.
    ///
    /// # Errors
    /// As for [`Connection::sql`].
    pub async fn sql_compressed(
        &self,
        sql: &str,
        params: &[ParamValue],
        compression: Option<Compression>,
    ) -> Result<SqlResult> {
        self.sql_with(sql, params, SqlOptions { compression, ..SqlOptions::default() }).await
    }

    /// As [`Connection::sql`], with options.
    ///
    /// # Errors
    /// As for [`Connection::sql`].
    pub async fn sql_with(&self, sql: &str, params: &[ParamValue], options: SqlOptions) -> Result<SqlResult> {
        self.lake.sql(sql, params, options).await
    }

    /// Executes one statement that changes the lake, such as `CREATE INDEX`. It is sent once, and has no deadline.
    ///
    /// ```no_run
    /// # async fn example(connection: stoker_session::Connection) -> stoker_session::Result<()> {
    /// let statement = "CREATE INDEX ON photos USING ivf_pq (embedding)";
    /// let outcome = connection.execute(statement, &[], &|progress| eprintln!("{progress}")).await?;
    /// println!("{outcome}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Lake::execute`].
    pub async fn execute(
        &self,
        sql: &str,
        params: &[ParamValue],
        progress: &ProgressSink<'_>,
    ) -> Result<StatementOutcome> {
        self.lake.execute(&Context::local(), sql, params, progress).await
    }

    /// Plans a stream: pins the sample query and makes its row set.
    ///
    /// # Errors
    /// A query that is not a sample query, invalid options; storage errors.
    pub async fn plan_stream(&self, sql: &str, params: &[ParamValue], options: &StreamOptions) -> Result<StreamHandle> {
        self.plan(&PlanRequest::new(Query::new(sql, params), options.clone())).await
    }

    /// Plans a stream over one query or over a mixture of several, or finds the stream of a run.
    ///
    /// # Errors
    /// As for [`Connection::plan_stream`]; weights that do not fit the queries; a run that delivers another stream
    /// (kind `StateMismatch`); buckets or their options, for a server that is too old to know them.
    pub async fn plan(&self, request: &PlanRequest) -> Result<StreamHandle> {
        request.validate()?;
        let handle = self.lake.plan(StreamSource::Request(request)).await?;
        let Some(asked) = &request.options.bucket else { return Ok(handle) };
        let planned = handle.spec().sources.first().and_then(|source| source.bucket.as_ref());
        match planned.map(|bucket| bucket.options.longer == asked.longer) {
            None => Err(Error::invalid("the server is too old to know buckets: update it, or leave bucket out")),
            Some(false) => {
                let advice =
                    "the server is too old to refuse rows longer than a bucket: update it, or leave longer out";
                Err(Error::invalid(advice))
            }
            Some(true) => Ok(handle),
        }
    }

    /// Loads the stream with this id.
    ///
    /// # Errors
    /// `NotFound` for a stream that this lake does not know; storage errors.
    pub async fn stream_by_id(&self, stream_id: Digest) -> Result<StreamHandle> {
        self.lake.plan(StreamSource::Id(stream_id)).await
    }

    /// Opens the stream of a state again.
    ///
    /// # Errors
    /// A stream that this lake does not know; data that changed (kind `StateMismatch`); storage errors.
    pub async fn load_stream(&self, state: &StreamState) -> Result<StreamHandle> {
        let source = state.spec.as_ref().map_or(StreamSource::Id(state.stream_id), StreamSource::Spec);
        let handle = self.lake.plan(source).await?;
        state.check(handle.spec())?;
        Ok(handle)
    }

    /// Waits until the chunk cache of this process has measured its folder and has written all chunks that streams
    /// handed to it. A process that ends earlier loses the last chunks and has to read them from the store again. Does
    /// nothing for a connection to servers.
    pub async fn settle(&self) {
        self.lake.settle().await;
    }
}

impl Answering for Connection {
    type Error = Error;
}

impl<C: Call> Answers<C> for Connection
where
    dyn Lake: BoxedAnswers<C, Error = Error>,
{
    /// Asks a call that may be repeated until the deadline of its context: an attempt that runs then ends, and none
    /// begins after it. A write has no deadline: one that was begun is finished.
    async fn answer(&self, context: &Context, call: C) -> Result<C::Answer> {
        check_call(&call)?;
        if !C::IS_REPEATABLE {
            return self.lake.boxed_answer(context, call).await;
        }
        let answer = self.patience().ask(C::DOING, || self.lake.boxed_answer(context, call.clone()));
        let is_late = || Error::Deadline { attempted: format!("action {}", C::NAME) };
        let clock = self.patience().clock();
        match context.deadline {
            None => answer.await,
            Some(deadline) if deadline <= clock.now() => Err(is_late()),
            Some(deadline) => clock.timeout_at(deadline, answer).await.unwrap_or_else(|| Err(is_late())),
        }
    }
}
