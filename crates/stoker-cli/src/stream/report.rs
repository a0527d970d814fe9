//! The report of `stoker stream`.

use std::time::Duration;

use serde_json::{Value, json};
use stoker::Session;
use stoker_measure::{Drained, Steady, process_use};

use crate::stream::stalls;

/// Returns the report of `epochs` epochs that have `steps` batches together; planning the stream took `planned`.
pub fn report(drained: &Drained, session: &Session, epochs: u64, steps: u64, planned: Duration) -> Value {
    let usage = process_use(std::process::id());
    let (stats, secs) = (&drained.stats, drained.elapsed.as_secs_f64().max(1e-9));
    let mut report = json!({
        "stream_id": session.stream_id().to_string(),
        "rows_in_epoch": session.spec().num_rows,
        "steps": steps,
        "rows": stats.rows,
        "bytes": stats.bytes,
        "plan_secs": rounded(planned.as_secs_f64()),
        "first_batch_secs": stats.first_batch_nanos.map(|nanos| rounded(nanos as f64 / 1e9)),
        "secs": rounded(secs),
        "samples_per_sec": rounded(stats.rows as f64 / secs),
        "megabytes_per_sec": rounded(stats.bytes as f64 / 1e6 / secs),
        "wait_share": rounded(stats.wait_nanos as f64 / 1e9 / secs),
        "stalls": stalls::object(&stats.stalls),
        "requests": stats.requests,
        "bytes_read": stats.bytes_read,
        "cache_hit_bytes": stats.cache_hit_bytes,
        "cache_miss_bytes": stats.cache_miss_bytes,
        "cache_damaged": stats.cache_damaged,
        "retries": stats.retries,
        "request_limit": stats.request_limit,
        "cpu_secs": rounded(usage.cpu_secs),
        "peak_memory_bytes": usage.peak_bytes,
        "substituted_rows": drained.substituted_rows,
    });
    if let Some(Steady { bytes, elapsed, cpu_secs }) = drained.steady {
        report["epochs"] = epochs.into();
        report["steady_bytes"] = bytes.into();
        // The seconds are not rounded: for a small table, rounding would distort the rate.
        report["steady_secs"] = elapsed.as_secs_f64().into();
        report["steady_cpu_secs"] = cpu_secs.into();
    }
    report
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
