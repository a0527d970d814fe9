//! Tests of how the time of streams is divided.

use std::time::{Duration, Instant};

use stoker_clock::{Clock, ManualClock};
use stoker_types::{ReadOptions, Stalls};

use super::*;

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

#[test]
fn a_stream_measures_its_consumer_by_its_clock() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 192).await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let slice = slice(0, 1, BatchSize::PerRank(64), LastBatch::Pad);
        let time = ManualClock::new();
        let resources = Resources::with_clock(None, Clock::from(&time));
        let mut stream = plan.open_within(&resources, &slice, &ReadOptions::default()).expect("a stream");
        // Time passes only between the batches. What passes before the first request belongs to no step.
        let mut seen = Vec::new();
        for secs in [1, 2, 4] {
            time.advance(Duration::from_secs(secs));
            assert!(stream.next().await.expect("no error").is_some());
            seen.push(stream.stats().last_step);
        }
        let consumer = |secs| Stalls { consumer: Duration::from_secs(secs), ..Stalls::default() };
        assert_eq!(seen, [0, 2, 4].map(consumer));
        let stats = stream.stats();
        assert_eq!((stats.stalls, stats.wait_nanos), (consumer(6), 0));
        assert_eq!(stats.first_batch_nanos, Some(1_000_000_000));
        time.advance(Duration::from_secs(8));
        assert_eq!(resources.open_streams()[0].secs, 15.0);
    });
}
