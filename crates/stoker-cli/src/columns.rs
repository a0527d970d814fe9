//! `stoker add-column`, `cast-column`, `rename-column` and `drop-column`.

use clap::Args;

use crate::change::{quoted, run};
use crate::connect::{LakeArgs, parse_params};
use crate::output::output;
use crate::print::Format;
use crate::statement::execute;

/// Add a column to a table; the other columns are not written again.
#[derive(Debug, Args)]
pub struct AddColumnArgs {
    /// The table
    table: String,
    /// The column
    column: String,
    /// Its type in SQL, such as BIGINT, TEXT or FLOAT[128] [default: that of the expression]
    #[arg(value_name = "TYPE", required_unless_present = "value")]
    data_type: Option<String>,
    /// An expression of SQL for its values, such as "label + 1" [default: NULL]
    #[arg(long = "sql", value_name = "EXPRESSION")]
    value: Option<String>,
    /// The condition that chooses the rows that get values, as in SQL; others are NULL
    #[arg(long = "where", value_name = "CONDITION", requires = "value")]
    condition: Option<String>,
    /// Compute a column anew that exists; its indexes are dropped
    #[arg(long, requires = "value", conflicts_with = "condition")]
    replace: bool,
    /// A parameter of the expression and the condition ($1, $2, …) as JSON, in order, as for `stoker sql`
    #[arg(long = "param", short = 'p', value_name = "JSON", requires = "value")]
    params: Vec<String>,
}

/// Give a column another type. A value that does not fit is an error, and nothing changes.
#[derive(Debug, Args)]
pub struct CastColumnArgs {
    /// The table
    table: String,
    /// The column
    column: String,
    /// Its new type in SQL, such as BIGINT, TEXT or FLOAT[128]
    #[arg(value_name = "TYPE")]
    data_type: String,
    /// An expression of SQL for the new values, such as "decompress(mask)" [default: casts of the old ones]
    #[arg(long, value_name = "EXPRESSION")]
    using: Option<String>,
}

/// Give a column another name; older versions keep the old one.
#[derive(Debug, Args)]
pub struct RenameColumnArgs {
    /// The table
    table: String,
    /// The column
    column: String,
    /// Its new name
    name: String,
}

/// Remove columns from a table; older versions keep them.
#[derive(Debug, Args)]
pub struct DropColumnArgs {
    /// The table
    table: String,
    /// The columns
    #[arg(required = true)]
    columns: Vec<String>,
    /// Leave out columns that do not exist
    #[arg(long)]
    if_exists: bool,
}

/// Adds a column, and prints the outcome.
pub async fn add(args: AddColumnArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let connection = lake.connect().await?;
    execute(&connection, &args.statement(), &parse_params(&args.params), Format::Table, &mut output()).await
}

/// Gives a column another type, and prints the outcome.
pub async fn cast(args: CastColumnArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let using = args.using.map(|value| format!(" USING ({value}\n)")).unwrap_or_default();
    let (table, column) = (quoted(&args.table), quoted(&args.column));
    run(lake, &format!("ALTER TABLE {table} ALTER COLUMN {column} TYPE {}{using}", args.data_type)).await
}

/// Gives a column another name, and prints the outcome.
pub async fn rename(args: RenameColumnArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let (table, column, name) = (quoted(&args.table), quoted(&args.column), quoted(&args.name));
    run(lake, &format!("ALTER TABLE {table} RENAME COLUMN {column} TO {name}")).await
}

/// Removes columns, and prints the outcome.
pub async fn drop_columns(args: DropColumnArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let exists = if args.if_exists { "IF EXISTS " } else { "" };
    let columns = args.columns.iter().map(|column| format!("DROP COLUMN {exists}{}", quoted(column)));
    run(lake, &format!("ALTER TABLE {} {}", quoted(&args.table), columns.collect::<Vec<_>>().join(", "))).await
}

impl AddColumnArgs {
    fn statement(&self) -> String {
        // A comment at the end of an expression must not hide what follows.
        let value = self.value.as_ref().map(|value| match &self.condition {
            Some(condition) => format!(" AS (CASE WHEN ({condition}\n) THEN ({value}\n) END)"),
            None => format!(" AS ({value}\n)"),
        });
        let (verb, of_type) = if self.replace { ("ALTER", " TYPE") } else { ("ADD", "") };
        let data_type = self.data_type.as_ref().map(|data_type| format!("{of_type} {data_type}"));
        let (table, column) = (quoted(&self.table), quoted(&self.column));
        let (data_type, value) = (data_type.unwrap_or_default(), value.unwrap_or_default());
        format!("ALTER TABLE {table} {verb} COLUMN {column}{data_type}{value}")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: AddColumnArgs,
    }

    #[test]
    fn columns_are_added_by_statements() {
        for (words, expected) in [
            (vec!["t", "c", "BIGINT"], "ALTER TABLE \"t\" ADD COLUMN \"c\" BIGINT"),
            (vec!["t", "c", "--sql", "a + 1"], "ALTER TABLE \"t\" ADD COLUMN \"c\" AS (a + 1\n)"),
            (
                vec!["t", "c", "INT", "--sql", "a", "--where", "b > 1"],
                "ALTER TABLE \"t\" ADD COLUMN \"c\" INT AS (CASE WHEN (b > 1\n) THEN (a\n) END)",
            ),
            (
                vec!["t", "c", "INT", "--sql", "a", "--replace"],
                "ALTER TABLE \"t\" ALTER COLUMN \"c\" TYPE INT AS (a\n)",
            ),
        ] {
            let parsed = Cli::try_parse_from(["stoker"].into_iter().chain(words)).expect("arguments");
            assert_eq!(parsed.args.statement(), expected);
        }
        assert!(Cli::try_parse_from(["stoker", "t", "c"]).is_err());
    }
}
