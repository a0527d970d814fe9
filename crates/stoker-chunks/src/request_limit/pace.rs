//! Adapts the limit to the durations of GETs.
//!
//! By Little's law (Little, Operations Research 9(3), 1961), the number of GETs in flight is their rate times the
//! duration of each. Up to the store's bandwidth times its unloaded duration, more GETs in flight bring more bytes;
//! beyond that, GETs only wait for each other. So the limit follows the gradient of these durations, like that of
//! Netflix's concurrency-limits (`Gradient2Limit`): after each round of GETs the limit is multiplied by twice the
//! unloaded duration over the measured duration, by at least 0.75 and at most 1.5. It settles where GETs wait about as
//! long as they would take without load, at twice what the bandwidth needs.
//!
//! `Gradient2Limit` loses the unloaded duration while a load lasts, because all of its samples are loaded. Here the
//! unloaded duration is therefore measured, as BBR measures the round trip (Cardwell et al., ACM Queue 14(5), 2016), by
//! a round with a quarter of the limit: half of what the bandwidth needs if the limit has settled. A measurement is due
//! after a minute. It is also due after a round that took longer than known, if no round confirmed the known duration
//! for ten seconds, if the limit has halved since, or if nothing was measured yet. So a store that became slower for
//! other reasons is distinguished from an overloaded store within a few rounds.
//!
//! All durations are medians of rounds, the unloaded duration too. Single GETs and tails say nothing about the load: if
//! a store's durations vary, its quantiles differ from each other even without load.

use std::mem;
use std::time::Duration;

use stoker_types::Moment;

use crate::hedge::BODY_BYTES_MIN;

/// The initial limit.
const START: f64 = 128.0;

/// Slow GETs alone do not lower the limit further: this many GETs are needed to keep even a near store busy if they are
/// small.
const FLOOR: f64 = 32.0;

/// The maximum limit: each GET has a connection, and a process may often open only 1,024 files.
const CEILING: f64 = 512.0;

/// Overloaded stores do not lower the limit further.
const OVERLOADED_MIN: f64 = 4.0;

/// How long the limit is neither halved again nor raised after a store was overloaded.
const OVERLOAD_PAUSE: Duration = Duration::from_secs(1);

/// How many times the unloaded duration GETs may take.
const TOLERANCE: f64 = 2.0;

/// The minimum factor by which a round multiplies the limit; and that after a measurement of the unloaded duration.
const FACTOR_MIN: f64 = 0.75;
const FACTOR_MEASURED_MIN: f64 = 1.0 / PROBE_DIVISOR;

/// The maximum factor by which a round multiplies the limit.
const FACTOR_MAX: f64 = 1.5;

/// A round whose duration, relative to the known one, is in this range confirms the known duration. A shorter one
/// replaces it.
const SAME_MIN: f64 = 0.8;
const SAME_MAX: f64 = 1.25;

/// The share of the difference by which a confirming round changes the known duration.
const SAME_SHARE: f64 = 0.125;

/// After this time without a confirmation, the unloaded duration is measured again.
const HOLDS_FOR: Duration = Duration::from_secs(10);

/// After this time the unloaded duration is always measured again, because a load can hide that it became shorter.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// The divisor of the limit in a round that measures the unloaded duration.
const PROBE_DIVISOR: f64 = 4.0;

/// The minimum number of GETs in a round.
const ROUND_GETS_MIN: usize = 16;

/// Shorter durations, in seconds, count as this one, so that no divisor is zero.
const SECS_MIN: f64 = 1e-6;

/// The times of a complete GET, on the clock of the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Get {
    pub begun: Moment,
    pub first_byte: Moment,
    pub last_byte: Moment,
    pub bytes: u64,
}

/// The limit, and the state from which it is computed.
#[derive(Debug)]
pub(super) struct Pace {
    limit: f64,
    round: Round,
    known: Option<Known>,
    /// While the unloaded duration is measured: the round that made the known one doubtful.
    doubtful: Option<Round>,
    overloaded: Option<Moment>,
}

#[expect(clippy::cast_possible_truncation, reason = "casts of numbers with fractions saturate")]
fn whole(limit: f64) -> usize {
    limit as usize
}

impl Default for Pace {
    fn default() -> Self {
        Self { limit: START, round: Round::new(Moment::START), known: None, doubtful: None, overloaded: None }
    }
}

