//! Tests of rows that come in buckets.

use std::collections::BTreeMap;

use arrow_array::types::Int32Type;
use arrow_array::{Array, ListArray};
use stoker_batch::{bucket_row_schema, bucket_rows};
use stoker_types::{
    BadRows, BucketOptions, ErrorKind, LongerRows, MixOptions, MixtureStop, PackOptions, PlanRequest, Query, RunId,
};

use super::bad_rows::damage;
use super::*;

/// The tokens of a row, which name it, or NULL. Some rows have none, and a few are longer than a bucket.
fn tokens(id: i64) -> Option<Vec<Option<i32>>> {
    let length = match id % 20 {
        0 => return None,
        1 => 0,
        19 => 600 + id % 77,
        other => 1 + (id * 7 + other) % 90,
    };
    Some((0..length).map(|at| Some((id * 1_000 + at) as i32)).collect())
}

fn length(id: i64) -> u64 {
    tokens(id).map_or(0, |tokens| tokens.len() as u64)
}

/// Makes a lake with the table `texts`, and the table `more` of as many rows with other ids.
async fn texts(uri: &str, num_rows: i64) -> Engine {
    let lake = LakeStore::open(uri, &StorageOptions::default()).await.expect("a lake");
    for (table, first) in [("texts", 0), ("more", 100_000)] {
        let ids = first..first + num_rows;
        let columns: Vec<(&str, arrow_array::ArrayRef)> = vec![
            ("id", Arc::new(Int64Array::from_iter_values(ids.clone()))),
            ("tokens", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(ids.clone().map(tokens)))),
            ("name", Arc::new(StringArray::from_iter_values(ids.clone().map(|id| format!("row {id}"))))),
            ("n", Arc::new(Int64Array::from_iter_values(ids.map(|id| length(id) as i64)))),
        ];
        let batch = RecordBatch::try_from_iter(columns).expect("a batch");
        let options = WriteOptions { rows_per_fragment_max: 450, ..WriteOptions::default() };
        create(&lake, table, &batch, options).await;
    }
    Engine::new(lake, EngineOptions::default())
}

const TEXTS: &str = "SELECT id, tokens, name, n FROM texts";

fn bucket(column: &str) -> BucketOptions {
    BucketOptions { column: column.into(), max_tokens: 512, max_rows: Some(40), multiple: 4, longer: LongerRows::Alone }
}

fn options(shuffle: ShuffleMode, bucket: BucketOptions) -> StreamOptions {
    StreamOptions {
        seed: 7,
        shuffle,
        shuffle_window_bytes: Some(200 << 10),
        block_bytes: 8 << 10,
        num_lanes: 12,
        bucket: Some(bucket),
        ..StreamOptions::default()
    }
}

/// Checks a batch of buckets. Returns the ids of the rows of each bucket.
fn checked(batch: Batch) -> Vec<Vec<i64>> {
    let schema = Arc::new(bucket_row_schema(&batch.data.schema()));
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["id", "tokens", "name", "n"]);
    let rows = bucket_rows(batch, &schema).expect("rows");
    let ids = rows.data["id"].as_primitive::<Int64Type>().values().to_vec();
    let lists = rows.data["tokens"].as_list::<i32>();
    for (row, id) in ids.iter().enumerate() {
        let found =
            lists.is_valid(row).then(|| lists.value(row).as_primitive::<Int32Type>().iter().collect::<Vec<_>>());
        assert_eq!(found, tokens(*id), "{id}");
        assert_eq!(rows.data["name"].as_string::<i32>().value(row), format!("row {id}"));
        let (table, number) = if *id < 100_000 { (0, *id) } else { (1, id - 100_000) };
        let address = (((number / 450) as u64) << 32) | (number % 450) as u64;
        for (other, addrs) in rows.row_addrs.iter().enumerate() {
            assert_eq!(addrs[row], if other == table { address } else { u64::MAX }, "{id}");
        }
    }
    let of_batch = rows.buckets.as_ref().expect("buckets");
    let ends = &of_batch.ends;
    let starts = std::iter::once(&0).chain(ends);
    starts.zip(ends).map(|(start, end)| ids[*start..*end].to_vec()).collect()
}

