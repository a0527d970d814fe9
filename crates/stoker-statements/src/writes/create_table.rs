//! `CREATE TABLE`.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use futures::TryStreamExt as _;
use stoker_catalog::view_query;
use stoker_columns::target_schema;
use stoker_dialect::{ColumnDefinition, Existing, QualifiedName, TableContent};
use stoker_lake::{CommitKey, CommitMode, Table, TableWriter, WriteOptions};
use stoker_sql::SqlQuery;
use stoker_types::{Snapshot, SnapshotRef, StatementOutcome, TableName};

use super::insert::reads;
use super::new_table::{NewRows, NewTableWriter};
use super::{Execution, counted, outcome, types};
use crate::{Error, Result, table_name};

/// Executes `CREATE TABLE`.
pub(super) async fn create_table(
    execution: Execution<'_>,
    table: &QualifiedName,
    existing: Existing,
    content: &TableContent,
) -> Result<StatementOutcome> {
    let (lake, name) = (execution.lake(), table_name(table)?);
    if view_query(lake, &name).await?.is_some() {
        let reason = "there is a view of this name; drop the view first, or choose another name";
        return Err(Error::refused(format!("{} {name}", execution.kind), reason));
    }
    let mut attempts = execution.attempts();
    loop {
        let replaced = match lake.has_table(&name).await? {
            // A branch is made by another statement. The error names those that exist.
            false if name.branch().is_some() => Some(lake.table(&name, &SnapshotRef::Latest).await?),
            true => Some(lake.table(&name, &SnapshotRef::Latest).await?),
            false => None,
        };
        let mode = match (existing, &replaced) {
            (Existing::Kept, Some(table)) => return Ok(kept(&name, table.version())),
            (Existing::Refused, Some(_)) => return Err(taken(execution, &name)),
            (Existing::Replaced, _) => CommitMode::Overwrite,
            (_, None) => CommitMode::Create,
        };
        let creating = Creating { execution, name: &name, mode, replaced };
        let created = match content {
            TableContent::Columns(columns) => creating.without_rows(columns, attempts.key()).await,
            TableContent::Query(sql) => creating.with_rows(sql, attempts.key()).await,
        };
        match created {
            Ok((version, num_rows)) => {
                let message = format!("the table has {}", counted(num_rows, "row"));
                return Ok(outcome(&name, version, Some(num_rows), message));
            }
            // Another writer created the table meanwhile.
            Err(Error::Lake(stoker_lake::Error::TableExists { .. })) if existing == Existing::Kept => {
                let version = lake.table(&name, &SnapshotRef::Latest).await?.version();
                return Ok(kept(&name, version));
            }
            Err(Error::Lake(stoker_lake::Error::TableExists { .. })) => return Err(taken(execution, &name)),
            Err(error) => attempts.after(error).await?,
        }
    }
}

fn kept(name: &TableName, version: u64) -> StatementOutcome {
    outcome(name, version, Some(0), "the table exists already".into())
}

fn taken(execution: Execution<'_>, name: &TableName) -> Error {
    let (table, lake) = (name.to_string(), execution.lake().uri().to_string());
    stoker_lake::Error::TableExists { table, lake }.into()
}

/// A table that is being created.
struct Creating<'a> {
    execution: Execution<'a>,
    name: &'a TableName,
    mode: CommitMode,
    /// The newest version of the table that is replaced.
    replaced: Option<Table>,
}

