//! `UPDATE` and `DELETE`.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt64Type;
use arrow_array::{Array as _, RecordBatch, UInt64Array};
use arrow_schema::{Schema, SchemaRef};
use futures::TryStreamExt as _;
use stoker_dialect::{Assignment, Target};
use stoker_lake::{Changed, CommitKey, RowChange, Table, WriteOptions};
use stoker_sql::{ADDRESSED_ROWS, ROW_ADDRESS, SqlQuery};
use stoker_types::{StatementOutcome, TableName};

use super::assignment::{RowNames, assign_all};
use super::{Execution, counted, outcome, quoted};
use crate::{Error, Result, table_name};

/// Executes `UPDATE`.
pub(super) async fn update(
    execution: Execution<'_>,
    target: &Target,
    assignments: &[Assignment],
    from: Option<&str>,
    predicate: Option<&str>,
) -> Result<StatementOutcome> {
    let name = table_name(&target.name)?;
    let mut attempts = execution.attempts();
    loop {
        let table = attempts.table(execution, &name).await?;
        let key = attempts.commit_key();
        match update_once(execution, &table, target, assignments, from, predicate, key).await {
            Ok(changed) => {
                let message = format!("{} updated", counted(changed.num_updated, "row"));
                return Ok(outcome(&name, changed.version, Some(changed.num_updated), message));
            }
            Err(error) => attempts.after(error).await?,
        }
    }
}

async fn update_once(
    execution: Execution<'_>,
    table: &Table,
    target: &Target,
    assignments: &[Assignment],
    from: Option<&str>,
    predicate: Option<&str>,
    key: CommitKey<'_>,
) -> Result<Changed> {
    let columns = assigned_columns(execution, table, assignments.iter().map(|assignment| &assignment.column))?;
    let values =
        assignments.iter().enumerate().map(|(index, assignment)| format!("({}) AS c{index}", assignment.value));
    let sql = rows_query(target, table.name(), values, from, predicate);
    let query = execution.engine.query_of_statement(&sql, execution.params, &table.snapshot()).await?;
    refuse_unnest(execution, &query)?;
    let mut batches = query.execute_for_lake().await?;
    let mut change = begin(execution, table).await?;
    let sources: Vec<Option<usize>> = (1..=assignments.len()).map(Some).collect();
    let mut num_rows = 0;
    while let Some(batch) = batches.try_next().await.map_err(stoker_sql::Error::from)? {
        let addrs = addresses(&batch)?;
        let rows = RowNames::Addresses(addrs.values());
        let values = assign_all(execution.kind, &columns, &sources, batch.columns(), batch.num_rows(), rows)?;
        change.update(addrs.values(), &values)?;
        num_rows += batch.num_rows() as u64;
        execution.tell_rows("computing the new values", num_rows);
    }
    execution.tell_rows("writing the new values", num_rows);
    Ok(change.commit(Some(key), &execution.note("")).await?)
}

/// Refuses `unnest` in the new values of rows: rows with empty lists would stay as they are, and nobody would notice.
pub(super) fn refuse_unnest(execution: Execution<'_>, query: &SqlQuery) -> Result<()> {
    match query.unnests_rows() {
        false => Ok(()),
        true => Err(Error::refused(
            format!("unnest in the values of {}", execution.kind),
            "it gives no value or several for a row; unnest lists in a query of the source: FROM (SELECT …)",
        )),
    }
}

/// Executes `DELETE`.
pub(super) async fn delete(
    execution: Execution<'_>,
    target: &Target,
    using: Option<&str>,
    predicate: Option<&str>,
) -> Result<StatementOutcome> {
    let name = table_name(&target.name)?;
    if predicate.is_none() && using.is_none() {
        return super::truncate(execution, &name).await;
    }
    let mut attempts = execution.attempts();
    loop {
        let table = attempts.table(execution, &name).await?;
        let key = attempts.commit_key();
        match delete_once(execution, &table, target, using, predicate, key).await {
            Ok(changed) => {
                let message = format!("{} deleted", counted(changed.num_deleted, "row"));
                return Ok(outcome(&name, changed.version, Some(changed.num_deleted), message));
            }
            Err(error) => attempts.after(error).await?,
        }
    }
}

