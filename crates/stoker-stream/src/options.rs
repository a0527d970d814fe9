//! What options of streams mean for the orders of their sources, and for how their rows are read.

use stoker_chunks::{ChunkScan, ChunkScanOptions, RetryPolicy};
use stoker_types::{OrderOptions, ReadOptions, StreamOptions, WINDOW_BYTES};

use crate::Resources;
use crate::source::SourcePlan;

/// Returns the order options of each source. Mixtures have windows, whatever version the options name. Their windows
/// divide the bytes such that all windows are used up at the same time.
pub(crate) fn orders(options: &StreamOptions, sources: &[SourcePlan], weights: &[f64]) -> Vec<OrderOptions> {
    let rows = SourcePlan::epoch_rows;
    if weights.is_empty() {
        let order =
            |source: &SourcePlan| options.order_of_groups(rows(source), source.row_bytes, source.epoch.group_rows());
        return sources.iter().map(order).collect();
    }
    let demand: Vec<f64> =
        sources.iter().zip(weights).map(|(source, weight)| weight * source.row_bytes as f64).collect();
    let total: f64 = demand.iter().sum();
    let window = options.shuffle_window_bytes.unwrap_or(WINDOW_BYTES);
    let order = |(source, demand): (&SourcePlan, &f64)| {
        #[expect(clippy::cast_possible_truncation, reason = "casts of numbers with fractions saturate")]
        let bytes = (window as f64 * demand / total) as u64;
        StreamOptions { shuffle_window_bytes: Some(bytes), ..options.clone() }.windows(rows(source), source.row_bytes)
    };
    sources.iter().zip(&demand).map(order).collect()
}

/// Returns a chunk scan with these options, which uses the memory and the request limit of `resources`.
pub(crate) fn chunk_scan(options: &ReadOptions, resources: &Resources) -> ChunkScan {
    let scan = ChunkScanOptions {
        local_threads: options.io_threads,
        local_reads: resources.local_reads(),
        verify: options.verify,
        retry: retry(options),
        ..ChunkScanOptions::default()
    };
    ChunkScan::sharing(scan, resources.memory().pool().clone(), resources.requests())
}

/// Returns the policy for retries after transient faults.
pub(crate) fn retry(options: &ReadOptions) -> RetryPolicy {
    let policy = RetryPolicy::default();
    RetryPolicy { budget: options.retry_budget.unwrap_or(policy.budget), ..policy }
}
