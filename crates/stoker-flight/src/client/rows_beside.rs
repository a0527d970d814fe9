//! Reads rows of windows, from the engine in this process or from servers.

use stoker_stream::RowsBeside;
use stoker_types::calls::{Beside, IpcBytes, ReadBeside};
use stoker_types::{ErrorKind, ReadOptions};

use crate::client::handle::{PlanOf, StreamHandle};
use crate::client::patience::Patience;
use crate::convert::to_millis;
use crate::{Error, Result, beside_answer};

impl StreamHandle {
    /// Reads rows of the windows of an epoch. Returns the first of the `wanted` rows, at least one. Costs one request
    /// to a server, which is retried within the options' retry budget.
    ///
    /// # Errors
    /// As for [`StreamPlan::rows_beside`](stoker_stream::StreamPlan::rows_beside); `InvalidRequest` from servers that
    /// are too old to know the request.
    pub(crate) async fn rows_beside(&self, epoch: u64, wanted: &[Beside], options: &ReadOptions) -> Result<RowsBeside> {
        let lake = match &self.place {
            PlanOf::Local(plan, budget) => return Ok(plan.rows_beside(budget, epoch, wanted, options).await?),
            PlanOf::Remote(lake) => lake,
        };
        let mut request = ReadBeside {
            epoch: Some(epoch),
            beside: wanted.to_vec(),
            unverified: !options.verify,
            retry_budget_millis: options.retry_budget.map(to_millis),
            ..ReadBeside::default()
        };
        match self.spec_stored {
            true => request.stream_id = Some(self.spec.stream_id()),
            false => request.spec = Some(String::from_utf8(self.spec.to_json()).map_err(Error::internal)?),
        }
        let patience = options.retry_budget.map_or_else(|| lake.patience().clone(), Patience::with_known);
        let IpcBytes(answer) = lake.call_patiently(&request, &patience).await.map_err(may_be_older)?;
        let bytes = answer.len() as u64;
        let held = lake.budget().join(bytes).reserve(bytes).await;
        let rows = beside_answer::decode(answer, &self.schema, self.spec.tables().count(), wanted.len())?;
        Ok(RowsBeside { held: Some(held), ..rows })
    }
}

/// A server that does not know the action refuses its name, or what is in its body.
fn may_be_older(error: Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidRequest => Error::invalid(format!(
            "cannot find rows to replace those whose images cannot be decoded: the server may be older than this \
             client and lack this action; use bad_rows=\"error\" to see the first such row; the server said: {error}"
        )),
        _ => error,
    }
}
