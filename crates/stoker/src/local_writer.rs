//! Writes rows to a lake in this process.

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use futures::FutureExt;
use futures::future::BoxFuture;
use stoker_lake::LakeStore;
use stoker_session::{Result, RowWriter};
use stoker_statements::TableWrite;
use stoker_types::WriteRequest;

/// A write to a table of this process's lake.
pub(crate) struct LocalWriter(TableWrite);

impl LocalWriter {
    /// Begins a write of rows with these columns.
    ///
    /// # Errors
    /// Those of [`TableWrite::begin`].
    pub async fn begin(lake: &LakeStore, request: &WriteRequest, columns: &Schema) -> Result<Self> {
        Ok(Self(TableWrite::begin(lake, request, columns).await?))
    }
}

impl RowWriter for LocalWriter {
    fn write(&mut self, batch: RecordBatch) -> BoxFuture<'_, Result<()>> {
        async move { Ok(self.0.write(&batch).await?) }.boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.0.abort().boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<u64>> {
        async move { Ok(self.0.commit().await?) }.boxed()
    }
}