/// Returns the buckets of the ranks of an epoch, by position.
async fn epoch(plan: &StreamPlan, epoch: u64, world_size: u32, origin: u64) -> Vec<Vec<i64>> {
    let mut buckets = BTreeMap::new();
    for rank in 0..world_size {
        let slice = Slice { epoch, origin, ..slice(rank, world_size, BatchSize::Global(12), LastBatch::Uneven) };
        let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
        while let Some(batch) = stream.next().await.expect("a batch") {
            let share = slice.share(batch.step, plan.num_rows());
            for (index, bucket) in checked(batch).into_iter().enumerate() {
                buckets.insert(share.position(index as u64), bucket);
            }
        }
    }
    assert!(buckets.keys().copied().eq(origin..plan.num_rows()));
    buckets.into_values().collect()
}

/// Checks that buckets have these rows once, within their budget.
fn check_rows(buckets: &[Vec<i64>], ids: impl Iterator<Item = i64>) {
    for bucket in buckets {
        let longest = bucket.iter().map(|id| length(*id).max(1)).max().unwrap_or(0);
        let padded = longest.next_multiple_of(4) * bucket.len() as u64;
        assert!(bucket.len() == 1 || (padded <= 512 && bucket.len() <= 40), "{padded} tokens: {bucket:?}");
    }
    let mut found = buckets.concat();
    found.sort_unstable();
    assert!(found.into_iter().eq(ids));
}

#[test]
fn each_row_is_in_one_bucket() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = texts(folder.path().to_str().expect("UTF-8"), 2_000).await;
        for (shuffle, version) in ORDERS {
            let options = options(shuffle, bucket("tokens"));
            let plan = StreamPlan::create(&engine, TEXTS, &[], &options).await.expect("a plan");
            let plan = of_version(&engine, plan, version).await;
            let first = epoch(&plan, 0, 1, 0).await;
            check_rows(&first, 0..2_000);
            // The same buckets come at the same positions on any number of ranks, from any position on.
            assert_eq!(epoch(&plan, 0, 5, 0).await, first, "{shuffle:?} {version}");
            assert_eq!(epoch(&plan, 0, 3, 100).await, first[100..], "{shuffle:?} {version}");
            let second = epoch(&plan, 1, 2, 0).await;
            check_rows(&second, 0..2_000);
            assert_ne!(second, first, "buckets change places from epoch to epoch");
            let selected = format!("{TEXTS} WHERE id % 3 = 1");
            let plan = StreamPlan::create(&engine, &selected, &[], &options).await.expect("a plan");
            check_rows(&epoch(&plan, 0, 2, 0).await, (0..2_000).filter(|id| id % 3 == 1));
        }
        // A column of lengths gives the same buckets.
        let [counted, given] = ["tokens", "n"].map(|column| options(ShuffleMode::Block, bucket(column)));
        let counted = StreamPlan::create(&engine, TEXTS, &[], &counted).await.expect("a plan");
        let given = StreamPlan::create(&engine, TEXTS, &[], &given).await.expect("a plan");
        assert_eq!(epoch(&counted, 0, 1, 0).await, epoch(&given, 0, 1, 0).await);
        for (condition, num_buckets) in [("id < 0", 0), ("id = 7", 1)] {
            let few = options(ShuffleMode::Block, bucket("tokens"));
            let few = StreamPlan::create(&engine, &format!("{TEXTS} WHERE {condition}"), &[], &few).await;
            let few = few.expect("a plan");
            assert_eq!(few.num_rows(), num_buckets);
            assert_eq!(epoch(&few, 0, 2, 0).await, vec![vec![7]; num_buckets as usize]);
        }
    });
}

