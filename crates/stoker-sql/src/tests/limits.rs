//! The limits of each query hold: queue, rows, bytes, memory, plans.

use std::time::Duration;

use stoker_types::ErrorKind;

use super::fixture::Fixture;
use crate::{EngineOptions, QueryLimits};

async fn limited(query: QueryLimits) -> Fixture {
    Fixture::with_options(EngineOptions { query, ..EngineOptions::default() }).await
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_a_place_is_free_again_when_rows_are_dropped() {
    let fixture = limited(QueryLimits { at_once: 1, waiting: 0, ..QueryLimits::default() }).await;
    let sql = "SELECT id FROM samples";
    let held = fixture.engine.query(sql, &[]).await.expect("a plan").execute().await.expect("rows");
    fixture.refuses(sql, &[], ErrorKind::ResourceExhausted, &["1 queries are running", "queue is full"]).await;
    drop(held);
    assert!(fixture.collect(sql).await.num_rows() > 0);
}

#[tokio::test]
async fn who_waits_for_a_place_waits_so_long_at_most() {
    let queued = Duration::from_millis(50);
    let fixture = limited(QueryLimits { at_once: 1, waiting: 1, queued, ..QueryLimits::default() }).await;
    let sql = "SELECT id FROM samples";
    let _held = fixture.engine.query(sql, &[]).await.expect("a plan").execute().await.expect("rows");
    fixture.refuses(sql, &[], ErrorKind::ResourceExhausted, &["none ended within"]).await;
}

#[tokio::test]
async fn results_are_bounded() {
    let fixture = limited(QueryLimits { rows: 3, ..QueryLimits::default() }).await;
    fixture.refuses("SELECT id FROM samples", &[], ErrorKind::ResourceExhausted, &["more than 3 rows"]).await;
    assert_eq!(fixture.collect("SELECT id FROM samples LIMIT 3").await.num_rows(), 3);
    let fixture = limited(QueryLimits { result_bytes: 1_000, ..QueryLimits::default() }).await;
    fixture
        .refuses("SELECT id, image FROM samples", &[], ErrorKind::ResourceExhausted, &["more than 1000 bytes"])
        .await;
}

#[tokio::test]
async fn time_is_bounded() {
    let fixture = limited(QueryLimits { running: Duration::from_millis(50), ..QueryLimits::default() }).await;
    let tables: Vec<String> = (0..12).map(|i| format!("samples s{i}")).collect();
    let sql = format!("SELECT count(*) FROM {} WHERE s0.id + s1.id > s2.id + s11.id", tables.join(", "));
    fixture.refuses(&sql, &[], ErrorKind::ResourceExhausted, &["ran for more than 0.05 s"]).await;
}

#[tokio::test]
async fn plans_count_what_is_named_twice_twice() {
    let fixture = Fixture::new().await;
    let mut tables = vec!["c0 AS (SELECT id FROM samples)".to_string()];
    tables.extend((1..24).map(|i| format!("c{i} AS (SELECT a.id FROM c{0} a JOIN c{0} b ON a.id = b.id)", i - 1)));
    let sql = format!("WITH {} SELECT count(*) FROM c23", tables.join(", "));
    fixture.refuses(&sql, &[], ErrorKind::InvalidRequest, &["plan nodes", "limit is"]).await;
    let unions = vec!["SELECT id FROM samples"; 300].join(" UNION ALL ");
    fixture.refuses(&unions, &[], ErrorKind::InvalidRequest, &["set operations", "limit is"]).await;
    let nested =
        (0..13).fold("SELECT 1".to_string(), |inner, i| format!("SELECT 1 FROM samples s{i} WHERE EXISTS ({inner})"));
    fixture.refuses(&nested, &[], ErrorKind::InvalidRequest, &["nested subqueries", "limit is"]).await;
}

#[tokio::test]
async fn results_of_functions_are_reserved_before_they_are_made() {
    let fixture = limited(QueryLimits { memory_bytes: 32 << 20, ..QueryLimits::default() }).await;
    let kind = ErrorKind::ResourceExhausted;
    let (a, b) = ("lpad('a', 60000, 'a')", "lpad('b', 60000, 'b')");
    let constant = format!("SELECT replace({a}, 'a', {b}) AS x");
    fixture.refuses(&constant, &[], kind, &["function replace needs up to 36", "limit is"]).await;
    let column = format!("SELECT replace('aaaaaaaa' || id, 'a', {b}) AS x FROM samples");
    fixture.refuses(&column, &[], kind, &["function replace needs up to", "limit is"]).await;
    let fine =
        fixture.collect("SELECT sum(length(replace('aaaa' || id, 'a', lpad('b', 99, 'b')))) AS n FROM samples").await;
    assert_eq!(fine.num_rows(), 1);
}

#[tokio::test]
async fn rows_of_windows_are_accounted_for() {
    let fixture = limited(QueryLimits { memory_bytes: 64 << 20, ..QueryLimits::default() }).await;
    let sql = "SELECT max(n) FROM (SELECT sum(a.id) OVER () AS n FROM samples a, samples b, samples c)";
    fixture.refuses(sql, &[], ErrorKind::ResourceExhausted, &["WindowAggExec", "memory limit"]).await;
    let ranked = "SELECT max(n) AS n FROM (SELECT row_number() OVER (ORDER BY a.id) AS n FROM samples a, samples b)";
    assert_eq!(fixture.collect(ranked).await.num_rows(), 1);
}
