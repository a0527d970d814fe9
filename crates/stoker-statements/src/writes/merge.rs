//! `MERGE`.
//!
//! One query joins the source with the rows of the table. For each pair it tells the address of the row, the number of
//! the first clause that fits, and the values of that clause:
//!
//! ```text
//! SELECT t.address, CASE WHEN matched AND … THEN 0 WHEN … THEN 1 … END, CASE … THEN (value) END, …
//! FROM source LEFT JOIN rows of t ON …
//! ```
//!
//! The expressions of a clause are evaluated for its rows only, so that `10 / s.x` is safe behind `AND s.x <> 0`.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use futures::TryStreamExt as _;
use stoker_dialect::{MergeAction, MergeClause, Target};
use stoker_lake::{Changed, CommitKey, Isolation, RowChange, Table};
use stoker_sql::SqlQuery;
use stoker_types::{StatementOutcome, TableName};

use super::assignment::{RowNames, assign_all, filtered};
use super::rows::{address_of, assigned_columns, begin, refuse_unnest, rows_of, with};
use super::{Execution, counted, outcome, quoted};
use crate::{Error, Result, table_name};

/// Executes `MERGE`.
pub(super) async fn merge(
    execution: Execution<'_>,
    target: &Target,
    source: &str,
    on: &str,
    clauses: &[MergeClause],
) -> Result<StatementOutcome> {
    let name = table_name(&target.name)?;
    let mut attempts = execution.attempts();
    loop {
        let table = attempts.table(execution, &name).await?;
        let key = attempts.commit_key();
        let plan = MergePlan::try_new(execution, &table, target, source, on, clauses)?;
        match merge_once(execution, &table, &plan, key).await {
            Ok(changed) => return Ok(merged(&name, changed)),
            Err(error) => attempts.after(error).await?,
        }
    }
}

fn merged(name: &TableName, changed: Changed) -> StatementOutcome {
    let Changed { version, num_deleted, num_updated, num_inserted } = changed;
    let message = format!("{} updated, {num_deleted} deleted, {num_inserted} inserted", counted(num_updated, "row"));
    outcome(name, version, Some(num_updated + num_deleted + num_inserted), message)
}

async fn merge_once(execution: Execution<'_>, table: &Table, plan: &MergePlan, key: CommitKey<'_>) -> Result<Changed> {
    let query = execution.engine.query_of_statement(&plan.sql, execution.params, &table.snapshot()).await?;
    if let Some(function) = query.volatile_function()? {
        return Err(Error::refused(
            format!("function {function} in MERGE"),
            "it may give another result each time, and a condition is evaluated more than once; write its results to \
             a column of the source first",
        ));
    }
    refuse_unnest(execution, &query)?;
    // Rows that others insert meanwhile may be those that this statement would insert.
    let isolation = if plan.inserts() { Isolation::Serializable } else { Isolation::Snapshot };
    let mut change = begin(execution, table).await?.with_isolation(isolation);
    match plan.add_all(execution, &mut change, &query).await {
        Ok(()) => Ok(change.commit(Some(key), &execution.note("")).await?),
        Err(error) => {
            change.abort().await;
            Err(error)
        }
    }
}

/// The query of a `MERGE`, and what its columns are. The first column is the address, the second the clause.
struct MergePlan {
    sql: String,
    clauses: Vec<ClausePlan>,
}

/// What the rows of a clause become. Numbers are indexes of columns of the query.
enum ClausePlan {
    Delete,
    Update { columns: SchemaRef, sources: Vec<Option<usize>> },
    Insert { columns: SchemaRef, sources: Vec<Option<usize>> },
}

/// The columns of the query, as they are collected.
struct Columns<'a> {
    target: &'a Target,
    clauses: &'a [MergeClause],
    exprs: Vec<String>,
}

