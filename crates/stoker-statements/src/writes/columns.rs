//! `ALTER TABLE`.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use futures::TryStreamExt as _;
use stoker_columns::{MASK_KEY, kind_of};
use stoker_dialect::{AddedColumn, QualifiedName, Target};
use stoker_lake::{NewColumns, Table, WriteOptions};
use stoker_sql::SqlQuery;
use stoker_types::StatementOutcome;

use super::assignment::{RowNames, assign_all};
use super::create_table::stored_field;
use super::rows::{address_of, addresses, assigned_columns, rows_of};
use super::{Execution, counted, outcome, quoted, types};
use crate::{Error, Result, table_name};

/// Executes `ALTER TABLE … ADD COLUMN`. All columns become one version.
pub(super) async fn add(
    execution: Execution<'_>,
    table: &QualifiedName,
    columns: &[AddedColumn],
) -> Result<StatementOutcome> {
    let name = table_name(table)?;
    let target = Target { name: table.clone(), ..Target::default() };
    let mut attempts = execution.attempts();
    loop {
        let table = attempts.table(execution, &name).await?;
        let missing: Vec<&AddedColumn> = columns.iter().filter(|column| !is_kept(&table, column)).collect();
        if missing.is_empty() {
            let message = "the columns exist already".to_string();
            return Ok(outcome(&name, table.version(), Some(0), message));
        }
        match add_once(execution, &table, &target, &missing).await {
            Ok((version, num_rows)) => {
                let names: Vec<&str> = missing.iter().map(|column| column.name.as_str()).collect();
                let message = match num_rows {
                    0 => format!("added {}", names.join(", ")),
                    num_rows => format!("added {}, with values in {}", names.join(", "), counted(num_rows, "row")),
                };
                return Ok(outcome(&name, version, Some(num_rows), message));
            }
            Err(error) => attempts.after(error).await?,
        }
    }
}

/// Whether a column exists and may stay as it is.
fn is_kept(table: &Table, column: &AddedColumn) -> bool {
    column.if_not_exists && table.schema().field_with_name(&column.name).is_ok()
}

/// Returns the new version and the number of rows that got values.
async fn add_once(
    execution: Execution<'_>,
    table: &Table,
    target: &Target,
    columns: &[&AddedColumn],
) -> Result<(u64, u64)> {
    let query = match columns.iter().any(|column| column.value.is_some()) {
        true => {
            let values = columns.iter().filter_map(|column| column.value.as_deref());
            let sql = values_query(target, table, values);
            Some(execution.engine.query_of_statement(&sql, execution.params, &table.snapshot()).await?)
        }
        false => {
            execution.refuse_params()?;
            None
        }
    };
    let (schema, sources) = new_columns(execution, columns, query.as_ref())?;
    let fields: Vec<Field> = schema.fields().iter().map(|field| field.as_ref().clone()).collect();
    let mut added = execution.lake().add_columns(table, &fields, WriteOptions::default()).await?;
    let num_rows = match &query {
        None => 0,
        Some(query) => match write(execution, &mut added, query, &schema, &sources).await {
            Ok(num_rows) => num_rows,
            Err(error) => {
                added.abort().await;
                return Err(error);
            }
        },
    };
    Ok((added.commit(None, &execution.note("")).await?, num_rows))
}

/// The query of the values of expressions, by row address. The address is the first column.
fn values_query<'a>(target: &Target, table: &Table, values: impl Iterator<Item = &'a str>) -> String {
    let address = address_of(target);
    let values: String = values.enumerate().map(|(index, value)| format!(", ({value}) AS c{index}")).collect();
    format!("SELECT {address}{values} FROM {} ORDER BY {address}", rows_of(target, table.name()))
}

/// Returns the new columns, and for each the column of the query with its values.
fn new_columns(
    execution: Execution<'_>,
    columns: &[&AddedColumn],
    query: Option<&SqlQuery>,
) -> Result<(SchemaRef, Vec<Option<usize>>)> {
    let (mut fields, mut sources, mut num_values) = (Vec::new(), Vec::new(), 0);
    let values = query.map(SqlQuery::schema);
    for column in columns {
        let source = column.value.as_ref().map(|_| {
            num_values += 1;
            num_values
        });
        let found = source.zip(values.as_ref()).and_then(|(source, schema)| schema.fields().get(source));
        fields.push(match (&column.data_type, found) {
            (Some(data_type), _) => types::column(&column.name, data_type, column.nullable)?,
            (None, Some(found)) => {
                let named = found.as_ref().clone().with_name(&column.name).with_nullable(column.nullable);
                let field = stored_field(execution.kind, &named)?;
                kind_of(&field).canonical(&field)
            }
            (None, None) => return Err(Error::internal("a column without type has no values")),
        });
        sources.push(source);
    }
    Ok((Arc::new(Schema::new(fields)), sources))
}

/// Writes the values of the new columns. Returns the number of rows.
async fn write(
    execution: Execution<'_>,
    added: &mut NewColumns,
    query: &SqlQuery,
    schema: &SchemaRef,
    sources: &[Option<usize>],
) -> Result<u64> {
    let mut batches = query.execute_for_lake().await?;
    let mut num_rows = 0;
    while let Some(batch) = batches.try_next().await.map_err(stoker_sql::Error::from)? {
        let addrs = addresses(&batch)?;
        let rows = RowNames::Addresses(addrs.values());
        let values = assign_all(execution.kind, schema, sources, batch.columns(), batch.num_rows(), rows)?;
        added.write(addrs.values(), &values).await?;
        num_rows += batch.num_rows() as u64;
        execution.tell_rows("writing the values", num_rows);
    }
    Ok(num_rows)
}

