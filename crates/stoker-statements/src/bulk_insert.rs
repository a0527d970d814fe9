//! Bulk inserts: rows that a client sends as record batches become one version of a table.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use stoker_clock::Environment;
use stoker_lake::{ChangeNote, CommitKey, CommitMode, LakeStore, RowChange, WriteOptions};
use stoker_sql::Engine;
use stoker_types::{SnapshotRef, StatementOutcome, TableName};

use crate::writes::{NewRows, NewTableWriter, RowNames, assign_all, counted, refuse_view, stored_schema};
use crate::{Error, Result};

/// The kind of statement in messages and outcomes.
const KIND: &str = "INGEST";

/// What a bulk insert does if the table does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// It creates the table, with the columns of the rows.
    Create,
    /// It fails.
    Fail,
}

/// What a bulk insert does if the table exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfPresent {
    /// It fails.
    Fail,
    /// It appends the rows. Columns are matched by name and cast as `INSERT` does; missing ones become NULL.
    Append,
    /// It replaces the table by one with these rows and their columns.
    Replace,
}

/// A bulk insert that is under way. Rows are written as they come, and nothing is visible before the commit.
pub struct BulkInsert {
    lake: LakeStore,
    name: TableName,
    /// The idempotency key of the commit.
    key: String,
    rows: Rows,
    num_rows: u64,
}

/// Where the rows go.
enum Rows {
    /// To an existing table.
    Appended { change: Box<RowChange>, columns: SchemaRef, since_version: u64 },
    /// To a new table.
    New { writer: Box<NewTableWriter>, mode: CommitMode, since_version: u64 },
}

impl BulkInsert {
    /// Begins a bulk insert of rows with these columns.
    ///
    /// # Errors
    /// [`Error::Refused`] for two columns of one name, for columns that the table does not have, and for columns that a
    /// new table cannot have; [`Error::Exists`] for a view of this name; [`Error::Lake`] for a table that does not exist
    /// or exists, as the options say; storage errors.
    pub async fn begin(
        engine: &Engine,
        environment: &Environment,
        name: TableName,
        columns: &Schema,
        if_missing: IfMissing,
        if_present: IfPresent,
    ) -> Result<Self> {
        let lake = engine.lake().clone();
        let mut known = HashSet::new();
        if let Some(twice) = columns.fields().iter().find(|field| !known.insert(field.name())) {
            return Err(Error::refused(
                format!("{KIND} into {name}: column {} is there twice", twice.name()),
                "columns are matched by name; rename one of them",
            ));
        }
        refuse_view(&lake, &name).await?;
        let exists = lake.has_table(&name).await?;
        let rows = match (exists, if_missing, if_present) {
            (true, _, IfPresent::Append) => appended(&lake, &name, columns).await?,
            (true, _, IfPresent::Fail) => {
                let (table, lake) = (name.to_string(), lake.uri().to_string());
                return Err(stoker_lake::Error::TableExists { table, lake }.into());
            }
            (true, _, IfPresent::Replace) => {
                let version = lake.table(&name, &SnapshotRef::Latest).await?.version();
                new(&lake, &name, columns, CommitMode::Overwrite, version).await?
            }
            (false, IfMissing::Create, IfPresent::Append) => {
                // Another writer may create the table meanwhile, with the same columns.
                new(&lake, &name, columns, CommitMode::CreateOrAppend, 0).await?
            }
            (false, IfMissing::Create, IfPresent::Replace) => {
                new(&lake, &name, columns, CommitMode::Overwrite, 0).await?
            }
            (false, IfMissing::Create, IfPresent::Fail) => new(&lake, &name, columns, CommitMode::Create, 0).await?,
            // The error names the tables that exist.
            (false, IfMissing::Fail, _) => appended(&lake, &name, columns).await?,
        };
        let (high, low) = (environment.random.number(), environment.random.number());
        Ok(Self { lake, name, key: format!("ingest-{high:016x}{low:016x}"), rows, num_rows: 0 })
    }

    /// Writes rows.
    ///
    /// # Errors
    /// [`Error::Refused`] for a value that does not fit, with its column and row; storage errors.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let (columns, named) = match &self.rows {
            Rows::Appended { columns, .. } => (columns.clone(), batch.schema()),
            Rows::New { writer, .. } => (writer.columns().clone(), batch.schema()),
        };
        let sources: Vec<Option<usize>> =
            columns.fields().iter().map(|field| named.index_of(field.name()).ok()).collect();
        match &mut self.rows {
            Rows::Appended { change, .. } => {
                let rows = RowNames::From(self.num_rows);
                change.insert(&assign_all(KIND, &columns, &sources, batch.columns(), batch.num_rows(), rows)?).await?
            }
            Rows::New { writer, .. } => {
                let (values, num_rows) = (batch.columns().to_vec(), batch.num_rows());
                writer.write(NewRows { sources, values, num_rows, first_row: self.num_rows }).await?;
            }
        }
        self.num_rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Commits the rows as one version.
    ///
    /// # Errors
    /// [`stoker_lake::Error::Conflict`] if others changed the columns of the table meanwhile; those of a commit.
    pub async fn commit(self) -> Result<StatementOutcome> {
        let Self { lake, name, key, rows, num_rows } = self;
        let key = |since_version| CommitKey { key: &key, since_version, chosen_at: None };
        let version = match rows {
            Rows::Appended { change, since_version, .. } => {
                change.commit(Some(key(since_version)), &ChangeNote::default()).await?.version
            }
            Rows::New { writer, mode, since_version, .. } => {
                let writer = writer.into_writer().await?;
                let schema = writer.schema();
                let drafts = writer.finish().await?;
                lake.commit(&name, &schema, mode, drafts, Some(key(since_version))).await?
            }
        };
        Ok(StatementOutcome {
            statement: KIND.to_string(),
            table: Some(name.to_string()),
            version: Some(version),
            num_rows: Some(num_rows),
            message: format!("{} inserted", counted(num_rows, "row")),
        })
    }

    /// Discards the rows: their files are removed as far as the store allows.
    pub async fn abort(self) {
        match self.rows {
            Rows::Appended { change, .. } => change.abort().await,
            Rows::New { writer, .. } => writer.abort().await,
        }
    }
}

/// Begins to append rows with these columns to a table.
async fn appended(lake: &LakeStore, name: &TableName, columns: &Schema) -> Result<Rows> {
    let table = lake.table(name, &SnapshotRef::Latest).await?;
    let schema = table.schema();
    if let Some(extra) = columns.fields().iter().find(|field| schema.field_with_name(field.name()).is_err()) {
        let known: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        return Err(Error::refused(
            format!("{KIND} into {name}: the table has no column {}", extra.name()),
            format!("its columns are: {}", known.join(", ")),
        ));
    }
    let fields = schema.fields().iter().filter(|field| columns.field_with_name(field.name()).is_ok());
    let columns = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
    let change = lake.change(&table, WriteOptions::default()).await?;
    Ok(Rows::Appended { change: Box::new(change), columns, since_version: table.version() })
}

/// Begins to write the rows of a new table.
async fn new(
    lake: &LakeStore,
    name: &TableName,
    columns: &Schema,
    mode: CommitMode,
    since_version: u64,
) -> Result<Rows> {
    let columns = stored_schema(KIND, columns)?;
    let writer = NewTableWriter::begin(lake, name, KIND, columns).await?;
    Ok(Rows::New { writer: Box::new(writer), mode, since_version })
}
