//! Row sets: content, determinism, storage.

use std::fs;
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use stoker_types::{Digest, ErrorKind};

use super::fixture::{Fixture, NUM_NEWEST, Row, ids, rows};

async fn check(fixture: &Fixture, condition: &str, expected: impl Fn(&Row) -> bool) {
    let (_, row_set) = fixture.sample(&format!("SELECT image, label FROM samples WHERE {condition}")).await;
    let expected: Vec<i64> = rows(NUM_NEWEST).iter().filter(|row| expected(row)).map(|row| row.id).collect();
    assert_eq!(ids(&row_set).await, expected, "{condition}");
    assert_eq!(row_set.num_rows(), expected.len() as u64, "{condition}");
}

#[tokio::test]
async fn rows_equal_brute_force() {
    let fixture = Fixture::new().await;
    check(&fixture, "true", |_| true).await;
    check(&fixture, "false", |_| false).await;
    check(&fixture, "split = 'train' AND label <> 3", |row| row.split == "train" && row.label != 3).await;
    check(&fixture, "name LIKE 'n1%' OR id BETWEEN 200 AND 210", |row| {
        row.name.as_deref().is_some_and(|name| name.starts_with("n1")) || (200..=210).contains(&row.id)
    })
    .await;
    check(&fixture, "l2_distance(emb, [1, 2, 3, 1]) < 4", |row| {
        row.emb.iter().zip([1.0, 2.0, 3.0, 1.0]).map(|(a, b): (&f32, f32)| (a - b) * (a - b)).sum::<f32>().sqrt() < 4.0
    })
    .await;
    check(&fixture, "label = 3 AND tensor_mean(image) > 100", |row| row.label == 3 && row.id % 256 > 100).await;
    check(&fixture, "label IN (SELECT label FROM labels WHERE weight >= 2)", |row| (4..8).contains(&row.label)).await;
}

#[tokio::test]
async fn heavy_columns_are_not_read() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.remove_images(), 4);
    check(&fixture, "split = 'test'", |row| row.split == "test").await;
    for sql in [
        "SELECT s.*, l.title FROM samples s JOIN labels l ON s.label = l.label WHERE l.weight > 1 ORDER BY s.name LIMIT 20",
        "SELECT *, row_number() OVER (ORDER BY id) AS r FROM samples",
        "SELECT image, _distance FROM vector_search(samples, emb, [1, 2, 3, 1], k => 20) WHERE label = 1",
        "SELECT image, tensor_shape(image) AS shape FROM samples",
        "SELECT image FROM samples UNION ALL SELECT image FROM samples WHERE id = 1",
    ] {
        fixture.sample(sql).await;
    }
    let error = fixture.try_collect("SELECT image FROM samples", &[]).await.expect_err("the images are gone");
    assert!(!matches!(error.kind(), ErrorKind::InvalidRequest), "{error}");
}

#[tokio::test]
async fn positions_resolve_in_any_ascending_subset() {
    let fixture = Fixture::new().await;
    for sql in
        ["SELECT image FROM samples WHERE id % 3 <> 0", "SELECT image FROM samples WHERE id % 3 <> 0 ORDER BY id"]
    {
        let (_, row_set) = fixture.sample(sql).await;
        let all: Vec<u64> = (0..row_set.num_rows()).collect();
        let addrs = row_set.resolve(&all).await.expect("rows").addrs.remove(0);
        for step in [1, 2, 7, 63, 64, 65, 150] {
            let some: Vec<u64> = all.iter().copied().skip(step / 2).step_by(step).collect();
            let expected: Vec<u64> = some.iter().map(|ordinal| addrs[*ordinal as usize]).collect();
            assert_eq!(row_set.resolve(&some).await.expect("rows").addrs[0], expected, "{sql} step {step}");
        }
        assert_eq!(row_set.resolve(&[]).await.expect("no rows").addrs[0], Vec::<u64>::new());
        for bad in [vec![3, 3], vec![3, 2], vec![row_set.num_rows()]] {
            let error = row_set.resolve(&bad).await.expect_err("not ascending or outside");
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        }
        assert!(row_set.bytes_in_memory() > 0);
    }
}

