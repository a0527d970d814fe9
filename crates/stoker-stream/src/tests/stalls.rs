//! Tests of how the time of steps is divided.

use std::time::{Duration, Instant};

use stoker_types::{ReadOptions, Stalls};

use super::*;

/// Makes stalls from the milliseconds of storage, decode, network and consumer.
fn stalls(millis: [u64; 4]) -> Stalls {
    let [storage, decode, network, consumer] = millis.map(Duration::from_millis);
    Stalls { storage, decode, network, consumer }
}

#[test]
fn a_step_is_divided_between_the_consumer_and_what_it_waited_for() {
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    let mut meter = StallMeter::default();
    assert_eq!(meter.sum().share(Duration::from_secs(1)), 0.0);
    // The time before the first request belongs to no step.
    meter.asked(at(5));
    assert_eq!(meter.taken(at(105), &stalls([30, 10, 0, 0])), Duration::from_millis(100));
    assert_eq!(meter.last_step(), stalls([75, 25, 0, 0]));
    // A cancelled wait continues with the next request.
    meter.asked(at(165));
    meter.asked(at(175));
    meter.taken(at(185), &stalls([5, 5, 10, 0]));
    assert_eq!(meter.last_step(), stalls([5, 5, 10, 60]));
    assert_eq!(meter.sum(), stalls([80, 30, 10, 60]));
    // If nothing was measured, the time counts as storage. A step without a wait has no stall.
    meter.asked(at(185));
    meter.taken(at(190), &Stalls::default());
    assert_eq!(meter.last_step(), stalls([5, 0, 0, 0]));
    meter.asked(at(200));
    meter.taken(at(200), &stalls([100, 100, 100, 0]));
    assert_eq!(meter.last_step(), stalls([0, 0, 0, 10]));
    let sum = meter.sum();
    let shares: f64 = sum.named().iter().map(|(_, time)| sum.share(*time)).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
}

#[test]
fn a_step_is_the_sum_over_the_parts_of_its_batch() {
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    let mut meter = StallMeter::default();
    meter.asked(at(0));
    meter.taken_part(at(20), &stalls([1, 1, 0, 0]));
    assert_eq!((meter.last_step(), meter.sum()), (stalls([0, 0, 0, 0]), stalls([10, 10, 0, 0])));
    meter.asked(at(25));
    meter.taken_part(at(35), &stalls([1, 0, 0, 0]));
    meter.end_step();
    assert_eq!((meter.last_step(), meter.sum()), (stalls([20, 10, 0, 5]), stalls([20, 10, 0, 5])));
    meter.asked(at(36));
    meter.taken(at(40), &stalls([0, 1, 0, 0]));
    assert_eq!((meter.last_step(), meter.sum()), (stalls([0, 4, 0, 1]), stalls([20, 14, 0, 6])));
}

#[test]
fn waits_and_the_consumer_make_up_the_time_of_a_stream() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let slice = slice(0, 1, BatchSize::PerRank(64), LastBatch::Pad);
        let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
        assert_eq!(stream.stats().stalls, Stalls::default());
        let begun = Instant::now();
        while stream.next().await.expect("a batch").is_some() {
            assert!(stream.stats().last_step.total() <= stream.stats().stalls.total());
        }
        let (stats, elapsed) = (stream.stats(), begun.elapsed());
        assert!(stats.stalls.total() <= elapsed, "{stats:?} in {elapsed:?}");
        assert!(stats.stalls.network.is_zero() && !stats.stalls.storage.is_zero(), "{stats:?}");
        let waited = stats.stalls.total() - stats.stalls.consumer;
        assert!(waited.abs_diff(Duration::from_nanos(stats.wait_nanos)) < Duration::from_micros(1), "{stats:?}");
    });
}
