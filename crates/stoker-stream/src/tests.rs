//! Tests of streams over real tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::{FixedSizeListArray, Int64Array, RecordBatch, StringArray, UInt8Array};
use arrow_schema::{DataType, Field, Schema};
use stoker_batch::{Batch, Part, Quota, ReceiptBuilder, Substitution, Windows};
use stoker_columns::TensorType;
use stoker_lake::{CommitMode, LakeStore, StorageOptions, WriteOptions};
use stoker_sql::{Engine, EngineOptions};
use stoker_types::{
    BatchSize, Batching, LastBatch, Mixing, ReadOptions, Receipt, ShuffleMode, Skipped, Slice, StreamOptions,
    TableName, Topology,
};

use crate::*;

mod bad_rows;
mod buckets;
mod budget;
mod caching;
mod clips;
mod light_blocks;
mod local_reads;
mod mixtures;
mod outer_joins;
mod packs;
mod parts;
mod resident;
mod rows_beside;
mod shared;
mod spans;
mod stalls;
mod weights;

/// The size of a tensor in bytes. It is more than a kibibyte, so that the column is heavy.
const WIDTH: usize = 1_100;

fn tensor(id: i64) -> Vec<u8> {
    values(id, WIDTH).collect()
}

fn values(id: i64, width: usize) -> impl Iterator<Item = u8> {
    (0..width).map(move |at| (id as usize * 13 + at) as u8)
}

/// Makes a lake with table `t`: an id, and a tensor and a text that are functions of the id, in several pages and
/// fragments.
async fn engine(uri: &str, num_rows: i64) -> Engine {
    engine_of(uri, num_rows, WIDTH).await
}

/// Makes the same lake with tensors of `width` bytes.
async fn engine_of(uri: &str, num_rows: i64, width: usize) -> Engine {
    let lake = LakeStore::open(uri, &StorageOptions::default()).await.expect("a lake");
    let name = TableName::try_new("t").expect("a name");
    let field = TensorType { element: DataType::UInt8, shape: vec![width] }.to_field("x");
    let DataType::FixedSizeList(item, length) = field.data_type().clone() else { unreachable!("a tensor") };
    let fields = vec![field, Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, false)];
    let schema = Arc::new(Schema::new(fields));
    let options = WriteOptions { page_bytes: 40 * width, rows_per_fragment_max: 450, ..WriteOptions::default() };
    let mut writer = lake.writer(&name, &schema, false, options).await.expect("a writer");
    if num_rows > 0 {
        let values = UInt8Array::from_iter_values((0..num_rows).flat_map(|id| values(id, width)));
        let tensors = FixedSizeListArray::new(item, length, Arc::new(values), None);
        let ids = Int64Array::from_iter_values(0..num_rows);
        let names = StringArray::from_iter_values((0..num_rows).map(|id| format!("row {id}")));
        let columns: Vec<arrow_array::ArrayRef> = vec![Arc::new(tensors), Arc::new(ids), Arc::new(names)];
        let batch = RecordBatch::try_new(schema.clone(), columns).expect("a batch");
        writer.write(&batch).await.expect("written");
    }
    let schema = writer.schema();
    let drafts = writer.finish().await.expect("finished");
    lake.commit(&name, &schema, CommitMode::Create, drafts, None).await.expect("committed");
    Engine::new(lake, EngineOptions::default())
}

/// Makes a table of the rows of a batch.
async fn create(lake: &LakeStore, table: &str, batch: &RecordBatch, options: WriteOptions) {
    let name = TableName::try_new(table).expect("a name");
    let mut writer = lake.writer(&name, &batch.schema(), false, options).await.expect("a writer");
    writer.write(batch).await.expect("written");
    let schema = writer.schema();
    let drafts = writer.finish().await.expect("finished");
    lake.commit(&name, &schema, CommitMode::Create, drafts, None).await.expect("committed");
}

async fn plan(engine: &Engine, sql: &str, shuffle: ShuffleMode) -> StreamPlan {
    let (shuffle_window_bytes, block_bytes) = (Some(400 << 10), 8 << 10);
    let options = StreamOptions {
        seed: 7,
        shuffle,
        shuffle_window_bytes,
        block_bytes,
        num_lanes: 12,
        order_version: Some(1),
        weight: None,
        pack: None,
        bucket: None,
    };
    StreamPlan::create(engine, sql, &[], &options).await.expect("a plan")
}

/// Makes the same plan with a version of the order. Version 2 has the same blocks, each in several super-strides: for
/// as small tables, the options would make blocks of one row, which are delivered at once.
async fn plan_of_version(engine: &Engine, sql: &str, shuffle: ShuffleMode, order_version: u32) -> StreamPlan {
    of_version(engine, plan(engine, sql, shuffle).await, order_version).await
}

