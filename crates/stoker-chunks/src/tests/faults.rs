//! Tests of reads whose requests fail.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use stoker_clock::{Clock, ManualClock};
use stoker_types::{ErrorKind, Moment};

use super::script::{Answer, RANGE, REFUSAL, REST, Step, Trial};
use crate::{ChunkScanOptions, Error, Fault, RetryPolicy, with_retries};

const BUSY: Answer = Answer::Refused(ErrorKind::Unavailable);

const BREAK: Step = Step::Fail(ErrorKind::Unavailable);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn without_hedges(retry: RetryPolicy) -> ChunkScanOptions {
    ChunkScanOptions { retry, hedge: false, ..ChunkScanOptions::default() }
}

/// Makes a read that must succeed although the first GETs get these answers. Returns when it was done.
fn check(answers: Vec<Answer>) -> (Trial, Duration) {
    let trial = Trial::new(without_hedges(RetryPolicy::default()), answers);
    let done = trial.time.run(trial.read()).expect("a read");
    assert_eq!(trial.bytes_sent(), RANGE.end - RANGE.start, "each byte once");
    (trial, done)
}

/// Makes a read that must fail.
fn check_failure(retry: RetryPolicy, answers: Vec<Answer>) -> (Trial, Error) {
    let trial = Trial::new(without_hedges(retry), answers);
    let error = trial.time.run(trial.read()).expect_err("a failure");
    (trial, error)
}

#[test]
fn cut_bodies_go_on_where_they_broke() {
    let (trial, _) = check(vec![
        Answer::Body(vec![Step::Bytes(1_234)]),
        Answer::Body(vec![Step::Bytes(1), BREAK]),
        BUSY,
        Answer::Body(vec![]),
    ]);
    assert_eq!(trial.ranges(), [1_000..4_900, 2_234..4_900, 2_235..4_900, 2_235..4_900, 2_235..4_900]);
    assert_eq!(trial.totals().retries, 4);
}

#[test]
fn stalled_bodies_are_given_up() {
    for before in [0, 500] {
        let (trial, done) = check(vec![Answer::Body(vec![Step::Bytes(before), Step::Hang])]);
        assert_eq!(trial.ranges(), [RANGE, RANGE.start + before..RANGE.end]);
        // The read takes the stall timeout and the first wait.
        assert!((5_100..=5_150).contains(&done.as_millis()), "{done:?}");
    }
}

#[test]
fn slow_bodies_are_not_given_up() {
    let slow = [Step::Bytes(100), Step::Wait(Duration::from_millis(4_900))].repeat(39);
    let (trial, done) = check(vec![Answer::Body(slow)]);
    assert_eq!(trial.totals().retries, 0);
    assert_eq!(done, Duration::from_millis(38 * 4_900));
}

#[test]
fn the_last_byte_ends_a_read() {
    let (_, done) = check(vec![Answer::Body(vec![REST, Step::Hang])]);
    assert_eq!(done, Duration::ZERO);
}

#[test]
fn faults_that_go_on_end_with_the_budget() {
    let (trial, error) = check_failure(RetryPolicy::default(), vec![BUSY; 200]);
    assert_eq!(trial.elapsed(), secs(120));
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let attempts = trial.ranges().len();
    assert!((20..50).contains(&attempts), "{attempts}");
    let what = "reading bytes 1000..4900 of data file x of table t@1";
    assert_eq!(error.to_string(), format!("{what} failed {attempts} times in 120 s, last: {REFUSAL}"));
}

#[test]
fn progress_renews_the_budget() {
    let retry = RetryPolicy { budget: secs(10), ..RetryPolicy::default() };
    let answers = vec![Answer::Body(vec![Step::Bytes(50), Step::Wait(secs(4)), BREAK]); 40];
    let trial = Trial::new(without_hedges(retry), answers);
    let done = trial.time.run(trial.read()).expect("a read");
    assert!(done > secs(160), "{done:?}");
    let (trial, error) = check_failure(retry, vec![Answer::Body(vec![Step::Wait(secs(4)), BREAK]); 40]);
    assert!((secs(10)..secs(16)).contains(&trial.elapsed()), "{:?}", trial.elapsed());
    assert!(error.to_string().ends_with("last: connection reset"), "{error}");
}

