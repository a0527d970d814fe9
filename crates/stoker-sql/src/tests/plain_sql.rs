//! Plain queries: pushdown, partitions, errors.

use std::thread::yield_now;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use futures::TryStreamExt as _;
use stoker_types::{ErrorKind, ParamValue, QueryOptions, Snapshot};
use tokio::runtime::Runtime;

use super::fixture::{Fixture, NUM_NEWEST, ints, rows};

#[tokio::test]
async fn results_equal_brute_force() {
    let fixture = Fixture::new().await;
    let batch =
        fixture.collect("SELECT id FROM samples WHERE split = 'test' AND label < 3 OR name IS NULL ORDER BY id").await;
    let expected =
        rows(NUM_NEWEST).into_iter().filter(|row| row.split == "test" && row.label < 3 || row.name.is_none());
    assert_eq!(ints(&batch, "id"), expected.map(|row| row.id).collect::<Vec<_>>());
    let counted = fixture.collect("SELECT label, count(*) AS n FROM samples GROUP BY label ORDER BY label").await;
    assert_eq!(ints(&counted, "n"), [30; 10]);
    let joined = fixture.collect("SELECT s.id, l.title FROM samples s JOIN labels l ON s.label = l.label").await;
    assert_eq!(joined.num_rows(), 240);
}

#[tokio::test]
async fn a_query_that_was_checked_reads_the_newest_rows_when_it_runs() {
    let fixture = Fixture::new().await;
    let engine = &fixture.engine;
    let run = async |sql: &str, params: &[ParamValue]| {
        let query = engine.query_with_options(sql, params, &[], QueryOptions::default()).await.expect("a query");
        let batches: Vec<RecordBatch> = query.execute().await.expect("rows").try_collect().await.expect("rows");
        ints(&batches[0], "n")
    };
    let counting = "SELECT count(*) AS n FROM samples WHERE id >= $1";
    let from = |id: i64| [ParamValue::Int(id)];
    assert_eq!(engine.columns(counting, &from(0)).await.expect("columns").field(0).name(), "n");
    assert_eq!(run(counting, &from(10)).await, [NUM_NEWEST - 10], "other parameters");
    assert_eq!(run(counting, &from(0)).await, [NUM_NEWEST]);
    engine.columns(counting, &from(0)).await.expect("columns");
    fixture.append(7).await;
    assert_eq!(run(counting, &from(0)).await, [NUM_NEWEST + 7]);
    assert_eq!(run(counting, &from(0)).await, [NUM_NEWEST + 7], "the plan was taken");
}

#[tokio::test]
async fn a_plan_is_kept_for_the_same_query_of_the_same_snapshots() {
    let fixture = Fixture::new().await;
    let engine = &fixture.engine;
    let sql = "SELECT id FROM samples WHERE id >= $1";
    let (params, exact) = ([ParamValue::Int(5)], QueryOptions::default());
    let keep = async |sql: &str, params: &[ParamValue]| {
        let query = engine.query(sql, params).await.expect("a query");
        let snapshots = query.snapshots().to_vec();
        engine.keep(query);
        snapshots
    };
    let asked = async |params: &[ParamValue], pinned: &[Snapshot], options| {
        engine.query_with_options(sql, params, pinned, options).await.expect("a query");
        engine.num_kept()
    };
    let pinned = keep(sql, &params).await;
    assert_eq!(asked(&[ParamValue::Int(6)], &pinned, exact).await, 1, "other parameters");
    assert_eq!(asked(&params, &pinned, QueryOptions::approximate(true)).await, 1, "other options");
    fixture.append(7).await;
    assert_eq!(asked(&params, &pinned, exact).await, 0, "the ticket has the older snapshot");
    keep("SELECT id FROM samples AT (TAG => 'v1')", &[]).await;
    keep("SELECT id FROM samples WHERE name = $1", &[ParamValue::Text("a".repeat(100_000))]).await;
    assert_eq!(engine.num_kept(), 0, "a tag may move, and long parameters take memory");
}

#[test]
fn a_plan_that_is_kept_does_not_keep_its_engine_longer_than_the_runtime() {
    let runtime = Runtime::new().expect("a runtime");
    let holders = runtime.block_on(async {
        let fixture = Fixture::new().await;
        fixture.engine.columns("SELECT id FROM samples", &[]).await.expect("columns");
        assert_eq!(fixture.engine.num_kept(), 1);
        fixture.engine.holders()
    });
    assert!(holders() > 0, "the plan holds its engine");
    drop(runtime);
    let start = Instant::now();
    while holders() > 0 && start.elapsed() < Duration::from_secs(60) {
        // The planner's thread drops its work.
        yield_now();
    }
    assert_eq!(holders(), 0);
}

