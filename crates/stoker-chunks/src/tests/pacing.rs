//! Tests of the limit of GETs, with stores of known latency and bandwidth.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{FutureExt, join_all};
use futures::poll;
use parking_lot::Mutex;
use stoker_clock::{Clock, ManualClock};
use stoker_types::{ErrorKind, Moment};

use super::script::{Answer, REST, Step, Trial};
use crate::request_limit::{Get, RequestLimit, Requests, Turn};
use crate::{ChunkScanOptions, RetryPolicy};

const MIB: u64 = 1 << 20;

/// More GETs than the limit ever allows.
const MANY: usize = 600;

/// The average size of a GET in bytes.
const GET_BYTES: u64 = 600_000;

/// The number of parts in which a body arrives.
const PARTS: u32 = 4;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A store behind one link, which sends parts of bodies in the order in which they are ready.
struct Store {
    time: ManualClock,
    limit: RequestLimit,
    requests: Requests,
    latency: Mutex<Duration>,
    bytes_per_sec: f64,
    /// When the link has sent all parts so far.
    free: Mutex<Moment>,
    num_gets: AtomicU64,
    nanos: AtomicU64,
    bytes: AtomicU64,
}

impl Store {
    fn new(latency: Duration, bytes_per_sec: f64) -> Self {
        let time = ManualClock::new();
        let limit = RequestLimit::with_clock(Clock::from(&time));
        Self {
            requests: limit.join(MANY),
            time,
            limit,
            latency: Mutex::new(latency),
            bytes_per_sec,
            free: Mutex::default(),
            num_gets: AtomicU64::default(),
            nanos: AtomicU64::default(),
            bytes: AtomicU64::default(),
        }
    }

    fn clock(&self) -> Clock {
        Clock::from(&self.time)
    }

