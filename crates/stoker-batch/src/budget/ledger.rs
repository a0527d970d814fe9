//! The accounts of a budget: how much memory each stream holds, and how much it may reserve.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::SharedMemory;

/// While streams share blocks, this many thirds of the budget are for shared blocks. Of a server's budget, that is as
/// much as two windows, because some ranks begin a window before others have finished the window before it, and some
/// reserve.
const SHARED_THIRDS: u64 = 2;

/// The number of bytes in a budget.
#[derive(Clone, Copy, Debug)]
pub(super) enum Total {
    /// A fixed number of bytes.
    Fixed(u64),
    /// This number of bytes, or the largest cap of a member if that is more.
    AtLeast(u64),
}

/// A request of a stream for memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// The bytes of the next batch.
    pub bytes: u64,
    /// The bytes of the stream's batches that cannot be delivered before that one.
    pub kept: u64,
}

/// The memory that a prefetching stream may reserve in addition to what it holds, in bytes.
pub(super) struct RoomAhead {
    /// The bytes that it may reserve whatever other streams do.
    pub early: u64,
    /// The bytes that it may reserve including the memory that the streams before it do not use any more.
    pub free: u64,
}

/// The memory that other streams leave to a prefetching stream.
enum Left {
    /// At most this number of bytes, beside the other streams.
    Beside(u64),
    /// The whole share of the other streams, less this number of bytes, which they still hold.
    TakeOver(u64),
}

/// The answer to a request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The memory is reserved.
    Granted,
    /// There is no memory, and the stream holds no batch that its consumer could take.
    OnlyKept,
    /// There is no memory at the moment.
    Wait,
}

/// A prefetching stream may hold this part of its depth, as a divisor, whatever the streams before it hold.
const EARLY_DIVISOR: u64 = 4;

/// The accounts of all streams of a budget.
#[derive(Debug)]
pub(super) struct Ledger {
    rule: Total,
    /// Bytes that are available to streams.
    total: u64,
    /// Bytes that are set aside for shared blocks.
    aside: u64,
    shared: Option<Arc<dyn SharedMemory>>,
    members: BTreeMap<u64, Member>,
    next_id: u64,
    /// Bytes that all members hold together.
    held: u64,
    /// Bytes that each member may hold, unless its cap is smaller.
    fair: u64,
}

#[derive(Debug)]
struct Member {
    cap: u64,
    /// The cap while the stream prefetches, unless the streams before it leave more. It is `None` once the stream has
    /// begun.
    early: Option<u64>,
    /// How many bytes the stream wants to read ahead at the moment.
    depth: u64,
    held: u64,
    /// Whether the stream may request more memory.
    reads: bool,
    /// The request that waits for memory.
    waits: Option<Demand>,
    woken: Arc<Notify>,
}

impl Ledger {
    pub fn new(rule: Total, shared: Option<Arc<dyn SharedMemory>>) -> Self {
        let members = BTreeMap::new();
        let mut ledger = Self { rule, total: 0, aside: 0, shared, members, next_id: 0, held: 0, fair: u64::MAX };
        ledger.divide();
        ledger
    }

    /// Adds a stream and returns its id. A prefetching stream has an `early` cap as well.
    pub fn join(&mut self, cap: u64, early: Option<u64>, woken: Arc<Notify>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.members.insert(id, Member { cap, early, depth: u64::MAX, held: 0, reads: true, waits: None, woken });
        self.divide();
        id
    }

    /// Records that a stream requests nothing more. The other streams share what it does not hold.
    pub fn retire(&mut self, id: u64) {
        if let Some(member) = self.members.get_mut(&id) {
            member.reads = false;
        }
        self.divide();
    }

    /// Returns whether a stream requests nothing more.
    pub fn is_retired(&self, id: u64) -> bool {
        self.members.get(&id).is_none_or(|member| !member.reads)
    }

    /// Records that a prefetching stream begins, with a new cap.
    pub fn begin(&mut self, id: u64, cap: u64) {
        if let Some(member) = self.members.get_mut(&id) {
            (member.cap, member.early) = (cap, None);
        }
        self.divide();
    }

