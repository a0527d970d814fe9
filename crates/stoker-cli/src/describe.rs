//! `stoker describe`.

use std::io::Write;

use clap::Args;
use stoker_types::ColumnLayout;
use stoker_types::calls::{DescribeTable, TableAt};

use crate::connect::{AtArgs, LakeArgs};
use crate::output::output;
use crate::print::print_cells;

/// Show how the columns of a table are stored.
#[derive(Debug, Args)]
pub struct DescribeArgs {
    /// The table
    table: String,
    #[command(flatten)]
    at: AtArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the columns' layouts.
pub async fn run(args: DescribeArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let connection = lake.connect().await?;
    let info = connection.table(&args.table, &args.at.snapshot()).await?;
    let at = stoker_types::SnapshotRef::Version(info.version);
    let columns = connection.call(DescribeTable(TableAt::new(&args.table, &at))).await?;
    let mut out = output();
    if args.json {
        let answer = serde_json::json!({
            "table": info.name, "version": info.version, "num_rows": info.num_rows, "tags": info.tags, "columns": columns,
        });
        writeln!(out, "{answer:#}")?;
        return Ok(());
    }
    writeln!(out, "{} version {}, {} rows", info.name, info.version, info.num_rows)?;
    let head = ["column", "kind", "bytes/row", "chunks", "chunk size", "dense", "checksums", "compression"];
    let mut rows = vec![head.map(String::from)];
    let compressed: Vec<String> = columns.iter().filter_map(of_compression).collect();
    for column in columns {
        let dense = match (column.dense, column.heavy, column.why_not_dense) {
            (true, ..) => "yes".to_string(),
            (false, false, _) => "light".to_string(),
            (false, true, why) => format!("no: {}", why.unwrap_or_default()),
        };
        rows.push([
            column.name,
            column.kind,
            column.bytes_per_row.map_or("?".into(), |bytes| bytes.to_string()),
            column.num_chunks.to_string(),
            mebibytes(column.chunk_bytes_max),
            dense,
            match column.unchecked_fragments {
                0 => "yes".to_string(),
                1 => "not in 1 fragment".to_string(),
                num => format!("not in {num} fragments"),
            },
            column.compression,
        ]);
    }
    print_cells(&mut out, &rows)?;
    compressed.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(())
}

/// Describes the compression of a column with a codec, such as `x: pco:8, 1.00 MiB of 4.00 MiB (4.00 times smaller),
/// decoded at 1.20 GB/s by one thread`.
pub(crate) fn of_compression(column: &ColumnLayout) -> Option<String> {
    let (codec, plain_bytes, ratio) = (column.codec.as_ref()?, column.plain_bytes?, column.ratio()?);
    let (stored, plain) = (mebibytes(column.bytes), mebibytes(plain_bytes));
    let rate = column
        .decode_bytes_per_sec
        .map_or_else(String::new, |rate| format!(", decoded at {:.2} GB/s by one thread", rate as f64 / 1e9));
    let error = column.max_abs_error.map_or_else(String::new, |error| format!(", with an error of at most {error}"));
    Some(format!("{}: {codec}, {stored} of {plain} ({ratio:.2} times smaller){rate}{error}", column.name))
}

fn mebibytes(bytes: u64) -> String {
    if bytes < 1 << 20 {
        format!("{:.1} KiB", bytes as f64 / 1024.0)
    } else {
        format!("{:.2} MiB", bytes as f64 / 1048576.0)
    }
}
