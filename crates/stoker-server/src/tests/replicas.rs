//! Servers that die, stop or have other ticket keys.

use std::time::Duration;

use stoker::{ClientOptions, ConnectOptions, connect};
use stoker_types::calls::ListTables;
use stoker_types::{BatchSize, ErrorKind, LastBatch, ReadOptions};

use crate::TicketKey;
use crate::tests::fixture::*;

/// Options with a retry budget that is long enough for a server to be replaced.
fn patient(num_endpoints: u32) -> ConnectOptions {
    ConnectOptions::from(ClientOptions {
        num_endpoints,
        retry_budget: Duration::from_secs(60),
        ..ClientOptions::default()
    })
}

#[test]
fn a_killed_server_costs_no_row_and_repeats_none() {
    run(async {
        let lake = TestLake::new(2_000).await;
        let local = lake.local().await.plan_stream(ALL, &[], &options()).await.expect("a plan");
        let slice = slice(0, 1, BatchSize::PerRank(32), LastBatch::Pad);
        let expected = drain(&local, &slice).await;
        for num_endpoints in [1, 2] {
            let mut first = TestServer::start(&lake, config()).await;
            let second = TestServer::start(&lake, config()).await;
            let target = format!("grpc://{},{}", first.address, second.address);
            let remote = connect(&target, &patient(num_endpoints)).await.expect("servers");
            let handle = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
            let read = ReadOptions { memory_budget_bytes: 64 << 10, ..ReadOptions::default() };
            let mut stream = handle.open(&slice, &read).await.expect("a stream");
            let mut found = Vec::new();
            while let Some(batch) = stream.next().await.expect("a batch") {
                found.push(batch);
                if found.len() == 3 {
                    first.kill();
                }
            }
            assert_same(&found, &expected);
        }
    });
}

#[test]
fn a_server_that_stops_ends_and_its_clients_go_on_elsewhere() {
    run(async {
        let lake = TestLake::new(1_000).await;
        let mut first = TestServer::start(&lake, config()).await;
        let second = TestServer::start(&lake, config()).await;
        let target = format!("grpc://{},{}", first.address, second.address);
        let remote = connect(&target, &patient(1)).await.expect("servers");
        let handle = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
        let slice = slice(0, 1, BatchSize::PerRank(50), LastBatch::Drop);
        let mut stream = handle.open(&slice, &ReadOptions::default()).await.expect("a stream");
        let mut batches = u64::from(stream.next().await.expect("a batch").is_some());
        first.stop().await;
        while stream.next().await.expect("a batch").is_some() {
            batches += 1;
        }
        assert_eq!(batches, 20);
        assert_eq!(remote.call(ListTables {}).await.expect("the other server answers"), ["t"]);
        let gone = connect(&first.url(), &impatient().into()).await.map(|_| ()).expect_err("nobody listens");
        assert_eq!(gone.kind(), ErrorKind::Unavailable);
    });
}

#[test]
fn tickets_of_a_server_with_other_keys_are_asked_for_again() {
    run(async {
        let lake = TestLake::new(100).await;
        let local = lake.local().await.plan_stream(ALL, &[], &options()).await.expect("a plan");
        let first = TestServer::start(&lake, config()).await;
        let other_key = TicketKey { id: "other".into(), secret: "another secret of enough bytes".into() };
        let second = TestServer::start(&lake, crate::ServerConfig { ticket_keys: vec![other_key], ..config() }).await;
        let target = format!("grpc://{},{}", first.address, second.address);
        let remote = connect(&target, &patient(1)).await.expect("servers");
        let handle = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
        // Rank 1 gets its first ticket from the first server, and sends it to the second server.
        let slice = slice(1, 2, BatchSize::PerRank(10), LastBatch::Pad);
        assert_same(&drain(&handle, &slice).await, &drain(&local, &slice).await);
    });
}

#[test]
fn a_stream_without_servers_fails_as_unavailable() {
    run(async {
        let lake = TestLake::new(2_000).await;
        let mut server = TestServer::start(&lake, config()).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        let handle = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
        server.kill();
        let slice = slice(0, 1, BatchSize::PerRank(10), LastBatch::Pad);
        let mut stream = handle.open(&slice, &ReadOptions::default()).await.expect("a stream");
        assert_eq!(stream.next().await.expect_err("nobody answers").kind(), ErrorKind::Unavailable);
        assert!(stream.next().await.expect("the end").is_none());
    });
}
