//! Threads with large stacks, on which queries are parsed and planned.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, SendError, Sender};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use stoker_functions::Activity;
use tokio::sync::oneshot;

use crate::{Engine, Error, Result};

/// The stack of a planner thread. The planner's recursion over a query within the bounds of [`guard`](crate::guard) needs
/// far less.
const STACK_BYTES: usize = 64 << 20;

/// The longest text that is parsed on the caller's thread. It is parsed within some 200 microseconds.
const PARSED_HERE_BYTES_MAX: usize = 4 << 10;

/// The stack on which a short text is parsed.
const SHORT_STACK_BYTES: usize = 16 << 20;

/// How long a thread waits for its next plan before it ends.
const IDLE: Duration = Duration::from_secs(5);

/// The most threads that wait.
const IDLE_MAX: usize = 8;

/// The planner threads of the process.
static THREADS: LazyLock<PlannerThreads> = LazyLock::new(PlannerThreads::default);

type Work = Box<dyn FnOnce() + Send>;

/// The planner threads that wait for work, each at most for [`IDLE`]. A forked process has none of its parent's threads,
/// and starts its own.
#[derive(Default)]
struct PlannerThreads {
    idle: Arc<Mutex<Idle>>,
}

#[derive(Default)]
struct Idle {
    /// The process of these threads.
    process: u32,
    /// The number of the thread that waits next.
    next: u64,
    threads: Vec<(u64, Sender<Work>)>,
}

impl Idle {
    fn of_this_process(&mut self) -> &mut Vec<(u64, Sender<Work>)> {
        let process = std::process::id();
        if self.process != process {
            self.threads.clear();
            self.process = process;
        }
        &mut self.threads
    }

    /// Adds a thread that waits. Returns its number and where it gets its work, or `None` if enough threads wait.
    fn add(&mut self) -> Option<(u64, Receiver<Work>)> {
        let number = self.next;
        self.next += 1;
        let threads = self.of_this_process();
        if threads.len() >= IDLE_MAX {
            return None;
        }
        let (sender, receiver) = mpsc::channel();
        threads.push((number, sender));
        Some((number, receiver))
    }

    /// Removes a thread that waits. Returns whether it was still there: if not, it gets work.
    fn remove(&mut self, number: u64) -> bool {
        let threads = self.of_this_process();
        let index = threads.iter().position(|(waiting, _)| *waiting == number);
        index.map(|index| threads.remove(index)).is_some()
    }
}

impl PlannerThreads {
    /// Runs work on a thread that waits, or on a new one.
    fn run(&self, mut work: Work) -> Result<()> {
        loop {
            let waiting = self.idle.lock().of_this_process().pop();
            let Some((_, thread)) = waiting else { break };
            match thread.send(work) {
                Ok(()) => return Ok(()),
                // The thread has ended.
                Err(SendError(unsent)) => work = unsent,
            }
        }
        let idle = self.idle.clone();
        let started = std::thread::Builder::new()
            .name("stoker-plan".to_string())
            .stack_size(STACK_BYTES)
            .spawn(move || serve(work, &idle));
        started.map(|_| ()).map_err(|source| Error::internal(format!("cannot start a planner thread: {source}")))
    }
}

/// Does work, then waits for more.
fn serve(work: Work, idle: &Mutex<Idle>) {
    let mut next = Some(work);
    while let Some(work) = next.take() {
        work();
        let Some((number, receiver)) = idle.lock().add() else { return };
        next = match receiver.recv_timeout(IDLE) {
            Ok(work) => Some(work),
            Err(_) if idle.lock().remove(number) => None,
            // Another thread is about to send work.
            Err(_) => receiver.recv().ok(),
        };
    }
}

/// Runs a future on a planner thread with a large stack, driven by the runtime of the engine's plans.
///
/// When the returned future is dropped, or the time limit for planning passes, the planner stops at its next step: when
/// it waits for storage, or goes from one rule or operator to the next. The planner keeps its permit until it has
/// stopped.
pub(crate) async fn on_large_stack<T: Send + 'static>(
    engine: &Engine,
    activity: &Arc<Activity>,
    work: BoxFuture<'static, Result<T>>,
) -> Result<T> {
    let permit = engine.planner_permits().take().await?;
    let runtime = engine.threads()?;
    let _running = activity.begin();
    let (mut sender, receiver) = oneshot::channel();
    let planned = async move {
        let _permit = permit;
        let done = tokio::select! {
            () = sender.closed() => return,
            done = work => done,
        };
        sender.send(done).ok();
    };
    THREADS.run(Box::new(move || runtime.block_on(planned)))?;
    let limit = engine.options().query.planning;
    match tokio::time::timeout(limit, receiver).await {
        Ok(done) => done.map_err(|_| Error::internal("the planner panicked"))?,
        Err(_) => Err(Error::exhausted(format!("planning took more than {} s, the limit", limit.as_secs_f64()))),
    }
}

/// Parses a text with a large stack: a short one on the caller's thread, because waking another one takes longer, and a
/// long one on a planner thread.
pub(crate) async fn parsed<T: Send + 'static>(
    engine: &Engine,
    activity: &Arc<Activity>,
    num_bytes: usize,
    parse: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if num_bytes > PARSED_HERE_BYTES_MAX {
        return on_large_stack(engine, activity, async move { parse() }.boxed()).await;
    }
    let parsing = || stacker::grow(SHORT_STACK_BYTES, parse);
    catch_unwind(AssertUnwindSafe(parsing)).unwrap_or_else(|_| Err(Error::internal("the planner panicked")))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::ThreadId;

    use super::PlannerThreads;

    fn thread_of_work(threads: &PlannerThreads) -> ThreadId {
        let (sender, receiver) = channel();
        threads.run(Box::new(move || sender.send(std::thread::current().id()).expect("a receiver"))).expect("a thread");
        receiver.recv().expect("the work was done")
    }

    /// Waits until a number of threads wait for work.
    fn until_idle(threads: &PlannerThreads, number: usize) {
        while threads.idle.lock().threads.len() != number {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_that_waits_does_the_next_work() {
        let threads = PlannerThreads::default();
        let first = thread_of_work(&threads);
        until_idle(&threads, 1);
        assert_eq!(thread_of_work(&threads), first);
        until_idle(&threads, 1);
        threads.idle.lock().process += 1;
        assert_ne!(thread_of_work(&threads), first, "a forked process has no threads of its parent");
    }

    #[test]
    fn work_that_panics_ends_its_thread_only() {
        let threads = PlannerThreads::default();
        let (sender, receiver) = channel::<()>();
        threads
            .run(Box::new(move || {
                let _sender = sender;
                panic!("work that fails");
            }))
            .expect("a thread");
        assert!(receiver.recv().is_err(), "the work ended without an answer");
        thread_of_work(&threads);
    }
}
