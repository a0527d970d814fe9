//! A cache of stream plans, and the streams that are being planned for clients that poll them.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::FlightInfo;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use stoker_clock::Clock;
use stoker_session::{Error, Result};
use stoker_sql::ProgressReports;
use stoker_stream::StreamPlan;
use stoker_types::{Digest, Moment, PrincipalName, StatementProgress};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use crate::caller::Caller;
use crate::flight::status;
use crate::permits::{Permit, Permits, Shares, Standing};
use crate::request_id::for_request;

/// The longest time that a poll waits for news.
pub(crate) const POLL_WAIT: Duration = Duration::from_millis(250);

/// The time without a poll after which a server gives a plan up.
pub(crate) const UNPOLLED_MAX: Duration = Duration::from_secs(60);

/// The progress that is news for a client.
const PROGRESS_STEP: f64 = 0.01;

/// The most progress of a plan that is not done: rows are sorted and stored after they were selected.
const PROGRESS_MAX: f64 = 0.99;

/// The most plans whose cancellation a server remembers.
const CANCELLED_MAX: usize = 1_024;

/// The most recently used plans, at most `capacity`. Ranks that request the same stream concurrently load it once.
pub(crate) struct PlanCache {
    capacity: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    plans: HashMap<Digest, Entry>,
    uses: u64,
}

struct Entry {
    plan: Arc<OnceCell<StreamPlan>>,
    last_use: u64,
}

impl PlanCache {
    pub fn new(capacity: usize) -> Self {
        Self { capacity, inner: Mutex::default() }
    }

    /// Returns the plan of a stream; calls `load` if the cache does not have it. Errors are not cached.
    pub async fn get_or_load<F>(&self, id: Digest, load: impl FnOnce() -> F) -> Result<StreamPlan>
    where
        F: Future<Output = Result<StreamPlan>>,
    {
        let plan = self.entry(id);
        plan.get_or_try_init(load).await.cloned()
    }

    /// Caches a plan. It replaces a cached plan of the same stream whose specification was not in the lake.
    pub fn put(&self, plan: &StreamPlan) {
        let entry = self.entry(plan.stream_id());
        // A task that loads the same stream at this moment gets an equal plan.
        if entry.set(plan.clone()).is_err() && entry.get().is_some_and(|kept| !kept.spec_stored()) {
            let kept = Arc::new(OnceCell::new_with(Some(plan.clone())));
            if let Some(entry) = self.inner.lock().plans.get_mut(&plan.stream_id()) {
                entry.plan = kept;
            }
        }
    }

    fn entry(&self, id: Digest) -> Arc<OnceCell<StreamPlan>> {
        let mut inner = self.inner.lock();
        inner.uses += 1;
        let last_use = inner.uses;
        if !inner.plans.contains_key(&id) && inner.plans.len() >= self.capacity {
            let oldest = inner.plans.iter().min_by_key(|(_, entry)| entry.last_use).map(|(id, _)| *id);
            oldest.map(|id| inner.plans.remove(&id));
        }
        let entry = inner.plans.entry(id).or_insert_with(|| Entry { plan: Arc::default(), last_use });
        entry.last_use = last_use;
        entry.plan.clone()
    }
}

/// The principal for whom a stream is planned, and the random number of the plan.
pub(crate) type PlanKey = (PrincipalName, u64);

/// What a client gets that polls a plan to its end.
type Outcome = Result<FlightInfo, Status>;

/// The streams that are being planned for clients that poll them.
///
/// ```text
/// begin ─► PolledPlan ─┬─ news ─► the outcome
///                      ├─ no poll for a minute ─► given up; the next poll begins it again
///                      └─ cancel ─► cancelled, also for later polls
/// ```
pub(crate) struct PolledPlans {
    begun: Arc<Mutex<Begun>>,
    permits: Permits<Caller>,
    shares: Shares,
    clock: Clock,
}

#[derive(Default)]
struct Begun {
    plans: HashMap<PlanKey, Arc<PolledPlan>>,
    /// The plans that clients cancelled, the oldest first.
    cancelled: VecDeque<PlanKey>,
}

/// A stream that is being planned in a task. Dropping it cancels the task.
pub(crate) struct PolledPlan {
    task: AbortOnDropHandle<()>,
    progress: watch::Receiver<StatementProgress>,
    outcome: watch::Receiver<Option<Outcome>>,
    /// When the plan was polled last.
    polled_at: Arc<Mutex<Moment>>,
    /// The most progress that a client was told.
    told: Mutex<f64>,
    _permit: Permit<Caller>,
}

impl PolledPlans {
    pub fn new(shares: Shares, clock: Clock) -> Self {
        Self { begun: Arc::default(), permits: Permits::new(shares, clock.clone()), shares, clock }
    }

