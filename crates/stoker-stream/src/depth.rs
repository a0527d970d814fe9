//! How far a stream reads ahead.
//!
//! What hides the latency of storage is its bandwidth times its latency, which is some tens of megabytes. More memory
//! costs time: the system clears each new page. So a stream begins with a depth that suits most stores, reads further
//! ahead only while its consumer waits for storage and that makes the stream faster, and goes back when nobody waits. The
//! next epoch of the same rank begins with what this one learned.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use stoker_types::{Moment, Topology, to_usize};

/// The number of units after which a decision is made.
const UNITS_PER_DECISION: u32 = 16;

/// The number of decisions without another try after a greater depth did not make the stream faster. It doubles with
/// each such try, up to the second number.
const PAUSE: u32 = 8;
const PAUSE_MAX: u32 = 128;

/// The part of a depth by which it is increased to try a greater one, as a divisor: little at first, because most streams
/// need no more than they begin with, and more after that made the stream faster.
const FIRST_STEP: u64 = 4;
const NEXT_STEP: u64 = 2;

/// The gain from which on a greater depth is kept, relative to the gain of a stream whose only limit is the latency,
/// which is that of the depth.
const GAIN_MIN: f64 = 0.75;

/// A greater depth is tried where the present one is less than this multiple of the rate times the latency. A store that
/// is asked for twice the bytes which it delivers within its latency is never idle.
const LATENCIES_MIN: f64 = 2.0;

/// How much of the highest rate is remembered with each decision.
const REMEMBERED: f64 = 0.95;

/// The number of bytes that a stream reads ahead.
#[derive(Clone, Debug)]
pub(crate) struct Depth {
    bytes: u64,
    /// The depth with which the stream began. It is reached again at once when the consumer waits.
    bytes_begun: u64,
    bytes_max: u64,
    /// The highest rate of the last decisions, in bytes per second.
    rate: f64,
    /// The greater depth that is being tried.
    trial: Option<Trial>,
    /// The number of decisions until a greater depth may be tried.
    pause: u32,
    next_pause: u32,
    /// The part by which the next depth that is tried is greater, as a divisor.
    step: u64,
    /// The bytes after which the next period begins: those that were requested before the last change of the depth.
    settling: u64,
    period: Period,
}

/// The depths of the streams of a plan, as they were last, by rank.
#[derive(Debug, Default)]
pub(crate) struct Depths(Mutex<HashMap<Topology, Depth>>);

/// The largest number of ranks whose depths are kept.
const RANKS_MAX: usize = 1_024;

/// A depth that is being tried.
#[derive(Clone, Copy, Debug)]
struct Trial {
    bytes_before: u64,
    /// The rate from which on the greater depth is kept, in bytes per second.
    rate_min: f64,
}

/// The units since the last decision.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    begun: Option<Moment>,
    num_units: u32,
    /// The number of units for which the consumer waited.
    num_late: u32,
    num_bytes: u64,
}

impl Depths {
    /// Returns the depth with which a stream of a rank begins: the rank's last one, if that had the limits of `first`, or
    /// else `first`.
    pub fn begin(&self, rank: Topology, first: Depth) -> Depth {
        let last = self.0.lock().get(&rank).cloned();
        let last = last.filter(|last| (last.bytes_begun, last.bytes_max) == (first.bytes_begun, first.bytes_max));
        last.map_or(first, Depth::begun_again)
    }

    /// Keeps the depth of a rank.
    pub fn keep(&self, rank: Topology, depth: &Depth) {
        let mut depths = self.0.lock();
        if depths.len() >= RANKS_MAX && !depths.contains_key(&rank) {
            depths.clear();
        }
        depths.insert(rank, depth.clone());
    }
}

impl Depth {
    /// Makes a depth of `bytes`, which never exceeds `bytes_max` and never falls below half of `bytes`.
    pub fn new(bytes: u64, bytes_max: u64) -> Self {
        let bytes = bytes.min(bytes_max);
        Self {
            bytes,
            bytes_begun: bytes,
            bytes_max,
            rate: 0.0,
            trial: None,
            pause: 0,
            next_pause: PAUSE,
            step: FIRST_STEP,
            // The memory of the first units is new, which makes them slower.
            settling: bytes.saturating_mul(2),
            period: Period::default(),
        }
    }

