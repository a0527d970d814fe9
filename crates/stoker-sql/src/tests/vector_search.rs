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
        format!("SELECT id FROM (SELECT DISTINCT id, label FROM {call}) t WHERE label = 3"),
        format!("SELECT id FROM (SELECT id, label, unnest([label]) AS u FROM {call}) t WHERE label = 3"),
        format!(
            "SELECT id FROM (SELECT id, label FROM {call} EXCEPT SELECT id, label FROM samples WHERE id < 0) t
             WHERE label = 3"
        ),
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
        "FROM {call} v WHERE v.id > random() * 10",
        "FROM {call} v JOIN labels l ON v.label = l.label
         WHERE EXISTS (SELECT 1 FROM labels m WHERE m.label = v.label + l.label)",
        "FROM (SELECT id, label + 1 AS z FROM {call}) v WHERE EXISTS (SELECT 1 FROM labels l WHERE l.label = v.z)",
        "FROM (SELECT label AS id FROM labels) v WHERE EXISTS (SELECT 1 FROM {call} s WHERE s.label = v.id)",
        "FROM {call} v JOIN labels l ON v.label = l.label WHERE v.id > l.weight",
        "FROM {call} v WHERE v.label = 3 OR _distance < 5",
        "FROM labels l LEFT JOIN {call} v ON v.label = l.label WHERE v.id > 3",
        "FROM (SELECT id FROM {call} UNION ALL SELECT label FROM labels) v WHERE v.id > 3",
        "FROM (SELECT id FROM {call} UNION SELECT label FROM labels) v WHERE v.id > 3",
        "FROM (SELECT id, unnest([label, id]) AS u FROM {call}) v WHERE v.u = 3",
        "FROM (SELECT id, unnest([label, id]) AS u FROM {call}) v WHERE v.u IN (SELECT label FROM labels)",
        "FROM (SELECT id, label, row_number() OVER (ORDER BY _distance) AS n FROM {call}) v WHERE v.label = 3",
        "FROM (SELECT id, label, row_number() OVER (ORDER BY _distance) AS n FROM {call}) v
         WHERE v.n < 3 OR v.label = 3",
        "FROM (SELECT DISTINCT ON (label) id, label FROM {call}) v WHERE v.label = 3",
        "FROM labels l, LATERAL (SELECT s.id FROM {call} s JOIN samples m ON m.id = s.id WHERE m.label = l.label) v
         WHERE v.id > 3",
    ] {
        let sql = format!("SELECT v.id {}", condition.replace("{call}", call));
        fixture.refuses(&sql, &[], ErrorKind::InvalidRequest, &["cannot be applied before the search", "LIMIT"]).await;
    }
}

#[tokio::test]
async fn predicates_on_results_of_a_search_stay_after_it() {
    let fixture = Fixture::new().await;
    let call = "vector_search(samples, emb, [1, 2, 3, 1], k => 40)";
    let all = nearest(&rows(NUM_NEWEST), QUERY, 40);
    let ids_of = |passes: fn(usize, i64, f32) -> bool| -> Vec<i64> {
        let passing = all.iter().enumerate().filter(|(index, (id, distance))| passes(*index, *id, *distance));
        passing.map(|(_, (id, _))| *id).collect()
    };
    let near = ids_of(|_, _, distance| distance < 8.0);
    let labelled = ids_of(|_, id, _| id % 10 == 3);
    for (sql, expected) in [
        (
            "FROM (SELECT id, row_number() OVER (ORDER BY _distance, id) AS n FROM {call}) v WHERE n <= 5",
            ids_of(|index, _, _| index < 5),
        ),
        ("FROM (SELECT id, _distance, count(*) OVER () AS n FROM {call}) v WHERE _distance < 8", near.clone()),
        ("FROM (SELECT DISTINCT id, _distance FROM {call}) v WHERE _distance < 8", near.clone()),
        ("FROM (SELECT id, _distance FROM {call} UNION ALL SELECT label, 100 FROM labels) v WHERE _distance < 8", near),
        (
            "FROM labels l LEFT JOIN {call} v ON v.label = l.label WHERE v._distance < 8",
            ids_of(|_, id, distance| id % 10 < 8 && distance < 8.0),
        ),
        // A LIMIT says that what follows filters the rows that were found, as do GROUP BY and HAVING.
        (
            "FROM (SELECT id, unnest([label]) AS u FROM (SELECT * FROM {call} LIMIT 40) s) v WHERE u = 3",
            labelled.clone(),
        ),
        ("FROM (SELECT count(*) AS id FROM {call} GROUP BY label HAVING label = 3) v", vec![labelled.len() as i64]),
        (
            "FROM (SELECT label, count(*) AS id FROM {call} GROUP BY label) v WHERE label = 3",
            vec![labelled.len() as i64],
        ),
    ] {
        let sql = format!("SELECT v.id {}", sql.replace("{call}", call));
        let mut found = ints(&fixture.collect(&sql).await, "id");
        let mut expected = expected;
        assert!(!expected.is_empty(), "{sql}");
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{sql}");
    }
}

