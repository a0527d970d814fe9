//! Tasks that end with their owner.

use tokio::task::JoinHandle;

use crate::{Error, Result};

/// A task that is cancelled when this handle is dropped.
pub(crate) struct AbortOnDrop<T>(pub JoinHandle<T>);

impl<T> AbortOnDrop<Result<T>> {
    /// Waits for the task. It may be called once.
    pub async fn done(&mut self) -> Result<T> {
        (&mut self.0).await.map_err(|source| match source.is_cancelled() {
            true => stoker_chunks::Error::ShuttingDown.into(),
            false => Error::Internal { reason: format!("a task of the stream failed: {source}") },
        })?
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