#[tokio::test]
async fn joined_columns_are_in_the_row_set() {
    let fixture = Fixture::new().await;
    let sql = "SELECT s.image, c.n * 2 AS twice FROM samples s JOIN \
               (SELECT label, count(*) AS n FROM samples WHERE id < 15 GROUP BY label) c ON c.label = s.label WHERE s.id < 20";
    let (_, row_set) = fixture.sample(sql).await;
    let all: Vec<u64> = (0..row_set.num_rows()).collect();
    let resolved = row_set.resolve(&all).await.expect("rows");
    let twice = resolved.columns[0].as_primitive::<Int64Type>().values().to_vec();
    let expected: Vec<i64> = (0..20).map(|id| if id % 10 < 5 { 4 } else { 2 }).collect();
    assert_eq!(twice, expected);
    assert_eq!(ids(&row_set).await, (0..20).collect::<Vec<i64>>());
}

const QUERIES: [&str; 5] = [
    "SELECT image, label FROM samples WHERE split = 'train'",
    "SELECT image, upper(name) AS u FROM samples WHERE label < 5",
    "SELECT s.image, l.title FROM samples s LEFT JOIN labels l ON s.label = l.label",
    "SELECT image FROM samples ORDER BY label LIMIT 33",
    "SELECT image, _distance FROM vector_search(samples, emb, [1, 2, 3, 1], k => 50) WHERE split = 'train'",
];

#[tokio::test]
async fn digests_are_deterministic_and_tell_rows_apart() {
    let mut digests: Vec<Digest> = Vec::new();
    let fixture = Fixture::new().await;
    for sql in QUERIES {
        let (query, row_set) = fixture.sample(sql).await;
        assert_eq!(
            fixture.engine.row_set(&query).await.expect("the row set again").digest(),
            row_set.digest(),
            "{sql}"
        );
        assert!(!digests.contains(&row_set.digest()), "{sql}");
        digests.push(row_set.digest());
    }
    // Another lake with the same content, and another number of partitions, give the same digests.
    let options = crate::EngineOptions { target_partitions: 1, ..crate::EngineOptions::default() };
    let other = Fixture::with_options(options).await;
    for (sql, digest) in QUERIES.iter().zip(&digests) {
        assert_eq!(other.sample(sql).await.1.digest(), *digest, "{sql}");
    }
    let (_, older) = fixture.sample("SELECT image, label FROM samples AT (VERSION => 1) WHERE split = 'train'").await;
    assert!(!digests.contains(&older.digest()));
}

fn stored(fixture: &Fixture) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![fixture.dir.path().join("_stoker/rowsets")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

#[tokio::test]
async fn stored_row_sets_load_and_lost_ones_are_computed_again() {
    for sql in QUERIES {
        let fixture = Fixture::new().await;
        let (query, row_set) = fixture.sample(sql).await;
        let expected = ids(&row_set).await;
        let load = async || fixture.engine.load_row_set(&query, row_set.digest()).await.expect("the row set");
        assert_eq!(ids(&*load().await).await, expected, "{sql}");
        let files = stored(&fixture);
        assert_eq!(files.len(), 2, "{sql}");
        for damage in ["remove", "truncate", "flip"] {
            for path in &files {
                let mut bytes = fs::read(path).expect("an object");
                match damage {
                    "remove" => fs::remove_file(path).expect("removed"),
                    "truncate" => fs::write(path, &bytes[..bytes.len() / 2]).expect("truncated"),
                    _ => {
                        let middle = bytes.len() * 2 / 3;
                        bytes[middle] ^= 1;
                        fs::write(path, bytes).expect("flipped");
                    }
                }
                let loaded = load().await;
                assert_eq!(loaded.digest(), row_set.digest());
                assert_eq!(ids(&loaded).await, expected, "{sql} after {damage} of {path:?}");
            }
        }
        let wrong = fixture.engine.load_row_set(&query, Digest::of(b"other")).await.expect_err("another digest");
        assert_eq!(wrong.kind(), ErrorKind::StateMismatch, "{wrong}");
    }
}

#[tokio::test]
async fn without_a_writable_lake_the_rows_stay_in_memory() {
    let fixture = Fixture::new().await;
    // A file stands where the folder should be, so that nothing can be written below it, whatever the user's
    // permissions.
    fs::write(fixture.dir.path().join("_stoker"), b"in the way").expect("a file");
    for sql in QUERIES {
        let (_, row_set) = fixture.sample(sql).await;
        assert!(!ids(&row_set).await.is_empty(), "{sql}");
    }
}
