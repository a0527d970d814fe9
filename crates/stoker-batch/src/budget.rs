//! The memory budget that the streams of a process share.
//!
//! ```text
//! MemoryBudget ──join──► Quota ──reserve──► Held
//!  total bytes            of a stream        of a batch, until its consumer takes it
//! ```
//!
//! Everything here about batches also holds for their parts, if a stream delivers batches in parts: each part reserves
//! memory of its own.
//!
//! The streams that still read divide the total equally, except that none gets more than its own cap. Memory that small
//! caps leave goes to the other streams. Shares shrink when a stream joins, and grow when a stream ends or has read
//! everything. A stream that holds nothing may reserve memory for a batch of any size. All streams together therefore
//! hold at most the total and one batch each.
//!
//! A prefetching stream, such as that of the next epoch, gets a small share beside the streams that have begun. Once
//! all of these have read everything, and while they are open, it takes over their share: it may hold what it may hold
//! after it begins, less what they still hold. All prefetching streams together get at most half of the total in this
//! way.
//!
//! No stream waits for ever. A stream that holds nothing does not wait, so that no stream depends on what the others do
//! with their memory. A stream that holds something waits only while batches of its own are ready for its consumer, who
//! ends the wait by taking them or by dropping the stream. If it holds only batches that cannot be delivered before the
//! next one, [`Quota::reserve_beside`] returns `None` and does not wait, and the planner ends its unit before that
//! batch.

mod ledger;

use std::fmt::Debug;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use stoker_clock::Clock;
use stoker_types::ReadOptions;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use crate::BufferPool;
use crate::budget::ledger::{Answer, Demand, Ledger, Total};

/// The bytes of all streams by default, which is enough for two streams with the default cap.
const TOTAL_BYTES: u64 = 2 << 30;

/// For how long the memory of a closed stream is kept for another one, such as that of the next epoch. The kernel must
/// clear new memory, which takes longer than reading rows into it.
const MEMORY_KEPT_FOR: Duration = Duration::from_secs(5);

/// A prefetching stream may hold its memory budget divided by this number.
const AHEAD_DIVISOR: u64 = 16;

/// Bytes that streams hold together in batches that are being filled or wait to be taken. Cheap to clone; clones are the same
/// budget.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    shared: Arc<Shared>,
}

/// Memory that several streams use together, such as blocks that they share. While they do, it has two thirds of a
/// budget.
pub trait SharedMemory: Debug + Send + Sync {
    /// Whether several streams share memory, or did a short time ago. Takes no lock.
    fn are_wanted(&self) -> bool;

    /// Whether a stream that may share memory is open. Takes no lock.
    fn are_here(&self) -> bool;

    /// Sets the most bytes that the shared memory may take.
    fn resize(&self, bytes_max: u64);
}

#[derive(Debug)]
struct Shared {
    ledger: Mutex<Ledger>,
    pool: BufferPool,
    clock: Clock,
    /// The number of streams that have ended.
    num_ended: AtomicU64,
    /// Wakes those who wait until other streams release memory.
    released: Notify,
}

impl Default for MemoryBudget {
    /// Makes a budget of 2 GiB, or of as many bytes as the largest cap of an open stream, if that is more.
    fn default() -> Self {
        Self::with_clock(None, Clock::default())
    }
}

impl MemoryBudget {
    /// Makes a budget of `total_bytes`, whatever the caps of the streams are.
    pub fn new(total_bytes: u64) -> Self {
        Self::with_clock(Some(total_bytes), Clock::default())
    }

    /// Like [`MemoryBudget::new`], or [`MemoryBudget::default`] for `None`. The clock tells when the memory of closed
    /// streams has been kept for long enough.
    pub fn with_clock(total_bytes: Option<u64>, clock: Clock) -> Self {
        Self::divided(total_bytes, None, clock)
    }

    /// Like [`MemoryBudget::with_clock`], for a budget that is divided between streams and the memory that they share.
    pub fn with_shared(total_bytes: Option<u64>, shared: Arc<dyn SharedMemory>, clock: Clock) -> Self {
        Self::divided(total_bytes, Some(shared), clock)
    }

    fn divided(total_bytes: Option<u64>, shared: Option<Arc<dyn SharedMemory>>, clock: Clock) -> Self {
        let total = total_bytes.map_or(Total::AtLeast(TOTAL_BYTES), Total::Fixed);
        let ledger = Mutex::new(Ledger::new(total, shared));
        let (pool, num_ended) = (BufferPool::new(0), AtomicU64::new(0));
        Self { shared: Arc::new(Shared { ledger, pool, clock, num_ended, released: Notify::new() }) }
    }

    /// Returns the clock of the budget, which is that of its streams.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Adds a stream and returns its quota. The stream never holds more than `cap_bytes`, except for a single batch
    /// that is larger.
    pub fn join(&self, cap_bytes: u64) -> Quota {
        self.enter(cap_bytes, None)
    }

    /// Like [`MemoryBudget::join`], for a stream with these options, which may be a prefetching one.
    pub fn join_with(&self, options: &ReadOptions) -> Quota {
        self.enter(options.memory_budget_bytes, options.ahead.then(|| early_bytes(options)))
    }

