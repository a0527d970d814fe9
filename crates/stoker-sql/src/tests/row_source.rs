//! Parts of a row set: how selections split, and that merged parts equal one pass.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use bytes::Bytes;
use futures::TryStreamExt as _;
use lance::Dataset;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use stoker_lake::{CommitMode, LakeStore, StorageOptions, WriteOptions};
use stoker_types::{ErrorKind, StatementProgress};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::fixture::{Fixture, check_error, table_name};
use crate::{Engine, EngineOptions, PartialRowSet, RowSource, SampleQuery, Split};

/// The rows of a fragment of `t`.
const FRAGMENT_ROWS: i64 = 37;

/// A lake with a table `t`, whose versions are: 300 rows; without some of them, and without fragment 2; with 60 more.
struct Parts {
    dir: TempDir,
    engine: Engine,
}

fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let name = |id: i64| (id % 7 != 0).then(|| format!("n{id}"));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(ids.clone()))),
        ("label", Arc::new(Int64Array::from_iter_values(ids.clone().map(|id| id % 10)))),
        ("name", Arc::new(StringArray::from_iter(ids.map(name)))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, name == "name")))
        .expect("a valid batch")
}

async fn append(lake: &LakeStore, ids: std::ops::Range<i64>, rows_per_fragment: i64) {
    let (name, batch) = (table_name("t"), batch(ids));
    let options = WriteOptions { rows_per_fragment_max: rows_per_fragment as u64, ..WriteOptions::default() };
    let mut writer = lake.writer(&name, &batch.schema(), true, options).await.expect("a writer");
    writer.write(&batch).await.expect("written rows");
    let drafts = writer.finish().await.expect("drafts");
    lake.commit(&name, &batch.schema(), CommitMode::CreateOrAppend, drafts, None).await.expect("a version");
}

async fn lake(dir: &TempDir) -> LakeStore {
    LakeStore::open(dir.path().to_str().expect("a UTF-8 path"), &StorageOptions::default()).await.expect("a lake")
}

fn is_deleted(id: i64) -> bool {
    id < 300 && (id % 5 == 1 || id / FRAGMENT_ROWS == 2)
}

impl Parts {
    async fn new() -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let writer = lake(&dir).await;
        append(&writer, 0..300, FRAGMENT_ROWS).await;
        let uri = dir.path().join("t.lance");
        let mut dataset = Dataset::open(uri.to_str().expect("a UTF-8 path")).await.expect("the table");
        dataset.delete("id % 5 = 1 OR (id >= 74 AND id < 111)").await.expect("deleted rows");
        append(&writer, 300..360, FRAGMENT_ROWS).await;
        let options = EngineOptions { target_partitions: 3, ..EngineOptions::default() };
        Self { engine: Engine::new(lake(&dir).await, options), dir }
    }

    async fn source(&self, sql: &str) -> (SampleQuery, RowSource) {
        let query = self.engine.sample(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        (query.clone(), self.engine.row_source(&query))
    }

    /// Returns the stored objects of row sets, and removes them.
    fn take_objects(&self) -> BTreeMap<String, Vec<u8>> {
        take_objects(&self.dir.path().join("_stoker/rowsets"))
    }
}

fn take_objects(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut objects = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => objects.extend(take_objects(&path)),
            false => {
                objects.insert(path.display().to_string(), fs::read(&path).expect("an object"));
                fs::remove_file(&path).expect("removed");
            }
        }
    }
    objects
}

fn ids(source: &RowSource) -> Vec<u32> {
    source.fragments().iter().map(|fragment| fragment.id).collect()
}

/// Passes a partial row set through its binary form.
fn passed(partial: PartialRowSet) -> PartialRowSet {
    let (fragments, num_rows): (Vec<u32>, u64) = (partial.fragments().collect(), partial.num_rows());
    let read = PartialRowSet::from_bytes(&partial.into_bytes().expect("bytes")).expect("a partial row set");
    assert_eq!((read.fragments().collect::<Vec<_>>(), read.num_rows()), (fragments, num_rows));
    read
}

const SELECTIONS: [&str; 9] = [
    "SELECT id, name FROM t AT (VERSION => 1)",
    "SELECT id, name FROM t",
    "SELECT name FROM t WHERE label < 4 AND name LIKE 'n1%'",
    "SELECT name FROM t WHERE id BETWEEN 30 AND 130 OR id = 359",
    "SELECT x FROM (SELECT id AS x, label FROM t WHERE label > 2) s WHERE x % 3 = 0",
    "SELECT id FROM t WHERE id < 0",
    "SELECT id, upper(name) AS u, id / 2.0 AS half FROM t WHERE label <> 3",
    "SELECT id, name || 'x' AS u, CASE WHEN label > 5 THEN [id, label] END AS l FROM t AT (VERSION => 1)",
    "SELECT id, label + 1 AS next FROM t WHERE id < 0",
];

