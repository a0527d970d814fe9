//! `vector_search` returns what brute force returns.

use stoker_lake::{IndexKind, Metric};
use stoker_types::{ErrorKind, ParamValue, SnapshotRef};

use super::fixture::{Fixture, NUM_NEWEST, Row, floats, ids, ints, nearest, rows, table_name};

const QUERY: [f32; 4] = [1.0, 2.0, 3.0, 1.0];

async fn check(fixture: &Fixture, rest: &str, k: usize, passes: impl Fn(&Row) -> bool) {
    let found: Vec<Row> = rows(NUM_NEWEST).into_iter().filter(|row| passes(row)).collect();
    let expected = nearest(&found, QUERY, k);
    let call = format!("vector_search(samples, emb, [1, 2, 3, 1], k => {k})");
    let batch = fixture.collect(&format!("SELECT * FROM {call} {rest}")).await;
    let actual: Vec<(i64, f32)> = ints(&batch, "id").into_iter().zip(floats(&batch, "_distance")).collect();
    assert_eq!(actual, expected, "{rest}");
    let (query, row_set) = fixture.sample(&format!("SELECT image, label FROM {call} {rest}")).await;
    assert!(query.ordered());
    let expected: Vec<i64> = expected.into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids(&row_set).await, expected, "{rest}");
}

#[tokio::test]
async fn nearest_rows_with_a_predicate_before_the_search() {
    let fixture = Fixture::new().await;
    check(&fixture, "", 10, |_| true).await;
    check(&fixture, "", 1, |_| true).await;
    check(&fixture, "", 100_000, |_| true).await;
    check(&fixture, "WHERE label = 3", 10, |row| row.label == 3).await;
    check(&fixture, "AS v WHERE v.split = 'test' AND v.id > 50", 25, |row| row.split == "test" && row.id > 50).await;
    check(&fixture, "WHERE label = 3 OR name IS NULL", 10, |row| row.label == 3 || row.name.is_none()).await;
    check(&fixture, "WHERE label > 100", 10, |_| false).await;
}

#[tokio::test]
async fn predicates_reach_the_search_through_queries_and_joins() {
    let fixture = Fixture::new().await;
    let call = "vector_search(samples, emb, [1, 2, 3, 1], k => 12)";
    let labelled: Vec<Row> = rows(NUM_NEWEST).into_iter().filter(|row| row.label == 3).collect();
    let expected: Vec<i64> = nearest(&labelled, QUERY, 12).into_iter().map(|(id, _)| id).collect();
    for sql in [
        format!("SELECT id FROM (SELECT id, label AS y FROM {call}) t WHERE y = 3"),
        format!("WITH t AS (SELECT * FROM {call}) SELECT id FROM t WHERE label + 1 = 4"),
        format!("SELECT v.id FROM {call} v JOIN labels l ON v.label = l.label WHERE v.label = 3"),
        format!("SELECT v.id FROM {call} v LEFT JOIN labels l ON v.label = l.label WHERE v.label = 3"),
    ] {
        let mut found = ints(&fixture.collect(&format!("{sql} ORDER BY id")).await, "id");
        let mut expected = expected.clone();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{sql}");
    }
}

#[tokio::test]
async fn what_stays_after_the_search_is_explicit() {
    let fixture = Fixture::new().await;
    let call = "vector_search(samples, emb, [1, 2, 3, 1], k => 40)";
    let all = nearest(&rows(NUM_NEWEST), QUERY, 40);
    let near: Vec<i64> = all.iter().filter(|(_, distance)| *distance < 8.0).map(|(id, _)| *id).collect();
    let batch = fixture.collect(&format!("SELECT id FROM {call} WHERE _distance < 8 ORDER BY _distance, id")).await;
    assert_eq!(ints(&batch, "id"), near);
    let filtered: Vec<i64> = all.iter().map(|(id, _)| *id).filter(|id| id % 10 == 3).collect();
    let sql = format!(
        "SELECT id FROM (SELECT * FROM {call} ORDER BY _distance LIMIT 40) t WHERE label = 3 ORDER BY _distance, id"
    );
    assert_eq!(ints(&fixture.collect(&sql).await, "id"), filtered);
    // A predicate that the optimizer infers from a join must not reach the search.
    let joined = format!(
        "SELECT v.id FROM {call} v JOIN labels l ON v.label = l.label WHERE l.label = 3 ORDER BY _distance, id"
    );
    assert_eq!(ints(&fixture.collect(&joined).await, "id"), filtered);
}

