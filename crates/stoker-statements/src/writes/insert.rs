//! `INSERT`.

use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, NullArray, RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use futures::TryStreamExt as _;
use stoker_dialect::{InsertRows, QualifiedName};
use stoker_lake::{Changed, CommitKey, Isolation, RowChange, Table};
use stoker_types::{ParamValue, Snapshot, StatementOutcome, TableName};

use super::assignment::{RowNames, assign_all};
use super::rows::{assigned_columns, begin};
use super::{Execution, counted, outcome};
use crate::{Error, Result, table_name};

/// The most rows of parameters that are written together.
const PENDING_ROWS_MAX: usize = 1_024;

/// Executes `INSERT` once for each row of parameters. All rows become one version.
pub(super) async fn insert(
    execution: Execution<'_>,
    table: &QualifiedName,
    columns: &[String],
    rows: &InsertRows,
    rows_of_params: &[&[ParamValue]],
) -> Result<StatementOutcome> {
    let name = table_name(table)?;
    let mut attempts = execution.attempts();
    loop {
        let table = attempts.table(execution, &name).await?;
        let key = attempts.commit_key();
        match insert_once(execution, &table, columns, rows, rows_of_params, key).await {
            Ok(changed) => {
                let message = format!("{} inserted", counted(changed.num_inserted, "row"));
                return Ok(outcome(&name, changed.version, Some(changed.num_inserted), message));
            }
            Err(error) => attempts.after(error).await?,
        }
    }
}

async fn insert_once(
    execution: Execution<'_>,
    table: &Table,
    columns: &[String],
    rows: &InsertRows,
    rows_of_params: &[&[ParamValue]],
    key: CommitKey<'_>,
) -> Result<Changed> {
    let columns = match columns.is_empty() {
        true => table.schema(),
        false => assigned_columns(execution, table, columns)?,
    };
    let (name, change) = (table.name().clone(), begin(execution, table).await?);
    let mut inserting = Inserting { execution, name, columns, change, num_rows: 0, pending: Vec::new() };
    match inserting.add_all(rows, rows_of_params, table).await {
        Ok(isolation) => {
            let change = inserting.change.with_isolation(isolation);
            Ok(change.commit(Some(key), &execution.note("")).await?)
        }
        Err(error) => {
            inserting.change.abort().await;
            Err(error)
        }
    }
}

/// Rows that are being inserted.
struct Inserting<'a> {
    execution: Execution<'a>,
    name: TableName,
    /// The columns that get values.
    columns: SchemaRef,
    change: RowChange,
    num_rows: u64,
    /// Rows of parameters, one in each batch, which are written together.
    pending: Vec<RecordBatch>,
}

