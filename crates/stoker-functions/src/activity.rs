//! Tracks whether a client still waits for a query.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use datafusion::common::Result as DfResult;
use datafusion::execution::memory_pool::MemoryPool;

use crate::Error;

/// The most bytes of constants that the functions of a query may create during planning. Plans hold and copy constants.
const CONSTANT_BYTES_MAX: u64 = 4 << 20;

/// The state of one query: its memory pool, and how many clients wait for its plan or its rows.
///
/// The rules and functions of the query's session check it between steps, so that a query stops soon after the last
/// waiting client has gone.
#[derive(Debug)]
pub struct Activity {
    pool: Arc<dyn MemoryPool>,
    plan_nodes_max: usize,
    num_waiting: AtomicUsize,
    constant_bytes: AtomicU64,
}

/// A guard that counts as one waiting client until it is dropped.
#[derive(Debug)]
pub struct Running(Arc<Activity>);

impl Activity {
    /// Creates the state of a query for which no client waits yet. Its plan may have `plan_nodes_max` operators and
    /// expressions.
    pub fn new(pool: Arc<dyn MemoryPool>, plan_nodes_max: usize) -> Arc<Self> {
        Arc::new(Self { pool, plan_nodes_max, num_waiting: AtomicUsize::new(0), constant_bytes: AtomicU64::new(0) })
    }

    /// Counts one more waiting client until the guard is dropped.
    pub fn begin(self: &Arc<Self>) -> Running {
        self.num_waiting.fetch_add(1, Ordering::Relaxed);
        Running(self.clone())
    }

    /// Returns the memory pool of the query.
    pub fn pool(&self) -> &Arc<dyn MemoryPool> {
        &self.pool
    }

    /// Returns the most operators and expressions that a plan may have.
    pub fn plan_nodes_max(&self) -> usize {
        self.plan_nodes_max
    }

    /// Checks that a client still waits for the query.
    ///
    /// # Errors
    /// [`Error::Abandoned`] when no client waits any more.
    pub fn check(&self) -> DfResult<()> {
        match self.num_waiting.load(Ordering::Relaxed) {
            0 => Err(Error::Abandoned.into()),
            _ => Ok(()),
        }
    }

    /// Adds a constant that a function created, and fails when the constants of the query exceed their limit.
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
