//! Whether somebody still waits for a query.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use datafusion::common::Result as DfResult;
use datafusion::execution::memory_pool::MemoryPool;

use crate::Error;

/// Bytes of the constants that a query's functions make while it is planned. Plans hold and copy them.
const CONSTANT_BYTES_MAX: u64 = 4 << 20;

/// One query's session: its memory, and how many wait for its plan or its rows.
///
/// The session's rules and functions ask it between steps, so that a query stops soon after the last waiter is gone.
#[derive(Debug)]
pub(crate) struct Activity {
    pool: Arc<dyn MemoryPool>,
    plan_nodes_max: usize,
    num_waiting: AtomicUsize,
    constant_bytes: AtomicU64,
}

/// Somebody waits for the query until this is dropped.
#[derive(Debug)]
pub(crate) struct Running(Arc<Activity>);

impl Activity {
    pub(crate) fn new(pool: Arc<dyn MemoryPool>, plan_nodes_max: usize) -> Arc<Self> {
        Arc::new(Self { pool, plan_nodes_max, num_waiting: AtomicUsize::new(0), constant_bytes: AtomicU64::new(0) })
    }

    pub(crate) fn begin(self: &Arc<Self>) -> Running {
        self.num_waiting.fetch_add(1, Ordering::Relaxed);
        Running(self.clone())
    }

    pub(crate) fn pool(&self) -> &Arc<dyn MemoryPool> {
        &self.pool
    }

    /// The most operators and expressions of a plan.
    pub(crate) fn plan_nodes_max(&self) -> usize {
        self.plan_nodes_max
    }

    /// An error when nobody waits any more.
    pub(crate) fn check(&self) -> DfResult<()> {
        match self.num_waiting.load(Ordering::Relaxed) {
            0 => Err(Error::Abandoned.into()),
            _ => Ok(()),
        }
    }

    /// Counts a constant that a function made.
    pub(crate) fn add_constant(&self, function: &str, bytes: u64) -> DfResult<()> {
        let all = self.constant_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if all <= CONSTANT_BYTES_MAX {
            return Ok(());
        }
        self.constant_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Err(Error::exhausted(format!(
            "function {function} makes a constant of {bytes} bytes; the constants of a query take at most \
             {CONSTANT_BYTES_MAX} bytes together"
        ))
        .into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.num_waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