#[test]
fn attempts_are_bounded() {
    let retry = RetryPolicy { attempts_max: 3, ..RetryPolicy::default() };
    for answer in [BUSY, Answer::Body(vec![Step::Bytes(1)])] {
        let (trial, error) = check_failure(retry, vec![answer; 5]);
        assert_eq!(trial.ranges().len(), 3);
        assert!(error.to_string().contains("failed 3 times"), "{error}");
    }
    let once = RetryPolicy { budget: Duration::ZERO, ..RetryPolicy::default() };
    let (trial, error) = check_failure(once, vec![BUSY; 5]);
    assert_eq!(trial.ranges().len(), 1);
    assert!(error.to_string().ends_with(&format!("table t@1: {REFUSAL}")), "{error}");
}

#[test]
fn permanent_errors_are_not_retried() {
    for kind in ErrorKind::ALL.into_iter().filter(|kind| !kind.is_transient()) {
        for answer in [Answer::Refused(kind), Answer::Body(vec![Step::Bytes(100), Step::Fail(kind)])] {
            let (trial, error) = check_failure(RetryPolicy::default(), vec![answer]);
            assert_eq!((error.kind(), trial.ranges().len()), (kind, 1), "{error}");
        }
    }
}

#[test]
fn other_work_is_retried_too() {
    let policy = RetryPolicy { attempts_max: 3, first_wait: Duration::ZERO, ..RetryPolicy::default() };
    let busy = || {
        let attempted = "taking rows of table t@1".to_string();
        stoker_lake::Error::Storage { attempted, kind: ErrorKind::Unavailable, source: "busy".into() }
    };
    let mut retries = 0;
    let time = ManualClock::new();
    let clock = Clock::from(&time);
    let work = with_retries(policy, &clock, |_| retries += 1, || async { Err::<(), _>(busy()) });
    let error = time.run(work).expect_err("a failure");
    assert_eq!((retries, error.kind()), (2, ErrorKind::Unavailable));
    let text = error.to_string();
    assert!(text.starts_with("taking rows of table t@1 failed 3 times in "), "{text}");
    assert!(text.ends_with(" s, last: busy"), "{text}");
}

/// The error of a request to a store in an outage.
#[derive(Debug)]
struct OfOutage;

impl Fault for OfOutage {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }

    fn is_outage(&self) -> bool {
        true
    }
}

impl From<OfOutage> for Error {
    fn from(OfOutage: OfOutage) -> Self {
        Error::Internal { reason: "an outage".into() }
    }
}

#[test]
fn a_store_that_answers_nobody_is_asked_again_at_once() {
    let hour = Duration::from_secs(3_600);
    let policy = RetryPolicy { budget: hour, attempts_max: 20, first_wait: hour, ..RetryPolicy::default() };
    let mut retries = 0;
    let time = ManualClock::new();
    let clock = Clock::from(&time);
    let work = with_retries(policy, &clock, |_| retries += 1, || async { Err::<(), _>(OfOutage) });
    time.run(work).expect_err("a failure");
    assert_eq!((retries, time.now()), (19, Moment::START));
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..2_000).prop_map(Step::Bytes),
        2 => (0u64..9_000).prop_map(|millis| Step::Wait(Duration::from_millis(millis))),
        1 => Just(BREAK),
        1 => Just(Step::Hang),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![1 => Just(BUSY), 4 => vec(step(), 0..6).prop_map(Answer::Body)]
}

proptest! {
    /// Any script of cuts, waits and faults that ends before the retry budget delivers all bytes; without hedges, each
    /// exactly once.
    #[test]
    fn any_faults_that_end_bring_every_byte(
        answers in vec(answer(), 0..12), hedge in any::<bool>(), run_rows in 1usize..8,
    ) {
        let retry = RetryPolicy { budget: secs(1_000), ..RetryPolicy::default() };
        let options = ChunkScanOptions { hedge, ..without_hedges(retry) };
        let in_runs = Trial::new(options, answers.clone());
        in_runs.time.run(in_runs.read_runs(run_rows)).expect("a read");
        let trial = Trial::new(options, answers);
        trial.time.run(trial.read()).expect("a read");
        let totals = trial.totals();
        assert!(totals.hedges <= u64::from(hedge) && totals.hedges_won <= totals.hedges, "{totals:?}");
        assert!(hedge || trial.bytes_sent() == RANGE.end - RANGE.start);
    }
}