impl Pace {
    /// The maximum number of GETs in flight now; less than the settled limit while the unloaded duration is measured.
    pub fn limit(&self) -> usize {
        let probe = (self.limit / PROBE_DIVISOR).max(OVERLOADED_MIN);
        if self.doubtful.is_some() { whole(probe) } else { self.settled() }
    }

    /// The maximum number of GETs in flight apart from measurements.
    pub fn settled(&self) -> usize {
        whole(self.limit)
    }

    /// The time from the begin of a GET to its first byte without load, as far as it is known.
    pub fn latency(&self) -> Option<Duration> {
        let known = self.known.as_ref()?;
        Duration::try_from_secs_f64(known.times.to_first).ok()
    }

    /// Records how many GETs are in flight, and how many wait for a permit.
    pub fn saw(&mut self, num_under_way: usize, num_waiting: usize) {
        self.round.under_way_max = self.round.under_way_max.max(num_under_way);
        self.round.has_waited |= num_waiting > 0;
    }

    /// Adds a GET that just completed. GETs that began before the round are ignored, because they saw another limit.
    pub fn came(&mut self, get: Get, now: Moment) {
        if get.begun < self.round.begun {
            return;
        }
        self.round.gets.push(get);
        if self.round.gets.len() >= self.round.under_way_max.min(self.limit()).max(ROUND_GETS_MIN) {
            self.end_round(now);
        }
    }

    /// Halves the limit for a store that gets too many requests.
    pub fn overloaded(&mut self, now: Moment) {
        if self.is_paused(now) {
            return;
        }
        self.overloaded = Some(now);
        self.limit = (self.limit / 2.0).max(OVERLOADED_MIN);
        self.doubtful = None;
        self.round = Round::new(now);
    }

    fn is_paused(&self, now: Moment) -> bool {
        self.overloaded.is_some_and(|at| now - at < OVERLOAD_PAUSE)
    }

    fn end_round(&mut self, now: Moment) {
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

    /// Sets the limit after a round. It grows only if GETs waited for permits.
    fn follow(&mut self, round: &Round, factor: f64, now: Moment) {
        let target = self.limit * factor;
        if target > self.limit && round.has_waited && !self.is_paused(now) {
            self.limit = target.min(CEILING);
        } else if target < self.limit && round.is_full(self.limit) {
            self.limit = target.max(self.limit.min(FLOOR));
        }
    }
}

/// The GETs that began under the same limit.
#[derive(Debug)]
struct Round {
    begun: Moment,
    gets: Vec<Get>,
    under_way_max: usize,
    /// Whether a GET waited for a permit.
    has_waited: bool,
}

impl Round {
    fn new(begun: Moment) -> Self {
        Self { begun, gets: Vec::new(), under_way_max: 0, has_waited: false }
    }

    /// Returns whether the limit restricted the round, or nearly did.
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

/// The durations of GETs, in seconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// The time to the first byte.
    to_first: f64,
    /// The time per byte of the body; `None` if all bodies were small.
    per_byte: Option<f64>,
}

impl Times {
    /// Returns the durations of a round's GETs as a multiple of these.
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

/// The durations of GETs without load, as far as they are known.
#[derive(Debug)]
struct Known {
    times: Times,
    /// Whether a measurement found them; the first round may have been loaded.
    is_measured: bool,
    since: Moment,
    /// When a round last confirmed them, and the limit at that time.
    held: Moment,
    limit: f64,
}

impl Known {
    /// Updates the known durations by a round that took `load` times as long.
    fn compare(&mut self, round: &Round, load: f64, limit: f64, now: Moment) {
        match load {
            _ if load < SAME_MIN => self.times = round.times(),
            _ if load <= SAME_MAX => self.times.approach(round.times()),
            _ => return,
        }
        (self.held, self.limit) = (now, limit);
    }

    /// Returns whether the durations must be measured again after a round that took `load` times as long.
    fn is_doubtful(&self, load: f64, limit: f64, now: Moment) -> bool {
        let is_lost = now - self.held >= HOLDS_FOR || 2.0 * limit <= self.limit;
        now - self.since >= KNOWN_FOR || load > SAME_MAX && (is_lost || !self.is_measured)
    }
}

/// Returns the seconds between two moments.
fn secs(from: Moment, to: Moment) -> f64 {
    (to - from).as_secs_f64()
}

/// Returns the median; `None` if there are no values.
fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}
