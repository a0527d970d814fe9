//! Limits of each query.

use std::time::Duration;

/// What one query may take, and how many run at once.
///
/// A query past one of them fails with `ResourceExhausted`, and its message names the limit. The defaults are those of a process that
/// works for itself, whose queries may take long; servers have stricter ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// Memory that one query may hold, in bytes, out of what all queries share. Default: 768 MiB.
    pub memory_bytes: usize,
    /// Temporary files of one query's sorts and aggregates, in bytes. Default: 16 GiB.
    pub temp_bytes: u64,
    /// How long planning may take. Default: 1 minute.
    pub planning: Duration,
    /// How long a query may compute; the time in which its consumer asks for nothing does not count. Default: no limit.
    pub running: Duration,
    /// Rows of a result. Default: no limit, since results are sent as they are computed.
    pub rows: u64,
    /// Bytes of a result in memory. Default: no limit.
    pub result_bytes: u64,
    /// Operators and expressions of a plan, common table expressions counted each time that they are named. Default: 20,000.
    pub plan_nodes: usize,
    /// Queries that run at once. Default: 1,024.
    pub at_once: usize,
    /// Queries that wait for a place, in order; those beyond are refused at once. Default: 128.
    pub waiting: usize,
    /// How long a query waits for a place. Default: 30 seconds.
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
