//! Runs all ranks of a job in one process, so that one server gets the requests of all of them at once.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use futures::future::try_join_all;
use serde_json::json;
use stoker::session::SessionOptions;
use stoker::{Connection, Session};
use stoker_measure::{Drain, Drained, process_use};
use stoker_types::{BatchSize, Batching, LastBatch, StreamOptions, Topology};

use crate::ShuffleValue;

/// Arguments of `stoker bench rank-streams`.
#[derive(Debug, Args)]
pub struct RankStreamsArgs<S: ShuffleValue> {
    query: String,
    /// Rows per batch over all ranks
    #[arg(long)]
    global_batch_size: u64,
    #[arg(long)]
    world_size: u32,
    #[arg(long, value_enum)]
    shuffle: S,
    #[arg(long)]
    epochs: u64,
}

/// Reads the streams of all ranks concurrently, and prints their usage together.
pub async fn run(
    args: &RankStreamsArgs<impl ShuffleValue>,
    out: &mut impl Write,
    connection: &Connection,
) -> anyhow::Result<()> {
    let options = StreamOptions { shuffle: args.shuffle.into(), ..StreamOptions::default() };
    let handle = connection.plan_stream(&args.query, &[], &options).await?;
    let session = |rank| {
        let topology = Topology { rank, world_size: args.world_size };
        let batching = Batching { size: BatchSize::Global(args.global_batch_size), last: LastBatch::Uneven };
        Session::new(connection.clone(), handle.clone(), SessionOptions::new(topology, batching), 0)
    };
    let sessions = (0..args.world_size).map(session).collect::<Result<Vec<_>, _>>()?;
    let drain = async |session| Drain { session, epochs: args.epochs, max_batches: None }.run(&mut |_| Ok(())).await;
    let drained = try_join_all(sessions.iter().map(drain)).await?;
    let used = process_use(std::process::id());
    let rate = |rank: &Drained| match rank.steady {
        Some(steady) => (steady.bytes, steady.elapsed),
        None => (rank.stats.bytes, rank.elapsed),
    };
    let rates: Vec<(u64, Duration)> = drained.iter().map(rate).collect();
    let secs = |spans: &mut dyn Iterator<Item = Duration>| spans.max().unwrap_or_default().as_secs_f64();
    let report = json!({
        "bytes": drained.iter().map(|rank| rank.stats.bytes).sum::<u64>(),
        "rows": drained.iter().map(|rank| rank.stats.rows).sum::<u64>(),
        "steady_bytes": rates.iter().map(|(bytes, _)| bytes).sum::<u64>(),
        "steady_secs": secs(&mut rates.iter().map(|(_, span)| *span)),
        "first_batch_secs": secs(
            &mut drained.iter().filter_map(|rank| rank.stats.first_batch_nanos).map(Duration::from_nanos)
        ),
        "cpu_secs": used.cpu_secs,
        "peak_memory_bytes": used.peak_bytes,
    });
    writeln!(out, "{report}")?;
    Ok(())
}
