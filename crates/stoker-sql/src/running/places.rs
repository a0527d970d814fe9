//! A fair queue: so many at once, so many waiting in order of arrival.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Error, Result};

/// Places of one kind of work.
#[derive(Debug)]
pub(crate) struct Places {
    /// What they are taken for: `queries are running`.
    what: &'static str,
    at_once: usize,
    free: Arc<Semaphore>,
    waiting_max: usize,
    waiting: Semaphore,
    patience: Duration,
    num_refused: AtomicU64,
}

/// How many use a kind of places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// Places that are taken.
    pub running: u64,
    /// Those who wait for one.
    pub waiting: u64,
    /// Whether the next one is refused.
    pub is_full: bool,
    /// How many were refused, at once or after they had waited.
    pub refused: u64,
}

impl Places {
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

    /// A place, which is free again when it is dropped. Waiters are served in order of arrival.
    ///
    /// # Errors
    /// `ResourceExhausted` at once when too many wait already, and for a waiter whose patience ends.
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
