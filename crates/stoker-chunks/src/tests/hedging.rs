//! Tests of second GETs for slow reads.

use std::time::Duration;

use futures::future::join;
use stoker_types::ErrorKind;

use super::script::{Answer, RANGE, REST, Step, Trial};
use crate::ChunkScanOptions;
use crate::hedge::Hedges;

const MIB: u64 = 1 << 20;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn wait(length: u64) -> Step {
    Step::Wait(millis(length))
}

/// Makes one read, which must end at `done` with the given numbers of hedges begun and won. No read is slow within the
/// first second, as long as there are no other reads to compare it with.
fn check(answers: Vec<Answer>, done: Duration, hedges: (u64, u64)) -> Trial {
    let trial = Trial::new(ChunkScanOptions::default(), answers);
    assert_eq!(trial.time.run(trial.read()).expect("a read"), done);
    let totals = trial.totals();
    assert_eq!((totals.hedges, totals.hedges_won), hedges);
    trial
}

#[test]
fn the_second_get_wins() {
    let answers = vec![Answer::Body(vec![Step::Bytes(500), Step::Hang]), Answer::Body(vec![wait(10), REST])];
    let trial = check(answers, millis(1_010), (1, 1));
    assert_eq!(trial.ranges(), [RANGE, 1_500..4_900]);
    assert_eq!(trial.totals().retries, 0);
}

#[test]
fn ranges_are_hedged_and_go_on_where_a_body_broke() {
    let answers = vec![Answer::Body(vec![Step::Bytes(500), Step::Hang]), Answer::Body(vec![wait(10), REST])];
    let trial = Trial::new(ChunkScanOptions::default(), answers);
    assert_eq!(trial.time.run(trial.read_range()).expect("a range"), millis(1_010));
    assert_eq!(trial.ranges(), [RANGE, 1_500..4_900]);
    assert_eq!((trial.totals().hedges, trial.totals().hedges_won), (1, 1));
    let broken = Answer::Body(vec![Step::Bytes(700), Step::Fail(ErrorKind::Unavailable)]);
    let trial = Trial::new(ChunkScanOptions::default(), vec![broken]);
    trial.time.run(trial.read_range()).expect("a range");
    assert_eq!(trial.ranges(), [RANGE, 1_700..4_900]);
    assert_eq!((trial.totals().hedges, trial.totals().retries), (0, 1));
}

#[test]
fn the_first_get_wins() {
    let first = Answer::Body(vec![Step::Bytes(500), wait(1_500), REST]);
    let trial = check(vec![first, Answer::Body(vec![Step::Wrong(100), Step::Hang])], millis(1_500), (1, 0));
    assert_eq!(trial.ranges().len(), 2);
}

#[test]
fn reads_as_fast_as_others_are_not_hedged() {
    check(vec![Answer::Body(vec![wait(990), REST])], millis(990), (0, 0));
}

#[test]
fn a_loser_writes_nothing() {
    let loser = Answer::Body(vec![Step::Bytes(500), wait(2_000), Step::Wrong(u64::MAX)]);
    check(vec![loser, Answer::Body(vec![Step::Bytes(1_000), wait(100), REST])], millis(1_100), (1, 1));
}

#[test]
fn bytes_of_the_first_get_stay_when_the_second_wins() {
    let first = Answer::Body(vec![Step::Bytes(500), wait(1_050), Step::Bytes(700), Step::Hang]);
    let trial = check(vec![first, Answer::Body(vec![Step::Wrong(700), wait(100), REST])], millis(1_100), (1, 1));
    assert_eq!(trial.ranges(), [RANGE, 1_500..4_900]);
}

#[test]
fn a_second_get_that_fails_changes_nothing() {
    for kind in [ErrorKind::Unavailable, ErrorKind::DataCorrupt] {
        let first = Answer::Body(vec![wait(3_000), REST]);
        let trial = check(vec![first, Answer::Refused(kind)], millis(3_000), (1, 0));
        assert_eq!(trial.totals().retries, 0);
    }
}