#[test]
fn runs_know_buckets() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = texts(folder.path().to_str().expect("UTF-8"), 500).await;
        let request = |bucket: Option<BucketOptions>| PlanRequest {
            run_id: Some(RunId::try_new("exp").expect("a name")),
            ..PlanRequest::new(
                Query::new(TEXTS, &[]),
                StreamOptions { bucket, ..options(ShuffleMode::Block, self::bucket("n")) },
            )
        };
        let plan = StreamPlan::plan(&engine, &request(Some(bucket("n")))).await.expect("a run");
        let again = StreamPlan::plan(&engine, &request(Some(bucket("n")))).await.expect("the same run");
        assert_eq!(again.stream_id(), plan.stream_id());
        let larger = BucketOptions { max_tokens: 513, ..bucket("n") };
        let without_longer = BucketOptions { longer: LongerRows::Error, ..bucket("n") };
        for (other, wanted) in [
            (None, "bucket: the run has 512 tokens by n, 40 rows, in multiples of 4"),
            (Some(bucket("tokens")), "bucket column: the run has n, this process has tokens"),
            (Some(larger), "bucket max_tokens: the run has 512, this process has 513"),
            (Some(without_longer), "bucket longer: the run has alone, this process has error"),
        ] {
            let error = StreamPlan::plan(&engine, &request(other)).await.map(|_| ()).expect_err("other buckets");
            let text = error.to_string();
            assert!(error.kind() == ErrorKind::StateMismatch && text.contains(wanted), "{text}");
        }
    });
}

/// Rows without longer ones come in the same buckets, whatever would happen to longer ones.
#[test]
fn rows_that_fit_come_as_if_longer_ones_were_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = texts(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let sql = format!("{TEXTS} WHERE n <= 512");
        let mut epochs = Vec::new();
        for longer in [LongerRows::Alone, LongerRows::Error] {
            let options = options(ShuffleMode::Block, BucketOptions { longer, ..bucket("tokens") });
            let plan = StreamPlan::create(&engine, &sql, &[], &options).await.expect("a plan");
            let again = StreamPlan::load(&engine, plan.spec()).await.expect("the same plan");
            assert_eq!(again.stream_id(), plan.stream_id());
            epochs.push(epoch(&plan, 0, 2, 0).await);
        }
        check_rows(&epochs[0], (0..1_000).filter(|id| length(*id) <= 512));
        assert_eq!(epochs[0], epochs[1]);
    });
}

#[test]
fn buckets_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = texts(folder.path().to_str().expect("UTF-8"), 100).await;
        let refused = async |columns: &str, options: StreamOptions, parts: &[&str]| {
            let sql = format!("SELECT {columns} FROM texts");
            let error = StreamPlan::create(&engine, &sql, &[], &options).await.map(|_| ()).expect_err(&sql);
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{text}");
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        };
        let of = |bucket| options(ShuffleMode::Block, bucket);
        refused("id, tokens", of(bucket("words")), &["\"words\"", "no such column; it has id, tokens"]).await;
        refused("id, name", of(bucket("name")), &["\"name\"", "it is Utf8", "lengths of lists"]).await;
        refused("n - 30 AS n", of(bucket("n")), &["row 0x0 of texts", "-30", "lengths are numbers"]).await;
        refused("tokens", of(bucket("")), &["it names no column"]).await;
        refused("tokens", of(BucketOptions { max_tokens: 0, ..bucket("tokens") }), &["its max_tokens is 0"]).await;
        refused("tokens", of(BucketOptions { max_rows: Some(0), ..bucket("tokens") }), &["its max_rows is 0"]).await;
        refused("tokens", of(BucketOptions { multiple: 513, ..bucket("tokens") }), &["its multiple is 513"]).await;
        let error = |column: &str| BucketOptions { longer: LongerRows::Error, ..bucket(column) };
        let parts = ["row 0x13 of texts@", " has 619 tokens, 620 when it is padded; a bucket has at most 512"];
        refused("id, tokens", of(error("tokens")), &parts).await;
        refused("id, n", of(error("n")), &parts).await;
        let rounded = BucketOptions { max_tokens: 89, multiple: 20, ..error("n") };
        refused("id, CAST(81 AS BIGINT) AS n", of(rounded), &["has 81 tokens, 100 when it is padded", "at most 89"])
            .await;
        let weighted = StreamOptions { weight: Some("n".into()), ..of(bucket("n")) };
        refused("n", weighted, &["another number of buckets; leave weight or bucket out, or mix"]).await;
        let pack = PackOptions { columns: vec!["tokens".into()], length: 64, lengths: None, pad: 0 };
        let packed = StreamOptions { pack: Some(pack), ..of(bucket("tokens")) };
        refused("tokens", packed, &["leave pack or bucket out"]).await;
    });
}

