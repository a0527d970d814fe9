//! The calls, answered by the server: by its lake, except where the server keeps plans, limits its clients or hides its
//! location.

use stoker::{find_rows, read_beside};
use stoker_lake::Expense;
use stoker_session::{Error, Result};
use stoker_types::calls::{
    Answering, Answers, Call, DescribeTable, Done, ExamineTable, ExplainQuery, FindNulls, FindRows, FindWrite,
    GetStatus, GetVersion, IpcBytes, ListStreams, ListTables, ListVersions, LogBadRows, LogRun, OpenTable, ReadBeside,
    ReadRunLog, ServerStatus, TagVersion, VerifyReceipts,
};
use stoker_types::{Context, EpochVerdict};

use crate::state::ServerState;

impl Answering for ServerState {
    type Error = Error;
}

/// Calls that the lake answers alone.
macro_rules! pass_on {
    ($($call:ident)*) => {
        $(
            impl Answers<$call> for ServerState {
                async fn answer(&self, context: &Context, call: $call) -> Result<<$call as Call>::Answer> {
                    self.lake.answer(context, call).await
                }
            }
        )*
    };
}

pass_on! {
    GetVersion ListStreams ListTables OpenTable ListVersions TagVersion DescribeTable ExamineTable ReadRunLog FindWrite
}

impl Answers<GetStatus> for ServerState {
    async fn answer(&self, _: &Context, _: GetStatus) -> Result<ServerStatus> {
        Ok(self.status())
    }
}

impl Answers<ExplainQuery> for ServerState {
    async fn answer(&self, context: &Context, call: ExplainQuery) -> Result<String> {
        let plan = self.lake.answer(context, call).await?;
        Ok(self.place_filter.filter(&plan))
    }
}

impl Answers<VerifyReceipts> for ServerState {
    async fn answer(&self, context: &Context, call: VerifyReceipts) -> Result<Vec<EpochVerdict>> {
        let limit = self.lake.options().query.running;
        match self.environment.clock.timeout(limit, self.lake.answer(context, call)).await {
            Some(verdicts) => verdicts,
            None => {
                let secs = limit.as_secs();
                let reason = format!("verifying the receipts took more than {secs} s, the limit: send fewer receipts");
                Err(Error::ResourceExhausted { reason })
            }
        }
    }
}

impl Answers<LogRun> for ServerState {
    async fn answer(&self, context: &Context, call: LogRun) -> Result<Done> {
        self.check_run_entry(&context.principal, &call.entry).await?;
        let expense = self.spend_on_log(&context.principal, 1)?;
        let done = self.lake.answer(context, call).await?;
        expense.into_iter().for_each(Expense::keep);
        Ok(done)
    }
}

impl Answers<LogBadRows> for ServerState {
    async fn answer(&self, context: &Context, call: LogBadRows) -> Result<Done> {
        self.check_bad_rows(&context.principal, &call.bad_rows).await?;
        let expense = self.spend_on_log(&context.principal, call.bad_rows.len())?;
        let done = self.lake.answer(context, call).await?;
        expense.into_iter().for_each(Expense::keep);
        Ok(done)
    }
}

impl Answers<FindRows> for ServerState {
    async fn answer(&self, _: &Context, call: FindRows) -> Result<Vec<Vec<u64>>> {
        find_rows(&self.plan_by_id(call.stream_id).await?, call).await
    }
}

impl Answers<FindNulls> for ServerState {
    async fn answer(&self, _: &Context, FindNulls { stream_id, columns }: FindNulls) -> Result<Vec<String>> {
        Ok(self.plan_by_id(stream_id).await?.nulls(&columns).await?)
    }
}

impl Answers<ReadBeside> for ServerState {
    async fn answer(&self, context: &Context, call: ReadBeside) -> Result<IpcBytes> {
        let principal = &context.principal;
        let plan = match (&call.spec, call.stream_id) {
            (Some(spec), _) => self.plan_by_spec(spec.as_bytes(), principal).await?,
            (None, Some(stream_id)) => self.plan_by_id(stream_id).await?,
            (None, None) => return Err(Error::invalid("the stream is not named")),
        };
        let budget = self.lake.resources().for_client(&principal.name, &principal.name);
        read_beside(&plan, &budget, call).await
    }
}