    /// Returns the depth with which another stream begins that reads the same rows: not a smaller one than the first, because
    /// a stream waits more at its beginning. A greater depth that is being tried is judged there.
    fn begun_again(self) -> Self {
        let bytes = self.bytes.max(self.bytes_begun);
        Self { bytes, settling: bytes, period: Period::default(), ..self }
    }

    /// Returns the number of bytes to read ahead.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many units to read at once, where a stream begins with `at_first`.
    pub fn units_at_once(&self, at_first: usize) -> usize {
        to_usize((at_first as u64).saturating_mul(self.bytes) / self.bytes_begun.max(1)).max(1)
    }

    /// Records that a unit of `num_bytes` was read, at `now`. `is_late` says whether the consumer waited for it, `latency`
    /// how long the store takes to its first byte, as far as that is known.
    pub fn read(&mut self, num_bytes: u64, is_late: bool, now: Moment, latency: Option<Duration>) {
        if self.settling > 0 {
            self.settling = self.settling.saturating_sub(num_bytes.max(1));
            self.period = Period::default();
            return;
        }
        let period = &mut self.period;
        let Some(begun) = period.begun else {
            // The period begins with the end of a unit, so that all of its units have the same neighbours.
            period.begun = Some(now);
            return;
        };
        period.num_units += 1;
        period.num_late += u32::from(is_late);
        period.num_bytes += num_bytes;
        if period.num_units < UNITS_PER_DECISION {
            return;
        }
        let rate = period.num_bytes as f64 / (now - begun).as_secs_f64().max(1e-9);
        let (num_late, num_units) = (period.num_late, period.num_units);
        self.period = Period { begun: Some(now), ..Period::default() };
        let hides_latency =
            latency.is_some_and(|latency| self.bytes as f64 >= LATENCIES_MIN * rate * latency.as_secs_f64());
        self.decide(rate, num_late, num_units, hides_latency);
    }

    /// Decides after a period. `hides_latency` says whether the depth is more than what hides the latency of the store.
    fn decide(&mut self, rate: f64, num_late: u32, num_units: u32, hides_latency: bool) {
        self.pause = self.pause.saturating_sub(1);
        let rate_before = self.rate;
        self.rate = rate.max(rate_before * REMEMBERED);
        if let Some(Trial { bytes_before, rate_min }) = self.trial.take() {
            if rate < rate_min {
                self.rate = rate_before;
                (self.pause, self.next_pause) = (self.next_pause, (self.next_pause * 2).min(PAUSE_MAX));
                self.step = FIRST_STEP;
                self.change(bytes_before);
                return;
            }
            (self.next_pause, self.step) = (PAUSE, NEXT_STEP);
        }
        if num_late == 0 {
            self.change((self.bytes - self.bytes / 8).max(self.bytes_begun / 2));
        } else if num_late * 2 > num_units && self.bytes < self.bytes_begun {
            self.change(self.bytes_begun);
        } else if num_late * 2 > num_units && self.pause == 0 && self.bytes < self.bytes_max && !hides_latency {
            let bytes_before = self.bytes;
            self.change(self.bytes.saturating_add(self.bytes / self.step).min(self.bytes_max));
            let gain = self.bytes as f64 / bytes_before as f64 - 1.0;
            self.trial = Some(Trial { bytes_before, rate_min: self.rate * (1.0 + gain * GAIN_MIN) });
        }
    }

