//! `DoAction`: requests of notebooks and clients beside queries. Requests and responses are JSON, except that
//! `rows_beside` responds with an Arrow IPC stream.

use std::ops::Range;
use std::time::Duration;

use arrow_flight::{ActionType, IpcMessage, SchemaAsIpc};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::Schema;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stoker_lake::{ColumnLayout, Diagnosis, Table, VersionInfo};
use stoker_stream::{
    BadRowEntry, Beside, EpochVerdict, ReadOptions, Receipt, RunEntry, log_bad_rows, log_run, run_entries, verify,
};
use stoker_types::{Digest, ParamValue, RunId, SnapshotRef, TableName, TagName};

use crate::decode::schema_of_answer;
use crate::server::auth::{Principal, Role};
use crate::server::state::ServerState;
use crate::write_key::WriteKey;
use crate::{Error, Result, beside_answer};

/// The actions: name, required role, description.
pub(crate) const ACTIONS: [(&str, Role, &str); 16] = [
    ("version", Role::Read, "the version of the server"),
    (
        "status",
        Role::Admin,
        "what the server did since it started: streams, rows, bytes, bytes sent, seconds waited; memory of batches",
    ),
    ("tables", Role::Read, "the names of all tables"),
    ("table", Role::Read, "{table, version?, tag?}: version, rows, schema and tags of a table"),
    ("versions", Role::Read, "{table}: its versions"),
    ("tag", Role::Write, "{table, version?, new_tag}: gives a version a tag"),
    ("describe", Role::Read, "{table, version?, tag?}: how its columns are stored"),
    ("doctor", Role::Read, "{table, version?, tag?}: what in its layout costs speed, and what to do about it"),
    ("explain", Role::Read, "{sql, params?}: the plan of a query"),
    ("verify", Role::Read, "{receipts}: whether the receipts of all ranks show that each row was seen exactly once"),
    ("run", Role::Read, "{run_id}: the log of a run"),
    ("log_bad_rows", Role::Read, "{bad_rows, write_key?}: adds rows to the table of bad rows"),
    ("rows", Role::Read, "{stream_id, epoch, positions: {start, end}}: the addresses of the rows at these positions"),
    ("nulls", Role::Read, "{stream_id, columns}: those of the columns that are null in a row of the stream"),
    (
        "rows_beside",
        Role::Read,
        "{stream_id or spec, epoch, beside: [{position, offset}], unverified?, retry_budget_millis?}: the first of these rows, each \
         `offset` rows after its position in the window of that, cyclically, as a stream of Arrow's IPC format",
    ),
    ("log_run", Role::Read, "{entry, write_key?}: adds an entry to the log of its run"),
];

/// The maximum number of rows whose addresses one call of the action `rows` returns.
pub(crate) const ROWS_MAX: u64 = 1 << 18;

/// The JSON body of an action's request.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ActionRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<ParamValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<RunEntry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bad_rows: Vec<BadRowEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_key: Option<WriteKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub positions: Option<Range<u64>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// The specification of a stream as JSON, for lakes to which the server cannot write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// If true, the checksums of rows are not verified.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unverified: bool,
    /// The retry budget of reads, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_budget_millis: Option<u64>,
}

/// The response to the action `table`.
#[derive(Serialize, Deserialize)]
pub(crate) struct TableAnswer {
    pub name: String,
    pub version: u64,
    pub num_rows: u64,
    /// The schema as an encapsulated IPC message, in base64.
    pub schema: String,
    pub tags: std::collections::BTreeMap<String, u64>,
}

