//! The options for the resource limits of a server's queries.

use clap::Args;
use stoker_server::QuerySettings;

/// The resource limits of a server's queries.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of queries")]
pub struct QueryArgs {
    /// Bytes of memory that all running queries may hold together [default: 1073741824]
    #[arg(long, env = "STOKER_QUERY_POOL_BYTES", value_name = "BYTES")]
    query_pool_bytes: Option<usize>,
    /// Bytes of memory that one query may hold [default: three quarters of the pool]
    #[arg(long, env = "STOKER_QUERY_MEMORY_BYTES", value_name = "BYTES")]
    query_memory_bytes: Option<usize>,
    /// Bytes of temporary files that one query may write [default: 17179869184]
    #[arg(long, env = "STOKER_QUERY_TEMP_BYTES", value_name = "BYTES")]
    query_temp_bytes: Option<u64>,
    /// Seconds that a query may compute; the time in which it waits for its client does not count [default: 600]
    #[arg(long, env = "STOKER_QUERY_SECS", value_name = "SECS")]
    query_secs: Option<u64>,
    /// Seconds that planning a query may take [default: 10]
    #[arg(long, env = "STOKER_QUERY_PLANNING_SECS", value_name = "SECS")]
    query_planning_secs: Option<u64>,
    /// The maximum number of rows of a result [default: no limit]
    #[arg(long, env = "STOKER_QUERY_ROWS", value_name = "ROWS")]
    query_rows: Option<u64>,
    /// The maximum number of bytes of a result [default: no limit]
    #[arg(long, env = "STOKER_QUERY_RESULT_BYTES", value_name = "BYTES")]
    query_result_bytes: Option<u64>,
    /// Queries that may run at once [default: 64]
    #[arg(long, env = "STOKER_QUERIES_AT_ONCE", value_name = "QUERIES")]
    queries_at_once: Option<usize>,
    /// Queries that may wait for one of the running queries to end; further queries are refused at once [default: 128]
    #[arg(long, env = "STOKER_QUERIES_WAITING", value_name = "QUERIES")]
    queries_waiting: Option<usize>,
    /// Seconds that a query may wait to run [default: 30]
    #[arg(long, env = "STOKER_QUERIES_WAITING_SECS", value_name = "SECS")]
    queries_waiting_secs: Option<u64>,
}

impl QueryArgs {
    /// Overrides the settings with the limits that were given.
    pub fn apply(self, query: &mut QuerySettings) {
        query.pool_bytes = self.query_pool_bytes.unwrap_or(query.pool_bytes);
        query.memory_bytes = self.query_memory_bytes.or(query.memory_bytes);
        query.temp_bytes = self.query_temp_bytes.unwrap_or(query.temp_bytes);
        query.secs = self.query_secs.unwrap_or(query.secs);
        query.planning_secs = self.query_planning_secs.unwrap_or(query.planning_secs);
        query.rows = self.query_rows.or(query.rows);
        query.result_bytes = self.query_result_bytes.or(query.result_bytes);
        query.at_once = self.queries_at_once.unwrap_or(query.at_once);
        query.waiting = self.queries_waiting.unwrap_or(query.waiting);
        query.waiting_secs = self.queries_waiting_secs.unwrap_or(query.waiting_secs);
    }
}
