//! A connection: the same calls to an engine in this process and to servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::de::DeserializeOwned;
use stoker_lake::{ColumnLayout, Diagnosis, VersionInfo};
use stoker_stream::{Compression, EpochVerdict, PlanRequest, Query, Receipt, StreamOptions, StreamPlan};
use stoker_types::{Digest, ErrorKind, ParamValue, SnapshotRef, StreamSpec, StreamState, TableName, TagName};

use crate::client::handle::{Place, StreamHandle};
use crate::client::patience::Patience;
use crate::client::remote_sql::{remote_sql, remote_sql_schema, schema_of};
use crate::client::{LocalLake, RemoteLake};
use crate::convert::request_to_proto;
use crate::decode::fixed_bytes;
use crate::proto::{StreamRequest, command::Kind, stream_request::Source};
use crate::server::{ActionRequest, TableAnswer, schema_from_text};
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
    /// Lists the names of all tables, sorted.
    ///
    /// # Errors
    /// Storage errors; servers that cannot be reached.
    pub async fn tables(&self) -> Result<Vec<String>> {
        match self {
            Connection::Local(lake) => {
                let call = || async { Ok(lake.lake().tables().await?.into_iter().map(String::from).collect()) };
                lake.patience().ask("listing the tables", call).await
            }
            Connection::Remote(lake) => ask(lake, "tables", ActionRequest::default()).await,
        }
    }

    /// Describes a table at a snapshot.
    ///
    /// # Errors
    /// An unknown table, version or tag; storage errors.
    pub async fn table(&self, name: &str, at: &SnapshotRef) -> Result<TableInfo> {
        match self {
            Connection::Local(lake) => lake.patience().ask("opening a table", || local_table(lake, name, at)).await,
            Connection::Remote(lake) => {
                let answer: TableAnswer = ask(lake, "table", about(name, at)).await?;
                let schema = Arc::new(schema_from_text(&answer.schema)?);
                let TableAnswer { name, version, num_rows, tags, .. } = answer;
                Ok(TableInfo { name, version, num_rows, schema, tags })
            }
        }
    }

    /// Lists a table's versions, oldest first.
    ///
    /// # Errors
    /// An unknown table; storage errors.
    pub async fn versions(&self, name: &str) -> Result<Vec<VersionInfo>> {
        match self {
            Connection::Local(engine) => {
                Ok(engine.lake().table(&TableName::try_new(name)?, &SnapshotRef::Latest).await?.versions().await?)
            }
            Connection::Remote(lake) => ask(lake, "versions", about(name, &SnapshotRef::Latest)).await,
        }
    }

    /// Gives a version of a table a tag. When an answer is lost, the client retries; if the tag then exists, it checks
    /// whether the tag names this version.
    ///
    /// # Errors
    /// An unknown table or version, a tag that exists or is not valid; storage errors.
    pub async fn tag(&self, name: &str, at: &SnapshotRef, tag: &str) -> Result<()> {
        let version = match at {
            SnapshotRef::Version(version) => *version,
            at => self.table(name, at).await?.version,
        };
        let num_asked = AtomicU32::new(0);
        let call = || async {
            let is_first = num_asked.fetch_add(1, Ordering::Relaxed) == 0;
            match self.tag_once(name, version, tag).await {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && !is_first => {
                    let tags = self.table(name, &SnapshotRef::Latest).await?.tags;
                    if tags.get(tag) == Some(&version) { Ok(()) } else { Err(error) }
                }
                done => done,
            }
        };
        self.patience().ask("tagging a version", call).await
    }

    async fn tag_once(&self, name: &str, version: u64, tag: &str) -> Result<()> {
        let at = SnapshotRef::Version(version);
        match self {
            Connection::Local(engine) => {
                let table = engine.lake().table(&TableName::try_new(name)?, &at).await?;
                Ok(table.create_tag(&TagName::try_new(tag)?).await?)
            }
            Connection::Remote(lake) => {
                let request = ActionRequest { new_tag: Some(tag.to_string()), ..about(name, &at) };
                let body = serde_json::to_vec(&request).map_err(Error::internal)?;
                lake.do_action_once("tag", body).await.map(|_| ())
            }
        }
    }

    /// Returns the retry policy of the connection's calls.
    pub(crate) fn patience(&self) -> &Patience {
        match self {
            Connection::Local(lake) => lake.patience(),
            Connection::Remote(lake) => lake.patience(),
        }
    }

    /// Describes how a table's columns are stored.
    ///
    /// # Errors
    /// An unknown table, version or tag; damaged files; storage errors.
    pub async fn describe(&self, name: &str, at: &SnapshotRef) -> Result<Vec<ColumnLayout>> {
        match self {
            Connection::Local(engine) => {
                Ok(engine.lake().table(&TableName::try_new(name)?, at).await?.describe().await?)
            }
            Connection::Remote(lake) => ask(lake, "describe", about(name, at)).await,
        }
    }

    /// Finds what in a table's layout costs speed or safety, with advice for each finding.
    ///
    /// # Errors
    /// As for [`Connection::describe`]; `InvalidRequest` from servers that are too old to know the action.
    pub async fn doctor(&self, name: &str, at: &SnapshotRef) -> Result<Diagnosis> {
        match self {
            Connection::Local(engine) => {
                Ok(engine.lake().table(&TableName::try_new(name)?, at).await?.doctor().await?)
            }
            Connection::Remote(lake) => ask(lake, "doctor", about(name, at)).await,
        }
    }

    /// Plans a SELECT at the tables' current versions without running it, and returns the schema of its result.
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

    /// Returns the plan of a query as text.
    ///
    /// # Errors
    /// As for [`Connection::sql`].
    pub async fn explain(&self, sql: &str, params: &[ParamValue]) -> Result<String> {
        match self {
            Connection::Local(engine) => {
                let call = || async { Ok(engine.query(sql, params).await?.explain().await?) };
                engine.patience().ask("explaining a query", call).await
            }
            Connection::Remote(lake) => {
                let (sql, params) = (Some(sql.to_string()), params.to_vec());
                ask(lake, "explain", ActionRequest { sql, params, ..ActionRequest::default() }).await
            }
        }
    }

    /// Plans a stream: pins the tables of the sample query and computes its row set.
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

    /// Checks the receipts of all ranks of one stream. Returns a verdict for each epoch that the receipts name, in
    /// ascending order.
    ///
    /// # Errors
    /// Receipts of different streams, or of a stream that this lake does not know; errors of reading the row set.
    pub async fn verify(&self, receipts: &[Receipt]) -> Result<Vec<EpochVerdict>> {
        match self {
            Connection::Local(lake) => {
                let call = || async { Ok(stoker_stream::verify(lake, receipts).await?) };
                lake.patience().ask("verifying receipts", call).await
            }
            Connection::Remote(lake) => {
                let receipts = receipts.to_vec();
                ask(lake, "verify", ActionRequest { receipts, ..ActionRequest::default() }).await
            }
        }
    }

    /// Loads the stream of a state.
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
    let (retry_budget, place) = (lake.patience().budget(), Place::Remote(lake.clone()));
    Ok(StreamHandle { spec, schema, spec_stored, row_bytes, retry_budget, place })
}

async fn local_table(lake: &LocalLake, name: &str, at: &SnapshotRef) -> Result<TableInfo> {
    let table = lake.lake().table(&TableName::try_new(name)?, at).await?;
    Ok(TableInfo {
        name: name.to_string(),
        version: table.version(),
        num_rows: table.num_rows(),
        schema: table.schema(),
        tags: table.tags().await?,
    })
}

fn about(name: &str, at: &SnapshotRef) -> ActionRequest {
    let (version, tag) = match at {
        SnapshotRef::Latest => (None, None),
        SnapshotRef::Version(version) => (Some(*version), None),
        SnapshotRef::Tag(tag) => (None, Some(tag.clone())),
    };
    ActionRequest { table: Some(name.to_string()), version, tag, ..ActionRequest::default() }
}

pub(crate) async fn ask<T: DeserializeOwned>(lake: &RemoteLake, action: &str, request: ActionRequest) -> Result<T> {
    let body = serde_json::to_vec(&request).map_err(Error::internal)?;
    let answer = lake.do_action(action, body).await?;
    serde_json::from_slice(&answer)
        .map_err(|source| Error::internal(format!("action {action} was answered with {source}")))
}
