//! The calls, answered by the lake in this process. A server answers with the same code.

use std::collections::BTreeMap;
use std::time::Duration;

use stoker_maintenance::{describe, doctor};
use stoker_session::{Error, Result};
use stoker_stream::{Resources, StreamPlan, log_bad_rows, log_run, run_entries, verify};
use stoker_types::calls::{
    Answering, Answers, DescribeTable, Done, ExamineTable, ExplainQuery, FindNulls, FindRows, FindWrite, GetStatus,
    GetVersion, IpcBytes, ListStreams, ListTables, ListVersions, LogBadRows, LogRun, OpenStream, OpenTable, ReadBeside,
    ReadRunLog, SchemaText, ServerStatus, ServerVersion, TableAnswer, TableAt, TableSize, TagVersion, VerifyReceipts,
};
use stoker_types::{
    ColumnLayout, Context, Diagnosis, EpochVerdict, QueryOptions, ReadOptions, RunEntry, StreamSpec, TagName,
    VersionInfo,
};
use stoker_wire::beside_answer;

use crate::commit_key::commit_key;
use crate::local_lake::LocalLake;

impl Answering for LocalLake {
    type Error = Error;
}

impl LocalLake {
    async fn table(&self, at: &TableAt) -> Result<stoker_lake::Table> {
        Ok(self.lake().table(&at.name()?, &at.at()).await?)
    }
}

impl Answers<GetVersion> for LocalLake {
    async fn answer(&self, _: &Context, _: GetVersion) -> Result<ServerVersion> {
        Ok(ServerVersion { version: env!("CARGO_PKG_VERSION").into() })
    }
}

impl Answers<GetStatus> for LocalLake {
    async fn answer(&self, _: &Context, _: GetStatus) -> Result<ServerStatus> {
        Err(Error::invalid(
            "only a server has a status, and this connection is to a lake in this process: use `stream.stats()`",
        ))
    }
}

impl Answers<ListStreams> for LocalLake {
    async fn answer(&self, _: &Context, _: ListStreams) -> Result<Vec<OpenStream>> {
        Ok(self.resources().open_streams())
    }
}

impl Answers<ListTables> for LocalLake {
    async fn answer(&self, _: &Context, _: ListTables) -> Result<Vec<String>> {
        Ok(self.lake().tables().await?.into_iter().map(String::from).collect())
    }
}

impl Answers<OpenTable> for LocalLake {
    async fn answer(&self, _: &Context, OpenTable(at): OpenTable) -> Result<TableAnswer> {
        let table = self.table(&at).await?;
        let tags: BTreeMap<String, u64> = table.tags().await?;
        Ok(TableAnswer {
            name: table.name().to_string(),
            version: table.version(),
            num_rows: table.num_rows(),
            schema: SchemaText(table.schema()),
            tags,
            size: Some(size(&table)),
        })
    }
}

/// What a table takes in storage, from its manifest.
fn size(table: &stoker_lake::Table) -> TableSize {
    let fragments = table.fragments();
    let deleted = fragments.iter().map(|fragment| fragment.physical_rows.saturating_sub(fragment.num_rows));
    TableSize { bytes: table.data_bytes(), num_fragments: fragments.len() as u64, num_deleted_rows: deleted.sum() }
}

impl Answers<ListVersions> for LocalLake {
    async fn answer(&self, _: &Context, ListVersions(at): ListVersions) -> Result<Vec<VersionInfo>> {
        Ok(self.table(&at).await?.versions().await?)
    }
}

impl Answers<TagVersion> for LocalLake {
    async fn answer(&self, _: &Context, call: TagVersion) -> Result<Done> {
        let tag = TagName::try_new(call.new_tag.as_str())?;
        self.table(&call.table_at()).await?.create_tag(&tag).await?;
        Ok(Done {})
    }
}

impl Answers<DescribeTable> for LocalLake {
    async fn answer(&self, _: &Context, DescribeTable(at): DescribeTable) -> Result<Vec<ColumnLayout>> {
        Ok(describe(&self.table(&at).await?).await?)
    }
}

