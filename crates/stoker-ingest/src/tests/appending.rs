//! Sources that grew, were touched or were changed after they were ingested.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, Int64Array};
use stoker_lake::{LakeStore, StorageOptions};
use stoker_types::ErrorKind;

use super::parquet::{put, touch};
use super::{StopAfter, World, png};
use crate::{Error, ImageFolderOptions, Mode, NoProgress, OnError, ParquetOptions, ingest_imagefolder, ingest_parquet};

fn append() -> ImageFolderOptions {
    ImageFolderOptions { mode: Mode::Append, ..ImageFolderOptions::default() }
}

async fn paths(world: &World) -> Vec<String> {
    let rows = world.rows().await;
    let mut paths: Vec<String> = rows["path"].as_string::<i32>().iter().flatten().map(str::to_string).collect();
    paths.sort();
    paths
}

#[tokio::test]
async fn of_a_folder_that_grew_the_new_files_are_written() {
    let world = World::new().await;
    world.put_images();
    world.ingest(&ImageFolderOptions::default()).await.unwrap();
    let mut expected = paths(&world).await;
    for (round, name) in ["c/3.png", "a/0.png"].into_iter().enumerate() {
        touch(&world.source().join("b/1.png"));
        world.put(name, &png(4, 6, 9));
        expected.push(name.to_string());
        expected.sort();
        let report = world.ingest(&append()).await.unwrap();
        assert_eq!((report.rows, report.files, report.known_files), (1, 1, 6 + round as u64));
        assert_eq!((report.version, report.already_ingested), (2 + round as u64, false));
        assert_eq!(paths(&world).await, expected);
        let report = world.ingest(&append()).await.unwrap();
        assert_eq!((report.known_files, report.already_ingested), (7 + round as u64, true));
        assert_eq!(paths(&world).await, expected);
    }
    // The same folder at another path, as on another machine.
    let elsewhere = world.root.path().join("elsewhere");
    std::fs::rename(world.source(), &elsewhere).unwrap();
    std::fs::write(elsewhere.join("a/9.png"), png(4, 6, 33)).unwrap();
    let report = ingest_imagefolder(&world.lake, &elsewhere, &world.table, &append(), &NoProgress).await.unwrap();
    assert_eq!((report.rows, report.known_files), (1, 8));
}

#[tokio::test]
async fn a_file_with_other_content_is_refused_by_name() {
    let world = World::new().await;
    world.put_images();
    world.ingest(&ImageFolderOptions::default()).await.unwrap();
    // A file of the same length, and a longer one.
    let as_long = png(4, 6, 0).len();
    for changed in [(100..=255).map(|seed| png(4, 6, seed)).find(|png| png.len() == as_long).unwrap(), png(4, 6, 9)] {
        let path = world.put("b/1.png", &changed);
        touch(&path);
        world.put("c/3.png", &png(4, 6, 9));
        let error = world.ingest(&append()).await.unwrap_err();
        assert!(
            matches!(&error, Error::OtherContent { path, version: 1, num_more: 0, .. } if path.ends_with("b/1.png"))
        );
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.to_string().contains("--mode overwrite"), "{error}");
        assert_eq!(world.rows().await.num_rows(), 6);
    }
    let overwrite = ImageFolderOptions { mode: Mode::Overwrite, ..ImageFolderOptions::default() };
    assert_eq!(world.ingest(&overwrite).await.unwrap().rows, 7);
    assert!(world.ingest(&append()).await.unwrap().already_ingested);
}

#[tokio::test]
async fn a_file_that_was_left_out_is_appended_when_it_was_repaired() {
    let world = World::new().await;
    world.put_images();
    world.put("a/0.png", b"this is text");
    let skip = ImageFolderOptions { on_error: OnError::Skip, ..ImageFolderOptions::default() };
    assert_eq!(world.ingest(&skip).await.unwrap().rows, 6);
    let append = ImageFolderOptions { mode: Mode::Append, ..skip };
    let report = world.ingest(&append).await.unwrap();
    assert_eq!((report.known_files, report.skipped.len(), report.already_ingested), (6, 1, true));
    world.put("a/0.png", &png(4, 6, 8));
    let report = world.ingest(&append).await.unwrap();
    assert_eq!((report.rows, report.known_files), (1, 6));
}

