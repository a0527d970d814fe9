//! Limits one query's share of the memory of all queries.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::Result as DfResult;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

/// A memory pool with its own limit that reserves its memory from the pool of all queries.
#[derive(Debug)]
pub(crate) struct QueryPool {
    shared: Arc<dyn MemoryPool>,
    limit_bytes: usize,
    held_bytes: AtomicUsize,
}

impl QueryPool {
    pub(crate) fn new(shared: Arc<dyn MemoryPool>, limit_bytes: usize) -> Self {
        Self { shared, limit_bytes, held_bytes: AtomicUsize::new(0) }
    }
}

impl MemoryPool for QueryPool {
    fn name(&self) -> &str {
        "query"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.shared.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.shared.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.held_bytes.fetch_add(additional, Ordering::Relaxed);
        self.shared.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.shared.shrink(reservation, shrink);
        self.held_bytes.fetch_sub(shrink, Ordering::Relaxed);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DfResult<()> {
        let grown = |held: usize| held.checked_add(additional).filter(|grown| *grown <= self.limit_bytes);
        self.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).map_err(|held| {
            DataFusionError::ResourcesExhausted(format!(
                "{} needs {additional} more bytes; the query holds {held} bytes, and its memory limit is {} bytes",
                reservation.consumer().name(),
                self.limit_bytes
            ))
        })?;
        self.shared.try_grow(reservation, additional).inspect_err(|_| {
            self.held_bytes.fetch_sub(additional, Ordering::Relaxed);
        })
    }

    fn reserved(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit_bytes)
    }
}

impl fmt::Display for QueryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query: {} of {} bytes", self.reserved(), self.limit_bytes)
    }
}