    /// Begins a plan on these threads. It belongs to the current request, and ends when the server is `stopping`.
    ///
    /// # Errors
    /// `ResourceExhausted` if too many plans are polled.
    pub fn begin(
        &self,
        caller: Caller,
        key: PlanKey,
        threads: &Handle,
        stopping: CancellationToken,
        plan: impl FnOnce(ProgressReports) -> BoxFuture<'static, Result<FlightInfo>>,
    ) -> Result<Arc<PolledPlan>> {
        let permit = self.permits.take(caller, Standing::Busy, self.clock.now()).map_err(|_| self.full())?;
        let (reports, progress) = watch::channel(StatementProgress::default());
        let (sender, outcome) = watch::channel(None);
        let polled_at = Arc::new(Mutex::new(self.clock.now()));
        let planning = AbortOnDropHandle::new(threads.spawn(for_request(plan(reports))));
        let (begun, clock, last_poll) = (self.begun.clone(), self.clock.clone(), polled_at.clone());
        let work = async move {
            let planned = async {
                let planned = planning.await.unwrap_or_else(|panicked| Err(Error::internal(panicked)));
                sender.send_replace(Some(planned.map_err(status)));
                // The outcome waits for its client.
                pending::<()>().await;
            };
            tokio::select! {
                () = stopping.cancelled() => {
                    sender.send_replace(Some(Err(status(Error::Stopping))));
                }
                () = unpolled(&clock, &last_poll) => {}
                () = planned => {}
            }
            let gone = begun.lock().plans.remove(&key);
            drop(gone);
        };
        let task = AbortOnDropHandle::new(threads.spawn(for_request(work)));
        Ok(Arc::new(PolledPlan { task, progress, outcome, polled_at, told: Mutex::new(0.0), _permit: permit }))
    }

    fn full(&self) -> Error {
        let Shares { total, per_client } = self.shares;
        let reason = format!(
            "the limit of streams that are planned for polls is reached: {total} for this server, {per_client} for one \
             client; poll again later, or send the descriptor to GetFlightInfo"
        );
        Error::ResourceExhausted { reason }
    }

    /// Returns a plan that was kept, and notes that it was polled. `None` for one that this server does not have, or
    /// that it gave up.
    ///
    /// # Errors
    /// `Cancelled` if a client cancelled the plan.
    pub fn find(&self, key: &PlanKey) -> Result<Option<Arc<PolledPlan>>> {
        let begun = self.begun.lock();
        if begun.cancelled.contains(key) {
            return Err(Error::Cancelled);
        }
        let plan = begun.plans.get(key).filter(|plan| !plan.is_given_up()).cloned();
        if let Some(plan) = &plan {
            *plan.polled_at.lock() = self.clock.now();
        }
        Ok(plan)
    }

    /// Keeps a plan for the next polls, unless it was given up. Returns the one that is kept: another one if two polls
    /// began it at the same time.
    ///
    /// # Errors
    /// `Cancelled` if a client cancelled the plan.
    pub fn keep(&self, key: &PlanKey, plan: Arc<PolledPlan>) -> Result<Arc<PolledPlan>> {
        let mut begun = self.begun.lock();
        if begun.cancelled.contains(key) {
            return Err(Error::Cancelled);
        }
        if plan.is_given_up() {
            return Ok(plan);
        }
        let kept = begun.plans.entry(key.clone()).or_insert_with(|| plan.clone());
        if kept.is_given_up() {
            *kept = plan;
        }
        Ok(kept.clone())
    }

    /// Forgets a plan whose client got the outcome.
    pub fn forget(&self, key: &PlanKey) {
        let gone = self.begun.lock().plans.remove(key);
        drop(gone);
    }

    /// Cancels a plan, also for later polls. Returns whether this server had it.
    pub fn cancel(&self, key: &PlanKey) -> bool {
        let mut begun = self.begun.lock();
        let Some(plan) = begun.plans.remove(key) else { return false };
        if begun.cancelled.len() >= CANCELLED_MAX {
            begun.cancelled.pop_front();
        }
        begun.cancelled.push_back(key.clone());
        drop(begun);
        // A poll that waits has the plan, too.
        plan.task.abort();
        true
    }
}

impl PolledPlan {
    /// Waits for the outcome, or, if the client was `told` some progress, for noticeably more; at most for
    /// [`POLL_WAIT`]. Returns the outcome, if there is one.
    pub async fn news(&self, clock: &Clock, told: Option<f64>) -> Option<Outcome> {
        let (mut outcome, mut progress) = (self.outcome.clone(), self.progress.clone());
        let waiting = async move {
            let done = async {
                // The channel is also closed when the plan is cancelled.
                outcome.wait_for(Option::is_some).await.map(drop).ok();
            };
            let moved = async {
                let is_news = |now: &StatementProgress| {
                    told.zip(fraction(now)).is_some_and(|(told, now)| now >= told + PROGRESS_STEP)
                };
                let is_over = progress.wait_for(is_news).await.map(drop).is_err();
                if is_over {
                    pending::<()>().await;
                }
            };
            tokio::select! {
                () = done => {}
                () = moved => {}
            }
        };
        clock.timeout(POLL_WAIT, waiting).await;
        self.outcome.borrow().clone()
    }

    /// Returns the progress to tell a client that was `told` some before; `None` if none is known. It never goes back.
    pub fn progress(&self, told: f64) -> Option<f64> {
        let now = fraction(&self.progress.borrow());
        let mut most = self.told.lock();
        *most = most.max(told).max(now.unwrap_or(0.0));
        (now.is_some() || *most > 0.0).then_some(*most)
    }

    /// Returns whether the plan ended without an outcome, because nobody polled it.
    fn is_given_up(&self) -> bool {
        let is_over = self.outcome.has_changed().is_err();
        is_over && self.outcome.borrow().is_none()
    }
}

/// Returns the part of the rows that a plan has passed, if it has begun to select rows.
fn fraction(progress: &StatementProgress) -> Option<f64> {
    let total = progress.total.filter(|total| *total > 0)?;
    Some((progress.done as f64 / total as f64).min(PROGRESS_MAX))
}

/// Waits until nobody has polled for [`UNPOLLED_MAX`].
async fn unpolled(clock: &Clock, last_poll: &Mutex<Moment>) {
    loop {
        let deadline = *last_poll.lock() + UNPOLLED_MAX;
        if clock.now() >= deadline {
            return;
        }
        clock.sleep_until(deadline).await;
    }
}