impl Inserting<'_> {
    /// Adds the rows of all rows of parameters. Returns what the commit must be isolated from.
    async fn add_all(
        &mut self,
        rows: &InsertRows,
        rows_of_params: &[&[ParamValue]],
        table: &Table,
    ) -> Result<Isolation> {
        let mut isolation = Isolation::Snapshot;
        for params in rows_of_params {
            match rows {
                InsertRows::Parameters(numbers) => self.add_parameters(numbers, params).await?,
                InsertRows::Query(sql) => {
                    if self.add_query(sql, params, table).await? {
                        // The new rows depend on those that the table has.
                        isolation = Isolation::Serializable;
                    }
                }
            }
        }
        self.flush().await?;
        Ok(isolation)
    }

    /// Adds the rows of a query, as they come. Returns whether the query reads the table.
    async fn add_query(&mut self, sql: &str, params: &[ParamValue], table: &Table) -> Result<bool> {
        // The newest version may be newer than that of the table: then the query reads the table's.
        let newest = [table.snapshot()];
        let query = self.execution.engine.query_at(sql, params, &newest).await?;
        let num_values = query.schema().fields().len();
        self.check_number(num_values)?;
        let sources: Vec<Option<usize>> = (0..num_values).map(Some).collect();
        let mut batches = query.execute_for_lake().await?;
        while let Some(batch) = batches.try_next().await.map_err(stoker_sql::Error::from)? {
            let rows = self.assigned(&sources, batch.columns(), batch.num_rows())?;
            self.write(&rows).await?;
        }
        Ok(reads(query.snapshots(), &self.name))
    }

    /// Adds one row of parameters. The statement names them by their zero-based numbers.
    async fn add_parameters(&mut self, numbers: &[usize], params: &[ParamValue]) -> Result<()> {
        if let Some(missing) = numbers.iter().find(|number| **number >= params.len()) {
            return Err(Error::refused(
                format!("parameter ${} is missing", missing + 1),
                format!("{} parameters were given", params.len()),
            ));
        }
        if let Some(unused) = (0..params.len()).find(|number| !numbers.contains(number)) {
            return Err(Error::refused(
                format!("parameter ${} is not used in the statement", unused + 1),
                format!("{} parameters were given", params.len()),
            ));
        }
        self.check_number(numbers.len())?;
        let values: Vec<ArrayRef> = numbers.iter().map(|number| value_of(&params[*number])).collect();
        let sources: Vec<Option<usize>> = (0..values.len()).map(Some).collect();
        let row = self.assigned(&sources, &values, 1)?;
        self.pending.push(row);
        if self.pending.len() >= PENDING_ROWS_MAX { self.flush().await } else { Ok(()) }
    }

    /// Assigns values to the columns, and counts the rows.
    fn assigned(&mut self, sources: &[Option<usize>], values: &[ArrayRef], num_rows: usize) -> Result<RecordBatch> {
        let rows = RowNames::From(self.num_rows);
        let batch = assign_all(self.execution.kind, &self.columns, sources, values, num_rows, rows)?;
        self.num_rows += num_rows as u64;
        Ok(batch)
    }

    async fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        self.change.insert(rows).await?;
        self.execution.tell_rows("writing the rows", self.num_rows);
        Ok(())
    }

    /// Writes the pending rows.
    async fn flush(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let Some(first) = pending.first() else { return Ok(()) };
        let rows = concat_batches(&first.schema(), &pending).map_err(|source| Error::internal(source.to_string()))?;
        self.write(&rows).await
    }

    fn check_number(&self, num_values: usize) -> Result<()> {
        let num_columns = self.columns.fields().len();
        match num_values == num_columns {
            true => Ok(()),
            false => {
                let names: Vec<&str> = self.columns.fields().iter().map(|field| field.name().as_str()).collect();
                Err(Error::refused(
                    format!("{} into table {}: there are {num_values} values", self.execution.kind, self.name),
                    format!("{num_columns} columns get values: {}", names.join(", ")),
                ))
            }
        }
    }
}

/// Whether a query reads a table, at any version.
pub(super) fn reads(snapshots: &[Snapshot], table: &TableName) -> bool {
    snapshots.iter().any(|snapshot| snapshot.table == *table)
}

/// Returns a parameter as a column of one row.
fn value_of(param: &ParamValue) -> ArrayRef {
    match param {
        ParamValue::Null => Arc::new(NullArray::new(1)),
        ParamValue::Bool(value) => Arc::new(BooleanArray::from(vec![*value])),
        ParamValue::Int(value) => Arc::new(Int64Array::from(vec![*value])),
        ParamValue::Float(value) => Arc::new(Float64Array::from(vec![*value])),
        ParamValue::Text(text) => Arc::new(StringArray::from(vec![text.as_str()])),
        ParamValue::Vector(values) => {
            let mut list = ListBuilder::new(Float64Builder::with_capacity(values.len()));
            list.append_value(values.iter().map(|value| Some(*value)));
            Arc::new(list.finish())
        }
        ParamValue::Arrow(value) => value.value().clone(),
    }
}
