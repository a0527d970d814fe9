//! Threads for SQL and other computations, separate from those that serve connections and streams.

use futures::future::BoxFuture;
use stoker_session::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::AbortOnDropHandle;

use crate::request_id::for_request;
use crate::thread_priority::go_after_others;

/// A runtime for queries. Work that does not yield delays other queries here, but no connection and no stream.
pub(crate) struct QueryThreads {
    /// `Some` until this is dropped.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl QueryThreads {
    /// Starts one thread less than there are cores, because connections and streams need one; at least two. Where
    /// processors are scarce, these threads yield to those of streams (see [`go_after_others`]).
    ///
    /// # Errors
    /// `Internal` if the operating system gives no threads.
    pub fn start() -> Result<Self> {
        let num_cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let num_threads = num_cores.saturating_sub(1).max(2);
        let mut threads = Builder::new_multi_thread();
        threads.worker_threads(num_threads).enable_all().thread_name("stoker-query").on_thread_start(go_after_others);
        let runtime = threads.build().map_err(Error::internal)?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs work on these threads. Dropping the future cancels the work at its next `await`.
    pub async fn run<T: Send + 'static>(&self, work: BoxFuture<'static, Result<T>>) -> Result<T> {
        AbortOnDropHandle::new(self.handle.spawn(for_request(work))).await.map_err(Error::internal)?
    }
}

impl Drop for QueryThreads {
    /// Does not wait for running work: a query may compute for a while after it was cancelled.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
