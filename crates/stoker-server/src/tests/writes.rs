//! Rows that clients put.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, LargeBinaryArray, RecordBatch};
use stoker::{Connection, LocalLake, WriteMode, WriteRequest, connect};
use stoker_types::calls::{FindWrite, WriteKey};
use stoker_types::{ErrorKind, SnapshotRef, TableName};
use stoker_wire::protocol::PART_BYTES;

use crate::ServerConfig;
use crate::tests::fixture::*;

fn writable() -> ServerConfig {
    ServerConfig { allow_writes: true, ..config() }
}

fn request(table: &str, mode: WriteMode) -> WriteRequest {
    let table = TableName::try_new(table).expect("a name");
    WriteRequest { table, mode, rows_per_fragment_max: None, page_bytes: None, has_features: false, key: None }
}

fn numbers(values: &[i64]) -> RecordBatch {
    RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(values.to_vec())) as ArrayRef)]).expect("a batch")
}

/// Writes batches under a key; the rows are given up if `is_whole` is false.
async fn write(
    lake: &Connection,
    request: WriteRequest,
    key: Option<&str>,
    batches: &[RecordBatch],
    is_whole: bool,
) -> stoker::Result<Option<u64>> {
    let request = lake.with_write_key(request, key.map(str::to_string)).await?;
    let mut writer = lake.begin_write(&request, &batches[0].schema()).await?;
    for batch in batches {
        writer.write(batch.clone()).await?;
    }
    match is_whole {
        true => Ok(Some(writer.finish().await?)),
        false => {
            writer.abort().await;
            Ok(None)
        }
    }
}

async fn num_rows(lake: &Connection, table: &str) -> u64 {
    lake.table(table, &SnapshotRef::Latest).await.expect("a table").num_rows
}

#[test]
fn rows_become_one_version_and_a_key_writes_once() {
    run(async {
        let lake = TestLake::new(10).await;
        let server = TestServer::start(&lake, writable()).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        let batches = [numbers(&[1, 2]), numbers(&[]), numbers(&[3])];
        let version = write(&remote, request("u", WriteMode::Create), None, &batches, true).await.expect("a version");
        assert_eq!((version, num_rows(&remote, "u").await), (Some(1), 3));
        for _ in 0..3 {
            let version = write(&remote, request("u", WriteMode::Append), Some("mine"), &batches, true).await;
            assert_eq!((version.expect("a version"), num_rows(&remote, "u").await), (Some(2), 6));
        }
        // A create that was done is not refused, even if the client did not ask before.
        for _ in 0..2 {
            let version = write(&remote, request("v", WriteMode::Create), Some("made"), &batches, true).await;
            assert_eq!((version.expect("a version"), num_rows(&remote, "v").await), (Some(1), 3));
        }
        let error = write(&remote, request("v", WriteMode::Create), Some("other"), &batches, true).await;
        assert_eq!(error.expect_err("it exists").kind(), ErrorKind::AlreadyExists);
        let find = |table: &str, key: &str| FindWrite {
            table: table.into(),
            write_key: WriteKey { key: key.into(), since_version: 0 },
        };
        assert_eq!(remote.call(find("u", "mine")).await.expect("an answer"), Some(2));
        assert_eq!(remote.call(find("u", "other")).await.expect("an answer"), None);
        assert_eq!(remote.call(find("nothing", "mine")).await.expect("an answer"), None);
    });
}

#[test]
fn rows_that_do_not_fit_or_are_given_up_leave_nothing() {
    run(async {
        let lake = TestLake::new(10).await;
        let server = TestServer::start(&lake, writable()).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        let create = || request("u", WriteMode::Create);
        write(&remote, create(), None, &[numbers(&[1])], false).await.expect("given up");
        let floats = RecordBatch::try_from_iter([("a", Arc::new(Float64Array::from(vec![0.5])) as ArrayRef)]);
        write(&remote, create(), None, &[floats.expect("a batch")], true).await.expect("a version");
        let batches = [numbers(&[1, 2]), numbers(&[3, (1 << 53) + 1])];
        let error = write(&remote, request("u", WriteMode::Append), None, &batches, true).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        let expected = "table u: column a row 3: expected a number that Float64 holds exactly, found 9007199254740993";
        assert!(error.to_string().ends_with(expected), "{error}");
        let table = remote.table("u", &SnapshotRef::Latest).await.expect("a table");
        assert_eq!((table.version, table.num_rows), (1, 1));
        let error = write(&remote, request("nothing", WriteMode::Append), None, &batches, true).await;
        assert_eq!(error.expect_err("no table").kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_row_may_be_longer_than_a_request() {
    run(async {
        let lake = TestLake::new(10).await;
        let small = ServerConfig { request_bytes_max: 4 << 20, ..writable() };
        let server = TestServer::start(&lake, small).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        let values = LargeBinaryArray::from_iter_values([vec![1; 9 * PART_BYTES], vec![2; 3]]);
        let batch = RecordBatch::try_from_iter([("a", Arc::new(values.clone()) as ArrayRef)]).expect("a batch");
        write(&remote, request("u", WriteMode::Create), None, &[batch], true).await.expect("a version");
        let local = connect(&lake.uri(), &impatient().into()).await.expect("a lake");
        let mut rows = local.sql("SELECT a FROM u", &[]).await.expect("rows").stream;
        let mut found = Vec::new();
        while let Some(batch) = futures::StreamExt::next(&mut rows).await {
            found.push(batch.expect("rows"));
        }
        let found = arrow_select::concat::concat_batches(&found[0].schema(), &found).expect("rows");
        assert_eq!(found.column(0).to_data(), (&values as &dyn Array).to_data());
    });
}

#[test]
fn a_server_without_writes_takes_no_rows() {
    run(async {
        let lake = TestLake::new(10).await;
        let server = TestServer::start(&lake, config()).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        let error = write(&remote, request("u", WriteMode::Create), None, &[numbers(&[1])], true).await;
        let error = error.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("--allow-writes"), "{error}");
        let local = Connection::new(LocalLake::from(lake.engine().await));
        assert_eq!(local.table("u", &SnapshotRef::Latest).await.expect_err("no table").kind(), ErrorKind::NotFound);
    });
}
