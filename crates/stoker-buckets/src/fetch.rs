//! A request whose bytes several reads may wait for.

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::{Error, Result};

/// A request that was begun. Dropping it cancels the request.
#[derive(Debug)]
pub(crate) struct Fetch {
    state: Mutex<State>,
    task: AbortHandle,
}

#[derive(Debug)]
enum State {
    Pending(Receiver<Result<Bytes>>),
    Done(Result<Bytes>),
}

impl Fetch {
    /// Begins a request on a runtime.
    pub fn begin(threads: &Handle, request: impl Future<Output = Result<Bytes>> + Send + 'static) -> Arc<Self> {
        let (sender, receiver) = sync_channel(1);
        let task = threads.spawn(async move {
            // Nobody waits for the bytes of a request that was dropped.
            let _ = sender.send(request.await);
        });
        Arc::new(Self { state: Mutex::new(State::Pending(receiver)), task: task.abort_handle() })
    }

    /// Waits for the bytes. Blocks the thread.
    ///
    /// # Errors
    /// Those of the request.
    pub fn wait(&self) -> Result<Bytes> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Pending(receiver) = &*state {
            let ended = || Err(Error::Unavailable { reason: "the request was cancelled".into() });
            *state = State::Done(receiver.recv().unwrap_or_else(|_| ended()));
        }
        match &*state {
            State::Done(result) => result.clone(),
            State::Pending(_) => Err(Error::Unavailable { reason: "the request has no result".into() }),
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