impl MergePlan {
    fn try_new(
        execution: Execution<'_>,
        table: &Table,
        target: &Target,
        source: &str,
        on: &str,
        clauses: &[MergeClause],
    ) -> Result<Self> {
        let mut columns = Columns { target, clauses, exprs: vec![address_of(target)] };
        let number = columns.number();
        columns.exprs.push(number);
        let updated = updated_columns(clauses);
        let mut plans = Vec::with_capacity(clauses.len());
        for (index, clause) in clauses.iter().enumerate() {
            plans.push(match &clause.action {
                MergeAction::Delete => ClausePlan::Delete,
                MergeAction::Update(assignments) => {
                    // All rows of one change get new values of the same columns, which may be the old ones.
                    let sources = updated.iter().map(|column| {
                        let assigned = assignments.iter().find(|assignment| &assignment.column == *column);
                        Some(match assigned {
                            Some(assignment) => columns.value(index, &assignment.value),
                            None => columns.old(column),
                        })
                    });
                    let sources = sources.collect();
                    ClausePlan::Update {
                        columns: assigned_columns(execution, table, updated.iter().copied())?,
                        sources,
                    }
                }
                MergeAction::Insert { columns: names, values } => {
                    let schema = match names.is_empty() {
                        true => table.schema(),
                        false => assigned_columns(execution, table, names)?,
                    };
                    if schema.fields().len() != values.len() {
                        return Err(Error::refused(
                            format!("{}: INSERT has {} values", execution.kind, values.len()),
                            format!(
                                "table {} has {} columns; name those that get values",
                                table.name(),
                                schema.fields().len()
                            ),
                        ));
                    }
                    let sources = values.iter().map(|value| Some(columns.value(index, value))).collect();
                    ClausePlan::Insert { columns: schema, sources }
                }
            });
        }
        let exprs: Vec<String> =
            columns.exprs.iter().enumerate().map(|(index, expr)| format!("{expr} AS c{index}")).collect();
        let join = if clauses.iter().all(|clause| clause.action.is_of_matched()) { "INNER" } else { "LEFT" };
        let sql = format!(
            "{}SELECT {} FROM {source} {join} JOIN {} ON ({on})",
            with(target),
            exprs.join(", "),
            rows_of(target, table.name())
        );
        Ok(Self { sql, clauses: plans })
    }

    fn inserts(&self) -> bool {
        self.clauses.iter().any(|clause| matches!(clause, ClausePlan::Insert { .. }))
    }

    /// Adds the rows of the query to a change.
    async fn add_all(&self, execution: Execution<'_>, change: &mut RowChange, query: &SqlQuery) -> Result<()> {
        let mut batches = query.execute_for_lake().await?;
        let mut num_rows = 0;
        while let Some(batch) = batches.try_next().await.map_err(stoker_sql::Error::from)? {
            self.add(execution, change, &batch).await?;
            num_rows += batch.num_rows() as u64;
            execution.tell_rows("joining the rows", num_rows);
        }
        Ok(())
    }