#[test]
fn a_first_get_that_fails_leaves_it_to_the_second() {
    let first = Answer::Body(vec![Step::Bytes(500), wait(1_200), Step::Fail(ErrorKind::Unavailable)]);
    let trial = check(vec![first, Answer::Body(vec![wait(1_000), REST])], millis(2_000), (1, 1));
    assert_eq!(trial.totals().retries, 0);
}

#[test]
fn a_read_is_hedged_once() {
    let breaks = Step::Fail(ErrorKind::Unavailable);
    let trial = Trial::new(
        ChunkScanOptions::default(),
        vec![
            Answer::Body(vec![Step::Bytes(500), wait(1_200), Step::Bytes(300), breaks]),
            Answer::Body(vec![Step::Bytes(100), breaks]),
            Answer::Body(vec![wait(4_000), REST]),
        ],
    );
    trial.time.run(trial.read()).expect("a read");
    assert_eq!(trial.ranges(), [RANGE, 1_500..4_900, 1_800..4_900]);
    assert_eq!((trial.totals().hedges, trial.totals().retries), (1, 1));
}

#[test]
fn a_tenth_of_the_reads_is_hedged_at_most() {
    // The first of each read's two GETs hangs; the second is a hedge or a retry.
    let answers = (0..200).flat_map(|_| [Answer::Body(vec![Step::Hang]), Answer::Body(vec![REST])]);
    let trial = Trial::new(ChunkScanOptions::default(), answers.collect());
    for _ in 0..200 {
        trial.time.run(trial.read()).expect("a read");
    }
    let totals = trial.totals();
    assert_eq!(totals.hedges + totals.retries, 200);
    assert!((20..=28).contains(&totals.hedges), "{totals:?}");
}

#[test]
fn a_hedge_needs_a_free_permit() {
    let slow = Answer::Body(vec![wait(3_000), REST]);
    for options in [
        ChunkScanOptions { remote_requests_max: 1, ..ChunkScanOptions::default() },
        ChunkScanOptions { hedge: false, ..ChunkScanOptions::default() },
    ] {
        let trial = Trial::new(options, vec![slow.clone()]);
        assert_eq!(trial.time.run(trial.read()).expect("a read"), millis(3_000));
        assert_eq!(trial.totals().hedges, 0);
    }
}

#[test]
fn a_permit_that_becomes_free_is_used() {
    let options = ChunkScanOptions { remote_requests_max: 2, ..ChunkScanOptions::default() };
    let answers = vec![Answer::Body(vec![Step::Hang]), Answer::Body(vec![wait(2_100), REST])];
    let trial = Trial::new(options, answers);
    let (hanging, slow) = trial.time.run(join(trial.read(), trial.read()));
    assert_eq!(slow.expect("a read"), millis(2_100));
    assert_eq!(hanging.expect("a read"), millis(2_200));
    assert_eq!((trial.totals().hedges, trial.totals().hedges_won), (1, 1));
}

#[test]
fn patience_follows_the_peers_and_the_size() {
    let hedges = Hedges::new();
    assert_eq!(hedges.patience(8 * MIB), millis(1_000));
    (0..256).for_each(|_| hedges.add_peer(millis(100), millis(800), 8 * MIB));
    for (bytes, expected) in [(8 * MIB, 2_700), (MIB, 600), (0, 300)] {
        let patience = hedges.patience(bytes);
        assert!(patience.abs_diff(millis(expected)) < millis(1), "{bytes} bytes: {patience:?}");
    }
    // A few slow reads do not count, and old reads are forgotten.
    (0..256).for_each(|peer| hedges.add_peer(millis(if peer % 40 == 0 { 9_000 } else { 1 }), millis(8), 8 * MIB));
    assert_eq!(hedges.patience(MIB), millis(200));
}
