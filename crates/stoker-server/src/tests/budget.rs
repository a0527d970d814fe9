//! Streams that share the memory of a server.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use stoker::{ClientOptions, ConnectOptions, Connection, connect};
use stoker_types::calls::GetStatus;
use stoker_types::{BatchSize, LastBatch};

use crate::ServerConfig;
use crate::tests::fixture::*;

const NUM_ROWS: i64 = 6_400;
const RANKS: u32 = 64;
const BATCH_ROWS: u64 = 8;

/// The memory budget: less than half a batch for each rank.
const TOTAL_BYTES: u64 = 256 << 10;

/// Returns a number of a server's status.
async fn status(connection: &Connection, name: &str) -> f64 {
    let status = serde_json::to_value(connection.call(GetStatus {}).await.expect("a status")).expect("JSON");
    status[name].as_f64().unwrap_or_else(|| panic!("{name} is not in {status}"))
}

#[test]
fn many_ranks_finish_within_a_small_budget_and_read_each_byte_once() {
    run(async {
        let lake = TestLake::new(NUM_ROWS).await;
        let server = TestServer::start(&lake, ServerConfig { memory_budget_bytes: TOTAL_BYTES, ..config() }).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        let handle = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
        let ranks: Vec<_> = (0..RANKS)
            .map(|rank| {
                let handle = handle.clone();
                tokio::spawn(async move {
                    let slice = slice(rank, RANKS, BatchSize::PerRank(BATCH_ROWS), LastBatch::Uneven);
                    drain(&handle, &slice).await
                })
            })
            .collect();
        let mut held_max = 0.0f64;
        let mut seen: BTreeMap<i64, u32> = BTreeMap::new();
        for rank in ranks {
            held_max = held_max.max(status(&remote, "memory_held_bytes").await);
            for batch in rank.await.expect("no panic") {
                let ids = batch.data["id"].as_primitive::<Int64Type>().values().to_vec();
                ids.into_iter().for_each(|id| *seen.entry(id).or_default() += 1);
            }
        }
        assert!(seen.keys().copied().eq(0..NUM_ROWS), "{} rows of {NUM_ROWS}", seen.len());
        assert!(seen.values().all(|times| *times == 1));
        // A server notices the end of a stream a little later than its client.
        while status(&remote, "streams_running").await > 0.0 {}
        assert_eq!(status(&remote, "streams_ended").await, f64::from(RANKS));
        assert_eq!(status(&remote, "rows").await, NUM_ROWS as f64);
        let (read, table) = (status(&remote, "bytes_read").await, NUM_ROWS as f64 * WIDTH as f64);
        assert!(read <= 1.1 * table, "{read} bytes were read, the table has {table}");
        // The other columns of a row take less than its tensor.
        let batch = BATCH_ROWS as f64 * 2.0 * WIDTH as f64;
        assert!(held_max <= TOTAL_BYTES as f64 + f64::from(RANKS) * batch, "{held_max} bytes");
        assert_eq!(status(&remote, "memory_budget_bytes").await, TOTAL_BYTES as f64);
        assert_eq!(status(&remote, "memory_held_bytes").await, 0.0);
        assert_eq!(status(&remote, "request_limit").await, 128.0, "no object store was asked");
        assert!(status(&remote, "storage_secs").await > 0.0);
    });
}

#[test]
fn a_remote_step_is_divided_between_server_network_and_consumer() {
    run(async {
        let lake = TestLake::new(500).await;
        let server = TestServer::start(&lake, config()).await;
        for num_endpoints in [1, 2] {
            let options_of = ConnectOptions::from(ClientOptions { num_endpoints, ..impatient() });
            let remote = connect(&server.url(), &options_of).await.expect("a server");
            let handle = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
            let slice = slice(0, 1, BatchSize::PerRank(50), LastBatch::Pad);
            let mut stream = handle.open(&slice, &Default::default()).await.expect("a stream");
            while stream.next().await.expect("a batch").is_some() {}
            let stalls = stream.stats().stalls;
            assert!(stalls.named().iter().all(|(_, time)| !time.is_zero()), "{stalls:?}");
        }
    });
}