#[tokio::test]
async fn columns_are_unnested_in_a_subquery() {
    let fixture = Fixture::new().await;
    for from in [
        "vector_search(samples, emb, [1, 2, 3, 1]) s, UNNEST(s.emb) u(value)",
        "samples s CROSS JOIN UNNEST(s.emb) AS u(value)",
        "samples s, UNNEST([1, 2], emb) u(one, value)",
    ] {
        let sql = format!("SELECT s.id FROM {from} WHERE u.value = 3");
        fixture.refuses(&sql, &[], ErrorKind::InvalidRequest, &["UNNEST(", "emb) in FROM", "in a subquery"]).await;
    }
    let sql = "SELECT id FROM (SELECT id, unnest(emb) AS value FROM samples) t WHERE value = 12 AND id < 20";
    let expected: Vec<i64> = rows(20).iter().filter(|row| row.emb.contains(&12.0)).map(|row| row.id).collect();
    assert_eq!(ints(&fixture.collect(sql).await, "id"), expected);
}

#[tokio::test]
async fn predicates_may_have_subqueries_and_heavy_columns() {
    let fixture = Fixture::new().await;
    check(&fixture, "WHERE label IN (SELECT label FROM labels WHERE weight > 1)", 10, |row| {
        (3..8).contains(&row.label)
    })
    .await;
    check(&fixture, "WHERE label NOT IN (SELECT label FROM labels)", 10, |row| row.label >= 8).await;
    check(&fixture, "WHERE id > (SELECT 20 * max(label) FROM labels)", 10, |row| row.id > 140).await;
    check(
        &fixture,
        "AS v WHERE EXISTS (SELECT 1 FROM labels l WHERE l.label = v.label AND l.weight < 2) AND v.split = 'test'",
        10,
        |row| row.label < 4 && row.split == "test",
    )
    .await;
    check(&fixture, "AS v WHERE NOT EXISTS (SELECT 1 FROM labels l WHERE l.label = v.label)", 10, |row| row.label >= 8)
        .await;
    check(&fixture, "v WHERE v.id - 40 > (SELECT max(l.label) FROM labels l WHERE l.label = v.label)", 10, |row| {
        row.label < 8 && row.id - 40 > row.label
    })
    .await;
    check(&fixture, "WHERE label IN (SELECT label FROM labels LIMIT 3)", 10, |row| row.label < 3).await;
    check(&fixture, "WHERE label IN (SELECT label FROM labels WHERE weight > 100)", 10, |_| false).await;
    check(&fixture, "WHERE label = 3 AND tensor_mean(image) > 100", 10, |row| row.label == 3 && row.id % 256 > 100)
        .await;
    let late: Vec<Row> = rows(NUM_NEWEST).into_iter().filter(|row| row.id > 250).collect();
    let found: Vec<i64> = nearest(&late, [0.0; 4], 3).into_iter().map(|(id, _)| id % 10).collect();
    let rest = "WHERE label IN (SELECT label FROM vector_search(samples, emb, [0, 0, 0, 0], k => 3) WHERE id > 250)";
    check(&fixture, rest, 10, |row| found.contains(&row.label)).await;
}