    /// Changes the depth. The next decision is about units that were requested after that.
    fn change(&mut self, bytes: u64) {
        if self.bytes != bytes {
            self.settling = self.bytes.max(bytes);
            self.bytes = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A store that delivers at most `bandwidth` bytes per second, and `depth / latency` bytes per second.
    struct Store {
        bandwidth: f64,
        latency: f64,
        /// What the stream knows of the latency.
        told: Option<Duration>,
        now: Moment,
    }

    impl Store {
        fn new(bandwidth: f64, latency: f64) -> Self {
            Self { bandwidth, latency, told: None, now: Moment::START }
        }

        fn telling(self) -> Self {
            Self { told: Some(Duration::from_secs_f64(self.latency)), ..self }
        }

        /// Reads units of 8 MiB, which a consumer wants at `wanted` bytes per second.
        fn read(&mut self, depth: &mut Depth, num_units: u32, wanted: f64) {
            for _ in 0..num_units {
                let rate = self.bandwidth.min(depth.bytes() as f64 / self.latency);
                self.now += Duration::from_secs_f64(8.0 * MIB as f64 / rate.min(wanted));
                depth.read(8 * MIB, rate < wanted, self.now, self.told);
            }
        }
    }

    #[test]
    fn a_depth_grows_where_that_makes_the_stream_faster() {
        let mut depth = Depth::new(32 * MIB, 1_024 * MIB);
        let mut store = Store::new(2e9, 0.2);
        store.read(&mut depth, 1_000, 1e12);
        // 2 GB/s times 0.2 s are 400 MB.
        assert!((350 * MIB..800 * MIB).contains(&depth.bytes()), "{}", depth.bytes());
        // A consumer that waits for nothing needs little depth.
        store.read(&mut depth, 4_000, 5e7);
        assert_eq!((depth.bytes(), depth.units_at_once(8)), (16 * MIB, 4));
        // One that waits again gets back the depth with which the stream began.
        store.read(&mut depth, 24, 1e12);
        assert!((32 * MIB..=40 * MIB).contains(&depth.bytes()), "{}", depth.bytes());
    }

    #[test]
    fn a_depth_does_not_grow_where_the_bandwidth_is_the_limit() {
        let mut depth = Depth::new(96 * MIB, 1_024 * MIB);
        let mut store = Store::new(1e9, 0.02);
        for _ in 0..50 {
            store.read(&mut depth, 10, 1e12);
            assert!(depth.bytes() <= 120 * MIB, "{}", depth.bytes());
        }
        // 1 GB/s times 0.02 s are 20 MB, so a stream that knows the latency does not try.
        let (mut depth, mut store) = (Depth::new(96 * MIB, 1_024 * MIB), Store::new(1e9, 0.02).telling());
        for _ in 0..500 {
            store.read(&mut depth, 1, 1e12);
            assert_eq!(depth.bytes(), 96 * MIB);
        }
    }

    #[test]
    fn a_depth_grows_where_the_latency_is_known_to_be_long() {
        let mut depth = Depth::new(32 * MIB, 1_024 * MIB);
        Store::new(2e9, 0.2).telling().read(&mut depth, 1_000, 1e12);
        assert!((350 * MIB..1_000 * MIB).contains(&depth.bytes()), "{}", depth.bytes());
    }

    #[test]
    fn an_epoch_begins_with_the_depth_of_the_one_before() {
        let (depths, rank, first) = (Depths::default(), Topology::SINGLE, Depth::new(32 * MIB, 1_024 * MIB));
        let mut depth = depths.begin(rank, first.clone());
        assert_eq!(depth.bytes(), 32 * MIB);
        let mut store = Store::new(2e9, 0.2);
        for _ in 0..20 {
            // An epoch that is too short to find the depth alone.
            store.read(&mut depth, 60, 1e12);
            assert!(depth.bytes() > 32 * MIB);
            depths.keep(rank, &depth);
            let next = depths.begin(rank, first.clone());
            assert_eq!(next.bytes(), depth.bytes());
            depth = next;
        }
        assert!((300 * MIB..800 * MIB).contains(&depth.bytes()), "{}", depth.bytes());
        assert_eq!(depths.begin(rank, Depth::new(32 * MIB, 64 * MIB)).bytes(), 32 * MIB, "another limit");
        assert_eq!(depths.begin(Topology { rank: 1, world_size: 2 }, first).bytes(), 32 * MIB, "another rank");
    }

    #[test]
    fn a_depth_stays_within_its_limits() {
        let mut depth = Depth::new(64 * MIB, 16 * MIB);
        assert_eq!(depth.bytes(), 16 * MIB);
        Store::new(1e12, 1.0).read(&mut depth, 100, 1e12);
        assert_eq!(depth.bytes(), 16 * MIB);
    }
}