    fn enter(&self, cap_bytes: u64, early_bytes: Option<u64>) -> Quota {
        let woken = Arc::new(Notify::new());
        let mut ledger = self.shared.ledger.lock();
        let id = ledger.join(cap_bytes, early_bytes, woken.clone());
        self.shared.grow_pool(&ledger);
        drop(ledger);
        Quota {
            place: Arc::new(QuotaEntry {
                shared: self.shared.clone(),
                id,
                woken,
                runtime: Handle::try_current().ok(),
                has_begun: watch::Sender::new(early_bytes.is_none()),
                is_held_back: watch::Sender::new(false),
                has_retired: watch::Sender::new(false),
            }),
        }
    }

    /// Returns the pool from which the batches of all streams take their memory. Free memory is kept for later batches
    /// within the total. Five seconds after a stream has ended, the pool returns the memory beyond what open streams
    /// may hold to the system, unless another stream ended in the meantime.
    pub fn pool(&self) -> &BufferPool {
        &self.shared.pool
    }

    /// Returns the number of bytes that streams may hold together. It is the whole budget, or a third of it while
    /// streams share blocks.
    pub fn total_bytes(&self) -> u64 {
        self.shared.ledger.lock().total()
    }

    /// Returns the number of bytes that all streams hold at the moment. It is at most the total and one batch for each
    /// stream.
    pub fn held_bytes(&self) -> u64 {
        self.shared.ledger.lock().held()
    }
}

/// Returns the number of bytes that the stream may hold while it prefetches beside other streams.
fn early_bytes(options: &ReadOptions) -> u64 {
    (options.memory_budget_bytes / AHEAD_DIVISOR).max(1)
}

impl Shared {
    /// Raises the pool's limit to what the open streams may hold together. The limit is never lowered here.
    fn grow_pool(&self, ledger: &Ledger) {
        self.pool.grow(ledger.open_bytes());
    }

    /// Sets the pool's limit to what the open streams may hold together, if no stream ends until then.
    async fn fit_pool_later(shared: Weak<Self>, num_ended: u64, clock: Clock) {
        clock.sleep(MEMORY_KEPT_FOR).await;
        let Some(shared) = shared.upgrade() else { return };
        let ledger = shared.ledger.lock();
        if shared.num_ended.load(Ordering::Relaxed) == num_ended {
            shared.pool.resize(ledger.open_bytes());
        }
    }
}

/// The share of a budget that belongs to one stream. Clones are the same quota. It ends when its last clone, and all
/// memory that it holds, are dropped.
#[derive(Clone, Debug)]
pub struct Quota {
    place: Arc<QuotaEntry>,
}

/// A stream's entry in the ledger.
#[derive(Debug)]
struct QuotaEntry {
    shared: Arc<Shared>,
    id: u64,
    woken: Arc<Notify>,
    /// The runtime on which the stream was opened. If there is none, the stream's memory is returned to the system at
    /// once.
    runtime: Option<Handle>,
    /// Whether the stream has begun, which means that it does not only prefetch.
    has_begun: watch::Sender<bool>,
    /// Whether the stream reads nothing before it begins.
    is_held_back: watch::Sender<bool>,
    has_retired: watch::Sender<bool>,
}

impl Quota {
    /// Returns the number of bytes that the stream may hold now, or will be allowed to hold once it has begun. A batch
    /// that is larger is held alone.
    pub fn bytes(&self) -> u64 {
        self.place.shared.ledger.lock().limit(self.place.id)
    }

    /// Bytes that the stream holds now.
    pub fn held_bytes(&self) -> u64 {
        self.place.shared.ledger.lock().held_by(self.place.id)
    }

    /// Room for a batch, if there is some now.
    pub fn try_reserve(&self, bytes: u64) -> Option<Held> {
        let answer = self.place.shared.ledger.lock().ask(self.place.id, Demand { bytes, kept: 0 });
        (answer == Answer::Granted).then(|| self.hold(bytes))
    }

    /// Reserves memory within the stream's share, if there is some now. Unlike [`Quota::try_reserve`], it does not give a
    /// stream that holds nothing more than its share.
    pub fn try_reserve_within(&self, bytes: u64) -> Option<Held> {
        let is_granted = self.place.shared.ledger.lock().ask_within(self.place.id, bytes);
        is_granted.then(|| self.hold(bytes))
    }

    /// Waits for memory for a batch and reserves it. The wait ends at the latest when the consumer has taken all
    /// earlier batches. One task of a stream may wait at a time. Cancelling the future loses nothing.
    pub async fn reserve(&self, bytes: u64) -> Held {
        loop {
            if let Some(held) = self.reserve_beside(bytes, 0).await {
                return held;
            }
        }
    }

    /// Like [`Quota::reserve`], for a stream that holds `kept` bytes in batches that cannot be delivered before this
    /// one. Returns `None` as soon as the stream holds nothing else.
    pub async fn reserve_beside(&self, bytes: u64, kept: u64) -> Option<Held> {
        loop {
            let answer = self.place.shared.ledger.lock().ask_or_wait(self.place.id, Demand { bytes, kept });
            match answer {
                Answer::Granted => return Some(self.hold(bytes)),
                Answer::OnlyKept => return None,
                Answer::Wait => self.place.woken.notified().await,
            }
        }
    }