async fn of_version(engine: &Engine, plan: StreamPlan, order_version: u32) -> StreamPlan {
    if order_version == 1 {
        return plan;
    }
    let mut spec = plan.spec().clone();
    spec.sources[0].order.mixing = Mixing::DelayLine { super_strides_per_block: 8 };
    StreamPlan::load(engine, &spec).await.expect("the same rows in another order")
}

/// The modes of shuffling, each with the versions of its order.
const ORDERS: [(ShuffleMode, u32); 4] =
    [(ShuffleMode::Block, 1), (ShuffleMode::Block, 2), (ShuffleMode::Full, 1), (ShuffleMode::Sequential, 1)];

/// Returns the valid ids of each step of a slice. Checks that tensors and names belong to the ids, padding included.
async fn ids(plan: &StreamPlan, slice: Slice, steps: u64) -> Vec<Vec<i64>> {
    let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
    let mut all = Vec::new();
    for step in slice.first_step..slice.first_step + steps {
        let batch = stream.next().await.expect("a batch").expect("not the end");
        assert_eq!(batch.step, step);
        assert_eq!(batch.cursor.position, slice.position_after(step, plan.num_rows()));
        let ids = batch.data["id"].as_primitive::<Int64Type>().values().to_vec();
        let names = batch.data["name"].as_string::<i32>();
        let tensors = batch.data["x"].as_fixed_size_list();
        for (row, id) in ids.iter().enumerate() {
            assert_eq!(names.value(row), format!("row {id}"));
            assert_eq!(tensors.value(row).as_primitive::<UInt8Type>().values().to_vec(), tensor(*id));
        }
        assert_eq!(batch.row_addrs[0].len(), ids.len());
        all.push(ids[..batch.num_valid].to_vec());
    }
    all
}

fn slice(rank: u32, world_size: u32, size: BatchSize, last: LastBatch) -> Slice {
    Slice::new(Topology { rank, world_size }, Batching { size, last }, 0)
}

const ALL: &str = "SELECT x, id, name FROM t";

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime").block_on(future)
}

#[test]
fn every_row_once_for_any_rows_worlds_and_modes() {
    run(async {
        for num_rows in [0, 1, 7, 1_000] {
            let folder = tempfile::tempdir().expect("a folder");
            let engine = engine(folder.path().to_str().expect("UTF-8"), num_rows).await;
            for (shuffle, version) in ORDERS {
                let plan = plan_of_version(&engine, ALL, shuffle, version).await;
                for (world, size) in [(1, 64), (2, 7), (3, 100), (5, 1_000), (8, 3)] {
                    let mut seen: BTreeMap<i64, u32> = BTreeMap::new();
                    for rank in 0..world {
                        let slice = slice(rank, world, BatchSize::PerRank(size), LastBatch::Pad);
                        let steps = slice.num_steps(plan.num_rows());
                        ids(&plan, slice, steps)
                            .await
                            .into_iter()
                            .flatten()
                            .for_each(|id| *seen.entry(id).or_default() += 1);
                    }
                    assert_eq!(seen.len() as i64, num_rows, "{shuffle:?} {world} {size}");
                    assert!(seen.values().all(|times| *times == 1));
                }
            }
        }
    });
}

/// Returns the rows of each global batch over all ranks.
async fn global(plan: &StreamPlan, world: u32, origin: u64) -> Vec<Vec<i64>> {
    let mut batches: Vec<Vec<i64>> = Vec::new();
    for rank in 0..world {
        let slice = Slice { origin, ..slice(rank, world, BatchSize::Global(60), LastBatch::Uneven) };
        let steps = slice.num_steps(plan.num_rows());
        batches.resize(steps as usize, Vec::new());
        for (batch, mine) in batches.iter_mut().zip(ids(plan, slice, steps).await) {
            batch.extend(mine);
        }
    }
    batches.iter_mut().for_each(|batch| batch.sort_unstable());
    batches
}

#[test]
fn global_batches_do_not_depend_on_the_world_size_nor_on_resumes() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let one = global(&plan, 1, 0).await;
        for world in [2, 4, 7] {
            assert_eq!(global(&plan, world, 0).await, one);
        }
        for (step, world) in [(1, 3), (9, 5), (16, 2), (17, 1)] {
            assert_eq!(global(&plan, world, step * 60).await, one[step as usize..]);
        }
    });
}

