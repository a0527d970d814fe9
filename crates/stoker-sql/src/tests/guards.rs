//! Bounds, statements and parameters outside the allowed ones are refused.

use stoker_types::{ErrorKind, ParamValue};

use super::fixture::{Fixture, ints};
use crate::EngineOptions;

#[tokio::test]
async fn long_chains_are_refused_and_do_not_overflow_the_stack() {
    let fixture = Fixture::new().await;
    for operator in ["+", "OR", "||"] {
        let sql = format!("SELECT {}", vec!["1"; 2_000].join(operator_text(operator).as_str()));
        fixture.refuses(&sql, &[], ErrorKind::InvalidRequest, &["levels of nesting", "limit is"]).await;
    }
    let nested = format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000));
    fixture.refuses(&nested, &[], ErrorKind::InvalidRequest, &["nesting"]).await;
    let fine = format!("SELECT {} AS total", vec!["1"; 300].join(" + "));
    assert_eq!(ints(&fixture.collect(&fine).await, "total"), [300]);
}

fn operator_text(operator: &str) -> String {
    format!(" {operator} ")
}

#[tokio::test]
async fn size_is_bounded() {
    let fixture =
        Fixture::with_options(EngineOptions { max_sql_bytes: 1_000, max_sql_nodes: 50, ..EngineOptions::default() })
            .await;
    let long = format!("SELECT '{}'", "x".repeat(1_000));
    fixture.refuses(&long, &[], ErrorKind::InvalidRequest, &["1009 bytes", "limit is 1000"]).await;
    let wide = format!("SELECT {}", vec!["1"; 51].join(", "));
    fixture.refuses(&wide, &[], ErrorKind::InvalidRequest, &["expression nodes", "limit is 50"]).await;
}

#[tokio::test]
async fn expressions_that_are_named_often_count_each_time() {
    let fixture = Fixture::new().await;
    let doubled = |levels: usize| {
        let each =
            |level: usize| format!("c{} AS (SELECT a.id FROM C{level} a, c{level} b WHERE a.id = b.id)", level + 1);
        let parts: Vec<String> = (0..levels).map(each).collect();
        format!("WITH c0 AS (SELECT id FROM samples), {} SELECT count(*) AS n FROM c{levels}", parts.join(", "))
    };
    fixture.refuses(&doubled(24), &[], ErrorKind::InvalidRequest, &["once expanded", "limit is 20000"]).await;
    let inner = format!("SELECT * FROM ({})", doubled(24));
    fixture.refuses(&inner, &[], ErrorKind::InvalidRequest, &["once expanded"]).await;
    let fine = fixture.collect(&doubled(3)).await;
    assert_eq!(ints(&fine, "n"), ints(&fixture.collect("SELECT count(*) AS n FROM samples").await, "n"));
    // The name of a common table expression in a subquery is not in scope outside this subquery.
    let hidden = "SELECT a.x + b.x AS x FROM (WITH c AS (SELECT 1 AS x) SELECT x FROM c) a, \
                  (WITH c AS (SELECT 1 AS x) SELECT x FROM c) b";
    assert_eq!(ints(&fixture.collect(hidden).await, "x"), [2]);
}

#[tokio::test]
async fn only_queries_are_allowed() {
    let fixture = Fixture::new().await;
    let statements = [
        "CREATE TABLE x (a INT)",
        "DROP TABLE samples",
        "INSERT INTO samples VALUES (1)",
        "DELETE FROM samples",
        "UPDATE samples SET id = 1",
        "COPY samples TO '/tmp/x'",
        "SET a = 1",
        "SELECT * INTO x FROM samples",
        "EXPLAIN ANALYZE DELETE FROM samples",
        "SHOW search_path",
        "DESCRIBE",
        "TRUNCATE TABLE samples",
        "SELECT 1; SELECT 2",
        "",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "PREPARE p AS SELECT 1",
        "SELECT * FROM '/etc/passwd'",
    ];
    for sql in statements {
        let error = fixture.engine.query(sql, &[]).await.expect_err(sql);
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{sql}: {error}");
    }
    fixture.refuses("DROP TABLE samples", &[], ErrorKind::InvalidRequest, &["changes the lake", "lake.execute"]).await;
    fixture.refuses("COPY samples TO '/x'", &[], ErrorKind::InvalidRequest, &["COPY samples", "only SELECT"]).await;
    fixture.refuses("SELECT FROM WHERE", &[], ErrorKind::InvalidRequest, &["cannot parse"]).await;
}