    /// Sets how many bytes a stream wants to hold at the moment, within its share.
    pub fn set_depth(&mut self, id: u64, bytes: u64) {
        if let Some(member) = self.members.get_mut(&id).filter(|member| member.depth != bytes) {
            member.depth = bytes;
            self.wake();
        }
    }

    /// Removes a stream.
    pub fn leave(&mut self, id: u64) {
        if let Some(member) = self.members.remove(&id) {
            self.held -= member.held;
        }
        self.divide();
    }

    /// Reserves memory for a stream if it is available.
    pub fn ask(&mut self, id: u64, wanted: Demand) -> Answer {
        if self.sets_aside() != (self.aside > 0) {
            self.divide();
        }
        let answer = self.members.get(&id).map_or(Answer::Granted, |member| self.answer(id, member, wanted));
        if let (Answer::Granted, Some(member)) = (answer, self.members.get_mut(&id)) {
            member.held += wanted.bytes;
            self.held += wanted.bytes;
        }
        answer
    }

    /// Like [`Ledger::ask`], but grants nothing beyond the share of a stream that holds nothing.
    pub fn ask_within(&mut self, id: u64, bytes: u64) -> bool {
        let fits = self.members.get(&id).is_some_and(|member| self.fits(id, member, bytes));
        fits && self.ask(id, Demand { bytes, kept: 0 }) == Answer::Granted
    }

    /// Like [`Ledger::ask`]. If the answer is [`Answer::Wait`], the stream is woken when a retry may succeed.
    pub fn ask_or_wait(&mut self, id: u64, wanted: Demand) -> Answer {
        let answer = self.ask(id, wanted);
        if let Some(member) = self.members.get_mut(&id) {
            member.waits = (answer == Answer::Wait).then_some(wanted);
        }
        answer
    }

    /// Wakes the stream when this much memory may be available.
    pub fn wait(&mut self, id: u64, wanted: Demand) {
        if let Some(member) = self.members.get_mut(&id) {
            member.waits = Some(wanted);
        }
    }

    /// Releases memory that a stream holds.
    pub fn give_back(&mut self, id: u64, bytes: u64) {
        if let Some(member) = self.members.get_mut(&id) {
            member.held -= bytes;
            self.held -= bytes;
        }
        self.wake();
    }

    /// Returns the number of bytes that a stream may hold once it has begun.
    pub fn limit(&self, id: u64) -> u64 {
        self.members.get(&id).map_or(self.fair, |member| member.cap.min(member.depth)).min(self.fair)
    }

    /// Returns the number of bytes that a prefetching stream may reserve in addition to what it holds.
    pub fn room_ahead(&self, id: u64) -> RoomAhead {
        let Some(member) = self.members.get(&id) else { return RoomAhead { early: self.fair, free: self.fair } };
        let early = member.early.unwrap_or(member.cap).min(self.fair).saturating_sub(member.held);
        RoomAhead { early, free: self.room(id, member).saturating_sub(member.held) }
    }