impl Answers<ExamineTable> for LocalLake {
    async fn answer(&self, _: &Context, ExamineTable(at): ExamineTable) -> Result<Diagnosis> {
        Ok(doctor(&self.table(&at).await?).await?)
    }
}

impl Answers<ExplainQuery> for LocalLake {
    async fn answer(&self, _: &Context, call: ExplainQuery) -> Result<String> {
        let options = QueryOptions::approximate(call.approximate);
        Ok(self.query_with_options(&call.sql, &call.params, &[], options).await?.explain().await?)
    }
}

impl Answers<VerifyReceipts> for LocalLake {
    async fn answer(&self, _: &Context, call: VerifyReceipts) -> Result<Vec<EpochVerdict>> {
        Ok(verify(self, &call.receipts).await?)
    }
}

impl Answers<ReadRunLog> for LocalLake {
    async fn answer(&self, _: &Context, call: ReadRunLog) -> Result<Vec<RunEntry>> {
        Ok(run_entries(self, &call.run_id).await?)
    }
}

impl Answers<LogRun> for LocalLake {
    async fn answer(&self, _: &Context, LogRun { entry, write_key }: LogRun) -> Result<Done> {
        log_run(self, &entry, write_key.as_ref().map(commit_key), self.resources().clock()).await?;
        Ok(Done {})
    }
}

impl Answers<LogBadRows> for LocalLake {
    async fn answer(&self, _: &Context, LogBadRows { bad_rows, write_key }: LogBadRows) -> Result<Done> {
        log_bad_rows(self, &bad_rows, write_key.as_ref().map(commit_key)).await?;
        Ok(Done {})
    }
}

impl Answers<FindWrite> for LocalLake {
    async fn answer(&self, _: &Context, FindWrite { table, write_key }: FindWrite) -> Result<Option<u64>> {
        Ok(stoker_statements::find_write(self.lake(), &table, &write_key).await?)
    }
}

impl Answers<FindRows> for LocalLake {
    async fn answer(&self, _: &Context, call: FindRows) -> Result<Vec<Vec<u64>>> {
        find_rows(&StreamPlan::load_by_id(self, call.stream_id).await?, call).await
    }
}

impl Answers<FindNulls> for LocalLake {
    async fn answer(&self, _: &Context, FindNulls { stream_id, columns }: FindNulls) -> Result<Vec<String>> {
        Ok(StreamPlan::load_by_id(self, stream_id).await?.nulls(&columns).await?)
    }
}

impl Answers<ReadBeside> for LocalLake {
    async fn answer(&self, _: &Context, call: ReadBeside) -> Result<IpcBytes> {
        let plan = match (&call.spec, call.stream_id) {
            (Some(spec), _) => StreamPlan::load(self, &StreamSpec::from_json(spec.as_bytes())?).await?,
            (None, Some(stream_id)) => StreamPlan::load_by_id(self, stream_id).await?,
            (None, None) => return Err(Error::invalid("the request names no stream")),
        };
        read_beside(&plan, self.resources(), call).await
    }
}

/// The addresses of rows of a stream, by its plan.
pub async fn find_rows(plan: &StreamPlan, call: FindRows) -> Result<Vec<Vec<u64>>> {
    let positions: Vec<u64> = call.positions.collect();
    Ok(plan.row_addrs(call.epoch, &positions).await?)
}

/// Rows of windows of a stream, by its plan.
pub async fn read_beside(plan: &StreamPlan, resources: &Resources, call: ReadBeside) -> Result<IpcBytes> {
    let retry_budget = call.retry_budget_millis.map(Duration::from_millis);
    let options = ReadOptions { verify: !call.unverified, retry_budget, ..ReadOptions::default() };
    let plan = plan.with_clips(&call.clips)?;
    let rows = plan.rows_beside(resources, call.epoch.unwrap_or(0), &call.beside, &options).await?;
    Ok(IpcBytes(beside_answer::encode(&rows)?))
}
