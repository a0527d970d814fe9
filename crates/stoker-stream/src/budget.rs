//! One byte budget for the streams of a process.
//!
//! ```text
//! MemoryBudget ──join──► Quota ──reserve──► Held
//!  total bytes            of a stream        of a batch, until its consumer takes it
//! ```
//!
//! What is said of batches here holds for their parts, where a stream delivers batches in parts: each holds room of its own.
//!
//! The streams that still read share the total equally, except that none gets more than its own cap: what small caps leave,
//! the others get. Shares shrink when a stream joins, and grow when one ends or has read everything. A stream that holds nothing
//! gets room for a batch of any size, so that all streams together hold at most the total and one batch each.
//!
//! A stream that is ahead of its time, as that of a next epoch is, gets a small part beside them. Once all streams before it have read
//! everything, and while they are there, it takes their place: it may hold what it may later, less what they still hold, within half of
//! the total for all such streams.
//!
//! Nothing waits for ever. A stream that holds nothing does not wait, so that none depends on what the others do with their
//! memory. A stream that holds something waits only while batches of its own lie there for its consumer, who ends the wait by
//! taking them or by dropping the stream. Where it holds nothing but batches that cannot be delivered before the next one,
//! [`Quota::reserve_beside`] says so in place of waiting, and the planner ends its unit before that batch.

mod ledger;

use std::fmt::Display;
use std::hash::Hash;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use stoker_chunks::{BufferPool, ChunkCache, Group, LocalReads, Membership, RequestLimit, SharedReads};
use stoker_types::calls::OpenStream;
use stoker_types::{Digest, Slice};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use crate::ReadOptions;
use crate::open_streams::{OpenEntry, OpenStreams};
use crate::budget::ledger::{Answer, Ledger, Total, Wanted};

/// Bytes of all streams by default: two streams with the default cap.
const TOTAL_BYTES: u64 = 2 << 30;

/// How long after the end of a stream its memory is kept for another one, such as that of the next epoch: to have the system clear as
/// much of it anew takes longer than to read it.
const MEMORY_KEPT_FOR: Duration = Duration::from_secs(5);

/// The name of the client of streams in this process.
const LOCAL_CLIENT: &str = "local";

/// Bytes that streams hold together in batches that are being filled or wait to be taken. Cheap to clone; clones are the same
/// budget.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    shared: Arc<Shared>,
    requests: RequestLimit,
    cache: Option<ChunkCache>,
    local_reads: LocalReads,
    open: OpenStreams,
    client: Arc<str>,
}

#[derive(Debug)]
struct Shared {
    ledger: Mutex<Ledger>,
    pool: BufferPool,
    reads: SharedReads,
    memory_kept_for: Duration,
    /// Streams that have ended.
    num_ended: AtomicU64,
}

impl Default for MemoryBudget {
    /// 2 GiB, or as much as the cap of an open stream, if that is more.
    fn default() -> Self {
        Self::with_total(Total::AtLeast(TOTAL_BYTES), MEMORY_KEPT_FOR)
    }
}

impl MemoryBudget {
    /// A budget of so many bytes, whatever the caps of the streams.
    pub fn new(total_bytes: u64) -> Self {
        Self::with_total(Total::Fixed(total_bytes), MEMORY_KEPT_FOR)
    }

    /// As [`MemoryBudget::new`]; memory of streams that ended is kept for so long.
    #[cfg(test)]
    pub(crate) fn keeping_memory_for(total_bytes: u64, memory_kept_for: Duration) -> Self {
        Self::with_total(Total::Fixed(total_bytes), memory_kept_for)
    }

    fn with_total(total: Total, memory_kept_for: Duration) -> Self {
        let reads = SharedReads::default();
        let ledger = Mutex::new(Ledger::new(total, reads.clone()));
        let (pool, num_ended) = (BufferPool::new(0), AtomicU64::new(0));
        let shared = Arc::new(Shared { ledger, pool, reads, memory_kept_for, num_ended });
        let (requests, local_reads) = (RequestLimit::default(), LocalReads::default());
        Self { shared, requests, cache: None, local_reads, open: OpenStreams::default(), client: LOCAL_CLIENT.into() }
    }

    /// The same budget for streams that keep chunks of object stores in a cache. Beside the budget, they hold up to 160 MiB of chunks
    /// that are on their way to it or from it.
    #[must_use]
    pub fn with_cache(self, cache: Option<ChunkCache>) -> Self {
        Self { cache, ..self }
    }

    /// Where streams keep chunks of object stores, if they do.
    pub fn cache(&self) -> Option<&ChunkCache> {
        self.cache.as_ref()
    }

    /// The same budget for streams that read local files in some way. Beside the budget, direct reads hold 1 MiB for each thread
    /// that reads.
    #[must_use]
    pub fn with_local_reads(self, local_reads: LocalReads) -> Self {
        Self { local_reads, ..self }
    }

