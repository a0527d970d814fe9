//! Answers questions about the catalog.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_flight::sql::{Command, CommandGetTables};
use arrow_schema::{Schema, SchemaRef};
use futures::{StreamExt, stream};
use stoker_flight_sql::{ServerLimits, TableList, catalog_answer};
use stoker_session::Result;
use stoker_types::{ErrorKind, SnapshotRef, TableName};

use crate::state::ServerState;

/// The number of tables that are opened concurrently for their columns.
const TABLES_AT_ONCE: usize = 8;

impl ServerState {
    /// Answers a question about the catalog; `None` for other commands.
    ///
    /// # Errors
    /// Those of listing the tables.
    pub(crate) async fn catalog_answer(&self, command: &Command) -> Result<Option<RecordBatch>> {
        match command {
            Command::CommandGetTables(command) => self.tables(command).await.map(Some),
            command => Ok(catalog_answer(command, &self.sql_limits())?),
        }
    }

    fn sql_limits(&self) -> ServerLimits {
        ServerLimits {
            sql_bytes: self.lake.options().max_sql_bytes,
            // Where it is not configured, it follows from the limit of open files.
            connections: self.config.connections_max.unwrap_or_default(),
            handle_millis: u64::try_from(self.signer.ttl().as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Lists the tables. Only those that the command asks for are opened, and only if it asks for their columns.
    async fn tables(&self, command: &CommandGetTables) -> Result<RecordBatch> {
        let names = self.lake.lake().tables().await?;
        let mut tables = TableList::try_new(command, names.iter().map(TableName::as_str))?;
        let names = tables.to_describe();
        let is_alone = names.len() == 1;
        let described = stream::iter(names).map(|name| async {
            let columns = self.columns(&name).await;
            (name, columns)
        });
        let mut described = described.buffered(TABLES_AT_ONCE);
        while let Some((name, columns)) = described.next().await {
            let columns = match columns {
                Ok(columns) => columns,
                // A damaged table, or one that was just removed, must not hide the others.
                Err(error) if !is_alone && matches!(error.kind(), ErrorKind::DataCorrupt | ErrorKind::NotFound) => {
                    tracing::warn!(table = name, %error, "listing a table without its columns");
                    Arc::new(Schema::empty())
                }
                Err(error) => return Err(error),
            };
            tables.describe(&name, &columns)?;
        }
        Ok(tables.answer()?)
    }

    async fn columns(&self, name: &str) -> Result<SchemaRef> {
        Ok(self.lake.lake().table(&TableName::try_new(name)?, &SnapshotRef::Latest).await?.schema())
    }
}
