//! Settings of a server's queries.

use std::time::Duration;

use serde::Deserialize;
use stoker_sql::{EngineOptions, QueryLimits};

/// What queries of a server may take, as in its configuration file under `[query]`. All have defaults.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuerySettings {
    /// Bytes of memory that all running queries hold together; 1 GiB by default.
    pub pool_bytes: usize,
    /// Bytes of memory that one query holds at most; three quarters of the pool by default.
    pub memory_bytes: Option<usize>,
    /// Bytes of temporary files of one query; 16 GiB by default.
    pub temp_bytes: u64,
    /// Seconds that a query may compute; 600 by default. Time in which its client takes no rows does not count.
    pub secs: u64,
    /// Seconds that planning may take; 10 by default.
    pub planning_secs: u64,
    /// Rows of a result at most; no limit by default.
    pub rows: Option<u64>,
    /// Bytes of a result at most; no limit by default.
    pub result_bytes: Option<u64>,
    /// Queries at once; 64 by default.
    pub at_once: usize,
    /// Queries that wait for a place; 128 by default. Others are refused at once.
    pub waiting: usize,
    /// Seconds that a query waits for a place; 30 by default.
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
    /// The options of a server's engine.
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