    /// Adds the rows of a batch to a change.
    async fn add(&self, execution: Execution<'_>, change: &mut RowChange, batch: &RecordBatch) -> Result<()> {
        let number = batch.columns().get(1).and_then(|column| column.as_primitive_opt::<Int64Type>());
        let Some(number) = number else { return Err(Error::internal("a query of MERGE gave no clauses")) };
        for (index, clause) in (0..).zip(&self.clauses) {
            let mask: BooleanArray = number.iter().map(|number| Some(number == Some(index))).collect();
            let num_rows = mask.true_count();
            if num_rows == 0 {
                continue;
            }
            let columns = filtered(batch.columns(), &mask)?;
            match clause {
                ClausePlan::Delete => change.delete(row_addrs(&columns)?),
                ClausePlan::Update { columns: schema, sources } => {
                    let addrs = row_addrs(&columns)?;
                    let rows = RowNames::Addresses(addrs);
                    let values = assign_all(execution.kind, schema, sources, &columns, num_rows, rows)?;
                    change.update(addrs, &values)?;
                }
                ClausePlan::Insert { columns: schema, sources } => {
                    let rows = RowNames::Addresses(&[]);
                    let values = assign_all(execution.kind, schema, sources, &columns, num_rows, rows)?;
                    change.insert(&values).await?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the addresses of rows of the table.
fn row_addrs(columns: &[ArrayRef]) -> Result<&[u64]> {
    let addrs = columns.first().and_then(|column| column.as_primitive_opt::<UInt64Type>());
    match addrs {
        Some(addrs) if addrs.null_count() == 0 => Ok(addrs.values()),
        _ => Err(Error::internal("a matched row of MERGE has no address")),
    }
}

/// Returns the columns that any of the clauses updates, each once.
fn updated_columns(clauses: &[MergeClause]) -> Vec<&String> {
    let mut columns: Vec<&String> = Vec::new();
    for clause in clauses {
        let MergeAction::Update(assignments) = &clause.action else { continue };
        for assignment in assignments {
            if !columns.contains(&&assignment.column) {
                columns.push(&assignment.column);
            }
        }
    }
    columns
}

impl Columns<'_> {
    /// Adds a column with the value of an expression for the rows of a clause, and returns its index.
    fn value(&mut self, clause: usize, value: &str) -> usize {
        let is_of_matched = self.clauses[clause].action.is_of_matched();
        let earlier = (0..clause).filter(|index| self.clauses[*index].action.is_of_matched() == is_of_matched);
        let earlier: String = earlier.map(|index| format!("WHEN {} THEN NULL ", self.condition(index))).collect();
        self.add(format!("CASE {earlier}WHEN {} THEN ({value}) END", self.condition(clause)))
    }

    /// Adds a column of the table, and returns its index.
    fn old(&mut self, column: &str) -> usize {
        self.add(format!("{}.{}", quoted(self.target.shown()), quoted(column)))
    }

    fn add(&mut self, expr: String) -> usize {
        let known = self.exprs.iter().position(|known| *known == expr);
        known.unwrap_or_else(|| {
            self.exprs.push(expr);
            self.exprs.len() - 1
        })
    }

    /// The number of the first clause that fits a row.
    fn number(&self) -> String {
        let numbers = (0..self.clauses.len()).map(|index| format!("WHEN {} THEN {index} ", self.condition(index)));
        format!("CAST(CASE {}END AS BIGINT)", numbers.collect::<String>())
    }

    /// The condition of a clause, apart from the clauses before it.
    fn condition(&self, clause: usize) -> String {
        let MergeClause { predicate, action } = &self.clauses[clause];
        let not = if action.is_of_matched() { "NOT " } else { "" };
        let matched = format!("{} IS {not}NULL", address_of(self.target));
        match predicate {
            Some(predicate) => format!("{matched} AND ({predicate})"),
            None => matched,
        }
    }
}

#[cfg(test)]
mod tests {
    use stoker_dialect::{Change, WriteAction};

    use super::*;

    #[test]
    fn expressions_are_evaluated_for_the_rows_of_their_clause() {
        let sql = "MERGE INTO t USING s ON t.i = s.i WHEN MATCHED AND s.x = 0 THEN DELETE \
                   WHEN MATCHED THEN UPDATE SET a = 10 / s.x WHEN NOT MATCHED THEN INSERT (i) VALUES (s.i)";
        let Ok(Change::Write(statement)) = Change::parse(sql) else { panic!("a statement") };
        let WriteAction::Merge { table: target, clauses, .. } = &statement.action else { panic!("MERGE") };
        let mut columns = Columns { target, clauses, exprs: Vec::new() };
        let matched = "\"t\".__stoker_row_address IS NOT NULL";
        assert_eq!(
            columns.number(),
            format!(
                "CAST(CASE WHEN {matched} AND (s.x = 0) THEN 0 WHEN {matched} THEN 1 WHEN \
                     \"t\".__stoker_row_address IS NULL THEN 2 END AS BIGINT)"
            )
        );
        assert_eq!(columns.value(1, "10 / s.x"), 0);
        assert_eq!(
            columns.exprs[0],
            format!("CASE WHEN {matched} AND (s.x = 0) THEN NULL WHEN {matched} THEN (10 / s.x) END")
        );
        assert_eq!(columns.value(2, "s.i"), 1);
        assert_eq!(columns.exprs[1], "CASE WHEN \"t\".__stoker_row_address IS NULL THEN (s.i) END");
        assert_eq!((columns.old("a"), columns.old("a")), (2, 2));
    }
}
