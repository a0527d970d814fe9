//! Tests of clocks, of ticks and of random numbers.

use std::future::{pending, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use stoker_types::Moment;

use crate::{Clock, ManualClock, Pace, Random};

const SECOND: Duration = Duration::from_secs(1);

fn manual() -> (ManualClock, Clock) {
    let manual = ManualClock::new();
    let clock = Clock::from(&manual);
    (manual, clock)
}

/// Polls a future once.
fn is_done(future: Pin<&mut impl Future<Output = ()>>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
}

#[test]
fn a_manual_clock_moves_only_when_it_is_told_to() {
    let (manual, clock) = manual();
    let mut sleep = pin!(clock.sleep(SECOND));
    assert!(!is_done(sleep.as_mut()));
    assert_eq!((clock.now(), manual.num_sleepers()), (Moment::START, 1));
    manual.advance(SECOND - Duration::from_nanos(1));
    assert!(!is_done(sleep.as_mut()));
    manual.advance(Duration::from_nanos(1));
    assert!(is_done(sleep.as_mut()));
    assert_eq!((clock.since(Moment::START), manual.num_sleepers()), (SECOND, 0));
    let mut past = pin!(clock.sleep_until(Moment::START));
    assert!(is_done(past.as_mut()), "a moment that has passed");
}

#[test]
fn sleepers_wake_in_the_order_of_their_times() {
    let (manual, clock) = manual();
    let woken = Mutex::new(Vec::new());
    let sleeper = async |secs: u64| {
        clock.sleep(Duration::from_secs(secs)).await;
        woken.lock().push((secs, clock.since(Moment::START).as_secs()));
    };
    manual.run(join_all([3, 1, 2, 1].map(sleeper)));
    assert_eq!(woken.into_inner(), [(1, 1), (1, 1), (2, 2), (3, 3)]);
    assert!(!manual.advance_to_next());
}

#[test]
fn a_sleep_that_is_dropped_wakes_nobody() {
    let (manual, clock) = manual();
    {
        let mut sleep = pin!(clock.sleep(SECOND));
        assert!(!is_done(sleep.as_mut()));
    }
    assert_eq!(manual.num_sleepers(), 0);
}

#[test]
fn work_ends_at_its_deadline() {
    let (manual, clock) = manual();
    let deadline = clock.now() + 2 * SECOND;
    assert_eq!(manual.run(clock.timeout_at(deadline, pending::<()>())), None);
    assert_eq!(clock.now(), deadline);
    assert_eq!(manual.run(clock.timeout(Duration::ZERO, ready(7))), Some(7));
    // Work that is done when the time is over counts.
    let work = clock.sleep(SECOND);
    assert_eq!(manual.run(clock.timeout(SECOND, work)), Some(()));
    assert_eq!(manual.num_sleepers(), 0);
}

#[test]
fn ticks_keep_their_period_and_are_not_made_up_for() {
    let (manual, clock) = manual();
    let mut ticks = clock.ticks(SECOND);
    let mut next = |work| {
        manual.run(ticks.next());
        let ticked = clock.since(Moment::START);
        manual.advance(work);
        ticked
    };
    let millis = Duration::from_millis;
    assert_eq!([next(millis(300)), next(millis(1_004)), next(millis(2_500))], [millis(0), SECOND, millis(2_004)]);
    assert_eq!([next(millis(0)), next(millis(0))], [millis(4_504), millis(5_504)]);
}

#[test]
fn the_time_of_day_goes_with_the_clock_and_can_be_set() {
    let (manual, clock) = manual();
    manual.advance(SECOND);
    manual.set_unix_time(100 * SECOND);
    manual.advance(SECOND);
    assert_eq!((clock.unix_time(), clock.since(Moment::START)), (101 * SECOND, 2 * SECOND));
    manual.set_unix_time(SECOND);
    assert_eq!(clock.unix_time(), SECOND, "also to less than the clock has moved by");
}

#[tokio::test]
async fn clocks_of_the_machine_show_the_same_moments() {
    let (one, other) = (Clock::default(), Clock::default());
    let before = one.now();
    let between = other.now();
    one.sleep(Duration::from_millis(2)).await;
    let after = one.now();
    assert!(before <= between && between + Duration::from_millis(2) <= after, "{before:?}, {between:?}, {after:?}");
    assert_eq!(one.timeout(Duration::from_millis(1), pending::<()>()).await, None);
    assert_eq!(one.timeout(Duration::MAX, ready(7)).await, Some(7));
    assert!(one.unix_time() > 1_600_000_000 * SECOND, "later than 2020");
}

#[test]
fn given_numbers_come_in_turn_and_others_differ() {
    let given = Random::given([1, 2]);
    let other = given.clone();
    assert_eq!([given.number(), other.number(), given.number(), Random::given([]).number()], [1, 2, 1, 0]);
    assert_eq!(Random::given([0]).fraction(), 0.0);
    let largest = Random::given([u64::MAX]).fraction();
    assert!(largest < 1.0 && largest > 0.999_999, "{largest}");
    let machine = Random::default();
    assert_ne!(machine.number(), machine.number());
}

#[test]
fn bytes_pass_at_the_limit() {
    let (manual, clock) = manual();
    let mut pace = Pace::new(clock.clone(), Some(1_000));
    for half_secs in 1..=10 {
        {
            let mut passing = pin!(pace.pass(500));
            assert!(!is_done(passing.as_mut()));
            manual.advance(SECOND / 2);
            assert!(is_done(passing.as_mut()));
        }
        assert_eq!(clock.since(Moment::START), SECOND / 2 * half_secs);
    }
    // A pause of a minute allows no more than the bytes of a second at once.
    manual.advance(60 * SECOND);
    {
        let mut passing = pin!(pace.pass(3_000));
        assert!(!is_done(passing.as_mut()));
        manual.advance(2 * SECOND - Duration::from_nanos(1));
        assert!(!is_done(passing.as_mut()));
        manual.advance(Duration::from_nanos(1));
        assert!(is_done(passing.as_mut()));
    }
    assert_eq!(pace.bytes(), 8_000);
}

#[test]
fn without_a_limit_nothing_waits() {
    let (_, clock) = manual();
    let mut pace = Pace::new(clock, None);
    assert!(is_done(pin!(pace.pass(1 << 60)).as_mut()));
    assert_eq!(pace.bytes(), 1 << 60);
}
