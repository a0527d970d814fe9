//! An `AT` clause is resolved or refused, never dropped.

use arrow_array::RecordBatch;
use futures::TryStreamExt as _;
use stoker_lake::IndexKind;
use stoker_types::{ErrorKind, ParamValue, Snapshot, SnapshotRef};

use super::fixture::{Fixture, NUM_NEWEST, NUM_TAGGED, check_error, ints, table_name};
use crate::SqlQuery;

async fn check(fixture: &Fixture, relation: &str, expected: i64) {
    let sql = format!("SELECT count(*) AS n FROM {relation}");
    assert_eq!(ints(&fixture.collect(&sql).await, "n"), [expected], "{sql}");
}

#[tokio::test]
async fn versions_and_tags_are_found_wherever_a_table_may_stand() {
    let fixture = Fixture::new().await;
    check(&fixture, "samples", NUM_NEWEST).await;
    for at in ["AT (VERSION => 1)", "AT (TAG => 'v1')", "at(version => 1)", "VERSION AS OF 1"] {
        check(&fixture, &format!("samples {at}"), NUM_TAGGED).await;
        check(&fixture, &format!("samples {at} AS s"), NUM_TAGGED).await;
        check(&fixture, &format!("(SELECT * FROM samples {at}) AS s"), NUM_TAGGED).await;
    }
    check(&fixture, "public.samples AT (VERSION => 1)", NUM_TAGGED).await;
    check(&fixture, "samples AT (VERSION => 2)", NUM_NEWEST).await;
    check(&fixture, "samples a JOIN samples AT (VERSION => 1) b ON a.id = b.id", NUM_TAGGED).await;
    check(&fixture, "samples WHERE id IN (SELECT id FROM samples AT (TAG => 'v1'))", NUM_TAGGED).await;
    let all = NUM_NEWEST;
    check(&fixture, "vector_search(samples, emb, [1, 2, 3, 1], k => 1000)", all).await;
    for call in [
        "vector_search(samples AT (VERSION => 1), emb, [1, 2, 3, 1], k => 1000)",
        "vector_search('samples', 'emb', [1, 2, 3, 1], k => 1000, tag => 'v1')",
        "vector_search(samples, emb, [1, 2, 3, 1], version => 1, k => 1000)",
    ] {
        check(&fixture, call, NUM_TAGGED).await;
    }
}

#[tokio::test]
async fn with_queries_hide_tables() {
    let fixture = Fixture::new().await;
    let sql =
        "WITH samples AS (SELECT * FROM samples AT (VERSION => 1) WHERE id < 5) SELECT count(*) AS n FROM samples";
    assert_eq!(ints(&fixture.collect(sql).await, "n"), [5]);
    let versioned = "WITH s AS (SELECT 1) SELECT * FROM s AT (VERSION => 1)";
    fixture.refuses(versioned, &[], ErrorKind::InvalidRequest, &["WITH query"]).await;
}

#[tokio::test]
async fn timestamps_find_the_newest_version_before_them() {
    let fixture = Fixture::new().await;
    let latest = fixture.engine.lake().table(&table_name("samples"), &SnapshotRef::Latest).await.expect("samples");
    let versions = latest.versions().await.expect("versions");
    let of = |version: u64| versions.iter().find(|info| info.version == version).expect("a version").timestamp_millis;
    if of(1) < of(2) {
        let shown = |millis: i64| ParamValue::Text(iso(millis));
        let sql = "SELECT count(*) AS n FROM samples AT (TIMESTAMP => $1)";
        assert_eq!(ints(&fixture.collect_with(sql, &[shown(of(1))]).await, "n"), [NUM_TAGGED]);
        assert_eq!(ints(&fixture.collect_with(sql, &[shown(of(2))]).await, "n"), [NUM_NEWEST]);
    }
    let early = "SELECT * FROM samples AT (TIMESTAMP => '2001-01-01T00:00:00Z')";
    fixture.refuses(early, &[], ErrorKind::NotFound, &["samples"]).await;
    let bad = "SELECT * FROM samples AT (TIMESTAMP => 'yesterday')";
    fixture.refuses(bad, &[], ErrorKind::InvalidRequest, &["yesterday"]).await;
}

