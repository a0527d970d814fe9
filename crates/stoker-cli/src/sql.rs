//! `stoker sql`.

use std::io::{BufWriter, Write};

use clap::Args;
use stoker_types::calls::ExplainQuery;

use crate::codec::Codec;
use crate::connect::{LakeArgs, parse_params};
use crate::output::output;
use crate::print::{Format, print_rows};

/// Run a SELECT. Its snapshots are pinned when the query is planned.
#[derive(Debug, Args)]
pub struct SqlArgs {
    /// The query; $1, $2, …, or ? from left to right, are the parameters of --param
    query: String,
    /// A parameter as JSON, in order: 3, 0.5, "train", [0.1, 0.2], ["a", "b"], {"float": "NaN"}; anything else is a
    /// string
    #[arg(long = "param", short = 'p', value_name = "JSON")]
    params: Vec<String>,
    /// The format of the rows
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// The codec that compresses the rows on their way from a server [default: none]
    #[arg(long, value_enum)]
    compression: Option<Codec>,
    /// Print the plan instead of the rows
    #[arg(long)]
    explain: bool,
}

/// Runs the query and prints its rows.
pub async fn run(args: SqlArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let connection = lake.connect().await?;
    let params = parse_params(&args.params);
    let mut out = BufWriter::new(output());
    if args.explain {
        writeln!(out, "{}", connection.call(ExplainQuery { sql: args.query, params }).await?)?;
        return Ok(out.flush()?);
    }
    let result = connection.sql_compressed(&args.query, &params, args.compression.map(Codec::into)).await?;
    print_rows(out, args.format, result).await
}