/// Assigns fragments to parts, and says in which order the parts are merged, and which go through their bytes.
#[derive(Clone, Debug)]
struct Plan {
    part_of: Vec<usize>,
    picks: Vec<(usize, usize)>,
    as_bytes: Vec<bool>,
}

const NUM_PARTS: usize = 5;

fn plans() -> impl Strategy<Value = Plan> {
    (vec(0..NUM_PARTS, 16), vec((0..NUM_PARTS, 0..NUM_PARTS), NUM_PARTS), vec(any::<bool>(), 2 * NUM_PARTS))
        .prop_map(|(part_of, picks, as_bytes)| Plan { part_of, picks, as_bytes })
}

/// Computes the parts of a plan apart, and merges them. A part may have no fragments.
async fn merged(source: &RowSource, plan: &Plan) -> PartialRowSet {
    let mut as_bytes = plan.as_bytes.iter().copied();
    let mut pass = |partial| if as_bytes.next() == Some(true) { passed(partial) } else { partial };
    let mut parts = Vec::new();
    for part in 0..NUM_PARTS {
        let fragments = ids(source).into_iter().zip(&plan.part_of);
        let fragments: Vec<u32> = fragments.filter(|(_, of)| **of == part).map(|(id, _)| id).collect();
        let partial = source.partial(&fragments).await.expect("a partial row set");
        assert_eq!(partial.fragments().collect::<Vec<_>>(), fragments);
        parts.push(pass(partial));
    }
    for (one, other) in &plan.picks {
        if parts.len() > 1 {
            let one = parts.swap_remove(one % parts.len());
            let other = parts.swap_remove(other % parts.len());
            parts.push(pass(one.merge(other).expect("parts that fit together")));
        }
    }
    parts.pop().expect("a part")
}

