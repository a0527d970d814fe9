//! Streams through a server equal those of the engine.

use std::time::Duration;

use stoker::{ClientOptions, ConnectOptions, connect};
use stoker_types::{BatchLogEntry, BatchSize, ErrorKind, LastBatch, ReadOptions, ResumePoint, Slice};
use tokio::time::timeout;

use crate::ServerConfig;
use crate::tests::fixture::*;

#[test]
fn a_remote_stream_equals_the_local_one_for_any_number_of_endpoints() {
    run(async {
        let lake = TestLake::new(500).await;
        let local = lake.local().await.plan_stream(ALL, &[], &options()).await.expect("a plan");
        let server = TestServer::start(&lake, config()).await;
        for num_endpoints in [1, 2, 3] {
            let options_of = ConnectOptions::from(ClientOptions { num_endpoints, ..impatient() });
            let remote = connect(&server.url(), &options_of).await.expect("a server");
            let remote = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
            assert_eq!(remote.spec(), local.spec());
            assert_eq!(remote.schema(), local.schema());
            for (rank, world, size, last) in [
                (0, 1, BatchSize::PerRank(64), LastBatch::Pad),
                (0, 1, BatchSize::Global(7), LastBatch::Drop),
                (1, 3, BatchSize::Global(20), LastBatch::Pad),
                (2, 3, BatchSize::PerRank(5), LastBatch::Uneven),
                (4, 5, BatchSize::Global(3), LastBatch::Uneven),
            ] {
                let slice = slice(rank, world, size, last);
                assert_same(&drain(&remote, &slice).await, &drain(&local, &slice).await);
            }
        }
    });
}

#[test]
fn a_stream_continues_from_a_state_on_another_world_size() {
    run(async {
        let lake = TestLake::new(300).await;
        let server = TestServer::start(&lake, config()).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        let first = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
        let start = slice(0, 1, BatchSize::Global(16), LastBatch::Pad);
        let mut stream = first.open(&start, &ReadOptions::default()).await.expect("a stream");
        let mut cursor = None;
        for _ in 0..5 {
            cursor = stream.next().await.expect("a batch").map(|batch| batch.cursor);
        }
        let position = cursor.expect("five batches").position;
        let state = first.state(
            ResumePoint { epoch: 0, position, step: 5 },
            &[BatchLogEntry { step: 0, position: 0, global_batch: 16 }],
        );
        assert!(state.spec.is_none(), "the lake keeps the specification");

        let again = remote.load_stream(&state).await.expect("the same stream");
        let local = lake.local().await.load_stream(&state).await.expect("the same stream");
        for rank in 0..2 {
            let rest = Slice { origin: position, ..slice(rank, 2, BatchSize::Global(16), LastBatch::Pad) };
            assert_same(&drain(&again, &rest).await, &drain(&local, &rest).await);
            let later = Slice { first_step: 3, ..rest };
            assert_same(&drain(&again, &later).await, &drain(&local, &later).await);
        }
    });
}

#[test]
fn a_state_that_carries_its_specification_loads_and_a_wrong_one_is_refused() {
    run(async {
        let lake = TestLake::new(60).await;
        let server = TestServer::start(&lake, config()).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        let handle = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
        let mut state = handle.state(ResumePoint { epoch: 0, position: 32, step: 2 }, &[]);
        state.spec = Some(handle.spec().clone());
        assert_eq!(remote.load_stream(&state).await.expect("the same stream").spec(), handle.spec());

        let mut beyond = state.clone();
        beyond.position = 61;
        assert_eq!(remote.load_stream(&beyond).await.map(|_| ()).expect_err("beyond").kind(), ErrorKind::StateMismatch);

        let mut other_rows = handle.spec().clone();
        other_rows.sources[0].row_set = stoker_types::Digest::of(b"other rows");
        state.stream_id = other_rows.stream_id();
        state.spec = Some(other_rows);
        assert_eq!(remote.load_stream(&state).await.map(|_| ()).expect_err("other").kind(), ErrorKind::StateMismatch);

        let mut unknown = handle.state(ResumePoint::default(), &[]);
        unknown.stream_id = stoker_types::Digest::of(b"no stream");
        assert_eq!(remote.load_stream(&unknown).await.map(|_| ()).expect_err("unknown").kind(), ErrorKind::NotFound);
    });
}

#[test]
fn statistics_count_rows_and_a_small_budget_delivers_all() {
    run(async {
        let lake = TestLake::new(200).await;
        let server = TestServer::start(&lake, config()).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        let handle = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
        let slice = slice(0, 1, BatchSize::PerRank(10), LastBatch::Drop);
        let options = ReadOptions { memory_budget_bytes: 1, ..ReadOptions::default() };
        let mut stream = handle.open(&slice, &options).await.expect("a stream");
        while stream.next().await.expect("a batch").is_some() {}
        let stats = stream.stats();
        assert_eq!((stats.rows, stats.batches, stats.retries), (200, 20, 0));
        assert!(stats.bytes >= 200 * 1_100 && stats.first_batch_nanos.is_some(), "{stats:?}");
        assert!(stream.next().await.expect("the end").is_none());
    });
}

#[test]
fn a_stream_opened_ahead_delivers_all_also_where_the_server_reads_nothing_before_its_time() {
    run(async {
        // With this budget, a prefetching stream has memory for a part of a batch of 900 rows, and for none of 2,100
        // rows.
        let config = ServerConfig { memory_budget_bytes: 4 << 20, ..config() };
        let server = TestServer::start_with(distant_engine(2_500).await, config).await;
        let ahead = ReadOptions { ahead: true, ..ReadOptions::default() };
        for num_endpoints in [1, 2] {
            let options_of = ConnectOptions::from(ClientOptions { num_endpoints, ..impatient() });
            let remote = connect(&server.url(), &options_of).await.expect("a server");
            let remote = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
            for (batch_rows, reads_ahead) in [(64, true), (900, true), (2_100, false)] {
                let slice = slice(0, 1, BatchSize::PerRank(batch_rows), LastBatch::Uneven);
                let expected = drain(&remote, &slice).await;
                for begins_at_once in [true, false] {
                    let mut early = remote.open(&slice, &ahead).await.expect("a stream");
                    let mut found = Vec::new();
                    if reads_ahead && !begins_at_once {
                        found.extend(early.next().await.expect("a batch"));
                    } else if !begins_at_once {
                        let early = timeout(Duration::from_millis(100), early.next()).await;
                        assert!(early.is_err(), "a batch of {batch_rows} rows before its time");
                    }
                    early.begin(1 << 30);
                    found.extend(rest(early).await);
                    assert_same(&found, &expected);
                }
            }
        }
    });
}

#[test]
fn an_empty_row_set_has_no_batches() {
    run(async {
        let lake = TestLake::new(10).await;
        let server = TestServer::start(&lake, config()).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        let handle = remote.plan_stream("SELECT x FROM t WHERE id < 0", &[], &options()).await.expect("a plan");
        assert_eq!(handle.num_rows(), 0);
        let slice = slice(0, 1, BatchSize::PerRank(10), LastBatch::Pad);
        assert!(drain(&handle, &slice).await.is_empty());
    });
}