fn iso(millis: i64) -> String {
    let array = arrow_array::TimestampMillisecondArray::from(vec![millis]).with_timezone("+00:00");
    arrow_cast::display::array_value_to_string(&array, 0).expect("a timestamp")
}

#[tokio::test]
async fn what_cannot_be_resolved_is_an_error() {
    let fixture = Fixture::new().await;
    for (relation, kind, part) in [
        ("samples AT (VERSION => 9)", ErrorKind::NotFound, "9"),
        ("samples AT (TAG => 'nope')", ErrorKind::NotFound, "nope"),
        ("absent", ErrorKind::NotFound, "absent"),
        ("vector_search(absent, emb, [1])", ErrorKind::NotFound, "absent"),
        ("other.samples", ErrorKind::NotFound, "other.samples"),
        ("samples AT (LINE => 'x')", ErrorKind::InvalidRequest, "AT (VERSION => 3)"),
        ("samples AT (BRANCH => 'x')", ErrorKind::NotFound, "the table has no branches"),
        ("samples AT (BRANCH => 'a/b')", ErrorKind::InvalidRequest, "only letters, digits"),
        ("samples AT (BRANCH => 'main', TAG => 'v9')", ErrorKind::NotFound, "tags: v1"),
        ("samples AT (VERSION => 'v1')", ErrorKind::InvalidRequest, "AT (VERSION => 3)"),
        ("samples BEFORE (VERSION => 2)", ErrorKind::InvalidRequest, "AT (VERSION => 3)"),
        ("samples AT (VERSION => -1)", ErrorKind::InvalidRequest, "AT (VERSION => 3)"),
    ] {
        let sql = format!("SELECT * FROM {relation}");
        fixture.refuses(&sql, &[], kind, &[part]).await;
    }
    let misplaced = "SELECT id AT (VERSION => 1) FROM samples";
    fixture.refuses(misplaced, &[], ErrorKind::InvalidRequest, &["may follow a table name only"]).await;
}

#[tokio::test]
async fn snapshots_are_pinned_and_can_be_given_again() {
    let fixture = Fixture::new().await;
    let sql = "SELECT a.image, b.id FROM samples a JOIN samples AT (TAG => 'v1') b ON a.id = b.id";
    let query = fixture.engine.sample(sql, &[]).await.expect("a sample query");
    let shown: Vec<String> = query.snapshots().iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["samples@2", "samples@1"]);
    let again = fixture.engine.sample_at(sql, &[], query.snapshots()).await.expect("the same query");
    assert_eq!(again.snapshots(), query.snapshots());
    let error = fixture.engine.sample_at(sql, &[], &query.snapshots()[..1]).await.expect_err("one snapshot missing");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
}

#[tokio::test]
async fn a_query_may_be_planned_again_at_the_versions_of_an_earlier_plan() {
    let fixture = Fixture::new().await;
    let sql = "SELECT (SELECT count(*) FROM samples) AS newest, (SELECT count(*) FROM samples AT (TAG => 'v1')) AS tagged, \
               (SELECT count(*) FROM labels) AS others";
    let earlier = fixture.engine.query(sql, &[]).await.expect("a query").snapshots().to_vec();
    let counts = async |query: SqlQuery| {
        let batches: Vec<RecordBatch> = query.execute().await.expect("rows").try_collect().await.expect("rows");
        ["newest", "tagged", "others"].map(|column| ints(&batches[0], column)[0])
    };
    let samples = fixture.engine.lake().table(&table_name("samples"), &SnapshotRef::Latest).await.expect("a table");
    samples.create_index("label", IndexKind::BTree).await.expect("a version");
    let again = fixture.engine.query_at(sql, &[], &earlier).await.expect("a query");
    assert_eq!(again.snapshots(), earlier, "the newest version is another one now");
    assert_eq!(counts(again).await, [300, 250, 8]);
    let newest = fixture.engine.query_at(sql, &[], &[]).await.expect("a query");
    assert_ne!(newest.snapshots(), earlier);
    // Tables that are not named are not looked at, and a version that is gone is an error.
    let gone =
        [Snapshot { table: table_name("labels"), version: 9 }, Snapshot { table: table_name("none"), version: 1 }];
    let error = fixture.engine.query_at(sql, &[], &gone).await.expect_err("a version that is gone");
    check_error(sql, &error, ErrorKind::NotFound, &["labels", "9"]);
}
