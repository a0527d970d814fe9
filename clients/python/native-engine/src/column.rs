//! Writes columns whose values Python computes.

use std::time::Duration;

use arrow_array::RecordBatch;
use futures::FutureExt;
use futures::future::BoxFuture;
use stoker::{ColumnJob, ColumnMode, ComputedColumn, Error, LocalLake, Result};
use stoker_python::{ColumnRequest, ColumnWork, OpenColumn};
use stoker_types::TableName;

/// Begins a column, or goes on with one that an earlier call began.
pub(crate) async fn begin_column(lake: &LocalLake, request: &ColumnRequest) -> Result<Box<dyn OpenColumn>> {
    let mode = match request.mode.as_str() {
        "add" => ColumnMode::Add,
        "replace" => ColumnMode::Replace,
        "fill" => ColumnMode::Fill,
        other => return Err(Error::invalid(format!("mode {other:?} is unknown; modes: add, replace, fill"))),
    };
    let Ok(checkpoint) = Duration::try_from_secs_f64(request.checkpoint_secs) else {
        return Err(Error::invalid(format!("checkpoint_secs is {}; it must be 0 or more", request.checkpoint_secs)));
    };
    let column = ComputedColumn {
        table: TableName::try_new(request.table.as_str())?,
        name: request.name.clone(),
        mode,
        inputs: request.inputs.clone(),
        has_predicate: request.has_predicate,
        data_type: request.data_type.clone(),
        key: request.key.clone(),
        page_bytes: request.page_bytes.map(|bytes| bytes.max(1)),
        checkpoint,
    };
    Ok(Box::new(Open(lake.compute_column(column).await?)))
}

/// A column that was begun.
struct Open(ColumnJob);

impl OpenColumn for Open {
    fn plan(&mut self) -> BoxFuture<'_, Result<Option<ColumnWork>>> {
        async move {
            let plan = self.0.plan().await?;
            Ok(plan.map(|plan| ColumnWork {
                version: plan.version,
                num_rows: plan.num_rows,
                num_done: plan.num_done,
                ranges: plan.ranges,
            }))
        }
        .boxed()
    }

    fn write<'a>(&'a mut self, row_addrs: &'a [u64], values: RecordBatch) -> BoxFuture<'a, Result<()>> {
        async move { Ok(self.0.write(row_addrs, &values).await?) }.boxed()
    }

    fn commit(&mut self) -> BoxFuture<'_, Result<Option<u64>>> {
        async move { Ok(self.0.commit().await?) }.boxed()
    }

    fn forget(&mut self) -> BoxFuture<'_, Result<()>> {
        async move { Ok(self.0.forget().await?) }.boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move { self.0.abort().await }.boxed()
    }
}