async fn delete_once(
    execution: Execution<'_>,
    table: &Table,
    target: &Target,
    using: Option<&str>,
    predicate: Option<&str>,
    key: CommitKey<'_>,
) -> Result<Changed> {
    let sql = rows_query(target, table.name(), std::iter::empty(), using, predicate);
    let query = execution.engine.query_of_statement(&sql, execution.params, &table.snapshot()).await?;
    let mut batches = query.execute_for_lake().await?;
    let mut change = begin(execution, table).await?;
    let mut num_rows = 0;
    while let Some(batch) = batches.try_next().await.map_err(stoker_sql::Error::from)? {
        change.delete(addresses(&batch)?.values());
        num_rows += batch.num_rows() as u64;
        execution.tell_rows("finding the rows", num_rows);
    }
    Ok(change.commit(Some(key), &execution.note(predicate.unwrap_or("true"))).await?)
}

/// Begins a change of rows. Its new values take no more memory than a query may.
pub(super) async fn begin(execution: Execution<'_>, table: &Table) -> Result<RowChange> {
    let bytes_max = execution.engine.options().query.memory_bytes as u64;
    let change = execution.lake().change(table, WriteOptions::default()).await?;
    Ok(change.with_values_bytes_max(bytes_max))
}

/// Returns the query of the addresses and the new values of rows. The address is the first column.
fn rows_query(
    target: &Target,
    table: &TableName,
    values: impl Iterator<Item = String>,
    relations: Option<&str>,
    predicate: Option<&str>,
) -> String {
    let columns: Vec<String> = std::iter::once(address_of(target)).chain(values).collect();
    let mut sql = format!("{}SELECT {} FROM {}", with(target), columns.join(", "), rows_of(target, table));
    if let Some(relations) = relations {
        sql.push_str(&format!(", {relations}"));
    }
    if let Some(predicate) = predicate {
        sql.push_str(&format!(" WHERE ({predicate})"));
    }
    sql
}

/// The `WITH` clause of a statement, with its first word.
pub(super) fn with(target: &Target) -> String {
    target.with.as_ref().map_or_else(String::new, |with| format!("WITH {with} "))
}

/// The column of the addresses of the rows that a statement changes.
pub(super) fn address_of(target: &Target) -> String {
    format!("{}.{ROW_ADDRESS}", quoted(target.shown()))
}

/// The relation of the rows that a statement changes, under the name by which the statement calls it.
pub(super) fn rows_of(target: &Target, table: &TableName) -> String {
    format!("{ADDRESSED_ROWS}({}) AS {}", quoted(table.as_str()), quoted(target.shown()))
}

/// Returns the row addresses in the first column of a batch.
pub(super) fn addresses(batch: &RecordBatch) -> Result<&UInt64Array> {
    let addrs = batch.columns().first().and_then(|column| column.as_primitive_opt::<UInt64Type>());
    match addrs {
        Some(addrs) if addrs.null_count() == 0 => Ok(addrs),
        _ => Err(Error::internal("a query of rows gave no addresses")),
    }
}

/// Returns the columns of a table that a statement assigns.
///
/// # Errors
/// `InvalidRequest` that names the columns that exist.
pub(super) fn assigned_columns<'a>(
    execution: Execution<'_>,
    table: &Table,
    names: impl IntoIterator<Item = &'a String>,
) -> Result<SchemaRef> {
    let schema = table.schema();
    let mut fields = Vec::new();
    for name in names {
        let Some((_, field)) = schema.fields().find(name) else {
            let known: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(Error::refused(
                format!("{}: table {} has no column {name}", execution.kind, table.name()),
                format!("its columns are: {}", known.join(", ")),
            ));
        };
        fields.push(field.clone());
    }
    Ok(Arc::new(Schema::new(fields)))
}

#[cfg(test)]
mod tests {
    use stoker_dialect::QualifiedName;

    use super::*;

    #[test]
    fn queries_have_the_parts_of_the_statement() {
        let table = TableName::try_new("T").expect("a name");
        let target = Target {
            name: QualifiedName(vec!["T".into()]),
            alias: Some("x".into()),
            with: Some("q AS (SELECT 1)".into()),
        };
        let values = ["(a + $1) AS c0".to_string()].into_iter();
        let sql = rows_query(&target, &table, values, Some("s, r"), Some("x.i = s.i OR $2"));
        let expected = "WITH q AS (SELECT 1) SELECT \"x\".__stoker_row_address, (a + $1) AS c0 \
                        FROM __stoker_rows(\"T\") AS \"x\", s, r WHERE (x.i = s.i OR $2)";
        assert_eq!(sql, expected);
        let target = Target { name: QualifiedName(vec!["T".into()]), ..Target::default() };
        let sql = rows_query(&target, &table, std::iter::empty(), None, None);
        assert_eq!(sql, "SELECT \"T\".__stoker_row_address FROM __stoker_rows(\"T\") AS \"T\"");
    }
}
