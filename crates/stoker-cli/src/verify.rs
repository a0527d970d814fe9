//! `stoker verify`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use stoker_types::calls::VerifyReceipts;
use stoker_types::{EpochVerdict, Receipt};

use crate::connect::LakeArgs;
use crate::output::output;

/// Check from the receipts of all ranks that every row of an epoch was delivered exactly once.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Receipts, as `stoker stream --receipt` and `Stream.receipt()` write them; for a resumed epoch, those from before
    /// and from after the interruption
    #[arg(required = true, value_name = "RECEIPTS")]
    receipts: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the verdict on each epoch; fails unless every epoch was delivered exactly once.
pub async fn run(args: VerifyArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let read = |path: &PathBuf| -> anyhow::Result<Receipt> {
        let text = std::fs::read_to_string(path);
        Receipt::from_json(&text.with_context(|| format!("cannot read {}", path.display()))?)
            .with_context(|| path.display().to_string())
    };
    let receipts: Vec<Receipt> = args.receipts.iter().map(read).collect::<Result<_, _>>()?;
    let verdicts = lake.connect().await?.call(VerifyReceipts { receipts }).await?;
    let mut out = output();
    if args.json {
        writeln!(out, "{:#}", serde_json::json!(verdicts))?;
    }
    for verdict in verdicts.iter().filter(|_| !args.json) {
        if verdict.skipped.count > 0 {
            writeln!(out, "epoch {}: skipped on purpose: {}", verdict.epoch, verdict.skipped)?;
        }
        if verdict.dropped.count > 0 {
            writeln!(out, "epoch {}: dropped, because they do not fill a batch: {}", verdict.epoch, verdict.dropped)?;
        }
        for bad in &verdict.substituted {
            let (epoch, position, reason) = (verdict.epoch, bad.position, &bad.reason);
            writeln!(out, "epoch {epoch}: another row replaced the bad row at position {position}: {reason}")?;
        }
        if verdict.is_exactly_once() {
            writeln!(out, "epoch {}: {} rows, each exactly once", verdict.epoch, verdict.num_rows)?;
            continue;
        }
        writeln!(out, "epoch {}: {} rows, not each exactly once", verdict.epoch, verdict.num_rows)?;
        for (what, positions) in [("missing", &verdict.missing), ("repeated", &verdict.repeated)] {
            if positions.count > 0 {
                writeln!(out, "  {what}: {positions}")?;
            }
        }
        for part in &verdict.wrong {
            writeln!(
                out,
                "  other rows than those of positions {}..{} on rank {} of {}",
                part.start, part.end, part.rank, part.world_size
            )?;
        }
    }
    if verdicts.is_empty() {
        bail!("the receipts contain no batches");
    }
    if !verdicts.iter().all(EpochVerdict::is_exactly_once) {
        bail!("the receipts do not show that each row was delivered exactly once; give the receipts of all ranks");
    }
    Ok(())
}