#[tokio::test]
async fn subqueries_refer_to_the_search_through_queries() {
    let fixture = Fixture::new().await;
    let call = "vector_search(samples, emb, [1, 2, 3, 1], k => 12)";
    let known: Vec<Row> = rows(NUM_NEWEST).into_iter().filter(|row| row.label < 8).collect();
    let expected: Vec<i64> = nearest(&known, QUERY, 12).into_iter().map(|(id, _)| id).collect();
    let sql = format!(
        "SELECT id FROM (SELECT id, label AS y FROM {call}) t
         WHERE EXISTS (SELECT 1 FROM labels l WHERE l.label = t.y)"
    );
    assert_eq!(ints(&fixture.collect(&sql).await, "id"), expected);
    // The plans of the two subqueries differ only in what is hidden in them.
    let highest = |label: i64| {
        let labelled: Vec<Row> = rows(NUM_NEWEST).into_iter().filter(|row| row.label == label).collect();
        nearest(&labelled, QUERY, 12).into_iter().map(|(id, _)| id).max().expect("a row")
    };
    let sql = format!(
        "WITH t AS (SELECT * FROM {call})
         SELECT (SELECT max(id) FROM t WHERE label = 1) AS a, (SELECT max(id) FROM t WHERE label = 2) AS b"
    );
    let batch = fixture.collect(&sql).await;
    assert_eq!((ints(&batch, "a"), ints(&batch, "b")), (vec![highest(1)], vec![highest(2)]));
}

