//! `stoker bench order`: measures how well an order mixes rows that are stored sorted by class, and what reading it
//! costs.

use std::collections::HashSet;
use std::io::Write;

use clap::Args;
use serde_json::{Value, json};
use stoker_order::EpochOrder;
use stoker_types::{ShuffleMode, StreamOptions, to_usize};

use crate::ShuffleValue;

/// The tables that are measured by default: rows and bytes per row.
const TABLES: [(u64, u64); 2] = [(65_536, 150_528), (4_000_000, 2_048)];

/// The jobs: number of ranks, and bytes of the shuffle window of all ranks together (one GPU with the default, eight
/// with 512 MiB each).
const JOBS: [(u64, u64); 2] = [(1, 512 << 20), (8, 4 << 30)];

/// The numbers of classes that are measured.
const CLASSES: [u64; 2] = [100, 1_000];

/// Measure how well an order mixes rows that are stored sorted by class.
#[derive(Debug, Args)]
pub struct OrderArgs<S: ShuffleValue> {
    /// Rows [default: 65,536 of 150,528 bytes, and 4,000,000 of 2,048 bytes]
    #[arg(long, requires = "row_bytes", value_parser = clap::value_parser!(u64).range(2..))]
    rows: Option<u64>,
    /// Bytes per row
    #[arg(long, requires = "rows", value_parser = clap::value_parser!(u64).range(1..))]
    row_bytes: Option<u64>,
    /// Rows per batch and rank
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..))]
    batch_size: u64,
    /// How rows are shuffled
    #[arg(long, value_enum, default_value = "block")]
    shuffle: S,
    /// The seed of the order
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints a table of all cases.
pub fn run(args: &OrderArgs<impl ShuffleValue>, out: &mut impl Write) -> anyhow::Result<()> {
    let tables = match (args.rows, args.row_bytes) {
        (Some(rows), Some(row_bytes)) => vec![(rows, row_bytes)],
        _ => TABLES.to_vec(),
    };
    let mut cases = Vec::new();
    for (rows, row_bytes) in tables {
        for (ranks, window_bytes) in JOBS {
            cases.push(case(args, rows, row_bytes, ranks, window_bytes));
        }
    }
    if args.json {
        writeln!(out, "{:#}", Value::from(cases))?;
        return Ok(());
    }
    let shuffle: ShuffleMode = args.shuffle.into();
    let (shuffle, batch_size) = (shuffle.as_str(), args.batch_size);
    writeln!(out, "shuffle {shuffle}, batches of {batch_size} of one rank; rows are stored sorted by class\n")?;
    writeln!(
        out,
        "| rows | bytes/row | ranks | window | labels, 100 classes | 1,000 classes | rank correlation | neighbours | read amplification |"
    )?;
    writeln!(out, "|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for case in &cases {
        let share = |value: &Value| format!("{:.1} %", 100.0 * value.as_f64().unwrap_or(f64::NAN));
        writeln!(
            out,
            "| {} | {} | {} | {} MiB | {} | {} | {:.4} | {:.2} | {:.3} |",
            case["rows"],
            case["row_bytes"],
            case["ranks"],
            case["window_bytes"].as_u64().unwrap_or(0) >> 20,
            share(&case["distinct_labels"][0]["share"]),
            share(&case["distinct_labels"][1]["share"]),
            case["rank_correlation"].as_f64().unwrap_or(f64::NAN),
            case["neighbours"].as_f64().unwrap_or(f64::NAN),
            case["read_amplification"].as_f64().unwrap_or(f64::NAN),
        )?;
    }
    writeln!(out, "\nlabels: distinct labels in a batch, over the expectation under a uniform permutation")?;
    writeln!(out, "neighbours: how often rows that lie side by side share a batch, over the same expectation")?;
    writeln!(
        out,
        "read amplification: bytes of the blocks that each rank's windows touch, over the bytes of the rows"
    )?;
    Ok(())
}

