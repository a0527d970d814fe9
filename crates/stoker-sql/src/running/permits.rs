//! A fair queue with a limited number of permits and a limited number of waiters, in order of arrival.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Error, Result};

/// The permits for one kind of work, and the queue for them.
#[derive(Debug)]
pub(crate) struct Permits {
    /// The work of permit holders, as error messages name it: `queries are running`.
    what: &'static str,
    at_once: usize,
    free: Arc<Semaphore>,
    waiting_max: usize,
    waiting: Semaphore,
    patience: Duration,
    num_refused: AtomicU64,
}

/// The state of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// The number of permits that are held.
    pub running: u64,
    /// The number of waiters in the queue.
    pub waiting: u64,
    /// Whether the next request is refused: all permits are held and the queue is full.
    pub is_full: bool,
    /// How many requests were refused, immediately or after they had waited.
    pub refused: u64,
}

impl Permits {
    pub(crate) fn new(what: &'static str, at_once: usize, waiting: usize, patience: Duration) -> Self {
        let free = Arc::new(Semaphore::new(at_once));
        let (waiting_max, waiting, num_refused) = (waiting, Semaphore::new(waiting), AtomicU64::new(0));
        Self { what, at_once, free, waiting_max, waiting, patience, num_refused }
    }

    pub(crate) fn status(&self) -> QueueStatus {
        let (free, waiting) = (self.free.available_permits(), self.waiting.available_permits());
        QueueStatus {
            running: (self.at_once - free) as u64,
            waiting: (self.waiting_max - waiting) as u64,
            is_full: free == 0 && waiting == 0,
            refused: self.num_refused.load(Ordering::Relaxed),
        }
    }

    fn refused(&self, why: impl fmt::Display) -> Error {
        self.num_refused.fetch_add(1, Ordering::Relaxed);
        Error::exhausted(format!("{} {}, and {why}; try again later", self.at_once, self.what))
    }

    /// Returns a permit, which is released when it is dropped. Waiters are served in order of arrival.
    ///
    /// # Errors
    /// `ResourceExhausted` immediately when the queue is full, and for a waiter that gets no permit before its timeout.
    pub(crate) async fn take(&self) -> Result<OwnedSemaphorePermit> {
        if let Ok(place) = self.free.clone().try_acquire_owned() {
            return Ok(place);
        }
        let Ok(_waiting) = self.waiting.try_acquire() else { return Err(self.refused("the queue is full")) };
        match tokio::time::timeout(self.patience, self.free.clone().acquire_owned()).await {
            Ok(place) => place.map_err(|_| Error::internal(format!("the places are closed: {}", self.what))),
            Err(_) => Err(self.refused(format!("none ended within {} s", self.patience.as_secs()))),
        }
    }
}
