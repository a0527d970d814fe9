//! Tests of how the time of streams is divided.

use std::time::{Duration, Instant};

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