    /// The same budget for the streams of one client: while several clients wait for requests to object stores, each gets as many as the
    /// others, however many streams it has.
    #[must_use]
    pub fn for_client(&self, client: impl Hash, name: impl Display) -> Self {
        Self { requests: self.requests.for_client(client), client: name.to_string().into(), ..self.clone() }
    }

    /// The streams that are open, oldest first.
    pub fn open_streams(&self) -> Vec<OpenStream> {
        self.open.list()
    }

    /// Adds a stream of the budget's client to the open streams.
    pub(crate) fn opened(&self, stream_id: Digest, slice: Slice, quota: Quota) -> OpenEntry {
        self.open.add(stream_id, slice, self.client.clone(), quota)
    }

    /// How streams read local files.
    pub fn local_reads(&self) -> LocalReads {
        self.local_reads
    }

    /// The quota of one more stream, which never holds more than `cap_bytes`, a batch that is larger excepted.
    pub fn join(&self, cap_bytes: u64) -> Quota {
        self.enter(cap_bytes, None)
    }

    /// As [`MemoryBudget::join`], for a stream that is read with these options, maybe opened ahead of its time.
    pub fn join_with(&self, options: &ReadOptions) -> Quota {
        self.enter(options.memory_budget_bytes, options.ahead.then(|| options.early_budget_bytes()))
    }