#[tokio::test]
async fn tables_without_a_list_of_files_are_refused_unless_again() {
    let world = World::new().await;
    world.put_images();
    world.ingest(&ImageFolderOptions::default()).await.unwrap();
    std::fs::remove_dir_all(world.root.path().join("lake/_stoker/ingest")).unwrap();
    let error = world.ingest(&append()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    let said = error.to_string();
    assert!(["version 1", "--mode overwrite", "--again"].iter().all(|word| said.contains(word)), "{said}");
    let again = ImageFolderOptions { again: true, ..append() };
    assert_eq!(world.ingest(&again).await.unwrap().version, 2);
    assert!(matches!(world.ingest(&append()).await, Ok(report) if report.already_ingested));
    world.put("c/3.png", &png(4, 6, 9));
    assert!(matches!(world.ingest(&append()).await, Err(Error::NoFileList { .. })));
    let overwrite = ImageFolderOptions { mode: Mode::Overwrite, ..ImageFolderOptions::default() };
    assert_eq!(world.ingest(&overwrite).await.unwrap().version, 3);
    world.put("c/4.png", &png(4, 6, 9));
    assert_eq!(world.ingest(&append()).await.unwrap().rows, 1);
}

#[tokio::test]
async fn parquet_files_that_are_there_are_not_written_again() {
    let world = World::new().await;
    let ids = |range: std::ops::Range<i64>| -> ArrayRef { Arc::new(Int64Array::from_iter_values(range)) };
    put(&world, "a.parquet", vec![("id", ids(0..10))]);
    put(&world, "deep/b.parquet", vec![("id", ids(10..25))]);
    let ingest = async |options: &ParquetOptions| {
        ingest_parquet(&world.lake, &[world.source()], &world.table, options, &NoProgress).await
    };
    ingest(&ParquetOptions { unit_bytes: 1, ..ParquetOptions::default() }).await.unwrap();
    touch(&world.source().join("a.parquet"));
    put(&world, "0.parquet", vec![("id", ids(25..30))]);
    world.put("notes.txt", b"text");
    let append = ParquetOptions { mode: Mode::Append, ..ParquetOptions::default() };
    let report = ingest(&append).await.unwrap();
    assert_eq!((report.rows, report.files, report.known_files), (5, 1, 2));
    assert_eq!(report.left_out.get(".txt"), Some(&1));
    assert!(ingest(&append).await.unwrap().already_ingested);
    let one = [world.source().join("deep/b.parquet")];
    let report = ingest_parquet(&world.lake, &one, &world.table, &append, &NoProgress).await.unwrap();
    assert!(report.already_ingested, "the same file, named by itself");
    put(&world, "deep/b.parquet", vec![("id", ids(40..55))]);
    assert!(matches!(ingest(&append).await, Err(Error::OtherContent { .. })));
    let rows = world.rows().await;
    let mut found = rows["id"].as_primitive::<arrow_array::types::Int64Type>().values().to_vec();
    found.sort_unstable();
    assert_eq!(found, (0..30).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_stopped_append_goes_on_and_chooses_anew_what_to_write() {
    let world = World::new().await;
    world.put("a/1.png", &png(4, 6, 0));
    world.ingest(&ImageFolderOptions::default()).await.unwrap();
    let one_file_units = ImageFolderOptions { unit_bytes: 1, ..append() };
    for number in 2..6 {
        world.put(&format!("a/{number}.png"), &png(4, 6, number));
    }
    for questions in [0, 3, 5] {
        let stop = StopAfter::new(questions);
        let stopped = ingest_imagefolder(&world.lake, &world.source(), &world.table, &one_file_units, &stop).await;
        assert!(matches!(stopped, Err(Error::Stopped { units: 4, .. })), "{stopped:?}");
    }
    world.put("a/6.png", &png(4, 6, 6));
    let report = world.ingest(&one_file_units).await.unwrap();
    assert_eq!((report.rows, report.known_files), (5, 1));
    assert_eq!(paths(&world).await, ["a/1.png", "a/2.png", "a/3.png", "a/4.png", "a/5.png", "a/6.png"]);
}

/// Processes that list a growing folder at different times append each file once.
#[tokio::test(flavor = "multi_thread")]
async fn files_are_appended_once_by_processes_that_see_different_folders() {
    let world = World::new().await;
    world.put("a/0.png", &png(4, 6, 0));
    world.ingest(&ImageFolderOptions::default()).await.unwrap();
    let mut expected = vec!["a/0.png".to_string()];
    let mut processes = tokio::task::JoinSet::new();
    for number in 1..6u8 {
        let name = format!("a/{number}.png");
        // A rename adds the file atomically, because the other processes may list the folder at any time.
        std::fs::rename(world.put(".new", &png(4, 6, number)), world.source().join(&name)).unwrap();
        expected.push(name);
        let uri = world.root.path().join("lake").to_str().unwrap().to_string();
        let (source, table) = (world.source(), world.table.clone());
        processes.spawn(async move {
            let lake = LakeStore::open(&uri, &StorageOptions::default()).await.unwrap();
            ingest_imagefolder(&lake, &source, &table, &append(), &NoProgress).await.unwrap()
        });
        tokio::task::yield_now().await;
    }
    processes.join_all().await;
    assert_eq!(paths(&world).await, expected);
}