fn case(args: &OrderArgs<impl ShuffleValue>, rows: u64, row_bytes: u64, ranks: u64, window_bytes: u64) -> Value {
    let options =
        StreamOptions { shuffle: args.shuffle.into(), shuffle_window_bytes: window_bytes, ..StreamOptions::default() };
    let options = options.order(rows, row_bytes);
    let order = EpochOrder::new(rows, &options, args.seed, 0);
    let mut ordinals = Vec::with_capacity(to_usize(rows));
    order.ordinals(0..rows, &mut ordinals);
    let by_rank: Vec<Vec<u64>> = (0..ranks)
        .map(|rank| ordinals.iter().skip(to_usize(rank)).step_by(to_usize(ranks)).copied().collect())
        .collect();
    let labels: Vec<Value> = CLASSES
        .iter()
        .map(
            |classes| json!({ "classes": classes, "share": distinct_share(&by_rank, rows, *classes, args.batch_size) }),
        )
        .collect();
    let window_rows = order.window_positions(0).map_or(rows, |window| window.end).max(1);
    json!({
        "rows": rows, "row_bytes": row_bytes, "ranks": ranks, "window_bytes": window_bytes,
        "rows_per_block": options.rows_per_block, "batch_size": args.batch_size,
        "distinct_labels": labels,
        "rank_correlation": rank_correlation(&ordinals),
        "neighbours": neighbours(&by_rank, rows, args.batch_size),
        "read_amplification": read_amplification(&by_rank, rows, options.rows_per_block, window_rows / ranks),
    })
}

/// Returns the mean number of distinct labels in full batches, divided by its expectation under a uniform permutation.
fn distinct_share(by_rank: &[Vec<u64>], rows: u64, classes: u64, batch_size: u64) -> f64 {
    let (mut found, mut batches) = (0usize, 0usize);
    for batch in by_rank.iter().flat_map(|ordinals| ordinals.chunks_exact(to_usize(batch_size))) {
        let label = |ordinal: &u64| u128::from(*ordinal) * u128::from(classes) / u128::from(rows);
        found += batch.iter().map(label).collect::<HashSet<u128>>().len();
        batches += 1;
    }
    // A class is absent from a batch if all rows of the batch are drawn from the other classes.
    let others = rows as f64 * (1.0 - 1.0 / classes as f64);
    let absent: f64 = (0..batch_size).map(|drawn| (others - drawn as f64) / (rows - drawn) as f64).product();
    found as f64 / batches as f64 / (classes as f64 * (1.0 - absent))
}

/// Returns Spearman's rank correlation of the position in the order and the ordinal, which is the order of storage.
fn rank_correlation(ordinals: &[u64]) -> f64 {
    let square = |(position, ordinal): (usize, &u64)| (position as f64 - *ordinal as f64).powi(2);
    let (sum, rows) = (ordinals.iter().enumerate().map(square).sum::<f64>(), ordinals.len() as f64);
    1.0 - 6.0 * sum / (rows * (rows * rows - 1.0))
}

/// Returns the share of neighbouring rows that are in the same batch, divided by its expectation under a uniform
/// permutation.
fn neighbours(by_rank: &[Vec<u64>], rows: u64, batch_size: u64) -> f64 {
    let mut batch_of = vec![0usize; to_usize(rows)];
    let batches = by_rank.iter().flat_map(|ordinals| ordinals.chunks(to_usize(batch_size)));
    for (number, batch) in batches.enumerate() {
        batch.iter().for_each(|ordinal| batch_of[to_usize(*ordinal)] = number);
    }
    let shared = batch_of.windows(2).filter(|pair| pair[0] == pair[1]).count() as f64 / (rows - 1) as f64;
    shared / ((batch_size - 1) as f64 / (rows - 1) as f64)
}

/// Returns the rows of the blocks that a rank touches in each of its windows, summed over windows and ranks, divided by
/// all rows.
fn read_amplification(by_rank: &[Vec<u64>], rows: u64, rows_per_block: u64, window_rows: u64) -> f64 {
    let mut read = 0u64;
    for window in by_rank.iter().flat_map(|ordinals| ordinals.chunks(to_usize(window_rows.max(1)))) {
        let blocks: HashSet<u64> = window.iter().map(|ordinal| ordinal / rows_per_block).collect();
        read += blocks.iter().map(|block| rows_per_block.min(rows - block * rows_per_block)).sum::<u64>();
    }
    read as f64 / rows as f64
}