#[test]
fn a_stream_is_found_again_by_its_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let uri = folder.path().to_str().expect("UTF-8").to_string();
    run(async {
        let first = plan(&engine(&uri, 300).await, ALL, ShuffleMode::Block).await;
        assert!(first.spec_stored());
        let lake = LakeStore::open(&uri, &StorageOptions::default()).await.expect("a lake");
        let engine = Engine::new(lake, EngineOptions::default());
        let again = StreamPlan::load_by_id(&engine, first.stream_id()).await.expect("the same stream");
        let slice = slice(0, 1, BatchSize::PerRank(50), LastBatch::Drop);
        assert_eq!(ids(&again, slice, 6).await, ids(&first, slice, 6).await);
        let unknown = StreamPlan::load_by_id(&engine, stoker_types::Digest::of(b"nothing")).await.map(|_| ());
        assert_eq!(unknown.expect_err("unknown").kind(), stoker_types::ErrorKind::NotFound);
    });
}

#[test]
fn filters_renames_and_computed_columns_stream() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 900).await;
        let sql = "SELECT id, id * 2 AS double, x, name FROM t WHERE id % 3 = 0 ORDER BY id DESC";
        let plan = plan(&engine, sql, ShuffleMode::Sequential).await;
        let slice = slice(0, 1, BatchSize::PerRank(100), LastBatch::Uneven);
        let found: Vec<i64> = ids(&plan, slice, 3).await.into_iter().flatten().collect();
        assert_eq!(found, (0..300).rev().map(|id| id * 3).collect::<Vec<_>>());
        let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
        let batch = stream.next().await.expect("a batch").expect("not the end");
        let double = batch.data["double"].as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(double[..3], [1_794, 1_788, 1_782]);
    });
}

#[test]
fn a_small_budget_bounds_what_is_read_ahead_and_still_delivers_all() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        // The budgets range from less than a row to a few batches.
        for memory_budget_bytes in [1, 100 << 10, 300 << 10] {
            let slice = slice(0, 1, BatchSize::PerRank(64), LastBatch::Pad);
            let options = ReadOptions { memory_budget_bytes, ..ReadOptions::default() };
            let mut stream = plan.open(&slice, &options).expect("a stream");
            let mut rows = 0;
            while let Some(batch) = stream.next().await.expect("a batch") {
                rows += batch.num_valid;
            }
            assert_eq!(rows, 1_000, "{memory_budget_bytes}");
        }
    });
}

#[test]
fn blocks_are_read_with_few_requests_and_once() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 10_000).await;
        let options = StreamOptions {
            seed: 7,
            shuffle_window_bytes: Some(8_192 * WIDTH as u64),
            block_bytes: 8 * WIDTH as u64,
            num_lanes: 12,
            order_version: Some(1),
            ..StreamOptions::default()
        };
        let plan = StreamPlan::create(&engine, "SELECT x FROM t", &[], &options).await.expect("a plan");
        let rows_per_block = plan.spec().sources[0].order.rows_per_block;
        assert!((6..=8).contains(&rows_per_block), "{rows_per_block}");
        let slice = slice(0, 1, BatchSize::PerRank(50), LastBatch::Drop);
        let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
        while stream.next().await.expect("a batch").is_some() {}
        let stats = stream.stats();
        assert!(stats.bytes_read <= 10_000 * WIDTH as u64 * 11 / 10, "{stats:?}");
        // The boundaries of pages, lanes and windows split some blocks, and so does the first batch, which is read on
        // its own.
        assert!(stats.requests <= 10_000 / rows_per_block * 3 / 2, "{stats:?}");
        assert_eq!((stats.rows, stats.batches), (10_000, 200));
    });
}

#[test]
fn a_resume_deep_in_an_epoch_reads_at_most_one_window_more() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 10_000).await;
        let window_rows = 1_200;
        let options = StreamOptions {
            shuffle_window_bytes: Some(window_rows * WIDTH as u64),
            block_bytes: 6 * WIDTH as u64,
            num_lanes: 12,
            order_version: Some(1),
            ..StreamOptions::default()
        };
        let plan = StreamPlan::create(&engine, "SELECT x FROM t", &[], &options).await.expect("a plan");
        for origin in [0, 1, 4_799, 5_000, 9_990] {
            for world in [1, 3] {
                let mut bytes_read = 0;
                for rank in 0..world {
                    let slice = Slice { origin, ..slice(rank, world, BatchSize::Global(60), LastBatch::Uneven) };
                    let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
                    while stream.next().await.expect("a batch").is_some() {}
                    bytes_read += stream.stats().bytes_read;
                }
                let (left, window) = (10_000 - origin, window_rows);
                assert!(bytes_read <= (left * 11 / 10 + window) * WIDTH as u64, "{bytes_read} from {origin} on");
            }
        }
    });
}

#[test]
fn an_invalid_slice_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 10).await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        for bad in
            [slice(2, 2, BatchSize::PerRank(5), LastBatch::Pad), slice(0, 1, BatchSize::Global(0), LastBatch::Pad)]
        {
            let error = plan.open(&bad, &ReadOptions::default()).map(|_| ()).expect_err("invalid");
            assert_eq!(error.kind(), stoker_types::ErrorKind::InvalidRequest);
        }
    });
}