#[tokio::test]
async fn a_subquery_gives_the_query_vector() {
    let fixture = Fixture::new().await;
    let all = rows(NUM_NEWEST);
    let expected = |rows: &[Row]| -> Vec<i64> { nearest(rows, all[7].emb, 5).into_iter().map(|(id, _)| id).collect() };
    for sql in [
        "SELECT id FROM vector_search(samples, emb, (SELECT emb FROM samples WHERE id = $1), k => 5)",
        "SELECT id FROM vector_search(samples, emb, ((SELECT emb FROM samples WHERE id = $1)), k => 5)",
        "SELECT id FROM vector_search(samples, emb,
                                      (WITH q AS (SELECT * FROM samples) SELECT emb FROM q WHERE id = $1), k => 5)",
        "WITH q AS (SELECT * FROM samples WHERE id < 10), r AS (SELECT emb FROM q WHERE id = $1)
         SELECT id FROM vector_search(samples, emb, (SELECT emb FROM r), k => 5)",
        "WITH q AS (SELECT * FROM samples WHERE id < 10),
              n AS (SELECT id FROM vector_search(samples, emb, (SELECT emb FROM q WHERE id = $1), k => 5))
         SELECT id FROM n",
        "WITH q AS (SELECT * FROM samples)
         SELECT id FROM (WITH r AS (SELECT * FROM q WHERE id = $1)
                         SELECT id FROM vector_search(samples, emb, (SELECT emb FROM r), k => 5)) t",
        "SELECT id FROM vector_search(samples, emb,
                                      (SELECT emb FROM vector_search(samples, emb, [0, 0, 0, 0]) WHERE id = $1),
                                      k => 5)",
    ] {
        let found = ints(&fixture.collect_with(sql, &[ParamValue::Int(7)]).await, "id");
        assert_eq!(found, expected(&all), "{sql}");
    }
    let call = "vector_search(samples, emb, (SELECT emb FROM samples WHERE id = 7), k => 5)";
    let labelled: Vec<Row> = all.iter().filter(|row| row.label < 8).cloned().collect();
    let sql = format!("SELECT image FROM {call} WHERE label IN (SELECT label FROM labels)");
    let (_, row_set) = fixture.sample(&sql).await;
    assert_eq!(ids(&row_set).await, expected(&labelled));
    let found = ints(&fixture.collect("SELECT id FROM vector_search(samples, emb, (SELECT [1, 2, 3, 1]))").await, "id");
    assert_eq!(found, nearest(&all, QUERY, 10).into_iter().map(|(id, _)| id).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_subquery_that_gives_no_vector_is_refused() {
    let fixture = Fixture::new().await;
    for (subquery, part) in [
        ("SELECT emb FROM samples WHERE id = -1", "no row"),
        ("SELECT emb FROM samples WHERE id < 2", "more than one row"),
        ("SELECT emb FROM samples", "more than one row"),
        ("SELECT NULL", "NULL"),
        ("SELECT [1, 2, NULL, 1]", "contains NULL"),
        ("SELECT [1, 2, 3]", "4 dimensions, the query has 3"),
        ("SELECT [1.0, 2.0, 3.0, CAST('NaN' AS DOUBLE)]", "NaN"),
        ("SELECT id, emb FROM samples WHERE id = 7", "2 columns"),
        ("SELECT name FROM samples WHERE id = 8", "list of numbers"),
        ("SELECT emb FROM samples WHERE id = v.id", "v.id"),
    ] {
        let sql = format!("SELECT id FROM vector_search(samples, emb, ({subquery})) v");
        fixture.refuses(&sql, &[], ErrorKind::InvalidRequest, &[part]).await;
    }
    let sql = "SELECT id FROM vector_search(samples, emb, (SELECT emb FROM absent))";
    fixture.refuses(sql, &[], ErrorKind::NotFound, &["absent"]).await;
    let sql = "WITH q AS (SELECT * FROM samples)
               SELECT id FROM (WITH q AS (SELECT * FROM q WHERE id = 7)
                               SELECT id FROM vector_search(samples, emb, (SELECT emb FROM q))) t";
    fixture.refuses(sql, &[], ErrorKind::InvalidRequest, &["WITH name q", "different names"]).await;
}

#[tokio::test]
async fn explain_shows_how_a_search_searches() {
    let fixture = Fixture::new().await;
    for (arguments, rest, parts) in [
        ("", "", vec!["search=by index if there is one, "]),
        (", exact => true", "", vec!["search=exact"]),
        (", use_index => false", "", vec!["search=exact"]),
        ("", "WHERE label IN (SELECT label FROM labels)", vec!["and many rows pass", "HashJoinExec", "labels@1"]),
    ] {
        let sql = format!("EXPLAIN SELECT id FROM vector_search(samples, emb, [1, 2, 3, 1]{arguments}) {rest}");
        let shown = format!("{:?}", fixture.collect(&sql).await);
        assert!(parts.iter().all(|part| shown.contains(part)), "{sql}: {shown}");
    }
    let sql = "EXPLAIN ANALYZE FORMAT TREE
               SELECT id FROM vector_search(samples, emb, (SELECT emb FROM samples WHERE id = 7), k => 5)
               WHERE label = 3";
    let shown = format!("{:?}", fixture.collect(sql).await);
    assert!(shown.matches("ScanExec").count() == 2 && shown.contains("rows: 5"), "{shown}");
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
        ("samples, emb, [1, 2, 3, 1], exact => 1", "exact"),
        ("samples, emb, [1, 2, 3, 1], exact => true, use_index => false", "give one"),
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
    for option in ["exact => true", "exact => false", "nprobes => 2", "nprobes => 2, refine => 2"] {
        let sql = format!("SELECT id FROM vector_search(samples, emb, [1, 2, 3, 1], {option})");
        assert_eq!(ints(&fixture.collect(&sql).await, "id"), expected, "{option}");
    }
    // One of two partitions does not contain all rows. An index for another metric is not used.
    for (option, all) in [("nprobes => 1", false), ("exact => true", true), ("nprobes => 1, metric => 'cosine'", true)]
    {
        let sql = format!("SELECT id FROM vector_search(samples, emb, [1, 2, 3, 1], k => {NUM_NEWEST}, {option})");
        let found = ints(&fixture.collect(&sql).await, "id").len() as i64;
        assert_eq!(found == NUM_NEWEST, all, "{option}: {found} rows");
    }
    // Few rows are compared exactly, so that one of two partitions has no meaning.
    let sql = "SELECT id FROM vector_search(samples, emb, [1, 2, 3, 1], k => 300, nprobes => 1) WHERE label = 3";
    assert_eq!(ints(&fixture.collect(sql).await, "id").len(), 30);
}
