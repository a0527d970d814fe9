//! Reads the heavy columns of scanned rows by row address, in batches of at most 8 MiB or one row.
//!
//! A dense column is read by chunk scan, as plain bytes, with few large reads that cover neighbouring rows. Other heavy
//! columns are read through Lance's decoder.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::Schema;
use datafusion::common::Result as DfResult;
use datafusion::error::DataFusionError;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use stoker_chunks::{ChunkScan, verify_values};
use stoker_columns::is_blob;
use stoker_lake::{DenseColumn, DenseProbe, ROW_ADDR, Table};
use stoker_types::to_usize;

use super::{Layout, rows_per_batch};

/// The most bytes of blobs of average size in a batch of several rows.
const BLOB_BATCH_BYTES: u64 = 8 << 20;

/// The most batches of heavy columns that a partition reads at the same time.
const BATCHES_IN_FLIGHT: usize = 2;

/// The most fragments whose footers are read to find out whether a light column is dense. Later queries know it.
const PROBED_FRAGMENTS_MAX: usize = 256;

/// A pinned table and the chunk scan that reads its heavy columns.
#[derive(Clone, Debug)]
pub(crate) struct HeavyTable {
    pub(crate) table: Table,
    pub(crate) chunks: ChunkScan,
}

/// Returns the output batches for batches of scanned light columns, in order.
///
/// Without heavy columns, each gives one batch. With heavy columns the rows are cut into batches whose heavy columns take
/// at most 8 MiB. Each batch reads exactly its own rows, and one batch is prefetched.
pub(crate) fn complete(
    table: HeavyTable,
    layout: Arc<Layout>,
    light: impl Stream<Item = DfResult<RecordBatch>> + Send + 'static,
) -> BoxStream<'static, DfResult<RecordBatch>> {
    let heavy_columns: Arc<[String]> = layout.heavy_columns().into();
    if heavy_columns.is_empty() {
        return light.map(move |light| layout.assemble(&light?, &[])).boxed();
    }
    let cut = |light: RecordBatch, step: usize| {
        let num_rows = light.num_rows();
        let slices = (0..num_rows).step_by(step);
        stream::iter(slices.map(move |first| Ok(light.slice(first, step.min(num_rows - first)))))
    };
    let (measured, rows_of) = (table.clone(), layout.clone());
    let slices = async move {
        let step = measured.rows_per_batch(rows_of.schema()).await?;
        Ok::<_, DataFusionError>(light.map_ok(move |light| cut(light, step)).try_flatten())
    };
    stream::once(slices)
        .try_flatten()
        .map_ok(move |rows| {
            let (table, layout, heavy_columns) = (table.clone(), layout.clone(), heavy_columns.clone());
            async move {
                let heavy = table.fetch(&heavy_columns, &rows).await?;
                layout.assemble(&rows, &heavy)
            }
        })
        .try_buffered(BATCHES_IN_FLIGHT)
        .boxed()
}

impl HeavyTable {
    /// Returns the most rows of a batch whose heavy columns take at most 8 MiB, see [`rows_per_batch`]. Blobs, which may
    /// be much larger than other values, count with their average size.
    async fn rows_per_batch(&self, schema: &Schema) -> DfResult<usize> {
        let mut rows = rows_per_batch(schema);
        for field in schema.fields().iter().filter(|field| is_blob(field)) {
            let bytes = self.table.bytes_per_row(field.name()).await?.unwrap_or(0);
            rows = rows.min(to_usize(BLOB_BATCH_BYTES / bytes.max(1)).max(1));
        }
        Ok(rows)
    }

    /// Reads the heavy columns of these rows. Returns each with its name, in any order.
    async fn fetch(&self, columns: &[String], rows: &RecordBatch) -> DfResult<Vec<(String, ArrayRef)>> {
        let addrs = rows.column_by_name(ROW_ADDR).and_then(|column| column.as_any().downcast_ref::<UInt64Array>());
        let Some(addrs) = addrs else {
            return Err(DataFusionError::Internal(format!("a scan gave no {ROW_ADDR}")));
        };
        let mut fetched = Vec::with_capacity(columns.len());
        let mut encoded = Vec::new();
        for name in columns {
            match self.table.dense_column(name).await? {
                DenseProbe::Dense(column) => {
                    fetched.push((name.clone(), self.dense_values(name, &column, addrs.values()).await?));
                }
                DenseProbe::NotDense { .. } => encoded.push(name.clone()),
            }
        }
        if !encoded.is_empty() {
            let batch = self.table.take(&encoded, addrs.values()).await?;
            for (name, values) in encoded.iter().zip(batch.columns()) {
                self.verify(name, addrs.values(), values).await?;
            }
            fetched.extend(encoded.into_iter().zip(batch.columns().iter().cloned()));
        }
        Ok(fetched)
    }

    /// Returns a column whose rows the chunk scan can read. `None` for a column that is not dense, and for a table with so
    /// many fragments that finding out takes long.
    pub(crate) async fn dense(&self, name: &str) -> DfResult<Option<Arc<DenseColumn>>> {
        if self.table.fragments().len() > PROBED_FRAGMENTS_MAX {
            return Ok(None);
        }
        Ok(match self.table.dense_column(name).await? {
            DenseProbe::Dense(column) => Some(column),
            DenseProbe::NotDense { .. } => None,
        })
    }

    /// Reads a dense column of the rows at these addresses, in their order.
    pub(crate) async fn dense_values(
        &self,
        name: &str,
        column: &Arc<DenseColumn>,
        addrs: &[u64],
    ) -> DfResult<ArrayRef> {
        let values = self.chunks.column(name, column, addrs).await;
        let values = values.map_err(|error| DataFusionError::External(Box::new(error)))?;
        if let Some(stats) = self.table.stats() {
            stats.add_bytes(values.get_array_memory_size());
        }
        Ok(values)
    }

    /// Verifies the checksums of the values and fails with the first row whose values are bad.
    async fn verify(&self, column: &str, addrs: &[u64], values: &ArrayRef) -> DfResult<()> {
        let failed = |error: stoker_chunks::Error| DataFusionError::External(Box::new(error));
        let (retry, clock) = (self.chunks.retry(), self.chunks.clock());
        let bad = verify_values(&self.table, column, addrs, values, retry, clock).await.map_err(failed)?;
        let Some((address, reason)) = bad.into_iter().next() else { return Ok(()) };
        Err(failed(stoker_chunks::Error::BadRow { address, column: column.to_string(), reason }))
    }
}
