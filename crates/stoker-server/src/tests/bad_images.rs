//! Images that cannot be decoded, and the rows that substitute them.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, LargeBinaryArray, RecordBatch, UInt8Array};
use arrow_schema::{DataType, Field, Schema};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use stoker::{ClientOptions, ColumnDecoder, ConnectOptions, Connection, DecodeOptions, Error, StreamHandle, connect};
use stoker_batch::{Batch, RowsBeside};
use stoker_columns::TensorType;
use stoker_decode::ImageTransform;
use stoker_lake::{CommitMode, WriteOptions};
use stoker_types::calls::VerifyReceipts;
use stoker_types::{
    BadRows, BadShare, BatchSize, ErrorKind, IoTotals, LastBatch, ReadOptions, Receipt, ShuffleMode, Slice, TableName,
};
use stoker_wire::beside_answer;

use crate::tests::fixture::*;

const NUM_ROWS: u64 = 200;

/// The number of rows of a page, and of a window over all lanes.
const WINDOW_ROWS: usize = 60;

/// A PNG file of one pixel, in Base64.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn tensor(id: i64) -> Vec<u8> {
    (0..WIDTH).map(|at| (id * 7) as u8 ^ at as u8).collect()
}

/// Writes table `photos`: ids, tensors that are functions of the ids, and two image columns. The images of the rows in
/// `bad_images` and `bad_thumbs` cannot be decoded: they are cut off, text, empty or null.
async fn write(lake: &TestLake, bad_images: &BTreeSet<i64>, bad_thumbs: &BTreeSet<i64>) {
    let engine = lake.engine().await;
    let name = TableName::try_new("photos").expect("a name");
    let ids = 0..NUM_ROWS as i64;
    let field = TensorType { element: DataType::UInt8, shape: vec![WIDTH] }.to_field("x");
    let DataType::FixedSizeList(item, length) = field.data_type().clone() else { unreachable!("a tensor") };
    let tensors = UInt8Array::from_iter_values(ids.clone().flat_map(tensor));
    let png = BASE64_STANDARD.decode(PNG).expect("a file");
    let file = |bad: &BTreeSet<i64>, id: i64| match (bad.contains(&id), id % 4) {
        (false, _) => Some(png.clone()),
        (true, 0) => None,
        (true, 1) => Some(b"no image".to_vec()),
        (true, 2) => Some(Vec::new()),
        (true, _) => Some(png[..png.len() - 20].to_vec()),
    };
    let files = |bad: &BTreeSet<i64>| LargeBinaryArray::from_iter(ids.clone().map(|id| file(bad, id)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(FixedSizeListArray::new(item, length, Arc::new(tensors), None)),
        Arc::new(Int64Array::from_iter_values(ids.clone())),
        Arc::new(files(bad_images)),
        Arc::new(files(bad_thumbs)),
    ];
    let schema = Arc::new(Schema::new(vec![
        field,
        Field::new("id", DataType::Int64, false),
        Field::new("image", DataType::LargeBinary, true),
        Field::new("thumb", DataType::LargeBinary, true),
    ]));
    let writer = engine.lake().writer(&name, &schema, false, WriteOptions::default()).await;
    let mut writer = writer.expect("a writer");
    writer.write(&RecordBatch::try_new(schema, columns).expect("a batch")).await.expect("written");
    let schema = writer.schema();
    let drafts = writer.finish().await.expect("finished");
    engine.lake().commit(&name, &schema, CommitMode::Create, drafts, None).await.expect("committed");
}

async fn photos(connection: &Connection, shuffle: ShuffleMode) -> StreamHandle {
    let mut options = stoker_types::StreamOptions { shuffle, num_lanes: 12, ..options() };
    let sql = "SELECT x, id, image, thumb FROM photos";
    // With these options a window has five rows of each of the 12 lanes.
    let row_bytes = connection.plan_stream(sql, &[], &options).await.expect("a plan");
    let rows = |handle: &StreamHandle| handle.spec().sources[0].order.rows_per_window().expect("windows");
    options.shuffle_window_bytes = options.shuffle_window_bytes.map(|bytes| bytes / rows(&row_bytes) * 5);
    let handle = connection.plan_stream(sql, &[], &options).await.expect("a plan");
    assert_eq!(rows(&handle) * 12, WINDOW_ROWS as u64);
    handle
}

fn both() -> DecodeOptions {
    let transform = || ColumnDecoder::Image(ImageTransform::new(2, 2).into());
    let columns = vec![("image".into(), transform()), ("thumb".into(), transform())];
    DecodeOptions { columns, num_threads: 2, ..DecodeOptions::default() }
}

fn policy(bad_rows: BadRows) -> ReadOptions {
    ReadOptions { bad_rows, max_bad_share: BadShare::ALL, ..ReadOptions::default() }
}

/// Returns all batches of a slice and its receipt, or the error that ends the stream.
async fn decoded(handle: &StreamHandle, slice: &Slice, options: &ReadOptions) -> Result<(Vec<Batch>, Receipt), Error> {
    let mut stream = handle.open_decoded(slice, options, &both()).await?;
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await? {
        batches.push(batch);
    }
    Ok((batches, stream.receipt().clone()))
}

/// Returns the expected row at each position of an epoch: the first good row of the position's window, in cyclic order
/// from that position.
fn expected(order: &[u64], bad: &BTreeSet<i64>) -> Vec<u64> {
    let mut rows = Vec::new();
    for window in order.chunks(WINDOW_ROWS) {
        for at in 0..window.len() {
            let mut from_here_on = window[at..].iter().chain(&window[..at]);
            rows.push(*from_here_on.find(|row| !bad.contains(&(**row as i64))).expect("a good row"));
        }
    }
    rows
}

#[test]
fn all_ranks_put_the_same_rows_in_the_place_of_bad_images() {
    run(async {
        let lake = TestLake::new(1).await;
        let images: BTreeSet<i64> = (0..60).map(|number| (number * 37) % 200).collect();
        let thumbs: BTreeSet<i64> = [3, 4, 5, 37, 74, 199].into();
        write(&lake, &images, &thumbs).await;
        let bad: BTreeSet<i64> = images.union(&thumbs).copied().collect();
        let server = TestServer::start(&lake, config()).await;
        let endpoints = ConnectOptions::from(ClientOptions { num_endpoints: 2, ..impatient() });
        let remote = connect(&server.url(), &endpoints).await.expect("a server");
        let local = lake.local().await;
        for shuffle in [ShuffleMode::Block, ShuffleMode::Sequential] {
            let stream_id = photos(&local, shuffle).await.spec().stream_id();
            let order = local.row_addrs(stream_id, 1, 0..NUM_ROWS).await.expect("rows").remove(0);
            let wanted = expected(&order, &bad);
            for (connection, world, tiny) in [(&local, 1, false), (&local, 3, true), (&remote, 3, false)] {
                let handle = photos(connection, shuffle).await;
                let mut receipts = Vec::new();
                let mut options = policy(BadRows::Substitute);
                if tiny {
                    options.memory_budget_bytes = 1;
                }
                for rank in 0..world {
                    let slice = Slice { epoch: 1, ..slice(rank, world, BatchSize::Global(48), LastBatch::Pad) };
                    let (batches, receipt) = decoded(&handle, &slice, &options).await.expect("all batches");
                    assert_eq!(batches.len() as u64, slice.num_steps(NUM_ROWS));
                    receipts.push(receipt);
                    for batch in batches {
                        check(&batch, &slice, &order, &wanted, &bad);
                    }
                }
                let verdict =
                    connection.call(VerifyReceipts { receipts: receipts.clone() }).await.expect("a verdict").remove(0);
                assert!(verdict.is_exactly_once(), "{verdict:?}");
                let named: BTreeSet<i64> = verdict.substituted.iter().map(|row| row.row_addrs[0] as i64).collect();
                assert_eq!((verdict.substituted.len(), named), (bad.len(), bad.clone()));
            }
        }
    });
}

/// Checks a batch, padding included: all values of a row belong to the expected row, and the batch names the bad rows.
fn check(batch: &Batch, slice: &Slice, order: &[u64], wanted: &[u64], bad: &BTreeSet<i64>) {
    let share = slice.share(batch.step, NUM_ROWS);
    let positions: Vec<usize> = (0..share.num_rows).map(|row| share.position(row) as usize).collect();
    let rows: Vec<u64> = positions.iter().map(|position| wanted[*position]).collect();
    assert_eq!(batch.row_addrs[0], rows);
    let ids = batch.data["id"].as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(ids, rows.iter().map(|row| *row as i64).collect::<Vec<_>>());
    for (row, id) in ids.iter().enumerate() {
        let x = batch.data["x"].as_fixed_size_list().value(row);
        assert_eq!(x.as_primitive::<UInt8Type>().values().to_vec(), tensor(*id));
    }
    for name in ["image", "thumb"] {
        let pixels = batch.data[name].as_fixed_size_list().values().as_primitive::<UInt8Type>().values().to_vec();
        let first = &pixels[..pixels.len().min(12)];
        assert!(pixels.chunks(12).all(|image| image == first), "tensors of equal files differ");
    }
    let named: Vec<(usize, u64)> = batch.substituted.iter().map(|found| (found.row, found.row_addrs[0])).collect();
    let replaced = positions.iter().map(|position| order[*position]).enumerate();
    assert_eq!(named, replaced.filter(|(_, row)| bad.contains(&(*row as i64))).collect::<Vec<_>>());
    for found in &batch.substituted {
        let id = format!("row id {} of photos version 1", found.row_addrs[0]);
        assert!(found.reason.contains(&id) && found.reason.starts_with("column "), "{}", found.reason);
        let position = format!("position {} of epoch 1", positions[found.row]);
        assert!(found.reason.contains(&position) && !found.reason.contains("substitute"), "{}", found.reason);
    }
}

#[test]
fn only_bad_images_cost_requests() {
    run(async {
        let lake = TestLake::new(1).await;
        write(&lake, &[150].into(), &BTreeSet::new()).await;
        let handle = photos(&lake.local().await, ShuffleMode::Sequential).await;
        let read = async |origin: u64, bad_rows: BadRows| {
            let slice = Slice { origin, ..slice(0, 1, BatchSize::PerRank(10), LastBatch::Uneven) };
            let mut stream = handle.open_decoded(&slice, &policy(bad_rows), &both()).await.expect("a stream");
            while stream.next().await.expect("a batch").is_some() {}
            (stream.stats().requests, stream.stats().verified_bytes)
        };
        let order = lake.local().await.row_addrs(handle.spec().stream_id(), 0, 0..NUM_ROWS).await.expect("rows");
        let last = order[0].iter().position(|row| *row == 150).expect("the bad row") as u64;
        let good = read(last + 1, BadRows::Error).await;
        assert_eq!(read(last + 1, BadRows::Substitute).await, good);
        let rows = NUM_ROWS - last - 1;
        assert_eq!(good.1, rows * WIDTH as u64);
        // The stream reads the bad row once, and the first request for substitutes reads it again, with the next row.
        assert_eq!(read(last, BadRows::Substitute).await.1, good.1 + 3 * WIDTH as u64);
    });
}

#[test]
fn bad_images_fail_a_stream_where_nothing_can_stand_for_them() {
    run(async {
        let lake = TestLake::new(1).await;
        // The first window has no good row: even ids have a bad image, and all ids have a bad thumbnail.
        write(&lake, &(0..WINDOW_ROWS as i64).filter(|id| id % 2 == 0).collect(), &(0..WINDOW_ROWS as i64).collect())
            .await;
        let server = TestServer::start(&lake, config()).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        for connection in [&lake.local().await, &remote] {
            let handle = photos(connection, ShuffleMode::Sequential).await;
            let order = connection.row_addrs(handle.spec().stream_id(), 0, 0..NUM_ROWS).await.expect("rows");
            assert!(order[0][..WINDOW_ROWS].iter().all(|row| *row < WINDOW_ROWS as u64), "{order:?}");
            let slice = slice(1, 2, BatchSize::PerRank(7), LastBatch::Pad);
            let error = decoded(&handle, &slice, &policy(BadRows::Substitute)).await.expect_err("no good row");
            assert_eq!(error.kind(), ErrorKind::DataCorrupt);
            let text = error.to_string();
            assert!(text.contains("all 60 rows of its window are bad") && text.contains("photos version 1"), "{text}");
            let limited = ReadOptions { max_bad_share: BadShare::default(), ..policy(BadRows::Substitute) };
            let error = decoded(&handle, &slice, &limited).await.expect_err("too many bad rows");
            assert_eq!(error.kind(), ErrorKind::DataCorrupt);
            assert!(
                error.to_string().contains("17 of the 60 rows of a window are bad, the limit is 16 (max_bad_share)"),
                "{error}"
            );
            let error = decoded(&handle, &slice, &policy(BadRows::Error)).await.expect_err("a bad row");
            assert_eq!(error.kind(), ErrorKind::DataCorrupt);
            for part in ["of photos version 1", "cannot be decoded", "bad_rows=\"substitute\"", "quarantine"] {
                assert!(error.to_string().contains(part), "{part} is not in: {error}");
            }
            // The rows after that window are good.
            let rest = Slice { origin: WINDOW_ROWS as u64, ..slice };
            let (batches, _) = decoded(&handle, &rest, &policy(BadRows::Error)).await.expect("good rows");
            assert!(batches.iter().all(|batch| batch.substituted.is_empty()));
        }
    });
}

#[test]
fn answers_with_rows_that_are_malformed_are_refused() {
    run(async {
        let lake = TestLake::new(40).await;
        let data = drain_one(&lake).await;
        let num_rows = data.num_rows();
        let row_addrs = vec![(0..num_rows as u64).collect::<Vec<_>>()];
        let rows = RowsBeside {
            data: data.clone(),
            row_addrs: row_addrs.clone(),
            bad: [(3, "it is damaged".to_string())].into(),
            io: IoTotals::default(),
            held: None,
        };
        let (answer, schema) = (beside_answer::encode(&rows).expect("bytes"), data.schema());
        let found = beside_answer::decode(answer.clone(), &schema, 1, num_rows).expect("the rows");
        assert_eq!((found.data, found.row_addrs, found.bad), (data, row_addrs, rows.bad));
        for (num_tables, rows_max) in [(2, num_rows), (1, num_rows - 1)] {
            beside_answer::decode(answer.clone(), &schema, num_tables, rows_max).expect_err("other rows");
        }
        beside_answer::decode(b"[]".to_vec(), &schema, 1, num_rows).expect_err("no stream");
        for length in (0..answer.len() - 100).step_by(97) {
            let error = beside_answer::decode(answer[..length].to_vec(), &schema, 1, num_rows);
            assert_eq!(error.expect_err("it was cut off").kind(), ErrorKind::Internal, "at {length}");
        }
        for at in (0..answer.len().min(4_000)).step_by(3) {
            let mut changed = answer.clone();
            changed[at] ^= 0xFF;
            // A change in the bytes of values may stay unnoticed, but nothing panics.
            beside_answer::decode(changed, &schema, 1, num_rows).ok();
        }
    });
}

async fn drain_one(lake: &TestLake) -> RecordBatch {
    let handle = lake.local().await.plan_stream(ALL, &[], &options()).await.expect("a plan");
    drain(&handle, &slice(0, 1, BatchSize::PerRank(40), LastBatch::Pad)).await.remove(0).data
}
