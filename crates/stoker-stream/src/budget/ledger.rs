//! Who holds how much of a budget, and who may have more.

use std::collections::BTreeMap;
use std::sync::Arc;

use stoker_chunks::SharedReads;
use tokio::sync::Notify;

/// While streams share what they read, so many thirds of the bytes are for that: of a server's budget, as much as two windows have,
/// since some ranks begin one while others are not done with the one before, and some more.
const SHARED_THIRDS: u64 = 2;

/// The bytes of a budget.
#[derive(Clone, Copy, Debug)]
pub(super) enum Total {
    /// So many.
    Fixed(u64),
    /// So many, or as many as the largest cap of a member.
    AtLeast(u64),
}

/// What a stream asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Bytes of the next batch.
    pub bytes: u64,
    /// Bytes of batches that cannot be delivered before it.
    pub kept: u64,
}

/// What a stream may hold before its time.
pub(super) struct RoomAhead {
    /// Whatever others do.
    pub early: u64,
    /// With what streams before it have left.
    pub free: u64,
}

/// What streams leave to one that comes after them.
enum Left {
    /// So many bytes beside them.
    Beside(u64),
    /// Their place, but for so many bytes.
    Place(u64),
}

/// What it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The room.
    Granted,
    /// No room, and the stream holds nothing that its consumer could take.
    OnlyKept,
    /// No room yet.
    Wait,
}

/// Accounts of the streams of a budget.
#[derive(Debug)]
pub(super) struct Ledger {
    rule: Total,
    /// Bytes for streams.
    total: u64,
    /// Bytes for what streams share.
    aside: u64,
    shared: SharedReads,
    members: BTreeMap<u64, Member>,
    next_id: u64,
    /// Bytes that all members hold.
    held: u64,
    /// Bytes that a member may hold, unless its cap is smaller.
    fair: u64,
}

#[derive(Debug)]
struct Member {
    cap: u64,
    /// What it may hold while it is ahead of its time, unless streams before it leave more; `None` once its time has come.
    early: Option<u64>,
    held: u64,
    /// Whether it may ask for more.
    reads: bool,
    /// What it waits for.
    waits: Option<Wanted>,
    woken: Arc<Notify>,
}

impl Ledger {
    pub fn new(rule: Total, shared: SharedReads) -> Self {
        let members = BTreeMap::new();
        let mut ledger = Self { rule, total: 0, aside: 0, shared, members, next_id: 0, held: 0, fair: u64::MAX };
        ledger.divide();
        ledger
    }

    /// Takes a stream in; its id. One that is ahead of its time has an `early` cap as well.
    pub fn join(&mut self, cap: u64, early: Option<u64>, woken: Arc<Notify>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.members.insert(id, Member { cap, early, held: 0, reads: true, waits: None, woken });
        self.divide();
        id
    }

    /// Lets the others share what a stream does not hold.
    pub fn retire(&mut self, id: u64) {
        if let Some(member) = self.members.get_mut(&id) {
            member.reads = false;
        }
        self.divide();
    }

    /// Whether a stream asks for nothing more.
    pub fn is_retired(&self, id: u64) -> bool {
        self.members.get(&id).is_none_or(|member| !member.reads)
    }

    /// Says that the time of a stream has come, and what it may hold at most from now on.
    pub fn begin(&mut self, id: u64, cap: u64) {
        if let Some(member) = self.members.get_mut(&id) {
            (member.cap, member.early) = (cap, None);
        }
        self.divide();
    }

    /// Forgets a stream.
    pub fn leave(&mut self, id: u64) {
        if let Some(member) = self.members.remove(&id) {
            self.held -= member.held;
        }
        self.divide();
    }