#[tokio::test]
async fn heavy_columns_come_complete_and_in_small_batches() {
    let fixture = Fixture::new().await;
    let batch = fixture.collect("SELECT image, id FROM samples WHERE label = 7").await;
    assert_eq!(batch.num_rows(), 30);
    let ids = ints(&batch, "id");
    let images = arrow_array::cast::AsArray::as_fixed_size_list(batch.column(0));
    for (row, id) in ids.iter().enumerate() {
        let image = images.value(row);
        let pixels = arrow_array::cast::AsArray::as_primitive::<arrow_array::types::UInt8Type>(&image);
        assert!(pixels.values().iter().all(|pixel| i64::from(*pixel) == id % 256), "row {id}");
    }
    let above = fixture.collect("SELECT id FROM samples WHERE tensor_mean(image) = 7 AND label = 7 ORDER BY id").await;
    assert_eq!(ints(&above, "id"), [7]);
}

#[tokio::test]
async fn plans_push_down_and_show_partitions() {
    let fixture = Fixture::new().await;
    let query = fixture
        .engine
        .query(
            "SELECT name FROM samples WHERE id > 5 AND tensor_mean(image) > 1 AND l2_distance(emb, [1,1,1,1]) < 9",
            &[],
        )
        .await
        .expect("a query");
    let plan = query.explain().await.expect("a plan");
    let scan = plan.lines().rfind(|line| line.contains("ScanExec")).expect("a scan");
    for part in ["samples@2", "heavy=[image]", "filter=", "l2_distance"] {
        assert!(scan.contains(part), "{part} is not in {plan}");
    }
    assert!(!scan.contains("tensor_mean"), "{plan}");
    let limited = fixture.engine.query("SELECT id FROM samples LIMIT 3", &[]).await.expect("a query");
    assert!(limited.explain().await.expect("a plan").contains("limit=3"));
    let explained = fixture.collect("EXPLAIN SELECT id FROM samples").await;
    assert!(explained.num_rows() > 0);
    let counted = fixture.engine.query("SELECT count(*) FROM samples", &[]).await.expect("a query");
    assert!(!counted.explain().await.expect("a plan").contains("ScanExec: "), "the count comes from statistics");
}

#[tokio::test]
async fn unknown_names_list_what_exists() {
    let fixture = Fixture::new().await;
    let invalid = ErrorKind::InvalidRequest;
    fixture.refuses("SELECT nope FROM samples", &[], invalid, &["nope", "label", "image"]).await;
    fixture.refuses("SELECT id FROM nope", &[], ErrorKind::NotFound, &["nope", "samples"]).await;
    fixture.refuses("SELECT _rowaddr FROM samples", &[], invalid, &["_rowaddr"]).await;
    fixture.refuses("SELECT nope(id) FROM samples", &[], invalid, &["nope"]).await;
    fixture.refuses("SELECT id / 0 FROM samples", &[], invalid, &["zero"]).await;
    fixture.refuses("SELECT * FROM nope(1)", &[], ErrorKind::NotFound, &["nope", "vector_search"]).await;
}

#[tokio::test]
async fn snapshots_stay_while_the_table_grows() {
    let fixture = Fixture::new().await;
    let query = fixture.engine.query("SELECT count(*) AS n FROM samples a, samples b WHERE a.id = b.id", &[]).await;
    let query = query.expect("a query");
    assert_eq!(query.snapshots().len(), 1);
    assert_eq!(query.schema().fields().len(), 1);
    for _ in 0..2 {
        let stream = query.execute().await.expect("a stream");
        let batches: Vec<_> = futures::TryStreamExt::try_collect(stream).await.expect("rows");
        let batches: Vec<RecordBatch> = batches;
        assert_eq!(ints(&batches[0], "n"), [NUM_NEWEST]);
    }
}

/// Nested projections of the same text are all computed, of which DataFusion 54 drops one.
#[tokio::test]
async fn nested_projections_of_the_same_text_are_all_computed() {
    let fixture = Fixture::new().await;
    let nested = |projection: &str, depth: usize| {
        (0..depth).fold("samples WHERE id < 3".to_string(), |from, level| match level {
            0 => format!("SELECT {projection} FROM {from}"),
            _ => format!("SELECT {projection} FROM ({from})"),
        })
    };
    for depth in 1..=7_i64 {
        let sql = nested("id + 1 AS id", depth as usize);
        assert_eq!(ints(&fixture.collect(&format!("{sql} ORDER BY id")).await, "id"), [depth, depth + 1, depth + 2]);
        let sql = nested("id, 2 * label AS label", depth as usize);
        let doubled = fixture.collect(&format!("SELECT sum(label) AS n FROM ({sql})")).await;
        assert_eq!(ints(&doubled, "n"), [3 << depth], "labels are 0, 1 and 2");
        let swaps = nested("label AS id, id AS label", depth as usize)
            .replace("samples WHERE id < 3", "(SELECT id + 5 AS id, label FROM samples WHERE id < 3)");
        let swapped = fixture.collect(&format!("SELECT sum(id) AS n FROM ({swaps})")).await;
        assert_eq!(ints(&swapped, "n"), [if depth % 2 == 0 { 18 } else { 3 }]);
    }
    let mixed = "SELECT id + 1 AS id FROM (SELECT id + 1 AS id FROM (SELECT id + 2 AS id FROM (SELECT id + 2 AS id FROM samples)))";
    assert_eq!(ints(&fixture.collect(&format!("SELECT min(id) AS id FROM ({mixed})")).await, "id"), [6]);
}
