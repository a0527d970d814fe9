//! `stoker sql`.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{bail, ensure};
use clap::Args;
use futures::StreamExt;
use stoker::Connection;
use stoker_dialect::is_change;
use stoker_types::calls::ExplainQuery;
use stoker_types::{ParamValue, QueryOptions, SqlOptions};
use tokio::task::yield_now;

use crate::codec::Codec;
use crate::connect::{LakeArgs, parse_params};
use crate::new_file::NewFile;
use crate::output::output;
use crate::print::{Format, print_rows};
use crate::shell::Shell;
use crate::statement;

/// Run a SELECT, whose snapshots are pinned when the query is planned, or a statement that changes the lake.
///
/// Without a query, this is a shell on a terminal. Elsewhere it runs the statements of standard input, which semicolons
/// separate, one after the other until one fails.
#[derive(Debug, Args)]
pub struct SqlArgs {
    /// The query; $1, $2, …, or ? from left to right, are the parameters of --param
    query: Option<String>,
    /// A parameter as JSON, in order: 3, 0.5, "train", [0.1, 0.2], ["a", "b"], {"float": "NaN"}; anything else is a
    /// string
    #[arg(long = "param", short = 'p', value_name = "JSON", requires = "query")]
    params: Vec<String>,
    /// The format of the rows
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Write the rows to this file instead of standard output. The file appears when all rows are written
    #[arg(long, short = 'o', value_name = "FILE", requires = "query", conflicts_with = "explain")]
    output: Option<PathBuf>,
    /// The codec that compresses the rows on their way from a server [default: none]
    #[arg(long, value_enum)]
    compression: Option<Codec>,
    /// Let an index answer ORDER BY a distance with LIMIT: a row may be missing
    #[arg(long)]
    approximate: bool,
    /// Print the plan instead of the rows
    #[arg(long, requires = "query")]
    explain: bool,
}

/// Runs statements over a connection, and prints their rows in one format.
pub struct Statements<'a> {
    connection: &'a Connection,
    format: Format,
    options: SqlOptions,
}

impl Statements<'_> {
    /// Runs one statement, and prints its rows as they come, or what it changed. Dropping the future stops the statement.
    pub async fn run(&self, sql: &str, params: &[ParamValue], out: &mut impl Write) -> anyhow::Result<()> {
        if is_change(sql) {
            return statement::execute(self.connection, sql, params, self.format, out).await;
        }
        let mut rows = self.connection.sql_with(sql, params, self.options).await?;
        // Printing pauses after each batch, so that it can be stopped also where the next one is always there.
        let pause = |batch| async move {
            yield_now().await;
            batch
        };
        rows.stream = rows.stream.then(pause).boxed();
        print_rows(out, self.format, rows).await
    }
}

/// Runs the query and prints its rows, or opens the shell.
pub async fn run(args: SqlArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    if args.output.is_none() && !args.explain {
        args.format.check_standard_output()?;
    }
    ensure!(
        args.query.is_some() || !args.format.holds_one_result(),
        "this format has the rows of one query alone: give the query as an argument"
    );
    let connection = lake.connect().await?;
    let options = SqlOptions {
        query: QueryOptions::approximate(args.approximate),
        compression: args.compression.map(Codec::into),
    };
    let statements = Statements { connection: &connection, format: args.format, options };
    let Some(query) = args.query else { return Shell::new(statements).run().await };
    let params = parse_params(&args.params);
    if args.explain {
        let explain = ExplainQuery { sql: query, params, approximate: args.approximate };
        return Ok(writeln!(output(), "{}", connection.call(explain).await?)?);
    }
    let Some(path) = args.output else {
        return statements.run(&query, &params, &mut BufWriter::new(output())).await;
    };
    let mut file = NewFile::create(&path)?;
    tokio::select! {
        done = statements.run(&query, &params, &mut file) => done?,
        pressed = tokio::signal::ctrl_c() => {
            pressed?;
            bail!("interrupted; {} was not written", path.display());
        }
    }
    file.finish()
}