/// Returns the receipt of a rank that gets `steps` batches of a slice.
async fn receipt(plan: &StreamPlan, slice: Slice, steps: u64) -> Receipt {
    let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
    let mut builder = ReceiptBuilder::new(plan.stream_id(), &slice, plan.num_rows());
    for _ in 0..steps {
        builder.add(&stream.next().await.expect("a batch").expect("not the end"));
    }
    Receipt::from_json(&builder.receipt().to_json()).expect("own JSON")
}

#[test]
fn receipts_prove_that_each_row_was_seen_once_or_name_what_is_wrong() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let plan = plan(&engine, "SELECT x, id FROM t WHERE id % 7 != 3", ShuffleMode::Block).await;
        let num_rows = plan.num_rows();
        // Three ranks stop after ten batches of 8 rows each, and two ranks continue.
        let mut receipts = Vec::new();
        for rank in 0..3 {
            let slice = slice(rank, 3, BatchSize::PerRank(8), LastBatch::Pad);
            receipts.push(receipt(&plan, slice, 10).await);
        }
        for rank in 0..2 {
            let slice = Slice { origin: 240, ..slice(rank, 2, BatchSize::PerRank(50), LastBatch::Uneven) };
            receipts.push(receipt(&plan, slice, slice.num_steps(num_rows)).await);
        }
        let verdict = async |receipts: &[Receipt]| plan.verify(receipts).await.expect("a verdict").remove(0);
        let sound = verdict(&receipts).await;
        assert!(sound.is_exactly_once() && sound.num_rows == num_rows, "{sound:?}");

        let without = verdict(&receipts[..4]).await;
        assert_eq!((without.missing.count, without.repeated.count), ((num_rows - 240) / 2, 0));
        assert_eq!(without.missing.runs[0], 241..242);
        let twice = verdict(&[&receipts[..], &receipts[..1]].concat()).await;
        assert_eq!((twice.missing.count, twice.repeated.count, twice.repeated.runs[1].clone()), (0, 80, 3..4));
        let slice = Slice { origin: 230, ..slice(0, 1, BatchSize::PerRank(10), LastBatch::Pad) };
        let overlap = verdict(&[&receipts[..], &[receipt(&plan, slice, 1).await]].concat()).await;
        assert_eq!((overlap.missing.count, overlap.repeated.count, &overlap.repeated.runs[0]), (0, 10, &(230..240)));

        let mut wrong = receipts.clone();
        wrong[1].parts[0].sum ^= 1;
        assert_eq!(verdict(&wrong).await.wrong, wrong[1].parts);
        wrong[1].stream_id = stoker_types::Digest::of(b"another");
        let error = plan.verify(&wrong).await.expect_err("a receipt of another stream");
        assert!(error.to_string().contains("it belongs to stream"), "{error}");
        wrong[1] = receipts[1].clone();
        wrong[1].parts[0].end = num_rows + 1;
        assert!(plan.verify(&wrong).await.is_err());
        assert!(Receipt::from_json("{}").is_err());
    });
}

#[test]
fn rows_that_fill_no_batch_are_dropped_and_not_missing_also_beside_receipts_of_version_2() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = engine(folder.path().to_str().expect("UTF-8"), 100).await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let part = |rank| slice(rank, 2, BatchSize::PerRank(15), LastBatch::Drop);
        let (first, second) = (receipt(&plan, part(0), 3).await, receipt(&plan, part(1), 3).await);
        assert_eq!((first.version, &first.dropped), (3, &vec![Skipped { epoch: 0, start: 90, end: 100 }]));
        let verdict = plan.verify(&[first.clone(), second]).await.expect("a verdict").remove(0);
        assert!(verdict.is_exactly_once(), "{verdict:?}");
        assert_eq!((verdict.missing.count, verdict.dropped.runs.as_slice()), (0, std::slice::from_ref(&(90..100))));

        // The receipt of the other rank is as version 2 wrote it, without the dropped rows.
        let mut old: serde_json::Value =
            serde_json::from_str(&receipt(&plan, part(1), 3).await.to_json()).expect("JSON");
        old["version"] = 2.into();
        old.as_object_mut().expect("an object").remove("dropped");
        let old = Receipt::from_json(&old.to_string()).expect("a receipt of version 2");
        let verdict = plan.verify(&[first, old.clone()]).await.expect("a verdict").remove(0);
        assert!(verdict.is_exactly_once() && verdict.dropped.count == 10, "{verdict:?}");
        let whole = slice(0, 1, BatchSize::PerRank(10), LastBatch::Pad);
        assert_eq!(receipt(&plan, whole, 10).await.version, 2, "readable for older builds");
    });
}
