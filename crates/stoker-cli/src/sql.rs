//! `stoker sql`.

use std::io::{BufWriter, Write};

use arrow::csv::WriterBuilder;
use arrow::json::LineDelimitedWriter;
use arrow_array::RecordBatch;
use arrow_cast::pretty::pretty_format_batches;
use arrow_ipc::writer::StreamWriter;
use clap::{Args, ValueEnum};
use futures::TryStreamExt;

use crate::connect::{LakeArgs, parse_params};

/// Rows that the table format shows; the rest is counted.
const TABLE_ROWS_MAX: usize = 1_000;

/// Run a SELECT at snapshots that are pinned when it is planned.
#[derive(Debug, Args)]
pub struct SqlArgs {
    /// The query; $1, $2, … stand for --param values
    query: String,
    /// A parameter as JSON, in order: 3, 0.5, "train", [0.1, 0.2]; anything else is a string
    #[arg(long = "param", short = 'p', value_name = "JSON")]
    params: Vec<String>,
    /// The format of the rows
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Show the plan in place of the rows
    #[arg(long)]
    explain: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Aligned columns for people; the first 1,000 rows
    Table,
    /// Comma-separated values with a header
    Csv,
    /// One JSON object for each row
    Json,
    /// An Arrow IPC stream
    Arrow,
}

/// Runs the query and prints its rows.
pub async fn run(args: SqlArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let connection = lake.connect().await?;
    let params = parse_params(&args.params);
    let mut out = BufWriter::new(std::io::stdout().lock());
    if args.explain {
        writeln!(out, "{}", connection.explain(&args.query, &params).await?)?;
        return Ok(out.flush()?);
    }
    let mut result = connection.sql(&args.query, &params).await?;
    match args.format {
        Format::Table => {
            let mut shown: Vec<RecordBatch> = vec![RecordBatch::new_empty(result.schema.clone())];
            let (mut rows, mut room) = (0, TABLE_ROWS_MAX);
            while let Some(batch) = result.stream.try_next().await? {
                rows += batch.num_rows();
                let take = batch.num_rows().min(room);
                room -= take;
                shown.push(batch.slice(0, take));
            }
            writeln!(out, "{}", pretty_format_batches(&shown)?)?;
            writeln!(out, "{rows} rows{}", if rows > TABLE_ROWS_MAX { "; the first 1,000 are shown" } else { "" })?;
        }
        Format::Csv => {
            let mut writer = WriterBuilder::new().with_header(true).build(&mut out);
            writer.write(&RecordBatch::new_empty(result.schema.clone()))?;
            while let Some(batch) = result.stream.try_next().await? {
                writer.write(&batch)?;
            }
        }
        Format::Json => {
            let mut writer = LineDelimitedWriter::new(&mut out);
            while let Some(batch) = result.stream.try_next().await? {
                writer.write(&batch)?;
            }
            writer.finish()?;
        }
        Format::Arrow => {
            let mut writer = StreamWriter::try_new(&mut out, &result.schema)?;
            while let Some(batch) = result.stream.try_next().await? {
                writer.write(&batch)?;
            }
            writer.finish()?;
        }
    }
    Ok(out.flush()?)
}
