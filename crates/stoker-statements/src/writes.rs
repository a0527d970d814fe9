//! Statements that change rows, columns, tables, views, tags, branches and old versions.
//!
//! ```text
//! UPDATE, DELETE, MERGE ──► a query of row addresses and new values, at the newest version ──► RowChange ──► a commit
//!        ▲                                                                                       │ Conflict
//!        └────────────────────────── evaluated again at the newest version ◄─────────────────────┘
//! INSERT, CREATE TABLE AS ──► a query of rows ──► casts ──► table writer ──► a commit
//! ```
//!
//! Queries are planned by the engine, with the texts of the statement's expressions in them. DataFusion's own
//! statements are not used: `DELETE … WHERE x IN (SELECT …)` deletes all rows there (its issue 24654).

mod assignment;
mod attempts;
mod branches;
mod columns;
mod create_table;
mod insert;
mod merge;
mod new_table;
mod restore;
mod rows;
mod tags;
mod types;
mod vacuum;
mod views;

use std::collections::HashMap;

use stoker_catalog::view_query;
use stoker_clock::Environment;
use stoker_dialect::{QualifiedName, TableContent, WriteAction, WriteStatement};
use stoker_lake::{ChangeNote, HeldVersions, LakeStore, Table};
use stoker_sql::Engine;
use stoker_types::{ErrorKind, ParamValue, ProgressSink, SnapshotRef, StatementOutcome, StatementProgress, TableName};

pub(crate) use self::assignment::{RowNames, assign_all};
pub(crate) use self::attempts::Attempts;
pub(crate) use self::create_table::stored_schema;
pub(crate) use self::new_table::{NewRows, NewTableWriter};
pub(crate) use self::types::column as column_of_type;
pub use self::views::refuse_view;
use crate::{Error, Result, refuse_params, table_name};

/// The key of the transaction property that tells the kind of statement.
pub(crate) const STATEMENT_PROPERTY: &str = "stoker.statement";

/// A statement that is being executed.
#[derive(Clone, Copy)]
pub(crate) struct Execution<'a> {
    pub engine: &'a Engine,
    pub environment: &'a Environment,
    pub params: &'a [ParamValue],
    pub progress: &'a ProgressSink<'a>,
    /// The kind of statement, such as `UPDATE`.
    pub kind: &'static str,
}

/// Executes a statement.
pub(crate) async fn execute(execution: Execution<'_>, statement: &WriteStatement) -> Result<StatementOutcome> {
    if !takes_params(&statement.action) {
        execution.refuse_params()?;
    }
    match &statement.action {
        WriteAction::Insert { table, columns, rows } => {
            insert::insert(execution, table, columns, rows, &[execution.params]).await
        }
        WriteAction::Update { table, assignments, from, predicate } => {
            rows::update(execution, table, assignments, from.as_deref(), predicate.as_deref()).await
        }
        WriteAction::Delete { table, using, predicate } => {
            rows::delete(execution, table, using.as_deref(), predicate.as_deref()).await
        }
        WriteAction::Merge { table, source, on, clauses } => merge::merge(execution, table, source, on, clauses).await,
        WriteAction::CreateTable { table, existing, content } => {
            create_table::create_table(execution, table, *existing, content).await
        }
        WriteAction::AddColumns { table, columns } => columns::add(execution, table, columns).await,
        WriteAction::Truncate { table } => truncate(execution, &table_name(table)?).await,
        WriteAction::DropTable { table, if_exists, cascades } => {
            drop_table(execution, table, *if_exists, *cascades).await
        }
        WriteAction::DropColumns { table, columns } => columns::drop(execution, table, columns).await,
        WriteAction::RenameColumn { table, from, to } => columns::rename(execution, table, from, to).await,
        WriteAction::AlterColumn { table, column, data_type, value } => {
            columns::alter(execution, table, column, data_type.as_deref(), value.as_deref()).await
        }
        WriteAction::Restore { table, at } => restore::restore(execution, table, at).await,
        WriteAction::CreateView { view, existing, query } => views::create(execution, view, *existing, query).await,
        WriteAction::DropView { view, if_exists } => views::drop(execution.lake(), view, *if_exists).await,
        WriteAction::CreateTag { tag, if_not_exists, table, at } => {
            tags::create(execution, tag, *if_not_exists, table, at).await
        }
        WriteAction::CreateBranch { branch, if_not_exists, table, at } => {
            branches::create(execution, branch, *if_not_exists, table, at).await
        }
        WriteAction::DropBranch { branch, if_exists, table, cascades } => {
            branches::drop(execution, branch, *if_exists, table, *cascades).await
        }
        WriteAction::DropTag { tag, if_exists, table } => tags::drop(execution, tag, *if_exists, table).await,
        WriteAction::Vacuum { table, retain, is_dry_run } => {
            vacuum::vacuum(execution, table.as_ref(), retain, *is_dry_run).await
        }
    }
}

