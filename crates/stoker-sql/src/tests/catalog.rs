//! Relations about the lake and its tables.

use std::fs;

use stoker_lake::IndexKind;
use stoker_types::{ErrorKind, SnapshotRef};

use super::fixture::{Fixture, ints, table_name};

/// Damages the newest version of a table.
fn damage(fixture: &Fixture, table: &str) {
    let versions = fixture.dir.path().join(format!("{table}.lance")).join("_versions");
    for manifest in fs::read_dir(versions).expect("versions") {
        fs::write(manifest.expect("a manifest").path(), b"no manifest").expect("a write");
    }
}

#[tokio::test]
async fn only_tables_that_are_asked_for_are_opened() {
    let fixture = Fixture::new().await;
    damage(&fixture, "labels");
    let tables = fixture.collect("SHOW TABLES").await;
    assert_eq!(tables.num_rows(), 2);
    for predicate in
        ["table_name = 'samples'", "table_name LIKE 'sam%' AND table_schema = 'public'", "table_name IN ('samples')"]
    {
        let sql = format!("SELECT column_name FROM information_schema.columns WHERE {predicate}");
        assert_eq!(fixture.collect(&sql).await.num_rows(), 6, "{predicate}");
    }
    // A damaged table hides no other one, but is an error where nothing else is asked for.
    let all =
        fixture.collect("SELECT DISTINCT table_name FROM information_schema.columns WHERE table_schema = 'public'");
    assert_eq!(all.await.num_rows(), 1);
    let alone = "SELECT * FROM information_schema.columns WHERE table_name = 'labels'";
    fixture.refuses(alone, &[], ErrorKind::DataCorrupt, &["labels"]).await;
}

#[tokio::test]
async fn indexes_tell_how_many_rows_they_cover() {
    let fixture = Fixture::new().await;
    let samples = fixture.engine.lake().table(&table_name("samples"), &SnapshotRef::Latest).await.expect("a table");
    samples.create_index("label", IndexKind::BTree).await.expect("an index");
    let covered = "num_rows_covered = 300 AND num_rows_not_covered = 0 AND size_bytes > 0 AND index_type = 'BTree'";
    let covered = format!("SELECT count(*) AS n FROM indexes(samples) WHERE {covered}");
    assert_eq!(ints(&fixture.collect(&covered).await, "n"), [1]);
    assert_eq!(fixture.collect("SHOW INDEXES FROM samples LIKE '%label%'").await.num_rows(), 1);
    assert_eq!(fixture.collect("SHOW INDEXES FROM samples AT (TAG => 'v1')").await.num_rows(), 0);
}

#[tokio::test]
async fn training_sets_do_not_depend_on_the_catalog() {
    let fixture = Fixture::new().await;
    for sql in [
        "SELECT id FROM samples WHERE id < (SELECT max(version) FROM versions(samples))",
        "SELECT s.id FROM samples s JOIN information_schema.tables t ON s.name = t.table_name",
        "SHOW TABLES",
    ] {
        fixture.refuses_sample(sql, &["of the catalog"]).await;
        fixture.engine.query(sql, &[]).await.expect("a query");
    }
}
