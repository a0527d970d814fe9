//! Writes of rows: what a lake gives for the rows of one write, and the keys under which writes take effect once.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures::future::BoxFuture;
use stoker_types::WriteRequest;
use stoker_types::calls::{FindWrite, WriteKey};

use crate::{Connection, Error, Result};

/// Takes the rows of one write. Nothing is visible before [`finish`](RowWriter::finish).
pub trait RowWriter: Send {
    /// Takes a batch of rows.
    ///
    /// # Errors
    /// Values that do not fit the table, with column and row; storage errors; a server that cannot be reached any more.
    /// The write can then only be aborted.
    fn write(&mut self, batch: RecordBatch) -> BoxFuture<'_, Result<()>>;

    /// Removes what was written, as far as that is possible.
    fn abort(self: Box<Self>) -> BoxFuture<'static, ()>;

    /// Commits all rows as one version, and returns it.
    ///
    /// # Errors
    /// A table that others changed in a way that does not fit; storage errors. If a server cannot be reached any more,
    /// nobody knows whether the rows were committed: [`Connection::find_write`] tells it.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<u64>>;
}

impl Connection {
    /// Gives a write its key: that of the caller, or a new one for a write through a server, whose answer may be lost.
    ///
    /// # Errors
    /// A key that is empty or too long; a server that cannot be reached.
    pub async fn with_write_key(&self, request: WriteRequest, key: Option<String>) -> Result<WriteRequest> {
        let key = match key {
            Some(key) => {
                let key = WriteKey { key, since_version: 0 };
                key.check().map_err(Error::invalid)?;
                Some(key)
            }
            None if self.lake().is_local() => None,
            None => Some(self.write_key(request.table.as_str()).await?),
        };
        Ok(WriteRequest { key, ..request })
    }

    /// Returns the version that a write became, if it took effect. Costs a read of each version after the key's.
    ///
    /// # Errors
    /// Storage errors; a server that cannot be reached.
    pub async fn find_write(&self, request: &WriteRequest) -> Result<Option<u64>> {
        match request.key.clone() {
            Some(write_key) => self.call(FindWrite { table: request.table.to_string(), write_key }).await,
            None => Ok(None),
        }
    }

    /// Begins a write of rows with these columns.
    ///
    /// # Errors
    /// A table that exists, or does not, as the mode says; columns that do not fit it; a role or a server that does not
    /// allow writes; storage errors; a server that cannot be reached.
    pub async fn begin_write(&self, request: &WriteRequest, columns: &SchemaRef) -> Result<Box<dyn RowWriter>> {
        self.lake().begin_write(request, columns).await
    }
}