    /// Makes one GET of 0.5 to 1.5 times the average bytes, with a latency that varies by up to a fifth.
    async fn get(&self) {
        let number = self.num_gets.fetch_add(1, Ordering::Relaxed);
        let bytes = GET_BYTES / 2 + number * 7_919 % 101 * GET_BYTES / 100;
        let _turn = self.requests.turn(bytes).await;
        let begun = self.time.now();
        let latency = self.latency.lock().mul_f64(0.8 + (number * 6_151 % 41) as f64 / 100.0);
        self.clock().sleep(latency).await;
        let mut first_byte = None;
        for _ in 0..PARTS {
            self.send(bytes as f64 / f64::from(PARTS)).await;
            first_byte.get_or_insert(self.time.now());
        }
        let last_byte = self.time.now();
        self.nanos.fetch_add((last_byte - begun).as_nanos() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.requests.came(Get { begun, first_byte: first_byte.unwrap_or(last_byte), last_byte, bytes });
    }

    async fn send(&self, bytes: f64) {
        let now = self.time.now();
        let sent = {
            let mut free = self.free.lock();
            *free = now.max(*free) + Duration::from_secs_f64(bytes / self.bytes_per_sec);
            *free
        };
        self.clock().sleep(sent - now).await;
    }

    /// Runs readers that make one GET after the other for this long; `seen` gets the limit after each GET.
    fn demand(&self, readers: usize, length: Duration, seen: impl Fn(usize)) {
        let end = self.time.now() + length;
        let reader = async || {
            while self.time.now() < end {
                self.get().await;
                seen(self.limit.num_requests());
            }
        };
        self.time.run(join_all((0..readers).map(|_| reader())));
    }

    /// Runs readers as [`Store::demand`] does. Returns the mean duration of a GET in seconds, and the rate in bytes per
    /// second.
    fn measure(&self, readers: usize, length: Duration) -> (f64, f64) {
        let totals = || {
            let [nanos, bytes] = [&self.nanos, &self.bytes].map(|total| total.load(Ordering::Relaxed) as f64);
            (nanos / 1e9, bytes)
        };
        let (begun, before, gets) = (self.time.now(), totals(), AtomicU64::default());
        self.demand(readers, length, |_| {
            gets.fetch_add(1, Ordering::Relaxed);
        });
        let (after, elapsed) = (totals(), (self.time.now() - begun).as_secs_f64());
        ((after.0 - before.0) / gets.into_inner() as f64, (after.1 - before.1) / elapsed)
    }
}

#[test]
fn a_store_that_is_far_and_fast_gets_many() {
    // The store has a latency of 100 ms and a bandwidth of 25 Gbit/s.
    let store = Store::new(millis(100), 3.1e9);
    store.demand(MANY, secs(3), |_| {});
    assert!(store.limit.num_requests() >= 400, "{}", store.limit.num_requests());
}

#[test]
fn a_bandwidth_that_is_used_up_bounds_them_and_stays_used() {
    // 52 and 102 GETs in flight fill the bandwidth; the limit settles at about twice as many, below and above its
    // initial value.
    for bytes_per_sec in [3.1e8, 6.1e8] {
        let store = Store::new(millis(100), bytes_per_sec);
        store.demand(MANY, secs(15), |_| {});
        let (mean, rate) = store.measure(MANY, secs(20));
        let unloaded = 0.1 + GET_BYTES as f64 / bytes_per_sec;
        assert!(mean <= 3.0 * unloaded, "{mean} s, {} requests", store.limit.num_requests());
        assert!(rate >= 0.95 * bytes_per_sec, "{rate} B/s of {bytes_per_sec}");
    }
}

#[test]
fn a_slow_network_gets_few() {
    // The bandwidth is 100 Mbit/s.
    let store = Store::new(millis(20), 1.25e7);
    store.demand(MANY, secs(120), |_| {});
    assert!(store.limit.num_requests() <= 48, "{}", store.limit.num_requests());
    let (_, rate) = store.measure(MANY, secs(30));
    assert!(rate >= 0.95 * 1.25e7, "{rate} B/s");
}

#[test]
fn what_nobody_waits_for_does_not_grow() {
    let store = Store::new(millis(20), 1e12);
    for readers in [1, 8, 128] {
        store.demand(readers, secs(3), |limit| assert_eq!(limit, 128));
    }
    store.demand(200, secs(3), |_| {});
    assert!((200..=300).contains(&store.limit.num_requests()), "{}", store.limit.num_requests());
}

#[test]
fn another_latency_is_learnt() {
    let store = Store::new(millis(20), 2e10);
    store.demand(MANY, millis(500), |_| {});
    assert!(store.limit.num_requests() >= 400, "{}", store.limit.num_requests());
    for latency in [100, 10] {
        *store.latency.lock() = millis(latency);
        store.demand(MANY, secs(4), |_| {});
        let (_, rate) = store.measure(MANY, millis(500));
        assert!(store.limit.num_requests() >= 400, "{latency} ms: {}", store.limit.num_requests());
        let alone = 400.0 * GET_BYTES as f64 / (latency as f64 / 1e3);
        assert!(rate >= alone.min(2e10) * 0.8, "{latency} ms: {rate} B/s");
    }
}

#[test]
fn a_latency_that_shrinks_behind_a_load_is_found() {
    // At first 500 GETs in flight fill the bandwidth, and then 17.
    let store = Store::new(millis(300), 1e9);
    store.demand(MANY, secs(5), |_| {});
    assert!(store.limit.num_requests() >= 400, "{}", store.limit.num_requests());
    *store.latency.lock() = millis(10);
    store.demand(MANY, secs(75), |_| {});
    assert!(store.limit.num_requests() <= 100, "{}", store.limit.num_requests());
}

#[test]
fn stores_that_refuse_get_half_as_many_once_a_second() {
    let store = Store::new(millis(20), 1e12);
    let pass = |length| store.time.run(store.clock().sleep(length));
    for expected in [64, 32, 16, 8, 4, 4] {
        (0..10).for_each(|_| store.requests.overloaded());
        assert_eq!(store.limit.num_requests(), expected);
        pass(millis(999));
        store.requests.overloaded();
        assert_eq!(store.limit.num_requests(), expected);
        pass(millis(1));
    }
    // The limit grows again step by step.
    let last = Mutex::new(4);
    store.demand(MANY, secs(10), |limit| {
        let last = std::mem::replace(&mut *last.lock(), limit);
        assert!(limit * 2 <= (last + 1) * 3, "{last}, then {limit}");
    });
    assert!(store.limit.num_requests() >= 128, "{}", store.limit.num_requests());
}

#[test]
fn refusals_and_silence_count_and_broken_bodies_do_not() {
    let check = |answer: Answer, expected: usize| {
        let options = ChunkScanOptions { hedge: false, ..ChunkScanOptions::default() };
        let trial = Trial::new(options, vec![answer.clone(), Answer::Body(vec![REST])]);
        trial.time.run(trial.read()).expect("a read");
        assert_eq!(trial.num_requests(), expected, "{answer:?}");
    };
    check(Answer::Refused(ErrorKind::Unavailable), 64);
    check(Answer::Body(vec![Step::Bytes(100), Step::Hang]), 64);
    check(Answer::Body(vec![Step::Bytes(100), Step::Fail(ErrorKind::Unavailable)]), 128);
    check(Answer::Body(vec![REST]), 128);
}

#[test]
fn reads_give_their_turns_back_however_they_end() {
    let once = RetryPolicy { budget: Duration::ZERO, ..RetryPolicy::default() };
    let options = ChunkScanOptions { remote_requests_max: 1, retry: once, ..ChunkScanOptions::default() };
    let hangs = Answer::Body(vec![Step::Bytes(10), Step::Hang]);
    let trial = Trial::new(options, vec![hangs, Answer::Refused(ErrorKind::PermissionDenied)]);
    trial.time.run(async {
        {
            let mut cancelled = pin!(trial.read());
            let mut waiting = pin!(trial.read());
            assert!(poll!(cancelled.as_mut()).is_pending() && poll!(waiting.as_mut()).is_pending());
        }
        trial.read().await.expect_err("a refusal");
        trial.read().await.expect("a read");
    });
    assert_eq!(trial.ranges().len(), 3);
}

fn joined(requests_max: usize) -> (RequestLimit, Requests) {
    let limit = RequestLimit::with_clock(Clock::from(&ManualClock::new()));
    let requests = limit.join(requests_max);
    (limit, requests)
}

/// Takes `count` permits, which must be available.
fn turns(requests: &Requests, count: usize) -> Vec<Turn<'_>> {
    (0..count).map(|_| requests.turn(1).now_or_never().expect("a turn")).collect()
}