    /// Returns whether a prefetching stream may reserve this many bytes more, in its small share of the budget or in
    /// place of the streams before it. In the second case the pool must also have as much free memory, in blocks of any
    /// sizes, because the kernel takes longer to clear new memory than prefetching saves.
    pub fn has_room_ahead(&self, bytes: u64) -> bool {
        let shared = &self.place.shared;
        let room = shared.ledger.lock().room_ahead(self.place.id);
        bytes <= room.early || bytes <= room.free.min(shared.pool.free_bytes() as u64)
    }

    /// Waits until [`Quota::has_room_ahead`] is true. One task of a stream may wait at a time. Cancelling the future
    /// loses nothing.
    pub async fn until_room_ahead(&self, bytes: u64) {
        let shared = &self.place.shared;
        loop {
            let mut returned = pin!(shared.pool.until_returned());
            returned.as_mut().enable();
            shared.ledger.lock().wait(self.place.id, Demand { bytes, kept: 0 });
            if self.has_room_ahead(bytes) {
                return;
            }
            tokio::select! {
                () = returned => {}
                () = self.place.woken.notified() => {}
            }
        }
    }

    /// Waits until the other streams hold no more than this many bytes each, on average. Cancelling the future loses
    /// nothing.
    pub async fn until_others_hold_at_most(&self, bytes: u64) {
        let shared = &self.place.shared;
        loop {
            let released = shared.released.notified();
            if shared.ledger.lock().do_others_hold_at_most(self.place.id, bytes) {
                return;
            }
            released.await;
        }
    }

    /// Sets how many bytes the stream wants to hold at the moment. It is still allowed no more than its share.
    pub fn set_depth(&self, bytes: u64) {
        self.place.shared.ledger.lock().set_depth(self.place.id, bytes);
    }

    /// Records that the stream requests nothing more. The other streams share what it does not hold.
    pub fn retire(&self) {
        self.place.shared.ledger.lock().retire(self.place.id);
        self.place.has_retired.send_replace(true);
    }

    /// Waits until the stream requests nothing more. The future does not keep the quota.
    pub fn until_retired(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut has_retired = self.place.has_retired.subscribe();
        async move {
            // If the quota was dropped, the stream requests nothing more.
            has_retired.wait_for(|has_retired| *has_retired).await.ok();
        }
    }

    /// Returns whether the stream requests nothing more.
    pub fn is_retired(&self) -> bool {
        self.place.shared.ledger.lock().is_retired(self.place.id)
    }

    /// Tells a prefetching stream to begin, with a new cap.
    pub fn begin(&self, cap_bytes: u64) {
        let mut ledger = self.place.shared.ledger.lock();
        ledger.begin(self.place.id, cap_bytes);
        self.place.shared.grow_pool(&ledger);
        drop(ledger);
        self.place.has_begun.send_replace(true);
    }

    /// Returns whether the stream has begun.
    pub fn has_begun(&self) -> bool {
        *self.place.has_begun.borrow()
    }

    /// Waits until the stream has begun.
    pub async fn until_begun(&self) {
        // The sender lives at least as long as this quota, so the wait cannot fail.
        self.place.has_begun.subscribe().wait_for(|has_begun| *has_begun).await.ok();
    }

    /// Reports that the stream reads nothing before it begins, and waits until it begins.
    pub async fn hold_back(&self) {
        self.place.is_held_back.send_replace(true);
        self.until_begun().await;
    }

    /// Waits until the stream reports that it reads nothing before it begins. The future does not keep the quota.
    pub fn until_held_back(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut is_held_back = self.place.is_held_back.subscribe();
        async move {
            if is_held_back.wait_for(|is_held_back| *is_held_back).await.is_err() {
                // If the quota was dropped, the stream will report nothing.
                std::future::pending().await
            }
        }
    }

    fn hold(&self, bytes: u64) -> Held {
        Held { place: self.place.clone(), bytes }
    }
}

impl Drop for QuotaEntry {
    fn drop(&mut self) {
        let shared = &self.shared;
        let mut ledger = shared.ledger.lock();
        ledger.leave(self.id);
        shared.released.notify_waiters();
        let num_ended = shared.num_ended.fetch_add(1, Ordering::Relaxed) + 1;
        match &self.runtime {
            Some(runtime) => {
                let later = Shared::fit_pool_later(Arc::downgrade(shared), num_ended, shared.clock.clone());
                drop(runtime.spawn(later));
            }
            None => shared.pool.resize(ledger.open_bytes()),
        }
    }
}

/// The reserved memory of one batch. Dropping it releases the memory for other batches.
#[derive(Debug)]
pub struct Held {
    place: Arc<QuotaEntry>,
    bytes: u64,
}

impl Held {
    /// Returns the number of reserved bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let shared = &self.place.shared;
        shared.ledger.lock().give_back(self.place.id, self.bytes);
        shared.released.notify_waiters();
    }
}
