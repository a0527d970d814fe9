//! How many GETs the scans of a process have under way: as many as their stores answer without making them wait.
//!
//! ```text
//! Requests ──turn──► Line ──► Turn      of the clients that wait, and of the scans of each, one GET each in rotation
//!  of a scan          ▲ limit  └──► Get ──► Pace      how long it took decides the next limit
//!                     └────────────────────────┘
//! ```

mod line;
mod pace;

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::{Clock, MachineClock};
use crate::request_limit::line::{Asked, Line, MemberId};
use crate::request_limit::pace::Pace;

pub(crate) use crate::request_limit::pace::Get;

/// How many GETs may be under way, for all scans that share it: from 4 to 512, which follows what their stores can do. Cheap to
/// clone; clones are the same limit.
///
/// A scan that has all of it lets others in as its GETs end: while several clients wait, each gets one turn after the other, however
/// many scans it has, and so does each scan of a client. The GETs of one scan begin in the order in which they were asked for.
/// Together they ask for at most 1 MiB for each GET of the limit, unless one asks for more.
#[derive(Clone, Debug)]
pub struct RequestLimit {
    shared: Arc<Shared>,
    /// Whose scans join.
    client: u64,
}

#[derive(Debug)]
struct Shared {
    /// Numbers clients, so that none can choose the number of another.
    client_hashes: RandomState,
    /// One for all scans: their times are compared.
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pace: Pace,
    line: Line,
}

impl State {
    /// Gives turns to those who may have them now.
    fn settle(&mut self) {
        self.line.admit(self.pace.limit());
        self.pace.saw(self.line.num_under_way(), self.line.num_waiting());
    }
}

impl Default for RequestLimit {
    /// 128 GETs, until there is something to learn from.
    fn default() -> Self {
        Self::with_clock(Arc::new(MachineClock::new()))
    }
}

impl RequestLimit {
    /// A limit with a clock from outside.
    pub(crate) fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let shared = Shared { client_hashes: RandomState::new(), clock, state: Mutex::default() };
        Self { shared: Arc::new(shared), client: 0 }
    }

    /// The same limit for the scans of one client, which has its turns beside those of other clients.
    #[must_use]
    pub fn for_client(&self, client: impl Hash) -> Self {
        Self { shared: self.shared.clone(), client: self.shared.client_hashes.hash_one(client) }
    }

    /// GETs that may be under way, rounds apart in which a quarter of them measures how long one takes without a load.
    pub fn num_requests(&self) -> usize {
        self.shared.state.lock().pace.settled()
    }

    /// The clock of all scans that share the limit.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// The part of one more scan, which never has more than so many GETs under way.
    pub(crate) fn join(&self, requests_max: usize) -> Requests {
        let id = self.shared.state.lock().line.join(self.client, requests_max.max(1));
        Requests { limit: self.clone(), id }
    }
}

/// A scan's part of a limit.
#[derive(Debug)]
pub(crate) struct Requests {
    limit: RequestLimit,
    id: MemberId,
}

impl Requests {
    /// Waits for the turn of a GET that asks for so many bytes. Cancelling the future loses nothing.
    pub async fn turn(&self, bytes: u64) -> Turn<'_> {
        let (turn, granted) = {
            let mut state = self.limit.shared.state.lock();
            let Asked { ticket, granted } = state.line.ask(self.id, bytes);
            state.settle();
            (Turn { requests: self, ticket, bytes }, granted)
        };
        // What grants it stays in the line until then, or until `turn` is dropped.
        granted.await.ok();
        turn
    }

    /// A turn, if there is one at once, beside the bytes that the scan asks for already.
    pub fn try_turn(&self) -> Option<Turn<'_>> {
        let mut state = self.limit.shared.state.lock();
        let limit = state.pace.limit();
        let ticket = state.line.try_ask(self.id, limit)?;
        state.settle();
        Some(Turn { requests: self, ticket, bytes: 0 })
    }

    /// Learns from a GET that came whole.
    pub fn came(&self, get: Get) {
        let mut state = self.limit.shared.state.lock();
        state.pace.came(get, self.limit.shared.clock.now());
        state.settle();
    }

    /// Learns that a store gets more requests than it takes.
    pub fn overloaded(&self) {
        let mut state = self.limit.shared.state.lock();
        state.pace.overloaded(self.limit.shared.clock.now());
        state.settle();
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.limit.shared.state.lock().line.leave(self.id);
    }
}

/// The turn of one GET; others get it when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    requests: &'a Requests,
    ticket: u64,
    bytes: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.requests.limit.shared.state.lock();
        state.line.end(self.requests.id, self.ticket, self.bytes);
        state.settle();
    }
}