#[test]
fn queries_of_mixtures_have_buckets_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = texts(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let request = PlanRequest {
            queries: vec![Query::new(TEXTS, &[]), Query::new(TEXTS.replace("texts", "more"), &[])],
            mix: Some(MixOptions { weights: vec![0.5, 0.5], stop: MixtureStop::First, epoch_rows: 0 }),
            options: options(ShuffleMode::Block, bucket("tokens")),
            run_id: None,
        };
        let plan = StreamPlan::plan(&engine, &request).await.expect("a mixture");
        let buckets = epoch(&plan, 0, 2, 0).await;
        assert!(buckets.iter().all(|ids| ids.iter().all(|id| (*id < 100_000) == (ids[0] < 100_000))));
        let mut first: Vec<i64> = buckets.concat().into_iter().filter(|id| *id < 100_000).collect();
        first.sort_unstable();
        let num_rows = first.len();
        first.dedup();
        assert!(first.len() == num_rows && num_rows > 700, "{num_rows} rows of the first query");
    });
}

/// A bucket with a bad row is replaced by another one of its window, and the receipt names the bad row.
#[test]
fn a_bad_row_makes_its_bucket_bad() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let damaged = [3, 100, 451, 777, 902];
        damage(&engine, &damaged).await;
        let bucket =
            BucketOptions { column: "id".into(), max_tokens: 4_000, max_rows: None, multiple: 1, ..bucket("id") };
        let options = options(ShuffleMode::Block, bucket);
        let plan = StreamPlan::create(&engine, ALL, &[], &options).await.expect("a plan");
        let sound = epoch_ids(&plan, BadRows::Error).await.expect_err("a bad row");
        assert_eq!(sound.kind(), ErrorKind::DataCorrupt);
        let (ids, receipt) = epoch_ids(&plan, BadRows::Substitute).await.expect("substitutes");
        assert!(damaged.iter().all(|id| !ids.contains(id)));
        let verdict = plan.verify(&[receipt]).await.expect("verdicts").remove(0);
        assert_eq!((verdict.missing.count, verdict.repeated.count), (0, 0));
        assert!(verdict.wrong.is_empty(), "{:?}", verdict.wrong);
        let named = |id: &i64| (((id / 450) as u64) << 32) | (id % 450) as u64;
        let found: Vec<u64> = verdict.substituted.iter().map(|bad| bad.row_addrs[0]).collect();
        assert!(!found.is_empty() && found.iter().all(|address| damaged.iter().any(|id| named(id) == *address)));
    });
}

/// Reads an epoch of buckets alone. Returns the ids of its rows, and the receipt.
async fn epoch_ids(plan: &StreamPlan, bad_rows: BadRows) -> Result<(Vec<i64>, Receipt)> {
    let slice = slice(0, 1, BatchSize::PerRank(1), LastBatch::Uneven);
    let mut stream = plan.open(&slice, &ReadOptions { bad_rows, ..ReadOptions::default() })?;
    let mut builder = ReceiptBuilder::new(plan.stream_id(), &slice, plan.num_rows());
    let mut ids = Vec::new();
    while let Some(batch) = stream.next().await? {
        let schema = Arc::new(bucket_row_schema(&batch.data.schema()));
        let rows = bucket_rows(batch, &schema)?;
        builder.add(&rows);
        ids.extend(rows.data["id"].as_primitive::<Int64Type>().values());
    }
    Ok((ids, builder.receipt().clone()))
}
