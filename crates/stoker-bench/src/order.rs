//! `stoker bench order`: measures how well orders mix rows that are stored sorted by class, and what reading them
//! costs.

use std::collections::HashSet;
use std::io::Write;

use clap::Args;
use serde_json::{Value, json};
use stoker_order::{BlockPiece, DelayLine, EpochOrder, SuperStride};
use stoker_types::{DELAY_LINE_BYTES, OrderOptions, ShuffleMode, StreamOptions, WINDOW_BYTES, to_usize};

use crate::ShuffleValue;

/// A table that is measured: rows, bytes per row, and the jobs that read it.
type Table = (u64, u64, Vec<Job>);

/// A job: number of ranks, and bytes that the blocks of all ranks together may take.
type Job = (u64, u64);

/// The jobs with the default of version 2, and those with the default of version 1 for each rank.
const DEFAULT_JOBS: [Job; 4] = [(1, DELAY_LINE_BYTES), (8, DELAY_LINE_BYTES), (1, WINDOW_BYTES), (8, 8 * WINDOW_BYTES)];

/// The numbers of classes that are measured.
const CLASSES: [u64; 2] = [100, 1_000];

/// Returns images and tokens, with the default jobs and with those of the bars.
fn default_tables() -> Vec<Table> {
    let jobs = |bars: [Job; 2]| bars.into_iter().chain(DEFAULT_JOBS).collect();
    vec![
        (65_536, 150_528, jobs([(1, 256 << 20), (8, 768 << 20)])),
        (4_194_304, 2_048, jobs([(1, 256 << 20), (8, 2 << 30)])),
    ]
}

/// Measure how well an order mixes rows that are stored sorted by class.
#[derive(Debug, Args)]
pub struct OrderArgs<S: ShuffleValue> {
    /// Rows [default: 65,536 of 150,528 bytes, and 4,194,304 of 2,048 bytes]
    #[arg(long, requires = "row_bytes", value_parser = clap::value_parser!(u64).range(2..))]
    rows: Option<u64>,
    /// Bytes per row
    #[arg(long, requires = "rows", value_parser = clap::value_parser!(u64).range(1..))]
    row_bytes: Option<u64>,
    /// MiB that the blocks of all ranks together may take [default: the defaults of both versions, and those of the bars]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    held_mib: Vec<u64>,
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
        (Some(rows), Some(row_bytes)) => vec![(rows, row_bytes, DEFAULT_JOBS.to_vec())],
        _ => default_tables(),
    };
    let mut cases = Vec::new();
    let asked: Vec<Job> = args.held_mib.iter().flat_map(|mib| [(1, mib << 20), (8, mib << 20)]).collect();
    for (rows, row_bytes, jobs) in tables {
        let jobs = if asked.is_empty() { jobs } else { asked.clone() };
        for (ranks, window_bytes) in jobs {
            let options = StreamOptions {
                shuffle: args.shuffle.into(),
                shuffle_window_bytes: Some(window_bytes),
                ..StreamOptions::default()
            };
            let mut orders = vec![options.windows(rows, row_bytes)];
            // The versions differ in how they mix blocks only.
            if options.shuffle == ShuffleMode::Block {
                orders.push(options.delay_line(rows, row_bytes));
            }
            cases.extend(orders.iter().map(|order| case(args, (rows, row_bytes), (ranks, window_bytes), order)));
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
        "| rows | bytes/row | ranks | order | held | rows/block | labels, 100 classes | worst batch | 1,000 classes | worst batch | rank correlation | neighbours | reads | read amplification |"
    )?;
    writeln!(out, "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for case in &cases {
        let share = |value: &Value| format!("{:.1} %", 100.0 * value.as_f64().unwrap_or(f64::NAN));
        let labels = |index: usize, what: &str| share(&case["distinct_labels"][index][what]);
        writeln!(
            out,
            "| {} | {} | {} | {} | {} MiB | {} | {} | {} | {} | {} | {:.4} | {:.2} | {} | {:.3} |",
            case["rows"],
            case["row_bytes"],
            case["ranks"],
            case["version"],
            case["resident_bytes"].as_u64().unwrap_or(0) >> 20,
            case["rows_per_block"],
            labels(0, "share"),
            labels(0, "worst"),
            labels(1, "share"),
            labels(1, "worst"),
            case["rank_correlation"].as_f64().unwrap_or(f64::NAN),
            case["neighbours"].as_f64().unwrap_or(f64::NAN),
            case["reads"],
            case["read_amplification"].as_f64().unwrap_or(f64::NAN),
        )?;
    }
    writeln!(out, "\nheld: bytes of blocks that all ranks hold at once; for version 2 with the blocks that are read")?;
    writeln!(out, "ahead, for version 1 without the window that is read ahead, which is as large")?;
    writeln!(out, "labels: distinct labels in a batch, over the expectation under a uniform permutation")?;
    writeln!(out, "neighbours: how often rows that lie side by side share a batch, over the same expectation")?;
    writeln!(out, "reads: ranges of neighbouring rows that all ranks read in an epoch, at most one block each")?;
    writeln!(out, "read amplification: bytes of these ranges, over the bytes of the rows")?;
    Ok(())
}