#[tokio::test]
async fn clauses_that_would_be_dropped_are_refused() {
    let fixture = Fixture::new().await;
    for (sql, part) in [
        ("SELECT id FROM samples TABLESAMPLE (10)", "TABLESAMPLE"),
        ("SELECT id FROM samples FOR UPDATE", "FOR clause"),
        ("WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM t) SELECT * FROM t", "RECURSIVE"),
    ] {
        fixture.refuses(sql, &[], ErrorKind::InvalidRequest, &[part]).await;
    }
}

#[tokio::test]
async fn functions_without_bound_are_refused() {
    let fixture = Fixture::new().await;
    for (sql, part) in [
        ("SELECT repeat('x', 2000000000)", "repeat"),
        ("SELECT lpad('x', 2147483647, 'y')", "lpad"),
        ("SELECT rpad('x', id, 'y') FROM samples", "rpad"),
        ("SELECT range(1, 1000000000)", "range"),
        ("SELECT array_repeat(1, 1000000000)", "array_repeat"),
    ] {
        fixture.refuses(sql, &[], ErrorKind::InvalidRequest, [part, "allowed"][..1].to_vec().as_slice()).await;
    }
    fixture.refuses("SELECT * FROM generate_series(1, 9)", &[], ErrorKind::NotFound, &["generate_series"]).await;
    assert_eq!(fixture.collect("SELECT lpad('x', 5, 'y') AS a").await.num_rows(), 1);
}

#[tokio::test]
async fn memory_is_bounded() {
    let options = EngineOptions { memory_limit_bytes: 100_000, target_partitions: 1, ..EngineOptions::default() };
    let fixture = Fixture::with_options(options).await;
    let sql =
        "SELECT count(*) FROM samples a JOIN (SELECT id, image FROM samples) b ON a.id = b.id WHERE a.image = b.image";
    fixture.refuses(sql, &[], ErrorKind::ResourceExhausted, &[]).await;
}

#[tokio::test]
async fn parameters_are_values() {
    let fixture = Fixture::new().await;
    let params = [
        ParamValue::Text("tr'ain".into()),
        ParamValue::Int(i64::MIN),
        ParamValue::Float(-1e-7),
        ParamValue::Bool(true),
        ParamValue::Null,
    ];
    let sql = "SELECT $1 AS a, $2 AS b, $3 AS c, $4 AS d, $5 AS e";
    let batch = fixture.collect_with(sql, &params).await;
    assert_eq!(ints(&batch, "b"), [i64::MIN]);
    let shown = arrow_cast::pretty::pretty_format_batches(&[batch]).expect("a table").to_string();
    assert!(shown.contains("tr'ain") && shown.contains("-1e-7") && shown.contains("true"), "{shown}");

    let limited = "SELECT id FROM samples WHERE split = $1 ORDER BY id LIMIT $2";
    let batch = fixture.collect_with(limited, &[ParamValue::Text("test".into()), ParamValue::Int(3)]).await;
    assert_eq!(ints(&batch, "id"), [0, 5, 10]);

    fixture
        .refuses("SELECT $2", &[ParamValue::Int(1)], ErrorKind::InvalidRequest, &["$2 is missing", "1 parameters"])
        .await;
    fixture
        .refuses("SELECT $1", &[ParamValue::Int(1), ParamValue::Int(2)], ErrorKind::InvalidRequest, &["$2 is not used"])
        .await;
    fixture.refuses("SELECT $name", &[], ErrorKind::InvalidRequest, &["$name"]).await;
}