#[tokio::test]
async fn predicates_that_cannot_move_are_refused() {
    let fixture = Fixture::new().await;
    let call = "vector_search(samples, emb, [1, 2, 3, 1])";
    for condition in [
        "FROM {call} v WHERE v.label IN (SELECT label FROM labels)",
        "FROM {call} v WHERE v.id > (SELECT max(label) FROM labels)",
        "FROM {call} v WHERE EXISTS (SELECT 1 FROM labels l WHERE l.label = v.label)",
        "FROM {call} v WHERE v.id > random() * 10",
        "FROM {call} v JOIN labels l ON v.label = l.label WHERE v.id > l.weight",
        "FROM {call} v WHERE v.label = 3 OR _distance < 5",
        "FROM labels l LEFT JOIN {call} v ON v.label = l.label WHERE v.id > 3",
        "FROM (SELECT id FROM {call} UNION ALL SELECT label FROM labels) v WHERE v.id > 3",
    ] {
        let sql = format!("SELECT v.id {}", condition.replace("{call}", call));
        fixture
            .refuses(&sql, &[], ErrorKind::InvalidRequest, &["cannot be applied before vector_search", "LIMIT"])
            .await;
    }
}

#[tokio::test]
async fn arguments_are_checked() {
    let fixture = Fixture::new().await;
    for (args, part) in [
        ("samples, emb, [1, 2, 3]", "4 dimensions, the query has 3"),
        ("samples, nope, [1, 2, 3, 1]", "nope"),
        ("samples, label, [1, 2, 3, 1]", "not a vector"),
        ("samples, emb, [1, 2, 3, 1], k => 0", "from 1 to 1000000"),
        ("samples, emb, [1, 2, 3, 1], k => 1000001", "from 1 to 1000000"),
        ("samples, emb, [1, 2, 3, 1], metric => 'manhattan'", "cosine"),
        ("samples, emb, [1, 2, 3, 1], nope => 1", "nope"),
        ("samples, emb, [1, 2, 3, 1], k => 1, k => 2", "twice"),
        ("samples, emb, [1, 2, 3, 1], 5", "positional"),
        ("samples, emb", "2 positional"),
        ("samples, emb, ['a', 2, 3, 1]", "number"),
        ("samples AT (VERSION => 1), emb, [1, 2, 3, 1], tag => 'v1'", "twice"),
    ] {
        let sql = format!("SELECT * FROM vector_search({args})");
        fixture.refuses(&sql, &[], ErrorKind::InvalidRequest, &[part]).await;
    }
}

#[tokio::test]
async fn metrics_and_parameters() {
    let fixture = Fixture::new().await;
    let param = [ParamValue::Vector(vec![1.0, 2.0, 3.0, 1.0]), ParamValue::Int(5)];
    for (metric, order) in [
        ("l2", "l2_distance(emb, [1, 2, 3, 1])"),
        ("cosine", "cosine_distance(emb, [1, 2, 3, 1])"),
        ("dot", "dot_product(emb, [1, 2, 3, 1]) DESC"),
    ] {
        let sql = format!("SELECT id FROM vector_search(samples, emb, $1, k => $2, metric => '{metric}')");
        let found = ints(&fixture.collect_with(&sql, &param).await, "id");
        let expected =
            ints(&fixture.collect(&format!("SELECT id FROM samples ORDER BY {order}, id LIMIT 5")).await, "id");
        assert_eq!(found, expected, "{metric}");
    }
}

#[tokio::test]
async fn an_index_answers_unless_it_must_not() {
    let fixture = Fixture::new().await;
    let table = fixture.engine.lake().table(&table_name("samples"), &SnapshotRef::Latest).await.expect("samples");
    table.create_index("emb", IndexKind::IvfFlat { num_partitions: 2, metric: Metric::L2 }).await.expect("an index");
    let expected: Vec<i64> = nearest(&rows(NUM_NEWEST), QUERY, 10).into_iter().map(|(id, _)| id).collect();
    for option in ["use_index => false", "nprobes => 2", "nprobes => 2, refine => 2"] {
        let sql = format!("SELECT id FROM vector_search(samples, emb, [1, 2, 3, 1], {option})");
        assert_eq!(ints(&fixture.collect(&sql).await, "id"), expected, "{option}");
    }
    // One of two partitions does not contain all rows. An index for another metric is not used.
    for (option, all) in
        [("nprobes => 1", false), ("use_index => false", true), ("nprobes => 1, metric => 'cosine'", true)]
    {
        let sql = format!("SELECT id FROM vector_search(samples, emb, [1, 2, 3, 1], k => {NUM_NEWEST}, {option})");
        let found = ints(&fixture.collect(&sql).await, "id").len() as i64;
        assert_eq!(found == NUM_NEWEST, all, "{option}: {found} rows");
    }
}