pub(crate) fn action_types() -> Vec<ActionType> {
    let action = |(name, _, text): (&str, Role, &str)| ActionType { r#type: name.into(), description: text.into() };
    ACTIONS.into_iter().map(action).collect()
}

impl ServerState {
    pub(crate) async fn do_action(&self, principal: &Principal, name: &str, body: &[u8]) -> Result<Vec<u8>> {
        if let Some((_, role, _)) = ACTIONS.iter().find(|(known, ..)| *known == name) {
            principal.check(*role, &format!("action {name}"))?;
        }
        let request: ActionRequest = match body {
            [] => ActionRequest::default(),
            body => serde_json::from_slice(body)
                .map_err(|source| Error::invalid(format!("the body of action {name} is not its JSON: {source}")))?,
        };
        let answer = match name {
            "version" => json!({ "version": env!("CARGO_PKG_VERSION") }),
            "status" => json!(self.status()),
            "tables" => json!(self.engine.lake().tables().await?),
            "table" => json!(self.table_answer(name, &request).await?),
            "versions" => {
                let versions: Vec<VersionInfo> = self.action_table(name, &request).await?.versions().await?;
                json!(versions)
            }
            "tag" => {
                let tag = request.new_tag.as_deref().ok_or_else(|| Error::invalid("action tag needs new_tag"))?;
                self.action_table(name, &request).await?.create_tag(&TagName::try_new(tag)?).await?;
                json!({})
            }
            "describe" => {
                let columns: Vec<ColumnLayout> = self.action_table(name, &request).await?.describe().await?;
                json!(columns)
            }
            "doctor" => {
                let diagnosis: Diagnosis = self.action_table(name, &request).await?.doctor().await?;
                json!(diagnosis)
            }
            "explain" => {
                let sql = request.sql.as_deref().ok_or_else(|| Error::invalid("action explain needs sql"))?;
                let plan = self.engine.query(sql, &request.params).await?.explain().await?;
                json!(self.place_filter.filter(&plan))
            }
            "run" => {
                let run_id = request.run_id.as_ref().ok_or_else(|| Error::invalid("action run needs run_id"))?;
                json!(run_entries(&self.engine, run_id).await?)
            }
            "log_bad_rows" => {
                self.check_bad_rows(principal, &request.bad_rows).await?;
                let expense = self.spend_on_log(principal, request.bad_rows.len())?;
                let key = request.write_key.as_ref().map(WriteKey::commit_key);
                log_bad_rows(&self.engine, &request.bad_rows, key).await?;
                if let Some(expense) = expense {
                    expense.keep();
                }
                json!({})
            }
            "nulls" => {
                let stream_id = request.stream_id.ok_or_else(|| Error::invalid("action nulls needs stream_id"))?;
                json!(self.plan_by_id(stream_id).await?.nulls(&request.columns).await?)
            }
            "rows" => json!(self.row_addrs(&request).await?),
            "rows_beside" => return self.rows_beside(principal, &request).await,
            "log_run" => {
                let entry = request.entry.as_ref().ok_or_else(|| Error::invalid("action log_run needs entry"))?;
                self.check_run_entry(principal, entry).await?;
                let expense = self.spend_on_log(principal, 1)?;
                let key = request.write_key.as_ref().map(WriteKey::commit_key);
                log_run(&self.engine, entry, key).await?;
                if let Some(expense) = expense {
                    expense.keep();
                }
                json!({})
            }
            "verify" => json!(self.verify(&request.receipts).await?),
            other => {
                let names = ACTIONS.map(|(name, ..)| name).join(", ");
                return Err(Error::invalid(format!("there is no action {other:?}; actions: {names}")));
            }
        };
        serde_json::to_vec(&answer).map_err(Error::internal)
    }

    async fn verify(&self, receipts: &[Receipt]) -> Result<Vec<EpochVerdict>> {
        let limit = self.engine.options().query.running;
        match tokio::time::timeout(limit, verify(&self.engine, receipts)).await {
            Ok(verdicts) => Ok(verdicts?),
            Err(_) => {
                let reason = format!("verifying took {} s, which is its limit: send fewer receipts", limit.as_secs());
                Err(Error::ResourceExhausted { reason })
            }
        }
    }

    async fn row_addrs(&self, request: &ActionRequest) -> Result<Vec<Vec<u64>>> {
        let (Some(stream_id), Some(positions)) = (request.stream_id, request.positions.clone()) else {
            return Err(Error::invalid("action rows needs stream_id and positions"));
        };
        if positions.end.saturating_sub(positions.start) > ROWS_MAX {
            return Err(Error::invalid(format!(
                "action rows gives at most {ROWS_MAX} rows at once, not {positions:?}"
            )));
        }
        let positions: Vec<u64> = positions.collect();
        Ok(self.plan_by_id(stream_id).await?.row_addrs(request.epoch.unwrap_or(0), &positions).await?)
    }

    async fn rows_beside(&self, principal: &Principal, request: &ActionRequest) -> Result<Vec<u8>> {
        let plan = match (request.stream_id, &request.spec) {
            (_, Some(spec)) => self.plan_by_spec(spec.as_bytes(), principal).await?,
            (Some(stream_id), None) => self.plan_by_id(stream_id).await?,
            (None, None) => return Err(Error::invalid("action rows_beside needs stream_id or spec")),
        };
        let epoch = request.epoch.ok_or_else(|| Error::invalid("action rows_beside needs epoch"))?;
        let retry_budget = request.retry_budget_millis.map(Duration::from_millis);
        let options = ReadOptions { verify: !request.unverified, retry_budget, ..ReadOptions::default() };
        let rows = plan.rows_beside(&self.budget.for_client(&principal.name), epoch, &request.beside, &options).await?;
        beside_answer::encode(&rows)
    }

    async fn action_table(&self, action: &str, request: &ActionRequest) -> Result<Table> {
        let name = request.table.as_deref();
        let name = name.ok_or_else(|| Error::invalid(format!("action {action} needs a table")))?;
        let at = match (&request.version, &request.tag) {
            (Some(version), None) => SnapshotRef::Version(*version),
            (None, Some(tag)) => SnapshotRef::Tag(tag.clone()),
            (None, None) => SnapshotRef::Latest,
            (Some(version), Some(tag)) => {
                return Err(Error::invalid(format!(
                    "action {action} takes a version or a tag, not both; these are version {version} and tag {tag:?}"
                )));
            }
        };
        Ok(self.engine.lake().table(&TableName::try_new(name)?, &at).await?)
    }

    async fn table_answer(&self, action: &str, request: &ActionRequest) -> Result<TableAnswer> {
        let table = self.action_table(action, request).await?;
        Ok(TableAnswer {
            name: table.name().to_string(),
            version: table.version(),
            num_rows: table.num_rows(),
            schema: schema_to_text(&table.schema())?,
            tags: table.tags().await?,
        })
    }
}

fn schema_to_text(schema: &Schema) -> Result<String> {
    let message: IpcMessage =
        SchemaAsIpc::new(schema, &IpcWriteOptions::default()).try_into().map_err(Error::internal)?;
    Ok(BASE64_STANDARD.encode(&message.0))
}

pub(crate) fn schema_from_text(text: &str) -> Result<Schema> {
    let bytes = BASE64_STANDARD.decode(text).map_err(Error::internal)?;
    schema_of_answer(bytes.into())
}