    /// Returns whether the other members hold no more than this many bytes each, on average.
    pub fn do_others_hold_at_most(&self, id: u64, bytes: u64) -> bool {
        let others = (self.members.len() as u64).saturating_sub(1).max(1);
        self.held - self.held_by(id) <= bytes.saturating_mul(others)
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that one stream holds; 0 for one that left.
    pub fn held_by(&self, id: u64) -> u64 {
        self.members.get(&id).map_or(0, |member| member.held)
    }

    /// Bytes that the open streams may hold together, with what they share.
    pub fn open_bytes(&self) -> usize {
        // A prefetching stream may hold more than its early cap, but only in place of other streams.
        let cap = |member: &Member| member.early.unwrap_or(member.cap);
        let caps = self.members.values().fold(0, |sum: u64, member| sum.saturating_add(cap(member)));
        let aside = if self.members.is_empty() { 0 } else { self.aside };
        stoker_types::to_usize(caps.min(self.total).saturating_add(aside))
    }

    fn answer(&self, id: u64, member: &Member, wanted: Demand) -> Answer {
        if member.held == 0 || self.fits(id, member, wanted.bytes) {
            Answer::Granted
        } else if member.held <= wanted.kept {
            Answer::OnlyKept
        } else {
            Answer::Wait
        }
    }

    /// Returns whether a member may hold this many bytes more.
    fn fits(&self, id: u64, member: &Member, bytes: u64) -> bool {
        member.held.saturating_add(bytes) <= self.room(id, member) && self.held.saturating_add(bytes) <= self.total
    }

    /// Returns the largest number of bytes that a member may hold, including what the streams that it replaces still
    /// hold.
    fn cap(&self, id: u64, member: &Member) -> u64 {
        match self.left_before(id, member) {
            Left::Beside(early) => early,
            Left::TakeOver(_) => member.cap,
        }
    }

    /// Returns the largest number of bytes that a prefetching member may hold in place of other streams. All
    /// prefetching members together leave half of the total to streams that are opened after them and begin at once.
    fn place_max(&self, id: u64) -> u64 {
        let others = self.members.iter().filter(|(other, member)| **other != id && member.early.is_some());
        (self.total / 2).saturating_sub(others.map(|(_, member)| member.held).sum())
    }

    /// Returns the number of bytes that a member may hold at the moment.
    fn room(&self, id: u64, member: &Member) -> u64 {
        let Some(early) = member.early else { return member.cap.min(self.fair).min(member.depth) };
        match self.left_before(id, member) {
            Left::Beside(early) => early,
            // A stream that reads no further ahead than its depth does so together with those before it.
            Left::TakeOver(taken) => {
                let least = early.min(member.depth / EARLY_DIVISOR);
                member.cap.min(self.place_max(id)).min(member.depth).saturating_sub(taken).max(least)
            }
        }
        .min(self.fair)
        .min(member.depth)
    }

    /// Returns the memory that other streams leave to a member. A prefetching member takes the share of all streams
    /// that have begun, once all of them have read everything and as long as at least one of them is open.
    fn left_before(&self, id: u64, member: &Member) -> Left {
        let Some(early) = member.early else { return Left::TakeOver(0) };
        let mut before =
            self.members.iter().filter(|(other, member)| **other != id && member.early.is_none()).peekable();
        if before.peek().is_none() {
            return Left::Beside(early);
        }
        let taken =
            before.try_fold(0, |sum: u64, (_, member)| (!member.reads).then(|| sum.saturating_add(member.held)));
        taken.map_or(Left::Beside(early), Left::TakeOver)
    }

    /// Returns whether memory is set aside for shared blocks. Blocks that are kept for the next epoch of closed streams
    /// are evicted as soon as other streams are open.
    fn sets_aside(&self) -> bool {
        let Some(shared) = &self.shared else { return false };
        shared.are_wanted() && (shared.are_here() || self.members.is_empty())
    }

    /// Computes the shares of all members again.
    fn divide(&mut self) {
        self.total = match self.rule {
            Total::Fixed(bytes) => bytes,
            Total::AtLeast(bytes) => self.members.values().fold(bytes, |most, member| most.max(member.cap)),
        };
        self.aside = if self.sets_aside() { self.total / 3 * SHARED_THIRDS } else { 0 };
        self.total -= self.aside;
        if let Some(shared) = &self.shared {
            shared.resize(self.aside);
        }
        let reading = self.members.iter().filter(|(_, member)| member.reads);
        self.fair = fair_share(self.total, reading.map(|(id, member)| self.cap(*id, member)).collect());
        self.wake();
    }

    /// Wakes the streams whose requests can be answered now.
    fn wake(&mut self) {
        let is_ready = |(id, member): &(&u64, &Member)| {
            member.waits.is_some_and(|wanted| self.answer(**id, member, wanted) != Answer::Wait)
        };
        let ready: Vec<u64> = self.members.iter().filter(is_ready).map(|(id, _)| *id).collect();
        for id in ready {
            if let Some(member) = self.members.get_mut(&id) {
                member.waits = None;
                member.woken.notify_one();
            }
        }
    }
}

/// Returns how many bytes of a total each member may hold: equal parts, but none above its cap. Memory that small caps
/// leave goes to the other members.
fn fair_share(total: u64, mut caps: Vec<u64>) -> u64 {
    caps.sort_unstable();
    let mut left = total;
    for (index, cap) in caps.iter().enumerate() {
        let equal = left / (caps.len() - index) as u64;
        if *cap > equal {
            return equal;
        }
        left -= cap;
    }
    u64::MAX
}
