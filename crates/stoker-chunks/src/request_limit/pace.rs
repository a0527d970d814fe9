//! The limit that fits what GETs take.
//!
//! Little's law (Little, Operations Research 9(3), 1961): what is under way is the rate times the time that each takes. Up to a
//! store's bandwidth times its unloaded time more GETs bring more bytes; beyond it they only wait for each other. So the limit
//! follows the gradient of these times, as that of Netflix's concurrency-limits does (`Gradient2Limit`): after each round of GETs
//! it is multiplied by twice the unloaded time over the time that they took, by three quarters at least and one and a half at
//! most. It settles where GETs wait about as long as they would take alone, at twice what the bandwidth needs.
//!
//! That law forgets what unloaded is while a load lasts, as all samples are loaded ones. Here the unloaded time is therefore
//! measured, as BBR measures the round trip (Cardwell et al., ACM Queue 14(5), 2016): by a round with a quarter of the limit, half of
//! what the bandwidth needs where the limit is settled. It is due after a minute; and after rounds that took longer than is known
//! when none did not for ten seconds, when the limit has halved since, and when nothing was measured yet. So a store that becomes
//! slower for other reasons is told within a few rounds from one that has too much to do.
//!
//! All times are medians of rounds, for the unloaded time as well: single GETs, and tails, say nothing of the load, and unlike
//! quantiles of a store whose times spread differ without one.

use std::mem;
use std::time::Duration;

use crate::hedge::BODY_BYTES_MIN;

/// GETs at first, when nothing is known.
const START: f64 = 128.0;

/// Slow GETs alone bring the limit no further down: with so many, a store that is near is busy even when they are small.
const FLOOR: f64 = 32.0;

/// Each GET has a connection, and processes may often open 1,024 files only.
const CEILING: f64 = 512.0;

/// Stores that are overloaded bring the limit no further down.
const OVERLOADED_MIN: f64 = 4.0;

/// How long a store that was overloaded is left alone with the next limit: it is not halved again, and does not grow.
const OVERLOAD_PAUSE: Duration = Duration::from_secs(1);

/// Times the unloaded time that GETs may take.
const TOLERANCE: f64 = 2.0;

/// What a round multiplies the limit by at least; and after the unloaded time was measured.
const FACTOR_MIN: f64 = 0.75;
const FACTOR_MEASURED_MIN: f64 = 1.0 / PROBE_DIVISOR;

/// What a round multiplies the limit by at most.
const FACTOR_MAX: f64 = 1.5;

/// Rounds that take as much, in unloaded times, tell that the known time holds. Those that take less replace it.
const SAME_MIN: f64 = 0.8;
const SAME_MAX: f64 = 1.25;

/// How much of the difference a round adds to the known time that holds.
const SAME_SHARE: f64 = 0.125;

/// After so long the unloaded time is measured again, unless it was seen to hold.
const HOLDS_FOR: Duration = Duration::from_secs(10);

/// After so long it is measured again anyhow: a shorter latency hides behind a load.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// The part of the limit with which the unloaded time is measured.
const PROBE_DIVISOR: f64 = 4.0;

/// GETs of a round at least.
const ROUND_GETS_MIN: usize = 16;

/// Times below are none.
const SECS_MIN: f64 = 1e-6;

/// A GET that came whole: moments on the clock of the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Get {
    pub begun: Duration,
    pub first_byte: Duration,
    pub last_byte: Duration,
    pub bytes: u64,
}

/// The limit, and what it follows from.
#[derive(Debug)]
pub(super) struct Pace {
    limit: f64,
    round: Round,
    known: Option<Known>,
    /// While the unloaded time is measured, the round that made it doubtful.
    doubtful: Option<Round>,
    overloaded: Option<Duration>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { limit: START, round: Round::new(Duration::ZERO), known: None, doubtful: None, overloaded: None }
    }
}

impl Pace {
    /// GETs that may be under way now: fewer than is settled while the unloaded time is measured.
    pub fn limit(&self) -> usize {
        let probe = (self.limit / PROBE_DIVISOR).max(OVERLOADED_MIN);
        if self.doubtful.is_some() { probe as usize } else { self.settled() }
    }

    /// GETs that may be under way otherwise.
    pub fn settled(&self) -> usize {
        self.limit as usize
    }

    /// Notes how many GETs are under way, and how many wait for a turn.
    pub fn saw(&mut self, num_under_way: usize, num_waiting: usize) {
        self.round.under_way_max = self.round.under_way_max.max(num_under_way);
        self.round.has_waited |= num_waiting > 0;
    }

    /// Learns from a GET that came whole now. Those that began before the round saw another limit.
    pub fn came(&mut self, get: Get, now: Duration) {
        if get.begun < self.round.begun {
            return;
        }
        self.round.gets.push(get);
        if self.round.gets.len() >= self.round.under_way_max.min(self.limit()).max(ROUND_GETS_MIN) {
            self.end_round(now);
        }
    }

