//! A fair queue: so many at once, so many waiting in order of arrival.

use std::sync::Arc;
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
    waiting: Semaphore,
    patience: Duration,
}

impl Places {
    pub(crate) fn new(what: &'static str, at_once: usize, waiting: usize, patience: Duration) -> Self {
        let free = Arc::new(Semaphore::new(at_once));
        Self { what, at_once, free, waiting: Semaphore::new(waiting), patience }
    }

    /// A place, which is free again when it is dropped. Waiters are served in order of arrival.
    ///
    /// # Errors
    /// `ResourceExhausted` at once when too many wait already, and for a waiter whose patience ends.
    pub(crate) async fn take(&self) -> Result<OwnedSemaphorePermit> {
        if let Ok(place) = self.free.clone().try_acquire_owned() {
            return Ok(place);
        }
        let (what, at_once) = (self.what, self.at_once);
        let Ok(_waiting) = self.waiting.try_acquire() else {
            return Err(Error::exhausted(format!("{at_once} {what}, and the queue is full; try again later")));
        };
        match tokio::time::timeout(self.patience, self.free.clone().acquire_owned()).await {
            Ok(place) => place.map_err(|_| Error::internal(format!("the places are closed: {what}"))),
            Err(_) => Err(Error::exhausted(format!(
                "{at_once} {what}, and none ended within {} s; try again later",
                self.patience.as_secs()
            ))),
        }
    }
}
