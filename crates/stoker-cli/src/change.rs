//! `stoker update`, `delete`, `truncate`, `drop`, `restore` and `branch`: statements that change rows and tables, as commands.

use std::fmt::Display;
use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use clap::Args;
use futures::TryStreamExt;
use stoker::Connection;
use stoker_dialect::QualifiedName;
use stoker_types::{ParamValue, SnapshotRef};

use crate::connect::{AtArgs, LakeArgs, parse_params};
use crate::output::output;
use crate::print::{Format, print_rows};
use crate::statement::execute;

/// The rows that a command changes.
#[derive(Debug, Args)]
struct RowArgs {
    /// A parameter of the condition and the expressions ($1, $2, …) as JSON, in order, as for `stoker sql`
    #[arg(long = "param", short = 'p', value_name = "JSON")]
    params: Vec<String>,
    /// Only print how many rows would be changed
    #[arg(long)]
    dry_run: bool,
}

/// Give rows of a table new values, in one new version.
#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// The table
    table: String,
    /// A column and an expression of SQL for its new values, such as "label=label + 1"; repeatable
    #[arg(long = "set", value_name = "COLUMN=EXPRESSION", required = true, value_parser = assignment)]
    set: Vec<(String, String)>,
    /// The condition that chooses the rows, as in SQL; all rows by default
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    #[command(flatten)]
    rows: RowArgs,
}

/// Delete rows of a table, in one new version.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The table
    table: String,
    /// The condition that chooses the rows, as in SQL; `stoker truncate` deletes all of them
    #[arg(long = "where", value_name = "CONDITION")]
    condition: String,
    #[command(flatten)]
    rows: RowArgs,
}

/// Delete all rows of a table, in one new version.
#[derive(Debug, Args)]
pub struct TruncateArgs {
    /// The table
    table: String,
}

/// Remove a table with all of its versions.
#[derive(Debug, Args)]
pub struct DropArgs {
    /// The table
    table: String,
    /// Succeed if there is no such table
    #[arg(long)]
    if_exists: bool,
    /// Remove the table although streams hold versions of it, which then cannot be resumed
    #[arg(long)]
    cascade: bool,
}

/// Make an older version of a table the newest one again.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The table
    table: String,
    #[command(flatten)]
    at: OlderArgs,
}

/// The version that is restored.
#[derive(Debug, Args)]
#[command(next_help_heading = "Version of the table")]
#[group(required = true, multiple = false)]
struct OlderArgs {
    /// A version, by its number
    #[arg(long)]
    version: Option<u64>,
    /// The version that a tag points to
    #[arg(long)]
    tag: Option<String>,
}

/// List, make or remove branches of a table.
#[derive(Debug, Args)]
pub struct BranchArgs {
    /// The table, or the branch at which the new one begins: TABLE@BRANCH
    table: String,
    /// The branch to make; without it, branches are listed
    name: Option<String>,
    /// Remove the branch instead, with all of its versions
    #[arg(long, requires = "name", conflicts_with_all = ["version", "tag"])]
    drop: bool,
    /// Remove the branch although streams hold versions of it, which then cannot be resumed
    #[arg(long, requires = "drop")]
    cascade: bool,
    #[command(flatten)]
    at: AtArgs,
}

/// Updates rows, and prints the outcome.
pub async fn update(args: UpdateArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let set = args.set.iter().map(|(column, value)| format!("{} = ({value}\n)", quoted(column)));
    let set = set.collect::<Vec<_>>().join(", ");
    let condition = clause(args.condition.as_deref());
    let statement = format!("UPDATE {} SET {set}{condition}", quoted(&args.table));
    change(lake, &args.table, &statement, &condition, args.rows, "update").await
}

/// Deletes rows, and prints the outcome.
pub async fn delete(args: DeleteArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let condition = clause(Some(&args.condition));
    let statement = format!("DELETE FROM {}{condition}", quoted(&args.table));
    change(lake, &args.table, &statement, &condition, args.rows, "delete").await
}

/// Deletes all rows, and prints the outcome.
pub async fn truncate(args: TruncateArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    run(lake, &format!("TRUNCATE TABLE {}", quoted(&args.table))).await
}

