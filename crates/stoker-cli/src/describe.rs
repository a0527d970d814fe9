//! `stoker describe`.

mod page;

use std::io::Write;

use clap::Args;
use stoker_types::calls::{DescribeTable, TableAt};

use crate::connect::{AtArgs, LakeArgs};
use crate::output::output;

pub(crate) use page::of_compression;

/// Show how large a table is, and how its columns are stored.
#[derive(Debug, Args)]
pub struct DescribeArgs {
    /// The table
    table: String,
    /// Print JSON, with the pages of columns
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: AtArgs,
}

/// Prints the size of the table, and the columns' layouts.
pub async fn run(args: DescribeArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let connection = lake.connect().await?;
    let info = connection.table(&args.table, &args.at.snapshot()).await?;
    let at = stoker_types::SnapshotRef::Version(info.version);
    let columns = connection.call(DescribeTable(TableAt::new(&args.table, &at))).await?;
    let mut out = output();
    if args.json {
        let answer = serde_json::json!({
            "table": info.name, "version": info.version, "num_rows": info.num_rows, "tags": info.tags,
            "size": info.size, "columns": columns,
        });
        writeln!(out, "{answer:#}")?;
        return Ok(());
    }
    Ok(page::print(&mut out, &info, &columns)?)
}