#[test]
fn parts_merged_in_any_order_equal_one_pass() {
    let runtime = Runtime::new().expect("a runtime");
    let lake = runtime.block_on(Parts::new());
    for sql in SELECTIONS {
        let (query, source) = runtime.block_on(lake.source(sql));
        assert_eq!(query.split(), Split::ByFragment, "{sql}");
        assert!(ids(&source).len() >= 9, "{:?}", ids(&source));
        let whole = runtime.block_on(lake.engine.row_set(&query)).expect("a row set");
        let objects = lake.take_objects();
        assert!(!objects.is_empty(), "{sql}");
        let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(8) });
        let outcome = runner.run(&plans(), |plan| {
            let row_set = runtime.block_on(async {
                let merged = merged(&source, &plan).await;
                source.row_set(merged).await.expect("a row set")
            });
            prop_assert_eq!(row_set.digest(), whole.digest());
            prop_assert_eq!(row_set.num_rows(), whole.num_rows());
            prop_assert!(lake.take_objects() == objects, "the stored bytes differ");
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[tokio::test]
async fn pages_reach_over_fragments() {
    let dir = TempDir::new().expect("a temporary folder");
    append(&lake(&dir).await, 0..150_000, 40_000).await;
    let options = EngineOptions { target_partitions: 3, ..EngineOptions::default() };
    let lake = Parts { engine: Engine::new(lake(&dir).await, options), dir };
    for (sql, num_pages) in [("SELECT id, label + id AS n FROM t", 3), ("SELECT id FROM t WHERE id % 3 = 0", 1)] {
        let (query, source) = lake.source(sql).await;
        let whole = lake.engine.row_set(&query).await.expect("a row set");
        let objects = lake.take_objects();
        assert_eq!(objects.len(), num_pages + 1, "{sql}");
        let rest = source.partial(&[3, 1]).await.expect("two fragments");
        let parts = source.partial(&[2, 0]).await.expect("two fragments").merge(passed(rest)).expect("all fragments");
        assert_eq!(source.row_set(parts).await.expect("a row set").digest(), whole.digest(), "{sql}");
        assert!(lake.take_objects() == objects, "{sql}: the stored bytes differ");
    }
}

#[tokio::test]
async fn progress_counts_the_rows_that_scans_passed() {
    let dir = TempDir::new().expect("a temporary folder");
    append(&lake(&dir).await, 0..150_000, 40_000).await;
    let options = EngineOptions { target_partitions: 1, ..EngineOptions::default() };
    let engine = Engine::new(lake(&dir).await, options);
    // Rows that a filter leaves out are passed with the next row that it keeps. The scan is a few batches ahead.
    for (sql, passed) in [("SELECT id FROM t", 1..50_000), ("SELECT id FROM t WHERE id >= 100000", 100_001..149_999)] {
        let (reports, progress) = watch::channel(StatementProgress::default());
        let engine = engine.clone().reporting(reports);
        let query = engine.sample(sql, &[]).await.expect("a sample query");
        let mut rows = engine.row_source(&query).rows(&[0, 1, 2, 3]).await.expect("rows");
        assert!(rows.try_next().await.expect("rows").is_some());
        let half_way = progress.borrow().clone();
        assert!(passed.contains(&half_way.done), "{sql}: {half_way}");
        assert_eq!((half_way.phase.as_str(), half_way.total), ("selecting rows", Some(150_000)), "{sql}");
        while rows.try_next().await.expect("rows").is_some() {}
        assert_eq!(progress.borrow().done, 150_000, "{sql}");
        // Another row set of the same plan adds its rows.
        engine.row_set(&query).await.expect("a row set");
        let both = progress.borrow().clone();
        assert_eq!((both.done, both.total), (300_000, Some(300_000)), "{sql}");
    }
}

#[tokio::test]
async fn rows_come_by_fragment() {
    let lake = Parts::new().await;
    for (sql, has_columns) in
        [("SELECT id, label * 2 AS twice FROM t WHERE label > 3", true), ("SELECT id FROM t WHERE label > 3", false)]
    {
        let (_, source) = lake.source(sql).await;
        assert!(!ids(&source).contains(&2), "all rows of fragment 2 are deleted");
        let rows: Vec<_> = source.rows(&[4, 1]).await.expect("rows").try_collect().await.expect("rows");
        let mut found = Vec::new();
        for rows in &rows {
            assert_eq!(rows.offsets().len(), rows.num_rows());
            let first = i64::from(rows.fragment()) * FRAGMENT_ROWS;
            let of_piece: Vec<i64> = rows.offsets().map(|offset| first + i64::from(offset)).collect();
            if has_columns {
                let twice = rows.columns()[0].as_primitive::<Int64Type>().values().to_vec();
                assert_eq!(twice, of_piece.iter().map(|id| id % 10 * 2).collect::<Vec<_>>());
            }
            assert_eq!(rows.columns().len(), usize::from(has_columns));
            found.extend(of_piece);
        }
        let is_expected = |id: &i64| [1, 4].contains(&(id / FRAGMENT_ROWS)) && id % 10 > 3 && !is_deleted(*id);
        assert_eq!(found, (0..300).filter(is_expected).collect::<Vec<_>>(), "{sql}");
    }
}

#[tokio::test]
async fn merging_is_associative() {
    let lake = Parts::new().await;
    for sql in SELECTIONS {
        let (_, source) = lake.source(sql).await;
        let part = async |fragments: &[u32]| source.partial(fragments).await.expect("a partial row set");
        let all = ids(&source);
        let (a, b, c) = (&all[..3], &all[3..4], &all[4..]);
        let fits = "parts that fit together";
        let left = part(a).await.merge(part(b).await).expect(fits).merge(part(c).await).expect(fits);
        let right = part(a).await.merge(part(b).await.merge(part(c).await).expect(fits)).expect(fits);
        let other = part(c).await.merge(part(&[]).await).expect(fits).merge(part(a).await).expect(fits);
        let other = part(b).await.merge(other).expect(fits);
        let one = part(&all).await.into_bytes().expect("bytes");
        for bytes in [left, right, other].map(|partial| passed(partial).into_bytes().expect("bytes")) {
            let same = PartialRowSet::from_bytes(&bytes).expect("a partial row set");
            assert_eq!(same.num_rows(), PartialRowSet::from_bytes(&one).expect("a partial row set").num_rows());
            assert!(sql.contains(" AS ") || bytes == one, "{sql}: the bytes of a set of addresses differ");
        }
    }
}

#[tokio::test]
async fn parts_that_do_not_fit_are_refused() {
    let lake = Parts::new().await;
    let invalid = ErrorKind::InvalidRequest;
    for sql in ["SELECT id FROM t WHERE label > 3", "SELECT id, label * 2 AS twice FROM t WHERE label > 3"] {
        let (_, source) = lake.source(sql).await;
        let part = async |fragments: &[u32]| source.partial(fragments).await.expect("a partial row set");
        let error = part(&[0, 1, 3]).await.merge(part(&[3, 4, 1]).await).expect_err("an overlap");
        check_error(sql, &error, invalid, &["table t@3", "overlap", "fragments 1, 3"]);
        let error = source.row_set(part(&[0, 1, 3]).await).await.expect_err("missing fragments");
        check_error(sql, &error, invalid, &["incomplete", "fragments 4, 5, 6, 7, 8", "are missing"]);
        let but_one: Vec<u32> = ids(&source).into_iter().filter(|id| *id != 5).collect();
        let error = source.row_set(part(&but_one).await).await.expect_err("a missing fragment");
        check_error(sql, &error, invalid, &["fragment 5 is missing"]);
        let error = source.partial(&[0, 2]).await.expect_err("a fragment without rows");
        check_error(sql, &error, invalid, &["fragment 2", "t@3"]);
        for other in ["SELECT id FROM t WHERE label > 4", "SELECT id FROM t AT (VERSION => 1) WHERE label > 3"] {
            let (_, other) = lake.source(other).await;
            let foreign = other.partial(&[0]).await.expect("a partial row set");
            let error = part(&[1]).await.merge(foreign).expect_err("another selection");
            check_error(sql, &error, invalid, &["different queries or snapshots"]);
            let error = source.row_set(other.partial(&ids(&other)).await.expect("all rows")).await;
            check_error(sql, &error.expect_err("another selection"), invalid, &["another query"]);
        }
        let bytes = part(&[0, 1]).await.into_bytes().expect("bytes");
        for length in [0, 10, bytes.len() / 2, bytes.len() - 1] {
            let error = PartialRowSet::from_bytes(&bytes.slice(..length)).expect_err("truncated bytes");
            check_error(sql, &error, ErrorKind::DataCorrupt, &["partial row set"]);
        }
        for place in [3, bytes.len() / 2, bytes.len() - 1] {
            let mut flipped = bytes.to_vec();
            flipped[place] ^= 1;
            let error = PartialRowSet::from_bytes(&Bytes::from(flipped)).expect_err("a flipped bit");
            check_error(sql, &error, ErrorKind::DataCorrupt, &["partial row set"]);
        }
    }
}

#[tokio::test]
async fn queries_say_how_they_split() {
    let fixture = Fixture::new().await;
    for (sql, reason) in [
        ("SELECT image, label FROM samples", None),
        ("SELECT * FROM samples AT (VERSION => 1) s WHERE s.label = 3 AND tensor_mean(image) > 100", None),
        ("SELECT image, upper(name) AS u FROM samples WHERE label IN (1, 2)", None),
        ("WITH t AS (SELECT image, id FROM samples WHERE id > 3) SELECT image FROM t WHERE id < 9", None),
        ("SELECT image FROM samples WHERE false", None),
        ("SELECT image FROM samples ORDER BY label", Some("an order")),
        ("SELECT image FROM samples ORDER BY label LIMIT 33", Some("a limit")),
        ("SELECT image FROM samples LIMIT 7", Some("a limit")),
        ("SELECT image FROM (SELECT image, id FROM samples LIMIT 7) t WHERE id > 3", Some("a limit")),
        ("SELECT image, row_number() OVER (ORDER BY id) AS r FROM samples", Some("a window function")),
        ("SELECT s.image, l.title FROM samples s JOIN labels l ON s.label = l.label", Some("a join")),
        ("SELECT image FROM samples UNION ALL SELECT image FROM samples", Some("a UNION")),
        ("SELECT image, unnest([label, id]) AS u FROM samples", Some("an UNNEST")),
        ("SELECT image FROM samples WHERE label IN (SELECT label FROM labels)", Some("a subquery")),
        ("SELECT image, (SELECT max(weight) FROM labels) AS w FROM samples", Some("a subquery")),
        ("SELECT image, _distance FROM vector_search(samples, emb, [1, 2, 3, 1])", Some("a search")),
    ] {
        let (query, _) = fixture.sample(sql).await;
        let source = fixture.engine.row_source(&query);
        let expected = reason.map_or(Split::ByFragment, |reason| Split::Whole { reason });
        assert_eq!((query.split(), source.split()), (expected, expected), "{sql}");
        assert_eq!(source.fragments().is_empty(), reason.is_some(), "{sql}");
        if let Some(reason) = reason {
            let error = source.partial(&[0]).await.expect_err("a selection in one pass");
            check_error(sql, &error, ErrorKind::InvalidRequest, &["does not split by fragment", reason, "one pass"]);
            assert!(source.rows(&[]).await.is_err(), "{sql}");
        }
    }
}
