//! Executes statements that change a lake, bulk inserts, and columns whose values the caller computes.
//!
//! ```text
//! text ──stoker_dialect::Change::parse──► Change ──execute──► StatementOutcome
//!                                                    │
//!                                                    ├─ index:   CREATE INDEX, DROP INDEX, OPTIMIZE INDEX
//!                                                    ├─ compact: OPTIMIZE
//!                                                    └─ writes:  INSERT, UPDATE, DELETE, MERGE, CREATE TABLE, …
//! ```
//!
//! A statement becomes one commit of [`stoker_lake`], or none. Defaults of options are chosen here and nowhere else, so
//! that SQL, the commands and the Python package give the same results.

mod bulk_insert;
mod compact;
mod computed;
mod error;
mod index;
mod options;
mod table_write;
mod writes;

use stoker_clock::Environment;
use stoker_dialect::{Change, QualifiedName};
use stoker_sql::Engine;
use stoker_types::{CATALOG, ParamValue, ProgressSink, SCHEMA, StatementOutcome, TableName};

pub use bulk_insert::{BulkInsert, IfMissing, IfPresent};
pub use computed::{ColumnJob, ColumnMode, ColumnPlan, ComputedColumn};
pub use error::{Error, Result};
pub use table_write::{TableWrite, find_write};
pub use writes::refuse_view;

use writes::Execution;

/// Executes one statement. Dropping the future before the change is committed leaves the lake as it was.
///
/// ```
/// # use stoker_lake::{LakeStore, StorageOptions};
/// # use stoker_sql::{Engine, EngineOptions};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let lake = LakeStore::open("memory://", &StorageOptions::default()).await?;
/// let engine = Engine::new(lake, EngineOptions::default());
/// let statement = "CREATE INDEX ON photos USING ivf_pq (embedding) WITH (metric = 'cosine')";
/// let error = stoker_statements::execute(&engine, statement, &[], &|_| {}).await.unwrap_err();
/// assert!(error.to_string().contains("table photos"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Dialect`] for a text that is no such statement; [`Error::Refused`] for options, types, values and parameters
/// that do not fit; [`Error::Query`] for expressions and queries in it that cannot be planned or run; [`Error::Lake`] for
/// names that do not exist or exist already, and for storage errors; [`Error::Contention`] if others changed the same
/// rows again and again.
pub async fn execute(
    engine: &Engine,
    sql: &str,
    params: &[ParamValue],
    progress: &ProgressSink<'_>,
) -> Result<StatementOutcome> {
    execute_once(engine, &Environment::default(), sql, params, progress).await
}

/// Executes one statement for each row of parameters. The rows of an `INSERT` become one version. Other statements are
/// executed one after the other, each as a version of its own, up to the first one that fails. The outcome has the number
/// of rows of all executions. Waits between evaluations, and keys of commits, are those of `environment`.
///
/// # Errors
/// As for [`execute`]; [`Error::Refused`] for no rows of parameters.
pub async fn execute_many(
    engine: &Engine,
    environment: &Environment,
    sql: &str,
    rows_of_params: &[Vec<ParamValue>],
    progress: &ProgressSink<'_>,
) -> Result<StatementOutcome> {
    match rows_of_params {
        [] => Err(Error::refused("the statement is bound to no rows of parameters", "bind one or more")),
        [params] => execute_once(engine, environment, sql, params, progress).await,
        rows => {
            let change = parse(engine, sql)?;
            let Change::Write(statement) = &change else {
                refuse_params(change.kind(), &rows[0])?;
                return execute_once(engine, environment, sql, &[], progress).await;
            };
            let execution = Execution { engine, environment, params: &[], progress, kind: change.kind() };
            let outcome = writes::execute_many(execution, statement, rows).await?;
            Ok(StatementOutcome { statement: change.kind().to_string(), ..outcome })
        }
    }
}

async fn execute_once(
    engine: &Engine,
    environment: &Environment,
    sql: &str,
    params: &[ParamValue],
    progress: &ProgressSink<'_>,
) -> Result<StatementOutcome> {
    let change = parse(engine, sql)?;
    if !matches!(change, Change::Write(_)) {
        refuse_params(change.kind(), params)?;
    }
    let outcome = match &change {
        Change::CreateIndex(create) => index::create(engine.lake(), create, progress).await?,
        Change::DropIndex(drop) => index::drop(engine.lake(), drop).await?,
        Change::OptimizeIndex(optimize) => index::optimize(engine.lake(), optimize, progress).await?,
        Change::OptimizeTable(optimize) => compact::optimize(engine.lake(), optimize, progress).await?,
        Change::Write(statement) => {
            let execution = Execution { engine, environment, params, progress, kind: change.kind() };
            writes::execute(execution, statement).await?
        }
    };
    Ok(StatementOutcome { statement: change.kind().to_string(), ..outcome })
}

/// Parses a statement, which may be as long as a query.
fn parse(engine: &Engine, sql: &str) -> Result<Change> {
    let limit = engine.options().max_sql_bytes;
    match sql.len() > limit {
        true => Err(Error::refused(
            format!("the statement has {} bytes, the limit is {limit}", sql.len()),
            "split it, or pass long lists as parameters",
        )),
        false => Ok(Change::parse(sql)?),
    }
}

/// Refuses parameters of a statement that has no values.
fn refuse_params(kind: &str, params: &[ParamValue]) -> Result<()> {
    match params.is_empty() {
        true => Ok(()),
        false => Err(Error::refused("parameter $1 is not used", format!("{kind} has no parameters"))),
    }
}

/// Returns the table that a statement names.
fn table_name(name: &QualifiedName) -> Result<TableName> {
    let short = match name.0.as_slice() {
        [table] => table,
        [schema, table] if schema == SCHEMA => table,
        [catalog, schema, table] if catalog == CATALOG && schema == SCHEMA => table,
        _ => {
            return Err(Error::NotFound {
                what: format!("table {name}"),
                reason: format!("the tables of a lake are in the schema {SCHEMA} of the catalog {CATALOG}"),
            });
        }
    };
    Ok(TableName::try_new(short.as_str())?)
}

#[cfg(test)]
mod tests;
