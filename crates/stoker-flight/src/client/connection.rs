//! A connection: the same calls to an engine in this process and to servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures::StreamExt;
use futures::stream::BoxStream;
use stoker_stream::StreamPlan;
use stoker_types::calls::{Answering, Answers, Call, OpenTable, TableAnswer, TableAt, TagVersion, check_call};
use stoker_types::{
    Compression, Context, Digest, ErrorKind, ParamValue, PlanRequest, Query, SnapshotRef, StreamOptions, StreamSpec,
    StreamState,
};

use crate::client::handle::{PlanOf, StreamHandle};
use crate::client::patience::Patience;
use crate::client::remote_sql::{remote_sql, remote_sql_schema, schema_of};
use crate::client::{LocalLake, RemoteLake};
use crate::convert::request_to_proto;
use crate::decode::fixed_bytes;
use crate::proto::{StreamRequest, command::Kind, stream_request::Source};
use crate::schema_text::schema_from_text;
use crate::{Error, Result};

/// A connection to a lake, in this process or through servers. Cheap to clone.
#[derive(Clone)]
pub enum Connection {
    /// An engine in this process.
    Local(LocalLake),
    /// One or several servers.
    Remote(RemoteLake),
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
}

/// The result of a SQL query.
pub struct SqlResult {
    /// The columns.
    pub schema: SchemaRef,
    /// The rows, in record batches, as the query produces them.
    pub stream: BoxStream<'static, Result<RecordBatch>>,
}

impl Connection {
    /// Asks one of the calls of [`stoker_types::calls`]. A call that may be repeated is repeated for the retry budget while nobody
    /// answers.
    ///
    /// # Errors
    /// As the documentation of the call says; storage errors; servers that cannot be reached.
    pub async fn call<C: Call>(&self, call: C) -> Result<C::Answer>
    where
        LocalLake: Answers<C, Error = Error>,
    {
        self.answer(&Context::local(), call).await
    }

    /// Asks a call once, of one server.
    pub(crate) async fn call_once<C: Call>(&self, call: C) -> Result<C::Answer>
    where
        LocalLake: Answers<C, Error = Error>,
    {
        match self {
            Connection::Local(lake) => {
                check_call(&call)?;
                lake.answer(&Context::local(), call).await
            }
            Connection::Remote(lake) => lake.call_once(&call).await,
        }
    }

    /// Describes a table at a snapshot.
    ///
    /// # Errors
    /// An unknown table, version or tag; storage errors.
    pub async fn table(&self, name: &str, at: &SnapshotRef) -> Result<TableInfo> {
        let TableAnswer { name, version, num_rows, schema, tags } =
            self.call(OpenTable(TableAt::new(name, at))).await?;
        let schema = Arc::new(schema_from_text(&schema)?);
        Ok(TableInfo { name, version, num_rows, schema, tags })
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
    pub(crate) fn patience(&self) -> &Patience {
        match self {
            Connection::Local(lake) => lake.patience(),
            Connection::Remote(lake) => lake.patience(),
        }
    }

    /// Plans a SELECT at snapshots that are pinned now, and does not run it: the columns that it gives.
    ///
    /// # Errors
    /// Malformed SQL, unknown tables and columns; storage errors.
    pub async fn sql_schema(&self, sql: &str, params: &[ParamValue]) -> Result<SchemaRef> {
        match self {
            Connection::Local(engine) => {
                let plan = || async { Ok(engine.query(sql, params).await?.schema()) };
                engine.patience().ask("planning a query", plan).await
            }
            Connection::Remote(lake) => remote_sql_schema(lake, sql, params).await,
        }
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
        match self {
            Connection::Local(engine) => {
                let plan = || async { Ok(engine.query(sql, params).await?) };
                let query = engine.patience().ask("planning a query", plan).await?;
                let rows = query.execute().await?.map(|batch| Ok(batch.map_err(stoker_sql::Error::from)?));
                Ok(SqlResult { schema: query.schema(), stream: rows.boxed() })
            }
            Connection::Remote(lake) => remote_sql(lake, sql, params, compression).await,
        }
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
    /// (kind `StateMismatch`).
    pub async fn plan(&self, request: &PlanRequest) -> Result<StreamHandle> {
        request.validate()?;
        match self {
            Connection::Local(lake) => {
                let call = || async { Ok(StreamPlan::plan(lake, request).await?) };
                Ok(StreamHandle::local(lake.patience().ask("planning a stream", call).await?, lake))
            }
            Connection::Remote(lake) => plan_remote(lake, Source::Query(request_to_proto(request))).await,
        }
    }

    /// Loads the stream with this id.
    ///
    /// # Errors
    /// `NotFound` for a stream that this lake does not know; storage errors.
    pub async fn stream_by_id(&self, stream_id: Digest) -> Result<StreamHandle> {
        match self {
            Connection::Local(lake) => {
                let call = || async { Ok(StreamPlan::load_by_id(lake, stream_id).await?) };
                Ok(StreamHandle::local(lake.patience().ask("loading a stream", call).await?, lake))
            }
            Connection::Remote(lake) => plan_remote(lake, Source::StreamId(stream_id.to_string())).await,
        }
    }

    /// Opens the stream of a state again.
    ///
    /// # Errors
    /// A stream that this lake does not know; data that changed (kind `StateMismatch`); storage errors.
    pub async fn load_stream(&self, state: &StreamState) -> Result<StreamHandle> {
        let handle = match (self, &state.spec) {
            (Connection::Local(lake), Some(spec)) => {
                let call = || async { Ok(StreamPlan::load(lake, spec).await?) };
                StreamHandle::local(lake.patience().ask("loading a stream", call).await?, lake)
            }
            (_, None) => self.stream_by_id(state.stream_id).await?,
            (Connection::Remote(lake), Some(spec)) => plan_remote(lake, Source::Spec(spec.to_json())).await?,
        };
        state.check(handle.spec())?;
        Ok(handle)
    }
}

pub(crate) async fn plan_remote(lake: &RemoteLake, source: Source) -> Result<StreamHandle> {
    let request = StreamRequest { source: Some(source), slice: None, num_endpoints: 0, read: None };
    let call = || lake.get_flight_info(Kind::Stream(request.clone()));
    let (info, spec_stored) = lake.patience().ask("planning a stream", call).await?;
    let spec = StreamSpec::from_json(&info.app_metadata)?;
    let schema = schema_of(&info)?;
    let (bytes, rows) = (u64::try_from(info.total_bytes).unwrap_or(0), u64::try_from(info.total_records).unwrap_or(0));
    // A row takes the bytes that the server estimates, and at least those of its columns of fixed width.
    let row_bytes = bytes.checked_div(rows).unwrap_or(0).max(fixed_bytes(&schema));
    let (retry_budget, place) = (lake.patience().budget(), PlanOf::Remote(lake.clone()));
    Ok(StreamHandle { spec, schema, spec_stored, row_bytes, retry_budget, place })
}

impl Answering for Connection {
    type Error = Error;
}

impl<C: Call> Answers<C> for Connection
where
    LocalLake: Answers<C, Error = Error>,
{
    async fn answer(&self, context: &Context, call: C) -> Result<C::Answer> {
        check_call(&call)?;
        match self {
            Connection::Local(lake) if C::IS_REPEATABLE => {
                lake.patience().ask(C::DOING, || lake.answer(context, call.clone())).await
            }
            Connection::Local(lake) => lake.answer(context, call).await,
            Connection::Remote(lake) => lake.answer(context, call).await,
        }
    }
}
