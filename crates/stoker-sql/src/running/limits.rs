//! Limits of each query.

use std::time::Duration;

/// Limits of one query, and of the number of queries that run at the same time.
///
/// A query that exceeds a limit fails with `ResourceExhausted`, and its message names the limit. The defaults are for a
/// process that runs its own queries, which may take long; servers have stricter limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// The most memory that one query may hold, in bytes, as a part of the memory that all queries share. Default: 768
    /// MiB.
    pub memory_bytes: usize,
    /// The most bytes of temporary files for one query's sorts and aggregates. Default: 16 GiB.
    pub temp_bytes: u64,
    /// The longest time that a step of planning may take. Default: 1 minute.
    pub planning: Duration,
    /// The longest time that the consumer of a query may wait for its rows, summed over all batches. The time in which
    /// the consumer requests no rows does not count. Default: no limit.
    pub running: Duration,
    /// The most rows of a result. Default: no limit, since results are sent as they are computed.
    pub rows: u64,
    /// The most bytes of a result, as its batches take in memory. Default: no limit.
    pub result_bytes: u64,
    /// The most operators and expressions of a plan. A common table expression counts each time that it is named.
    /// Default: 20,000.
    pub plan_nodes: usize,
    /// The most queries that run at the same time. Default: 1,024.
    pub at_once: usize,
    /// The most queries that wait to run, in order of arrival. Further queries are refused immediately. Default: 128.
    pub waiting: usize,
    /// The longest time that a query waits to run. Default: 30 seconds.
    pub queued: Duration,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 768 << 20,
            temp_bytes: 16 << 30,
            planning: Duration::from_secs(60),
            running: Duration::MAX,
            rows: u64::MAX,
            result_bytes: u64::MAX,
            plan_nodes: 20_000,
            at_once: 1_024,
            waiting: 128,
            queued: Duration::from_secs(30),
        }
    }
}
