//! Sample queries are recognized, and their columns have the right sources.

use super::fixture::{Fixture, NUM_NEWEST, ids, rows};
use crate::{ColumnSource, NO_ROW};

fn table(source: usize, column: &str) -> ColumnSource {
    ColumnSource::Table(vec![(source, column.to_string())])
}

async fn check(fixture: &Fixture, sql: &str, expected: &[ColumnSource]) {
    let query = fixture.engine.sample(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let sources: Vec<ColumnSource> = query.columns().iter().map(|column| column.source.clone()).collect();
    assert_eq!(sources, expected, "{sql}");
}

#[tokio::test]
async fn columns_are_followed_to_their_table() {
    let fixture = Fixture::new().await;
    let image = table(0, "image");
    let label = table(0, "label");
    for (sql, expected) in [
        ("SELECT image, label FROM samples", vec![image.clone(), label.clone()]),
        ("SELECT s.image AS pixels, s.label AS y FROM samples s", vec![image.clone(), label.clone()]),
        ("SELECT image, label + 1 AS next FROM samples", vec![image.clone(), ColumnSource::RowSet(0)]),
        (
            "SELECT 'x' AS a, image, upper(name) AS b FROM samples",
            vec![ColumnSource::RowSet(0), image.clone(), ColumnSource::RowSet(1)],
        ),
        ("SELECT x AS image FROM (SELECT image AS x, id FROM samples WHERE id > 3) t", vec![image.clone()]),
        ("WITH t AS (SELECT image, label FROM samples) SELECT label, image FROM t", vec![label.clone(), image.clone()]),
        ("SELECT s.image, l.title FROM samples s JOIN labels l USING (label)", vec![image.clone(), table(1, "title")]),
        (
            "SELECT l.title, s.image FROM labels l, samples s WHERE l.label = s.label",
            vec![table(0, "title"), table(1, "image")],
        ),
        ("SELECT s.image FROM samples s JOIN labels l ON l.label = s.label WHERE l.weight > 1", vec![image.clone()]),
        ("SELECT image FROM samples WHERE label IN (SELECT label FROM labels)", vec![image.clone()]),
        (
            "SELECT s.image, c.n FROM samples s JOIN (SELECT label, count(*) AS n FROM samples GROUP BY label) c \
          ON c.label = s.label",
            vec![image.clone(), ColumnSource::RowSet(0)],
        ),
        (
            "SELECT image, row_number() OVER (PARTITION BY label ORDER BY id) AS r FROM samples",
            vec![image.clone(), ColumnSource::RowSet(0)],
        ),
        (
            "SELECT image, (SELECT max(weight) FROM labels) AS w FROM samples",
            vec![image.clone(), ColumnSource::RowSet(0)],
        ),
        (
            "SELECT image, _distance FROM vector_search(samples, emb, [1, 2, 3, 1])",
            vec![image.clone(), ColumnSource::RowSet(0)],
        ),
        (
            "SELECT image FROM samples UNION ALL SELECT image FROM samples AT (VERSION => 1)",
            vec![ColumnSource::Table(vec![(0, "image".into()), (1, "image".into())])],
        ),
        (
            "SELECT image, 1 AS part FROM samples UNION ALL SELECT image, 2 FROM samples",
            vec![ColumnSource::Table(vec![(0, "image".into()), (1, "image".into())]), ColumnSource::RowSet(0)],
        ),
        ("SELECT upper(name) AS shout FROM samples", vec![ColumnSource::RowSet(0)]),
    ] {
        check(&fixture, sql, &expected).await;
    }
}

#[tokio::test]
async fn refusals_give_the_reason() {
    let fixture = Fixture::new().await;
    for (sql, parts) in [
        ("SELECT count(*) AS n FROM samples", vec!["not a sample query", "not rows of a table", "aggregate"]),
        ("SELECT label, count(*) AS n FROM samples GROUP BY label", vec!["not a sample query", "label", "aggregate"]),
        ("SELECT image, count(*) AS n FROM samples GROUP BY image", vec!["image", "aggregate"]),
        ("SELECT DISTINCT image FROM samples", vec!["image", "DISTINCT"]),
        ("SELECT image FROM samples UNION SELECT image FROM samples", vec!["image", "DISTINCT"]),
        (
            "SELECT s.label, d.image FROM samples s JOIN (SELECT DISTINCT image, id FROM samples) d ON s.id = d.id",
            vec!["column image is heavy", "DISTINCT"],
        ),
        ("SELECT 1 AS one", vec!["not rows of a table"]),
        ("SELECT * FROM (VALUES (1), (2)) t(a)", vec!["not rows of a table"]),
        ("SELECT id, coalesce(image, image) AS i FROM samples", vec!["column i is heavy", "computed as"]),
        ("SELECT image FROM samples WHERE random() < 0.5", vec!["random", "parameter"]),
        ("SELECT image, now() AS t FROM samples", vec!["now"]),
        (
            "SELECT image FROM samples WHERE id IN (SELECT id FROM labels JOIN samples USING (label) WHERE random() > 0)",
            vec!["random"],
        ),
        ("EXPLAIN SELECT image FROM samples", vec!["EXPLAIN"]),
        ("SELECT s.label, l.label FROM samples s JOIN labels l USING (label)", vec!["\"label\"", "AS"]),
        ("SELECT DISTINCT ON (label) image FROM samples", vec!["DISTINCT ON"]),
    ] {
        fixture.refuses_sample(sql, &parts).await;
    }
}

#[tokio::test]
async fn outer_joins_and_unions_leave_sources_out() {
    let fixture = Fixture::new().await;
    let (_, joined) = fixture
        .sample("SELECT s.image, l.title FROM samples s LEFT JOIN labels l ON l.label = s.label ORDER BY s.id")
        .await;
    let all: Vec<u64> = (0..joined.num_rows()).collect();
    let resolved = joined.resolve(&all).await.expect("rows");
    for (row, addr) in rows(NUM_NEWEST).iter().zip(&resolved.addrs[1]) {
        assert_eq!(*addr == NO_ROW, row.label >= 8, "row {}", row.id);
    }
    let (_, union) = fixture
        .sample(
            "SELECT image FROM samples WHERE id < 3 UNION ALL SELECT image FROM samples AT (VERSION => 1) WHERE id < 2",
        )
        .await;
    let resolved = union.resolve(&[0, 1, 2, 3, 4]).await.expect("rows");
    let supplied = |source: usize| resolved.addrs[source].iter().filter(|addr| **addr != NO_ROW).count();
    assert_eq!((supplied(0), supplied(1)), (3, 2));
    assert_eq!(union.sources()[1].version(), 1);
}

#[tokio::test]
async fn limits_without_order_are_deterministic() {
    let fixture = Fixture::new().await;
    let (query, row_set) = fixture.sample("SELECT image FROM samples LIMIT 7").await;
    assert!(!query.ordered());
    assert_eq!(ids(&row_set).await, [0, 1, 2, 3, 4, 5, 6]);
    let (_, offset) = fixture.sample("SELECT image FROM samples WHERE label = 3 LIMIT 2 OFFSET 1").await;
    assert_eq!(ids(&offset).await, [13, 23]);
    let (_, inner) =
        fixture.sample("SELECT image FROM samples WHERE id IN (SELECT id FROM samples WHERE label = 4 LIMIT 3)").await;
    assert_eq!(ids(&inner).await, [4, 14, 24]);
}

#[tokio::test]
async fn ties_break_by_address() {
    let fixture = Fixture::new().await;
    let (query, row_set) = fixture.sample("SELECT image FROM samples ORDER BY label DESC LIMIT 40").await;
    assert!(query.ordered());
    let mut expected = rows(NUM_NEWEST);
    expected.sort_by_key(|row| (-row.label, row.id));
    let expected: Vec<i64> = expected.iter().take(40).map(|row| row.id).collect();
    assert_eq!(ids(&row_set).await, expected);
    let numbered = "SELECT image FROM (SELECT image, row_number() OVER (PARTITION BY label ORDER BY split) AS r FROM samples) t \
                    WHERE r = 1";
    let (_, first) = fixture.sample(numbered).await;
    assert_eq!(ids(&first).await, (0..10).collect::<Vec<i64>>());
}
