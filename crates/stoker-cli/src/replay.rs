//! `stoker replay`.

use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use clap::Args;
use futures::StreamExt;
use stoker::{Connection, SqlResult, StreamHandle};
use stoker_batch::state_slice;
use stoker_types::{BadRows, BadShare, ReadOptions, RunId, Slice, StreamState, Topology};

use crate::connect::LakeArgs;
use crate::output::output;
use crate::print::{Format, print_rows};

/// Show the rows of a past step.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A run that wrote a log, or a state: its JSON, or a file that contains it
    #[arg(value_name = "RUN_OR_STATE")]
    from: String,
    /// The step: the zero-based number of the global batch, counted from the start of the training
    #[arg(long)]
    step: u64,
    /// Only the rows that this rank had
    #[arg(long, requires = "world_size")]
    rank: Option<u32>,
    /// The number of ranks
    #[arg(long, requires = "rank")]
    world_size: Option<u32>,
    /// The format of the rows
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// Prints the rows of the step, with their positions, tables and addresses.
pub async fn run(args: ReplayArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    args.format.check_standard_output()?;
    let connection = lake.connect().await?;
    let topology = Topology::try_new(args.rank.unwrap_or(0), args.world_size.unwrap_or(1))?;
    let (handle, slice) = find(&connection, &args, topology).await?;
    let options = ReadOptions { bad_rows: BadRows::Substitute, max_bad_share: BadShare::ALL, ..ReadOptions::default() };
    let mut stream = handle.open(&slice, &options).await?;
    let Some(batch) = stream.next().await? else { bail!("step {} has no rows", args.step) };
    for bad in &batch.substituted {
        eprintln!("row {} of the step replaces a bad row: {}", bad.row, bad.reason);
    }
    let rows = with_places(&handle, &slice, &batch)?;
    let result = SqlResult { schema: rows.schema(), stream: futures::stream::iter([Ok(rows)]).boxed() };
    print_rows(BufWriter::new(output()), args.format, result).await
}

async fn find(connection: &Connection, args: &ReplayArgs, topology: Topology) -> anyhow::Result<(StreamHandle, Slice)> {
    let text = match args.from.trim_start().starts_with('{') {
        true => Some(args.from.clone()),
        false if Path::new(&args.from).is_file() => {
            let text = std::fs::read_to_string(&args.from);
            Some(text.with_context(|| format!("cannot read the state {}", args.from))?)
        }
        false => None,
    };
    let Some(text) = text else {
        return Ok(connection.replay(&RunId::try_new(&args.from)?, args.step, topology).await?);
    };
    let state = StreamState::from_json(&text)?;
    let handle = connection.load_stream(&state).await?;
    Ok((handle, state_slice(&state, args.step, topology)?))
}

/// Returns the valid rows of a batch, with three columns before them: position, table and row address.
fn with_places(handle: &StreamHandle, slice: &Slice, batch: &stoker_batch::Batch) -> anyhow::Result<RecordBatch> {
    let share = slice.share(batch.step, handle.num_rows());
    let rows = batch.num_valid;
    let positions = UInt64Array::from_iter_values((0..rows).map(|row| share.position(batch.place_of(row).0 as u64)));
    let supplier = |row: usize| batch.row_addrs.iter().position(|addrs| addrs[row] != u64::MAX).unwrap_or_default();
    let tables = handle.tables();
    let names = (0..rows).map(|row| tables.get(supplier(row)).map(ToString::to_string));
    let addrs = (0..rows).map(|row| batch.row_addrs.get(supplier(row)).map(|addrs| addrs[row]));
    let places: Vec<(Field, ArrayRef)> = vec![
        (Field::new("_position", DataType::UInt64, false), Arc::new(positions)),
        (Field::new("_table", DataType::Utf8, true), Arc::new(names.collect::<StringArray>())),
        (Field::new("_rowaddr", DataType::UInt64, true), Arc::new(addrs.collect::<UInt64Array>())),
    ];
    let (mut fields, mut columns): (Vec<Arc<Field>>, Vec<ArrayRef>) =
        places.into_iter().map(|(field, column)| (Arc::new(field), column)).unzip();
    let valid = batch.data.slice(0, rows);
    fields.extend(valid.schema().fields().iter().cloned());
    columns.extend(valid.columns().iter().cloned());
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}