impl Creating<'_> {
    /// Creates a table of these columns. Returns its version and its number of rows.
    async fn without_rows(&self, columns: &[ColumnDefinition], key: &str) -> Result<(u64, u64)> {
        let fields = columns.iter().map(|column| types::column(&column.name, &column.data_type, column.nullable));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?));
        let writer = self.writer(&schema).await?;
        Ok((self.commit(writer, key).await?, 0))
    }

    /// Creates a table of the columns and the rows of a query. Returns its version and its number of rows.
    async fn with_rows(&self, sql: &str, key: &str) -> Result<(u64, u64)> {
        // The newest version may be newer than that of the replaced table: then the query reads the table's.
        let newest: Vec<Snapshot> = self.replaced.iter().map(Table::snapshot).collect();
        let query = self.execution.engine.query_at(sql, self.execution.params, &newest).await?;
        let schema = stored_schema(self.execution.kind, &query.schema())?;
        let Execution { kind, .. } = self.execution;
        let mut writer = NewTableWriter::begin(self.execution.lake(), self.name, kind, schema).await?;
        match self.write(&query, &mut writer).await {
            Ok(num_rows) => {
                let writer = writer.into_writer().await?;
                let version = match reads(query.snapshots(), self.name) {
                    true => self.replace(writer, key).await?,
                    false => self.commit(writer, key).await?,
                };
                Ok((version, num_rows))
            }
            Err(error) => {
                writer.abort().await;
                Err(error)
            }
        }
    }

    async fn writer(&self, schema: &SchemaRef) -> Result<TableWriter> {
        Ok(self.execution.lake().writer(self.name, schema, false, WriteOptions::default()).await?)
    }

    async fn write(&self, query: &SqlQuery, writer: &mut NewTableWriter) -> Result<u64> {
        let sources: Vec<Option<usize>> = (0..writer.columns().fields().len()).map(Some).collect();
        let mut batches = query.execute_for_lake().await?;
        let mut num_rows = 0;
        while let Some(batch) = batches.try_next().await.map_err(stoker_sql::Error::from)? {
            let (sources, values) = (sources.clone(), batch.columns().to_vec());
            writer.write(NewRows { sources, values, num_rows: batch.num_rows(), first_row: num_rows }).await?;
            num_rows += batch.num_rows() as u64;
            self.execution.tell_rows("writing the rows", num_rows);
        }
        Ok(num_rows)
    }

    async fn commit(&self, writer: TableWriter, key: &str) -> Result<u64> {
        let schema = writer.schema();
        let drafts = writer.finish().await?;
        let key = self.key(key);
        Ok(self.execution.lake().commit(self.name, &schema, self.mode, drafts, Some(key)).await?)
    }

    /// Replaces the table by rows that were computed from it. What others do with the table after the query read it must
    /// not be lost, so that is a conflict.
    async fn replace(&self, writer: TableWriter, key: &str) -> Result<u64> {
        let Some(base) = &self.replaced else {
            writer.abort().await;
            let (table, what) = (self.name.to_string(), "the table was created".to_string());
            return Err(stoker_lake::Error::Conflict { table, version: 1, what }.into());
        };
        let schema = writer.schema();
        let drafts = writer.finish().await?;
        Ok(self.execution.lake().replace(base, &schema, drafts, self.key(key)).await?)
    }

    fn key<'k>(&self, key: &'k str) -> CommitKey<'k> {
        let since_version = self.replaced.as_ref().map_or(0, Table::version);
        CommitKey { key, since_version, chosen_at: None }
    }
}

/// Returns the columns of a table with the rows of a query.
///
/// # Errors
/// `InvalidRequest` for names that a table cannot have, and for columns without a type.
pub(crate) fn stored_schema(kind: &str, columns: &Schema) -> Result<SchemaRef> {
    let mut names = BTreeSet::new();
    let mut fields = Vec::with_capacity(columns.fields().len());
    for field in columns.fields() {
        let name = field.name();
        if name.is_empty() || name.contains('.') {
            let reason = "tables cannot have a column of this name; name it with AS";
            return Err(Error::refused(format!("{kind}: column {name:?}"), reason));
        }
        if !names.insert(name.as_str()) {
            return Err(Error::refused(format!("{kind}: two columns are called {name:?}"), "name one of them with AS"));
        }
        fields.push(stored_field(kind, field)?);
    }
    target_schema(&Schema::new(fields), None).map_err(|error| Error::refused(kind, error.to_string()))
}

/// Returns the column of a table for a column of a query: of the same type, but without views and dictionaries.
pub(super) fn stored_field(kind: &str, field: &Field) -> Result<Field> {
    match stored_type(field.data_type()) {
        Some(data_type) => Ok(field.clone().with_data_type(data_type)),
        None => Err(Error::refused(
            format!("{kind}: column {:?} has the type {}", field.name(), field.data_type()),
            "tables cannot have it; cast it, for example to TEXT",
        )),
    }
}

fn stored_type(data_type: &DataType) -> Option<DataType> {
    let item = |field: &Field| Some(Arc::new(field.clone().with_data_type(stored_type(field.data_type())?)));
    Some(match data_type {
        DataType::Null | DataType::Interval(_) | DataType::Union(..) => return None,
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, value) => stored_type(value)?,
        DataType::RunEndEncoded(_, value) => stored_type(value.data_type())?,
        DataType::List(field) | DataType::ListView(field) => DataType::List(item(field)?),
        DataType::LargeList(field) | DataType::LargeListView(field) => DataType::LargeList(item(field)?),
        DataType::FixedSizeList(field, length) => DataType::FixedSizeList(item(field)?, *length),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(|field| item(field)).collect::<Option<Vec<_>>>()?.into())
        }
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_queries_become_columns_of_tables() {
        let field = |name: &str, data_type| Field::new(name, data_type, true);
        let view = DataType::new_list(DataType::Utf8View, true);
        let found = Schema::new(vec![field("a", DataType::Utf8View), field("b", view), field("c", DataType::Int64)]);
        let stored = stored_schema("CREATE TABLE", &found).expect("columns");
        let types: Vec<DataType> = stored.fields().iter().map(|field| field.data_type().clone()).collect();
        assert_eq!(types, [DataType::Utf8, DataType::new_list(DataType::Utf8, true), DataType::Int64]);
        for (fields, part) in [
            (vec![field("a", DataType::Null)], "has the type Null"),
            (vec![field("t.a + Int64(1)", DataType::Int64)], "name it with AS"),
            (vec![field("a", DataType::Int64), field("a", DataType::Utf8)], "two columns are called"),
        ] {
            let error = stored_schema("CREATE TABLE", &Schema::new(fields)).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