/// Removes a table, and prints the outcome.
pub async fn drop_table(args: DropArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let exists = if args.if_exists { "IF EXISTS " } else { "" };
    let cascade = if args.cascade { " CASCADE" } else { "" };
    run(lake, &format!("DROP TABLE {exists}{}{cascade}", quoted(&args.table))).await
}

/// Restores a version, and prints the outcome.
pub async fn restore(args: RestoreArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let at = match (args.at.version, &args.at.tag) {
        (Some(version), _) => format!("VERSION => {version}"),
        (None, tag) => format!("TAG => {}", text(tag.as_deref().unwrap_or_default())),
    };
    run(lake, &format!("RESTORE TABLE {} AT ({at})", quoted(&args.table))).await
}

/// Lists, makes or removes branches.
pub async fn branch(args: BranchArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let table = quoted(&args.table);
    let Some(name) = args.name else {
        let rows = lake.connect().await?.sql(&format!("SHOW BRANCHES FROM {table}"), &[]).await?;
        return print_rows(&mut output(), Format::Table, rows).await;
    };
    if args.drop {
        let cascade = if args.cascade { " CASCADE" } else { "" };
        return run(lake, &format!("DROP BRANCH {} ON {table}{cascade}", quoted(&name))).await;
    }
    let at = match args.at.snapshot() {
        SnapshotRef::Version(version) => format!(" AT (VERSION => {version})"),
        SnapshotRef::Tag(tag) => format!(" AT (TAG => {})", text(&tag)),
        _ => String::new(),
    };
    run(lake, &format!("CREATE BRANCH {} ON {table}{at}", quoted(&name))).await
}

/// Executes a statement without parameters, and prints its outcome.
pub async fn run(lake: &LakeArgs, statement: &str) -> anyhow::Result<()> {
    execute(&lake.connect().await?, statement, &[], Format::Table, &mut output()).await
}

/// Executes a statement that changes the rows of a condition, or counts them.
async fn change(
    lake: &LakeArgs,
    table: &str,
    statement: &str,
    condition: &str,
    rows: RowArgs,
    verb: &str,
) -> anyhow::Result<()> {
    let (connection, params) = (lake.connect().await?, parse_params(&rows.params));
    if !rows.dry_run {
        return execute(&connection, statement, &params, Format::Table, &mut output()).await;
    }
    let num_rows = count(&connection, table, condition, &params).await?;
    let rows = if num_rows == 1 { "row" } else { "rows" };
    Ok(writeln!(output(), "would {verb} {num_rows} {rows} of table {table}")?)
}

async fn count(connection: &Connection, table: &str, condition: &str, params: &[ParamValue]) -> anyhow::Result<i64> {
    let sql = format!("SELECT count(*) AS n FROM {}{condition}", quoted(table));
    let batches: Vec<_> = connection.sql(&sql, params).await?.stream.try_collect().await?;
    let counts = batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().iter());
    Ok(counts.sum())
}

/// A name as SQL writes it, so that it is read as it is.
pub fn quoted(name: &str) -> impl Display {
    QualifiedName(vec![name.to_string()])
}

fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The `WHERE` clause of a condition. A comment at its end must not hide what follows.
fn clause(condition: Option<&str>) -> String {
    condition.map(|condition| format!(" WHERE ({condition}\n)")).unwrap_or_default()
}

/// Parses `COLUMN=EXPRESSION`.
fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((column, value)) if !column.trim().is_empty() && !value.trim().is_empty() => {
            Ok((column.trim().to_string(), value.trim().to_string()))
        }
        _ => Err("write a column, = and an expression, such as \"label=label + 1\"".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_have_a_column_and_an_expression() {
        assert_eq!(assignment("label = label + 1"), Ok(("label".to_string(), "label + 1".to_string())));
        assert_eq!(assignment("a=b = c"), Ok(("a".to_string(), "b = c".to_string())));
        for wrong in ["label", "=1", "label=", ""] {
            assert!(assignment(wrong).is_err(), "{wrong}");
        }
        assert_eq!(quoted("a \"b").to_string(), "\"a \"\"b\"");
        assert_eq!(clause(Some("a = 1 -- one")), " WHERE (a = 1 -- one\n)");
    }
}
