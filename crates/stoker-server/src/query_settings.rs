//! The limits of a server's queries.

use std::time::Duration;

use serde::Deserialize;
use stoker_sql::{EngineOptions, QueryLimits};

/// The limits of a server's queries, as in its configuration file under `[query]`. All have defaults.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuerySettings {
    /// The maximum memory of all running queries together, in bytes; 1 GiB by default.
    pub pool_bytes: usize,
    /// The maximum memory of one query in bytes; three quarters of `pool_bytes` by default.
    pub memory_bytes: Option<usize>,
    /// The maximum size of one query's temporary files in bytes; 16 GiB by default.
    pub temp_bytes: u64,
    /// The maximum time for which a query computes, in seconds; 600 by default. Time in which its client reads no rows
    /// does not count.
    pub secs: u64,
    /// The maximum time for planning a query, in seconds; 10 by default.
    pub planning_secs: u64,
    /// The maximum number of rows of a result; no limit by default.
    pub rows: Option<u64>,
    /// The maximum size of a result in bytes; no limit by default.
    pub result_bytes: Option<u64>,
    /// The maximum number of queries at once; 64 by default.
    pub at_once: usize,
    /// The maximum number of queries that wait for a permit; 128 by default. Further queries are refused at once.
    pub waiting: usize,
    /// The maximum time for which a query waits for a permit, in seconds; 30 by default.
    pub waiting_secs: u64,
}

impl Default for QuerySettings {
    fn default() -> Self {
        let (engine, limits) = (EngineOptions::default(), QueryLimits::default());
        Self {
            pool_bytes: engine.memory_limit_bytes,
            memory_bytes: None,
            temp_bytes: limits.temp_bytes,
            secs: 600,
            planning_secs: 10,
            rows: None,
            result_bytes: None,
            at_once: 64,
            waiting: 128,
            waiting_secs: 30,
        }
    }
}

impl QuerySettings {
    /// Returns the options of a server's query engine.
    pub fn engine_options(&self) -> EngineOptions {
        let query = QueryLimits {
            memory_bytes: self.memory_bytes.unwrap_or(self.pool_bytes - self.pool_bytes / 4),
            temp_bytes: self.temp_bytes,
            planning: Duration::from_secs(self.planning_secs),
            running: Duration::from_secs(self.secs),
            rows: self.rows.unwrap_or(u64::MAX),
            result_bytes: self.result_bytes.unwrap_or(u64::MAX),
            at_once: self.at_once.max(1),
            waiting: self.waiting,
            queued: Duration::from_secs(self.waiting_secs),
            ..QueryLimits::default()
        };
        EngineOptions { memory_limit_bytes: self.pool_bytes, query, ..EngineOptions::default() }
    }
}