#[test]
fn cancelled_turns_are_given_to_others() {
    let (_, requests) = joined(2);
    let mut held = turns(&requests, 2);
    let mut first = Box::pin(requests.turn(1));
    let mut second = Box::pin(requests.turn(1));
    let mut third = Box::pin(requests.turn(1));
    for turn in [&mut first, &mut second, &mut third] {
        assert!(turn.as_mut().now_or_never().is_none());
    }
    // One waiter is cancelled while it waits, another after it got its permit but before it was polled.
    drop(first);
    held.pop();
    drop(second);
    let third = third.now_or_never().expect("the turn of the second");
    assert!(requests.turn(1).now_or_never().is_none(), "two are under way");
    drop((third, held));
    turns(&requests, 2);
}

#[test]
fn a_limit_below_what_is_under_way_lets_it_end() {
    let (limit, requests) = joined(MANY);
    let mut held = turns(&requests, 128);
    requests.overloaded();
    assert_eq!(limit.num_requests(), 64);
    let mut next = pin!(requests.turn(1));
    held.truncate(64);
    assert!(next.as_mut().now_or_never().is_none(), "64 are under way");
    assert!(requests.try_turn().is_none());
    held.truncate(63);
    let next = next.now_or_never().expect("the last of 64");
    assert!(requests.turn(1).now_or_never().is_none());
    drop((next, held));
    assert_eq!(turns(&requests, 64).len(), 64);
}

#[test]
fn scans_that_wait_take_turns() {
    let (limit, first) = joined(MANY);
    let second = limit.join(MANY);
    let mut held = turns(&first, 128);
    let mut greedy: Vec<_> = (0..1_000).map(|_| Box::pin(first.turn(1))).collect();
    assert!(greedy.iter_mut().all(|turn| turn.now_or_never().is_none()));
    let mut modest: Vec<_> = (0..2).map(|_| Box::pin(second.turn(1))).collect();
    assert!(modest.iter_mut().all(|turn| turn.now_or_never().is_none()));
    // Of four permits, each scan gets two, in the order of its requests.
    held.truncate(124);
    let modest: Vec<_> = modest.into_iter().filter_map(|turn| turn.now_or_never()).collect();
    assert_eq!(modest.len(), 2);
    let got = greedy.into_iter().map(|turn| turn.now_or_never());
    let got: Vec<_> = got.enumerate().filter_map(|(at, turn)| Some((at, turn?))).collect();
    assert_eq!(got.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn clients_that_wait_take_turns_however_many_scans_they_have() {
    let (limit, _) = joined(MANY);
    let (one, other) = (limit.for_client("one"), limit.for_client("other"));
    let many: Vec<Requests> = (0..100).map(|_| one.join(MANY)).collect();
    let [first, second] = [other.join(MANY), other.join(MANY)];
    let mut held = turns(&many[0], 128);
    let mut greedy: Vec<_> = many.iter().map(|scan| Box::pin(scan.turn(1))).collect();
    assert!(greedy.iter_mut().all(|turn| turn.now_or_never().is_none()));
    let asked = [&first, &first, &second, &second].map(|scan| Box::pin(scan.turn(1)));
    let mut modest: Vec<_> = asked.into_iter().collect();
    assert!(modest.iter_mut().all(|turn| turn.now_or_never().is_none()));
    // Of four permits, the client with two scans gets two, one for each scan.
    held.truncate(124);
    let got = modest.iter_mut().enumerate().filter_map(|(at, turn)| Some((at, turn.now_or_never()?)));
    // The permits are held, because a dropped permit goes to the next waiter.
    let modest: Vec<_> = got.collect();
    assert_eq!(modest.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 2]);
    let greedy: Vec<_> = greedy.into_iter().filter_map(|turn| turn.now_or_never()).collect();
    assert_eq!(greedy.len(), 2);
}

#[test]
fn bytes_are_bounded_with_the_requests() {
    let (_, requests) = joined(MANY);
    let at_once = |bytes: u64| {
        let mut held = Vec::new();
        while let Some(turn) = requests.turn(bytes).now_or_never() {
            held.push(turn);
        }
        held.len()
    };
    assert_eq!([at_once(8 * MIB), at_once(200 * MIB), at_once(1)], [16, 1, 128]);
    requests.overloaded();
    assert_eq!([at_once(8 * MIB), at_once(200 * MIB), at_once(1)], [8, 1, 64]);
}
