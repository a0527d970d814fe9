//! Threads for SQL and other work that computes, beside those that serve connections and streams.

use futures::future::BoxFuture;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::AbortOnDropHandle;

use crate::server::request_id::for_request;
use crate::server::thread_priority::go_after_others;
use crate::{Error, Result};

/// A runtime of its own. Work that does not give way holds up other queries here, and nobody else.
pub(crate) struct QueryThreads {
    /// Always there until it is dropped.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl QueryThreads {
    /// As many threads as cores but one, which connections and streams keep; at least two, which go after those of streams where
    /// processors are short.
    ///
    /// # Errors
    /// `Internal` when the system gives no threads.
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

    /// Runs work here; dropping the result stops it where it waits or gives way.
    pub async fn run<T: Send + 'static>(&self, work: BoxFuture<'static, Result<T>>) -> Result<T> {
        AbortOnDropHandle::new(self.handle.spawn(for_request(work))).await.map_err(Error::internal)?
    }
}

impl Drop for QueryThreads {
    /// Does not wait: a query may compute on for a while.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