    fn enter(&self, cap_bytes: u64, early_bytes: Option<u64>) -> Quota {
        let woken = Arc::new(Notify::new());
        let mut ledger = self.shared.ledger.lock();
        let id = ledger.join(cap_bytes, early_bytes, woken.clone());
        self.shared.grow_pool(&ledger);
        drop(ledger);
        Quota {
            place: Arc::new(Place {
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

    /// The memory of the batches of all streams. It is kept for the next batches within the total. What open streams may not hold is
    /// given back five seconds after a stream ended, if no other one ended meanwhile.
    pub fn pool(&self) -> &BufferPool {
        &self.shared.pool
    }

    /// The limit of requests to object stores that all streams have under way.
    pub fn requests(&self) -> &RequestLimit {
        &self.requests
    }

    /// Lets a stream share what it reads with others of its group, before it joins. While there are several, two thirds of the
    /// budget are set aside for what they share.
    pub fn share(&self, group: Group, rank: u32, num_ranks: u64) -> Membership {
        self.shared.reads.join(group, rank, num_ranks)
    }

    /// Bytes of ranges that several streams share, beside those that streams hold.
    pub fn shared_bytes(&self) -> u64 {
        self.shared.reads.bytes()
    }

    /// Bytes that streams may hold together: the whole budget, or a third of it while they share blocks.
    pub fn total_bytes(&self) -> u64 {
        self.shared.ledger.lock().total()
    }

    /// Bytes that all streams hold now: at most the total and one batch for each.
    pub fn held_bytes(&self) -> u64 {
        self.shared.ledger.lock().held()
    }
}

impl Shared {
    /// Lets the pool keep what the open streams may hold together, and what it may keep already.
    fn grow_pool(&self, ledger: &Ledger) {
        self.pool.grow(ledger.open_bytes());
    }

    /// Lets the pool keep what the open streams may hold together, once no stream has ended for a while.
    async fn fit_pool_later(shared: Weak<Self>, num_ended: u64, after: Duration) {
        tokio::time::sleep(after).await;
        let Some(shared) = shared.upgrade() else { return };
        let ledger = shared.ledger.lock();
        if shared.num_ended.load(Ordering::Relaxed) == num_ended {
            shared.pool.resize(ledger.open_bytes());
        }
    }
}

/// One stream's part of a budget. Clones are the same quota; it ends when the last of them, and all that it holds, is dropped.
#[derive(Clone, Debug)]
pub struct Quota {
    place: Arc<Place>,
}

/// A stream's place in the ledger.
#[derive(Debug)]
struct Place {
    shared: Arc<Shared>,
    id: u64,
    woken: Arc<Notify>,
    /// Where the stream was opened; without a runtime, its memory is given back at once.
    runtime: Option<Handle>,
    /// Whether the stream's time has come.
    has_begun: watch::Sender<bool>,
    /// Whether it reads nothing before that.
    is_held_back: watch::Sender<bool>,
    has_retired: watch::Sender<bool>,
}

impl Quota {
    /// Bytes that the stream may hold now, or will once its time has come. A batch that is larger comes alone.
    pub fn bytes(&self) -> u64 {
        self.place.shared.ledger.lock().limit(self.place.id)
    }

    /// Bytes that the stream holds now.
    pub fn held_bytes(&self) -> u64 {
        self.place.shared.ledger.lock().held_by(self.place.id)
    }

    /// Room for a batch, if there is some now.
    pub fn try_reserve(&self, bytes: u64) -> Option<Held> {
        let answer = self.place.shared.ledger.lock().ask(self.place.id, Wanted { bytes, kept: 0 });
        (answer == Answer::Granted).then(|| self.hold(bytes))
    }

    /// Waits for room for a batch, until the consumer has taken all batches before it at the latest. One task of a stream may
    /// wait at a time. Cancelling the future loses nothing.
    pub async fn reserve(&self, bytes: u64) -> Held {
        loop {
            if let Some(held) = self.reserve_beside(bytes, 0).await {
                return held;
            }
        }
    }

    /// As [`Quota::reserve`], beside batches of `kept` bytes that cannot be delivered before this one: `None` as soon as the
    /// stream holds nothing else.
    pub async fn reserve_beside(&self, bytes: u64, kept: u64) -> Option<Held> {
        loop {
            let answer = self.place.shared.ledger.lock().ask_or_wait(self.place.id, Wanted { bytes, kept });
            match answer {
                Answer::Granted => return Some(self.hold(bytes)),
                Answer::OnlyKept => return None,
                Answer::Wait => self.place.woken.notified().await,
            }
        }
    }

    /// Whether a stream that is ahead of its time may hold so many bytes more: in its small part of the budget, or in place of streams
    /// before it. Then the pool must keep as much memory, of whatever sizes: to clear new memory takes longer than reading ahead saves.
    pub fn has_room_ahead(&self, bytes: u64) -> bool {
        let shared = &self.place.shared;
        let room = shared.ledger.lock().room_ahead(self.place.id);
        bytes <= room.early || bytes <= room.free.min(shared.pool.free_bytes() as u64)
    }

    /// Waits until [`Quota::has_room_ahead`]. One task of a stream may wait at a time. Cancelling the future loses nothing.
    pub async fn until_room_ahead(&self, bytes: u64) {
        let shared = &self.place.shared;
        loop {
            let mut returned = pin!(shared.pool.until_returned());
            returned.as_mut().enable();
            shared.ledger.lock().wait(self.place.id, Wanted { bytes, kept: 0 });
            if self.has_room_ahead(bytes) {
                return;
            }
            tokio::select! {
                () = returned => {}
                () = self.place.woken.notified() => {}
            }
        }
    }

    /// Says that the stream asks for nothing more: the others share what it does not hold.
    pub fn retire(&self) {
        self.place.shared.ledger.lock().retire(self.place.id);
        self.place.has_retired.send_replace(true);
    }

    /// Waits until the stream asks for nothing more. The future does not keep the quota.
    pub fn until_retired(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut has_retired = self.place.has_retired.subscribe();
        async move {
            // A quota that is gone asks for nothing.
            has_retired.wait_for(|has_retired| *has_retired).await.ok();
        }
    }

    /// Whether the stream asks for nothing more.
    pub fn is_retired(&self) -> bool {
        self.place.shared.ledger.lock().is_retired(self.place.id)
    }

    /// Says that the time of a stream has come that was opened ahead of it, and what it may hold at most from now on.
    pub fn begin(&self, cap_bytes: u64) {
        let mut ledger = self.place.shared.ledger.lock();
        ledger.begin(self.place.id, cap_bytes);
        self.place.shared.grow_pool(&ledger);
        drop(ledger);
        self.place.has_begun.send_replace(true);
    }

    /// Whether the stream's time has come.
    pub fn has_begun(&self) -> bool {
        *self.place.has_begun.borrow()
    }

    /// Waits until the stream's time has come.
    pub async fn until_begun(&self) {
        // The sender lives as long as this quota.
        self.place.has_begun.subscribe().wait_for(|has_begun| *has_begun).await.ok();
    }

    /// Says that the stream reads nothing before its time has come, and waits for that.
    pub async fn hold_back(&self) {
        self.place.is_held_back.send_replace(true);
        self.until_begun().await;
    }

    /// Waits until the stream says that it reads nothing before its time. The future does not keep the quota.
    pub fn until_held_back(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut is_held_back = self.place.is_held_back.subscribe();
        async move {
            if is_held_back.wait_for(|is_held_back| *is_held_back).await.is_err() {
                // A quota that is gone says nothing any more.
                std::future::pending().await
            }
        }
    }

    fn hold(&self, bytes: u64) -> Held {
        Held { place: self.place.clone(), bytes }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let shared = &self.shared;
        let mut ledger = shared.ledger.lock();
        ledger.leave(self.id);
        let num_ended = shared.num_ended.fetch_add(1, Ordering::Relaxed) + 1;
        match &self.runtime {
            Some(runtime) => {
                let later = Shared::fit_pool_later(Arc::downgrade(shared), num_ended, shared.memory_kept_for);
                drop(runtime.spawn(later));
            }
            None => shared.pool.resize(ledger.open_bytes()),
        }
    }
}

/// The room of one batch; others get it when this is dropped.
#[derive(Debug)]
pub struct Held {
    place: Arc<Place>,
    bytes: u64,
}

impl Held {
    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.place.shared.ledger.lock().give_back(self.place.id, self.bytes);
    }
}