    /// Gives a stream room if there is some.
    pub fn ask(&mut self, id: u64, wanted: Wanted) -> Answer {
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

    /// As [`Ledger::ask`]; wakes the stream when asking again may help.
    pub fn ask_or_wait(&mut self, id: u64, wanted: Wanted) -> Answer {
        let answer = self.ask(id, wanted);
        if let Some(member) = self.members.get_mut(&id) {
            member.waits = (answer == Answer::Wait).then_some(wanted);
        }
        answer
    }

    /// Wakes a stream when there may be room.
    pub fn wait(&mut self, id: u64, wanted: Wanted) {
        if let Some(member) = self.members.get_mut(&id) {
            member.waits = Some(wanted);
        }
    }

    /// Takes room back.
    pub fn give_back(&mut self, id: u64, bytes: u64) {
        if let Some(member) = self.members.get_mut(&id) {
            member.held -= bytes;
            self.held -= bytes;
        }
        self.wake();
    }

    /// Bytes that a stream may hold, once its time has come.
    pub fn limit(&self, id: u64) -> u64 {
        self.members.get(&id).map_or(self.fair, |member| member.cap).min(self.fair)
    }

    /// Bytes that a stream may hold beside what it holds, before its time.
    pub fn room_ahead(&self, id: u64) -> RoomAhead {
        let Some(member) = self.members.get(&id) else { return RoomAhead { early: self.fair, free: self.fair } };
        let early = member.early.unwrap_or(member.cap).min(self.fair).saturating_sub(member.held);
        RoomAhead { early, free: self.room(id, member).saturating_sub(member.held) }
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
        // One that is ahead of its time may hold more, but only in place of others.
        let cap = |member: &Member| member.early.unwrap_or(member.cap);
        let caps = self.members.values().fold(0, |sum: u64, member| sum.saturating_add(cap(member)));
        let aside = if self.members.is_empty() { 0 } else { self.aside };
        usize::try_from(caps.min(self.total).saturating_add(aside)).unwrap_or(usize::MAX)
    }

    fn answer(&self, id: u64, member: &Member, wanted: Wanted) -> Answer {
        let fits = member.held.saturating_add(wanted.bytes) <= self.room(id, member)
            && self.held.saturating_add(wanted.bytes) <= self.total;
        if member.held == 0 || fits {
            Answer::Granted
        } else if member.held <= wanted.kept {
            Answer::OnlyKept
        } else {
            Answer::Wait
        }
    }

    /// Bytes that a member may hold at most, with what those whose place it takes still hold.
    fn cap(&self, id: u64, member: &Member) -> u64 {
        match self.left_before(id, member) {
            Left::Beside(early) => early,
            Left::Place(_) => member.cap,
        }
    }

    /// Bytes that a member may hold at most in place of others, before its time: all such members together leave half of the total to
    /// streams that come after them, but whose time is now.
    fn place_max(&self, id: u64) -> u64 {
        let others = self.members.iter().filter(|(other, member)| **other != id && member.early.is_some());
        (self.total / 2).saturating_sub(others.map(|(_, member)| member.held).sum())
    }

    /// Bytes that a member may hold now.
    fn room(&self, id: u64, member: &Member) -> u64 {
        let Some(early) = member.early else { return member.cap.min(self.fair) };
        match self.left_before(id, member) {
            Left::Beside(early) => early,
            Left::Place(taken) => member.cap.min(self.place_max(id)).saturating_sub(taken).max(early),
        }
        .min(self.fair)
    }

    /// What other streams leave a member, if it is ahead of its time: once all of those whose time has come have read everything, and as
    /// long as one of them is there, it takes their place.
    fn left_before(&self, id: u64, member: &Member) -> Left {
        let Some(early) = member.early else { return Left::Place(0) };
        let mut before =
            self.members.iter().filter(|(other, member)| **other != id && member.early.is_none()).peekable();
        if before.peek().is_none() {
            return Left::Beside(early);
        }
        let taken =
            before.try_fold(0, |sum: u64, (_, member)| (!member.reads).then(|| sum.saturating_add(member.held)));
        taken.map_or(Left::Beside(early), Left::Place)
    }

    /// Whether bytes are set aside for what streams share. What is kept for the next epoch of streams that are gone gives way to others.
    fn sets_aside(&self) -> bool {
        self.shared.are_wanted() && (self.shared.are_here() || self.members.is_empty())
    }

    /// Finds the shares anew.
    fn divide(&mut self) {
        self.total = match self.rule {
            Total::Fixed(bytes) => bytes,
            Total::AtLeast(bytes) => self.members.values().fold(bytes, |most, member| most.max(member.cap)),
        };
        self.aside = if self.sets_aside() { self.total / 3 * SHARED_THIRDS } else { 0 };
        self.total -= self.aside;
        self.shared.resize(self.aside);
        let reading = self.members.iter().filter(|(_, member)| member.reads);
        self.fair = fair_share(self.total, reading.map(|(id, member)| self.cap(*id, member)).collect());
        self.wake();
    }

    /// Wakes those who wait for what they may have now.
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

/// What each may hold of a total: equal parts, but none above its cap, and what small caps leave goes to the others.
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
