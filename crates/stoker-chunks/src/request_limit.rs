//! Limits the GETs in flight of all scans of a process to what their stores can answer without queueing them.
//!
//! ```text
//! Requests ──turn──► Line ──► Turn      a permit for one GET: clients take turns, and so do the scans of each client
//!  of a scan          ▲ limit  └──► Get ──► Pace      the GET's duration determines the next limit
//!                     └────────────────────────┘
//! ```

mod line;
mod pace;

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stoker_clock::Clock;

use crate::request_limit::line::{Asked, Line, MemberId};
use crate::request_limit::pace::Pace;

pub(crate) use crate::request_limit::pace::Get;

/// The maximum number of GETs in flight of all scans that share it: from 4 to 512, adapted to what their stores can
/// answer. Cheap to clone; clones are the same limit.
///
/// While several clients wait, each gets one permit after the other, however many scans it has, and so does each scan
/// of a client. A scan that holds all permits therefore gives way as its GETs end. The GETs of one scan begin in the
/// order of their requests for a permit. Together they read at most 1 MiB per GET of the limit, unless a single one
/// reads more.
#[derive(Clone, Debug)]
pub struct RequestLimit {
    shared: Arc<Shared>,
    /// The client of the scans that join through this value.
    client: u64,
}

#[derive(Debug)]
struct Shared {
    /// Hashes the names of clients, with random keys, so that no client can choose the number of another.
    client_hashes: RandomState,
    /// One clock for all scans, because their times are compared.
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pace: Pace,
    line: Line,
}

impl State {
    /// Gives permits to waiting GETs, as far as the limit allows.
    fn settle(&mut self) {
        self.line.admit(self.pace.limit());
        self.pace.saw(self.line.num_under_way(), self.line.num_waiting());
    }
}

impl Default for RequestLimit {
    /// Makes a limit that starts at 128 GETs.
    fn default() -> Self {
        Self::with_clock(Clock::default())
    }
}

impl RequestLimit {
    /// Like [`RequestLimit::default`], with another clock, which is that of all scans that share the limit.
    pub fn with_clock(clock: Clock) -> Self {
        let shared = Shared { client_hashes: RandomState::new(), clock, state: Mutex::default() };
        Self { shared: Arc::new(shared), client: 0 }
    }

    /// Returns the same limit for the scans of one client, which takes turns with other clients.
    #[must_use]
    pub fn for_client(&self, client: impl Hash) -> Self {
        Self { shared: self.shared.clone(), client: self.shared.client_hashes.hash_one(client) }
    }

    /// The maximum number of GETs in flight, apart from the rounds in which a quarter of them measures the time of a
    /// GET without load.
    pub fn num_requests(&self) -> usize {
        self.shared.state.lock().pace.settled()
    }

    /// The clock of all scans that share the limit.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Adds a scan, which never has more than `requests_max` GETs in flight.
    pub(crate) fn join(&self, requests_max: usize) -> Requests {
        let id = self.shared.state.lock().line.join(self.client, requests_max.max(1));
        Requests { limit: self.clone(), id }
    }
}

/// The share of one scan in a limit.
#[derive(Debug)]
pub(crate) struct Requests {
    limit: RequestLimit,
    id: MemberId,
}

impl Requests {
    /// The time from the begin of a GET to its first byte without load, or `None` before the first GETs are complete.
    pub fn latency(&self) -> Option<Duration> {
        self.limit.shared.state.lock().pace.latency()
    }

    /// Waits for the permit of a GET that reads `bytes` bytes. Cancelling the future gives the permit, or the place in
    /// the queue, back.
    pub async fn turn(&self, bytes: u64) -> Turn<'_> {
        let (turn, granted) = {
            let mut state = self.limit.shared.state.lock();
            let Asked { ticket, granted } = state.line.ask(self.id, bytes);
            state.settle();
            (Turn { requests: self, ticket, bytes }, granted)
        };
        // The sender remains in the line until it grants the permit, or until `turn` is dropped.
        granted.await.ok();
        turn
    }

    /// Returns a permit if one is available at once. It does not count towards the bytes of the scan.
    pub fn try_turn(&self) -> Option<Turn<'_>> {
        let mut state = self.limit.shared.state.lock();
        let limit = state.pace.limit();
        let ticket = state.line.try_ask(self.id, limit)?;
        state.settle();
        Some(Turn { requests: self, ticket, bytes: 0 })
    }

    /// Adapts the limit to a complete GET.
    pub fn came(&self, get: Get) {
        let mut state = self.limit.shared.state.lock();
        state.pace.came(get, self.limit.shared.clock.now());
        state.settle();
    }

    /// Lowers the limit for a store that gets too many requests.
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

/// The permit of one GET, which is released when it is dropped.
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