    /// Halves the limit for a store that gets more requests than it takes.
    pub fn overloaded(&mut self, now: Duration) {
        if self.is_paused(now) {
            return;
        }
        self.overloaded = Some(now);
        self.limit = (self.limit / 2.0).max(OVERLOADED_MIN);
        self.doubtful = None;
        self.round = Round::new(now);
    }

    fn is_paused(&self, now: Duration) -> bool {
        self.overloaded.is_some_and(|at| now.saturating_sub(at) < OVERLOAD_PAUSE)
    }

    fn end_round(&mut self, now: Duration) {
        let (limit, round) = (self.limit, mem::replace(&mut self.round, Round::new(now)));
        if let Some(doubtful) = self.doubtful.take() {
            let known = Known { times: round.times(), is_measured: true, since: now, held: now, limit };
            let factor = TOLERANCE / known.times.load_of(&doubtful).max(SECS_MIN);
            self.follow(&doubtful, factor.clamp(FACTOR_MEASURED_MIN, FACTOR_MAX), now);
            self.known = Some(known);
            return;
        }
        let first = || Known { times: round.times(), is_measured: false, since: now, held: now, limit };
        let known = self.known.get_or_insert_with(first);
        let load = known.times.load_of(&round);
        known.compare(&round, load, limit, now);
        if round.is_full(limit) && known.is_doubtful(load, limit, now) {
            self.doubtful = Some(round);
        } else {
            self.follow(&round, (TOLERANCE / load.max(SECS_MIN)).clamp(FACTOR_MIN, FACTOR_MAX), now);
        }
    }

    /// The next limit after a round. It grows only when GETs waited for it.
    fn follow(&mut self, round: &Round, factor: f64, now: Duration) {
        let target = self.limit * factor;
        if target > self.limit && round.has_waited && !self.is_paused(now) {
            self.limit = target.min(CEILING);
        } else if target < self.limit && round.is_full(self.limit) {
            self.limit = target.max(self.limit.min(FLOOR));
        }
    }
}

/// GETs that began under the same limit.
#[derive(Debug)]
struct Round {
    begun: Duration,
    gets: Vec<Get>,
    under_way_max: usize,
    /// Whether a GET waited for its turn.
    has_waited: bool,
}

impl Round {
    fn new(begun: Duration) -> Self {
        Self { begun, gets: Vec::new(), under_way_max: 0, has_waited: false }
    }

    /// Whether the limit mattered.
    fn is_full(&self, limit: f64) -> bool {
        self.has_waited || 2.0 * self.under_way_max as f64 >= limit
    }

    fn times(&self) -> Times {
        let to_first = self.gets.iter().map(|get| secs(get.begun, get.first_byte));
        let bodies = self.gets.iter().filter(|get| get.bytes >= BODY_BYTES_MIN);
        let per_byte = bodies.map(|get| secs(get.first_byte, get.last_byte) / get.bytes as f64);
        Times { to_first: median(to_first.collect()).unwrap_or_default(), per_byte: median(per_byte.collect()) }
    }
}

/// What GETs take, in seconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// To the first byte.
    to_first: f64,
    /// For each byte; `None` where all bodies were small.
    per_byte: Option<f64>,
}

impl Times {
    /// How often the GETs of a round took these times.
    fn load_of(&self, round: &Round) -> f64 {
        let expected = |get: &Get| self.to_first + self.per_byte.unwrap_or_default() * get.bytes as f64;
        let loads = round.gets.iter().map(|get| secs(get.begun, get.last_byte) / expected(get).max(SECS_MIN));
        median(loads.collect()).unwrap_or(1.0)
    }

    fn approach(&mut self, other: Self) {
        self.to_first += (other.to_first - self.to_first) * SAME_SHARE;
        self.per_byte = match (self.per_byte, other.per_byte) {
            (Some(known), Some(other)) => Some(known + (other - known) * SAME_SHARE),
            (known, other) => known.or(other),
        };
    }
}

/// What GETs take that do not wait for each other, as far as is known.
#[derive(Debug)]
struct Known {
    times: Times,
    /// Whether a round was made to find them; the first one may have been loaded.
    is_measured: bool,
    since: Duration,
    /// When they were last seen to hold, and the limit then.
    held: Duration,
    limit: f64,
}

impl Known {
    /// Compares the known times with a round that took so many of them.
    fn compare(&mut self, round: &Round, load: f64, limit: f64, now: Duration) {
        match load {
            _ if load < SAME_MIN => self.times = round.times(),
            _ if load <= SAME_MAX => self.times.approach(round.times()),
            _ => return,
        }
        (self.held, self.limit) = (now, limit);
    }

    /// Whether the times are to be measured after a round that took so many of them.
    fn is_doubtful(&self, load: f64, limit: f64, now: Duration) -> bool {
        let is_lost = now.saturating_sub(self.held) >= HOLDS_FOR || 2.0 * limit <= self.limit;
        now.saturating_sub(self.since) >= KNOWN_FOR || load > SAME_MAX && (is_lost || !self.is_measured)
    }
}

/// Seconds between two moments.
fn secs(from: Duration, to: Duration) -> f64 {
    to.saturating_sub(from).as_secs_f64()
}

/// `None` for no values.
fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}