/// Whether a statement has expressions or a query, in which parameters may stand.
fn takes_params(action: &WriteAction) -> bool {
    match action {
        WriteAction::Insert { .. }
        | WriteAction::Update { .. }
        | WriteAction::Merge { .. }
        | WriteAction::CreateTable { content: TableContent::Query(_), .. }
        | WriteAction::AddColumns { .. }
        | WriteAction::AlterColumn { .. } => true,
        WriteAction::Delete { using, predicate, .. } => using.is_some() || predicate.is_some(),
        _ => false,
    }
}

/// Executes an `INSERT` once for each row of parameters, and commits all rows as one version; other statements are
/// executed one after the other, each as a version of its own. The outcome has the number of rows of all executions.
pub(crate) async fn execute_many(
    execution: Execution<'_>,
    statement: &WriteStatement,
    rows_of_params: &[Vec<ParamValue>],
) -> Result<StatementOutcome> {
    if let WriteAction::Insert { table, columns, rows } = &statement.action {
        let all: Vec<&[ParamValue]> = rows_of_params.iter().map(Vec::as_slice).collect();
        return insert::insert(execution, table, columns, rows, &all).await;
    }
    let (mut last, mut num_rows) = (StatementOutcome::default(), None);
    for (index, params) in rows_of_params.iter().enumerate() {
        let executed = execute(Execution { params, ..execution }, statement).await;
        last = executed.map_err(|source| match index {
            0 => source,
            index => Error::Row { row: index + 1, source: Box::new(source) },
        })?;
        num_rows = last.num_rows.map(|rows| rows + num_rows.unwrap_or(0)).or(num_rows);
    }
    let message = format!("executed for {} rows of parameters", rows_of_params.len());
    Ok(StatementOutcome { num_rows, message, ..last })
}

impl<'a> Execution<'a> {
    fn lake(&self) -> &'a LakeStore {
        self.engine.lake()
    }

    /// Opens the newest version of the table that the statement changes.
    ///
    /// # Errors
    /// [`Error::Refused`] for a view; those of [`LakeStore::table`].
    async fn table(&self, name: &TableName) -> Result<Table> {
        match self.lake().table(name, &SnapshotRef::Latest).await {
            Err(error) if error.kind() == ErrorKind::NotFound && view_query(self.lake(), name).await?.is_some() => {
                Err(Error::refused(
                    format!("{} of view {name}", self.kind),
                    "the rows of a view are those of its query; change its tables, or replace the view",
                ))
            }
            table => Ok(table?),
        }
    }

    /// Refuses parameters of a statement that has no values.
    fn refuse_params(&self) -> Result<()> {
        refuse_params(self.kind, self.params)
    }

    /// Begins the evaluations of the statement.
    fn attempts(&self) -> Attempts {
        Attempts::new(self.environment)
    }

    /// What the transaction of the statement says about it. `predicate` tells which rows are deleted, for people.
    fn note(&self, predicate: &str) -> ChangeNote {
        let properties = HashMap::from([(STATEMENT_PROPERTY.to_string(), self.kind.to_string())]);
        ChangeNote { predicate: predicate.to_string(), properties }
    }

    /// Tells how many rows were computed and, where they are new, written.
    fn tell_rows(&self, phase: &str, done: u64) {
        (self.progress)(StatementProgress { phase: phase.to_string(), done, total: None, unit: "rows".into() });
    }
}

/// Returns the outcome of a statement that changed rows of a table.
fn outcome(table: &TableName, version: u64, num_rows: Option<u64>, message: String) -> StatementOutcome {
    let table = Some(table.to_string());
    StatementOutcome { table, version: Some(version), num_rows, message, ..StatementOutcome::default() }
}

/// A number with a noun: `1 row`, `2 rows`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// Writes a name in quotes, so that the engine reads it as it is.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Removes all rows of a table.
async fn truncate(execution: Execution<'_>, name: &TableName) -> Result<StatementOutcome> {
    execution.table(name).await?;
    let changed = execution.lake().truncate(name, &execution.note("true")).await?;
    let message = format!("{} deleted", counted(changed.num_deleted, "row"));
    Ok(outcome(name, changed.version, Some(changed.num_deleted), message))
}

async fn drop_table(
    execution: Execution<'_>,
    table: &QualifiedName,
    if_exists: bool,
    cascades: bool,
) -> Result<StatementOutcome> {
    let name = table_name(table)?;
    let held = if cascades { HeldVersions::Drop } else { HeldVersions::Refuse };
    let mut outcome = StatementOutcome { table: Some(name.to_string()), ..StatementOutcome::default() };
    outcome.message = match execution.table(&name).await {
        Err(error) if error.kind() == ErrorKind::NotFound && if_exists => "there is no such table".into(),
        table => {
            table?;
            execution.lake().drop_table(&name, held).await?;
            "the table is gone with all of its versions".into()
        }
    };
    Ok(outcome)
}
