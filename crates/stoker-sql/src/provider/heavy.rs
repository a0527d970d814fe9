//! Heavy columns of scanned rows: fetched by row address, a bounded number of bytes at a time.

use std::sync::Arc;

use arrow_array::{RecordBatch, UInt64Array};
use datafusion::common::Result as DfResult;
use datafusion::error::DataFusionError;
use futures::stream::{self, BoxStream};
use futures::StreamExt as _;
use stoker_lake::{ROW_ADDR, Table};

use super::{Layout, lake_error, rows_per_batch};

/// The output batches for one batch of scanned light columns.
///
/// Without heavy columns this is one batch. With them the rows are cut so that the heavy columns of a batch stay within
/// 8 MiB, and each batch reads exactly its own rows when it is polled.
pub(crate) fn complete(
    table: Table,
    layout: Arc<Layout>,
    light: RecordBatch,
) -> BoxStream<'static, DfResult<RecordBatch>> {
    let heavy_columns = layout.heavy_columns();
    if heavy_columns.is_empty() {
        return stream::once(async move { layout.assemble(&light, None) }).boxed();
    }
    let num_rows = light.num_rows();
    let step = rows_per_batch(layout.schema());
    stream::iter((0..num_rows).step_by(step))
        .then(move |first| {
            let rows = light.slice(first, step.min(num_rows - first));
            let (table, layout, heavy_columns) = (table.clone(), layout.clone(), heavy_columns.clone());
            async move {
                let heavy = fetch(&table, &heavy_columns, &rows).await?;
                layout.assemble(&rows, Some(&heavy))
            }
        })
        .boxed()
}

/// The heavy columns of these rows, by their addresses.
async fn fetch(table: &Table, columns: &[String], rows: &RecordBatch) -> DfResult<RecordBatch> {
    let addrs = rows.column_by_name(ROW_ADDR).and_then(|column| column.as_any().downcast_ref::<UInt64Array>());
    let Some(addrs) = addrs else {
        return Err(DataFusionError::Internal(format!("a scan gave no {ROW_ADDR}")));
    };
    table.take(columns, addrs.values()).await.map_err(lake_error)
}
