//! The threads on which a scan does work that blocks or takes long.
//!
//! A thread takes one piece of work after the other while any waits. If it ended after each piece and another thread
//! were woken for the next one, processors would idle, because the operating system puts several threads that it wakes
//! on one of them.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{Error, Result};

/// A limited number of the runtime's blocking threads. Cheap to clone; clones are the same threads.
#[derive(Clone, Debug)]
pub(crate) struct LocalThreads {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    threads_max: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    num_threads: usize,
}

type Work = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { waiting, num_threads } = self;
        f.debug_struct("State").field("waiting", &waiting.len()).field("num_threads", num_threads).finish()
    }
}

impl LocalThreads {
    /// Allows at most `threads_max` threads, and at least one.
    pub fn new(threads_max: usize) -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::default(), threads_max: threads_max.max(1) }) }
    }

    /// Runs work on one of the threads; the oldest waiting work first. Work whose future is dropped before it begins is
    /// not done.
    ///
    /// # Errors
    /// Those of the work; [`Error::Internal`] if it panics; [`Error::ShuttingDown`] if the runtime shuts down.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (output, done) = oneshot::channel();
        let work = move || {
            if output.is_closed() {
                return;
            }
            let panicked = |panic: Box<dyn Any + Send>| {
                let message =
                    panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
                let reason = format!("a reading thread panicked: {}", message.unwrap_or("no message"));
                Err(Error::Internal { reason })
            };
            // State that a panic leaves inconsistent is dropped with the work.
            output.send(catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)).ok();
        };
        if self.shared.add(Box::new(work)) {
            let thread = Thread { shared: self.shared.clone(), has_ended: false };
            tokio::task::spawn_blocking(move || thread.run());
        }
        done.await.unwrap_or(Err(Error::ShuttingDown))
    }
}

#[cfg(test)]
impl LocalThreads {
    /// The number of pieces of work that wait for a thread.
    pub fn num_waiting(&self) -> usize {
        self.shared.state.lock().waiting.len()
    }
}

impl Shared {
    /// Adds work. Returns whether the caller must start another thread.
    fn add(&self, work: Work) -> bool {
        let mut state = self.state.lock();
        state.waiting.push_back(work);
        let begins = state.num_threads < self.threads_max;
        state.num_threads += usize::from(begins);
        begins
    }
}

/// One of the threads.
struct Thread {
    shared: Arc<Shared>,
    has_ended: bool,
}

impl Thread {
    fn run(mut self) {
        while let Some(work) = self.next() {
            work();
        }
    }

    /// Returns the oldest waiting work; if there is none, the thread ends.
    fn next(&mut self) -> Option<Work> {
        let mut state = self.shared.state.lock();
        let work = state.waiting.pop_front();
        if work.is_none() {
            state.num_threads -= 1;
            self.has_ended = true;
        }
        work
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // The runtime shuts down and runs no more threads. Dropping the waiting work fails the futures that wait for
        // it.
        let waiting = {
            let mut state = self.shared.state.lock();
            state.num_threads -= 1;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn works_on_as_many_threads_as_allowed_and_not_on_more() {
        let (threads, barrier) = (LocalThreads::new(2), Arc::new(Barrier::new(2)));
        let under_way = Arc::new(Mutex::new((0, 0)));
        let work = || {
            let (barrier, under_way) = (barrier.clone(), under_way.clone());
            threads.run(move || {
                let begun = |state: &mut (usize, usize)| *state = (state.0 + 1, state.1.max(state.0 + 1));
                begun(&mut under_way.lock());
                // Each of the two pieces of work waits for the other one.
                barrier.wait();
                under_way.lock().0 -= 1;
                Ok(())
            })
        };
        futures::future::try_join_all((0..16).map(|_| work())).await.unwrap();
        assert_eq!(*under_way.lock(), (0, 2));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_fails_its_own_work_only() {
        let threads = LocalThreads::new(1);
        let failed = threads.run::<()>(|| panic!("on purpose"));
        let (failed, done) = futures::future::join(failed, threads.run(|| Ok(7))).await;
        assert!(failed.unwrap_err().to_string().contains("panicked: on purpose"));
        assert_eq!(done.unwrap(), 7);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn work_that_nobody_waits_for_any_more_is_left_undone() {
        let (threads, (begin, begun)) = (LocalThreads::new(1), std::sync::mpsc::channel::<()>());
        let mut first = Box::pin(threads.run(move || Ok(begun.recv().is_ok())));
        let was_done = Arc::new(AtomicBool::new(false));
        let mut unwanted = Box::pin(threads.run({
            let was_done = was_done.clone();
            move || {
                was_done.store(true, Ordering::Relaxed);
                Ok(())
            }
        }));
        assert!(futures::poll!(first.as_mut()).is_pending());
        assert!(futures::poll!(unwanted.as_mut()).is_pending());
        drop(unwanted);
        begin.send(()).unwrap();
        assert!(first.await.unwrap());
        assert_eq!(threads.run(|| Ok(7)).await.unwrap(), 7);
        assert!(!was_done.load(Ordering::Relaxed));
    }

    #[test]
    fn the_end_of_the_runtime_fails_what_waits() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let _inside = handle.enter();
        let failed = futures::executor::block_on(LocalThreads::new(1).run(|| Ok(7)));
        assert!(matches!(failed, Err(Error::ShuttingDown)));
    }
}