fn case(
    args: &OrderArgs<impl ShuffleValue>,
    (rows, row_bytes): (u64, u64),
    (ranks, window_bytes): Job,
    options: &OrderOptions,
) -> Value {
    let order = EpochOrder::new(rows, options, args.seed, 0);
    let mut ordinals = Vec::with_capacity(to_usize(rows));
    order.ordinals(0..rows, &mut ordinals);
    let by_rank: Vec<Vec<u64>> = (0..ranks)
        .map(|rank| ordinals.iter().skip(to_usize(rank)).step_by(to_usize(ranks)).copied().collect())
        .collect();
    let labels: Vec<Value> = CLASSES
        .iter()
        .map(|classes| {
            let (share, worst) = distinct_shares(&by_rank, rows, *classes, args.batch_size);
            json!({ "classes": classes, "share": share, "worst": worst })
        })
        .collect();
    let (reads, rows_read) = match order.delay_line() {
        Some(line) => reads_of_lanes(line, u64::from(options.num_lanes)),
        None => {
            let window_rows = order.window_positions(0).map_or(rows, |window| window.end).max(1);
            reads_of_windows(&by_rank, rows, options.rows_per_block, window_rows / ranks)
        }
    };
    json!({
        "rows": rows, "row_bytes": row_bytes, "ranks": ranks, "window_bytes": window_bytes,
        "version": options.version(), "rows_per_block": options.rows_per_block, "batch_size": args.batch_size,
        "resident_bytes": options.resident_rows(rows).saturating_mul(row_bytes),
        "distinct_labels": labels,
        "rank_correlation": rank_correlation(&ordinals),
        "neighbours": neighbours(&by_rank, rows, args.batch_size),
        "reads": reads,
        "read_amplification": rows_read as f64 / rows as f64,
    })
}

/// Returns the mean and the least number of distinct labels in full batches, divided by the expectation under a uniform
/// permutation.
fn distinct_shares(by_rank: &[Vec<u64>], rows: u64, classes: u64, batch_size: u64) -> (f64, f64) {
    let (mut found, mut least, mut batches) = (0u64, u64::MAX, 0u64);
    // The last batch that has each label.
    let mut met = vec![0; to_usize(classes)];
    for batch in by_rank.iter().flat_map(|ordinals| ordinals.chunks_exact(to_usize(batch_size))) {
        batches += 1;
        let mut distinct = 0;
        for ordinal in batch {
            let label = u128::from(*ordinal) * u128::from(classes) / u128::from(rows);
            let met = &mut met[to_usize(u64::try_from(label).unwrap_or(0))];
            distinct += u64::from(*met != batches);
            *met = batches;
        }
        found += distinct;
        least = least.min(distinct);
    }
    // A class is absent from a batch if all rows of the batch are drawn from the other classes.
    let others = rows as f64 * (1.0 - 1.0 / classes as f64);
    let absent: f64 = (0..batch_size).map(|drawn| (others - drawn as f64) / (rows - drawn) as f64).product();
    let expected = classes as f64 * (1.0 - absent);
    // Without a full batch, neither is a number.
    let least = if batches == 0 { f64::NAN } else { least as f64 };
    (found as f64 / batches as f64 / expected, least / expected)
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

/// Returns the number of blocks that a rank touches in each of its windows, and the number of their rows, summed over
/// windows and ranks.
fn reads_of_windows(by_rank: &[Vec<u64>], rows: u64, rows_per_block: u64, window_rows: u64) -> (u64, u64) {
    let (mut reads, mut rows_read) = (0, 0);
    for window in by_rank.iter().flat_map(|ordinals| ordinals.chunks(to_usize(window_rows.max(1)))) {
        let blocks: HashSet<u64> = window.iter().map(|ordinal| ordinal / rows_per_block).collect();
        reads += blocks.len() as u64;
        rows_read += blocks.iter().map(|block| rows_per_block.min(rows - block * rows_per_block)).sum::<u64>();
    }
    (reads, rows_read)
}

/// Returns the number of pieces that a reader of all lanes takes up in an epoch, and the number of their rows.
fn reads_of_lanes(line: &DelayLine, num_lanes: u64) -> (u64, u64) {
    let (mut reads, mut rows_read) = (0, 0);
    let mut read = |pieces: &mut dyn Iterator<Item = BlockPiece>| {
        for piece in pieces {
            reads += 1;
            rows_read += piece.ordinals.end - piece.ordinals.start;
        }
    };
    for lane in 0..num_lanes {
        read(&mut line.pending(SuperStride { lane, number: 0 }));
        for number in 0..line.num_super_strides() {
            read(&mut line.arrivals(SuperStride { lane, number }));
        }
    }
    (reads, rows_read)
}
