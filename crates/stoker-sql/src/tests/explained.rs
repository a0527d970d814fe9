//! Plans as a tree and as JSON.

use arrow_array::cast::AsArray as _;
use serde_json::Value;
use stoker_lake::{IndexKind, Metric};
use stoker_types::SnapshotRef;

use super::fixture::{Fixture, table_name};

async fn plan(fixture: &Fixture, sql: &str) -> (String, String) {
    let shown = fixture.collect(sql).await;
    assert_eq!(shown.num_rows(), 1, "{sql}");
    (shown.column(0).as_string::<i32>().value(0).into(), shown.column(1).as_string::<i32>().value(0).into())
}

/// The operators of a plan that read no other operator.
fn leaves(node: &Value) -> Vec<&Value> {
    match node["inputs"].as_array().filter(|inputs| !inputs.is_empty()) {
        Some(inputs) => inputs.iter().flat_map(leaves).collect(),
        None => vec![node],
    }
}

#[tokio::test]
async fn json_has_each_operator_and_once_it_ran_what_it_did() {
    let fixture = Fixture::new().await;
    let query = "SELECT l.title, count(*) FROM samples s JOIN labels l ON s.label = l.label GROUP BY 1";
    let (plan_type, shown) = plan(&fixture, &format!("EXPLAIN FORMAT JSON {query}")).await;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(plan_type, "physical_plan");
    let mut scans: Vec<_> = leaves(&shown["plan"]);
    scans.sort_by_key(|scan| scan["details"].to_string());
    assert!(scans.iter().all(|scan| scan["operator"] == "ScanExec" && scan.get("metrics").is_none()), "{shown}");
    assert!(scans[0]["details"].as_str().is_some_and(|details| details.contains("labels@1")), "{shown}");
    assert!(scans[1]["details"].as_str().is_some_and(|details| details.contains("samples@2")), "{shown}");

    let (plan_type, shown) = plan(&fixture, &format!("EXPLAIN ANALYZE FORMAT JSON {query}")).await;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(plan_type, "Plan with Metrics");
    let num_rows = fixture.collect(query).await.num_rows();
    assert_eq!(shown["num_rows"], num_rows, "{shown}");
    assert_eq!(shown["plan"]["metrics"]["output_rows"], num_rows, "{shown}");
    assert!(shown["plan"]["metrics"]["elapsed_compute_nanos"].is_u64(), "{shown}");
}

#[tokio::test]
async fn scans_and_searches_tell_what_they_read_and_by_which_index() {
    let fixture = Fixture::new().await;
    let samples = fixture.engine.lake().table(&table_name("samples"), &SnapshotRef::Latest).await.expect("a table");
    samples.create_index("label", IndexKind::BTree).await.expect("an index");
    samples.create_index("emb", IndexKind::IvfFlat { num_partitions: 2, metric: Metric::L2 }).await.expect("an index");
    for (query, operator, index) in [
        ("SELECT name FROM samples WHERE label = 2", "ScanExec", "label_idx"),
        ("SELECT name FROM samples", "ScanExec", "none"),
        (
            "SELECT id FROM vector_search(samples, emb, [1, 1, 1, 1], k => 3, use_index => true)",
            "SearchExec",
            "emb_idx",
        ),
    ] {
        let (_, shown) = plan(&fixture, &format!("EXPLAIN ANALYZE FORMAT JSON {query}")).await;
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        let leaf = leaves(&shown["plan"])[0];
        assert_eq!((&leaf["operator"], &leaf["metrics"]["index"]), (&operator.into(), &index.into()), "{shown}");
        assert_eq!(leaf["metrics"]["output_rows"], shown["num_rows"], "{shown}");
        assert!(leaf["metrics"]["bytes_read"].is_u64() && leaf["metrics"]["requests"].is_u64(), "{shown}");
    }
}

#[tokio::test]
async fn trees_have_a_line_for_each_operator() {
    let fixture = Fixture::new().await;
    let query = "SELECT s.id FROM samples s JOIN labels l ON s.label = l.label WHERE tensor_mean(s.image) > 3";
    let (_, shown) = plan(&fixture, &format!("EXPLAIN FORMAT TREE {query}")).await;
    let scan = |table: &str| shown.lines().find(|line| line.contains(table)).map(str::to_string);
    let (samples, labels) = (scan("samples@2").expect("a line"), scan("labels@1").expect("a line"));
    assert!([&samples, &labels].iter().all(|line| line.contains("─ ScanExec: table=")), "{shown}");
    assert!(shown.lines().any(|line| line.contains("├─ ")) && !shown.contains("output_rows"), "{shown}");
    let (_, shown) = plan(&fixture, &format!("EXPLAIN (ANALYZE, FORMAT tree) {query}")).await;
    assert!(shown.contains("output_rows=") && shown.lines().last().is_some_and(|line| line.starts_with("rows: ")));
}

#[tokio::test]
async fn a_search_keeps_its_filter_below_every_format() {
    let fixture = Fixture::new().await;
    let query = "SELECT id FROM vector_search(samples, emb, [1, 1, 1, 1], k => 3) WHERE label = 2";
    for format in ["TEXT", "TREE", "JSON"] {
        let shown = fixture.collect(&format!("EXPLAIN FORMAT {format} {query}")).await;
        let text = format!("{shown:?}");
        assert!(text.contains("SearchExec") && text.contains("label = Int64(2)"), "{format}: {text}");
    }
}
