//! Answers questions about the catalog.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_flight::sql::{Command, CommandGetTables};
use arrow_schema::{Schema, SchemaRef};
use futures::{StreamExt, stream};
use stoker_catalog::view_names;
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
            is_read_only: !self.config.allow_writes,
        }
    }

    /// Lists the tables and views. Only those that the command asks for are opened, and only if it asks for their columns.
    async fn tables(&self, command: &CommandGetTables) -> Result<RecordBatch> {
        let (names, mut views) = (self.lake.lake().tables().await?, view_names(self.lake.lake()).await?);
        views.retain(|view| names.binary_search(view).is_err());
        let (of_tables, of_views) = (names.iter().map(TableName::as_str), views.iter().map(TableName::as_str));
        let mut tables = TableList::try_new(command, of_tables, of_views)?;
        let names: Vec<(String, bool)> = tables
            .to_describe()
            .into_iter()
            .map(|name| {
                let is_view = tables.is_view(&name);
                (name, is_view)
            })
            .collect();
        let is_alone = names.len() == 1;
        let described = stream::iter(names).map(|(name, is_view)| async move {
            let columns = if is_view { self.columns_of_view(&name).await } else { self.columns(&name).await };
            (name, columns)
        });
        let mut described = described.buffered(TABLES_AT_ONCE);
        while let Some((name, columns)) = described.next().await {
            let columns = match columns {
                Ok(columns) => columns,
                // A damaged table, one that was just removed, or a view whose table was, must not hide the others.
                Err(error)
                    if !is_alone
                        && matches!(
                            error.kind(),
                            ErrorKind::DataCorrupt | ErrorKind::NotFound | ErrorKind::InvalidRequest
                        ) =>
                {
                    tracing::warn!(table = name, %error, "listing a table without its columns");
                    Arc::new(Schema::empty())
                }
                Err(error) => return Err(error),
            };
            tables.describe(&name, &columns)?;
        }
        Ok(tables.answer()?)
    }

    async fn columns_of_view(&self, name: &str) -> Result<SchemaRef> {
        Ok(self.lake.describe(&format!("SELECT * FROM \"{name}\"")).await?.columns)
    }

    async fn columns(&self, name: &str) -> Result<SchemaRef> {
        Ok(self.lake.lake().table(&TableName::try_new(name)?, &SnapshotRef::Latest).await?.schema())
    }
}