/// Executes `ALTER TABLE … ALTER COLUMN`: the column gets another type, other values or both, at the same place.
pub(super) async fn alter(
    execution: Execution<'_>,
    table: &QualifiedName,
    column: &str,
    data_type: Option<&str>,
    value: Option<&str>,
) -> Result<StatementOutcome> {
    let name = table_name(table)?;
    let target = Target { name: table.clone(), ..Target::default() };
    let mut attempts = execution.attempts();
    loop {
        let table = attempts.table(execution, &name).await?;
        match alter_once(execution, &table, &target, column, data_type, value).await {
            Ok((version, num_rows, indexes)) => {
                let mut message = match data_type {
                    Some(data_type) => format!("column {column} has the type {data_type}"),
                    None => format!("column {column} has new values"),
                };
                message += &format!(", with values in {}", counted(num_rows, "row"));
                if !indexes.is_empty() {
                    message += &format!("; its indexes are gone, build them again: {}", indexes.join(", "));
                }
                return Ok(outcome(&name, version, Some(num_rows), message));
            }
            Err(error) => attempts.after(error).await?,
        }
    }
}

/// Returns the new version, the number of rows, and the indexes that were dropped.
async fn alter_once(
    execution: Execution<'_>,
    table: &Table,
    target: &Target,
    column: &str,
    data_type: Option<&str>,
    value: Option<&str>,
) -> Result<(u64, u64, Vec<String>)> {
    let old = assigned_columns(execution, table, [&column.to_string()])?;
    let old = old.field(0);
    if value.is_none() {
        execution.refuse_params()?;
    }
    let own = quoted(column);
    let sql = values_query(target, table, std::iter::once(value.unwrap_or(&own)));
    let query = execution.engine.query_of_statement(&sql, execution.params, &table.snapshot()).await?;
    let found = query.schema();
    let field = match (data_type, found.fields().get(1)) {
        (Some(data_type), _) => types::column(column, data_type, old.is_nullable())?,
        (None, Some(found)) => {
            let named = found.as_ref().clone().with_name(column).with_nullable(old.is_nullable());
            let field = stored_field(execution.kind, &named)?;
            kind_of(&field).canonical(&field)
        }
        (None, None) => return Err(Error::internal("a column without type has no values")),
    };
    let field = with_mask_of(old, field);
    let indexes = table.indexes().await?;
    let indexes = indexes.into_iter().filter(|index| index.columns.iter().any(|indexed| indexed == column));
    let indexes = indexes.map(|index| index.name).collect();
    let schema: SchemaRef = Arc::new(Schema::new(vec![field.clone()]));
    let mut replaced = execution.lake().replace_columns(table, &[field], WriteOptions::default()).await?;
    let num_rows = match write(execution, &mut replaced, &query, &schema, &[Some(1)]).await {
        Ok(num_rows) => num_rows,
        Err(error) => {
            replaced.abort().await;
            return Err(error);
        }
    };
    Ok((replaced.commit(None, &execution.note("")).await?, num_rows, indexes))
}

/// A new column with the mask of the old one, whose rows without a value stay rows without a value.
fn with_mask_of(old: &Field, new: Field) -> Field {
    let Some(mask) = old.metadata().get(MASK_KEY).cloned() else { return new };
    let mut metadata = new.metadata().clone();
    metadata.insert(MASK_KEY.into(), mask);
    new.with_metadata(metadata)
}

/// Executes `ALTER TABLE … DROP COLUMN`. All columns are dropped by one version.
pub(super) async fn drop(
    execution: Execution<'_>,
    table: &QualifiedName,
    columns: &[(String, bool)],
) -> Result<StatementOutcome> {
    let name = table_name(table)?;
    let mut attempts = execution.attempts();
    loop {
        let table = attempts.table(execution, &name).await?;
        let is_dropped =
            |(column, if_exists): &&(String, bool)| !if_exists || table.schema().field_with_name(column).is_ok();
        let dropped: Vec<String> = columns.iter().filter(is_dropped).map(|(column, _)| column.clone()).collect();
        if dropped.is_empty() {
            return Ok(outcome(&name, table.version(), None, "there are no such columns".into()));
        }
        match execution.lake().drop_columns(&table, &dropped, &execution.note("")).await {
            Ok(version) => {
                let message = format!("dropped {}; older versions keep it", dropped.join(", "));
                return Ok(outcome(&name, version, None, message));
            }
            Err(error) => attempts.after(error.into()).await?,
        }
    }
}

/// Executes `ALTER TABLE … RENAME COLUMN`.
pub(super) async fn rename(
    execution: Execution<'_>,
    table: &QualifiedName,
    from: &str,
    to: &str,
) -> Result<StatementOutcome> {
    let name = table_name(table)?;
    let mut attempts = execution.attempts();
    loop {
        let table = attempts.table(execution, &name).await?;
        match execution.lake().rename_column(&table, from, to, &execution.note("")).await {
            Ok(version) => return Ok(outcome(&name, version, None, format!("column {from} is called {to}"))),
            Err(error) => attempts.after(error.into()).await?,
        }
    }
}
