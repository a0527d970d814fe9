//! Modes, resumption and repetition.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use stoker_lake::{LakeStore, StorageOptions};
use stoker_types::ErrorKind;

use super::{StopAfter, World, files_with, png};
use crate::job::catch_panic;
use crate::{Error, ImageFolderOptions, Mode, NoProgress, ingest_imagefolder};

/// Options that append.
fn append() -> ImageFolderOptions {
    ImageFolderOptions { mode: Mode::Append, ..ImageFolderOptions::default() }
}

/// Creates the table from one image of each class. These images are not in the source folder afterwards.
async fn create_from_other_images(world: &World) {
    for class in ["a", "b", "c"] {
        world.put(&format!("{class}/other.png"), &png(4, 6, 77));
    }
    world.ingest(&ImageFolderOptions::default()).await.unwrap();
    std::fs::remove_dir_all(world.source()).unwrap();
}

#[tokio::test]
async fn a_stopped_ingest_goes_on_without_duplicates() {
    for questions in 0..14 {
        let world = World::new().await;
        world.put_images();
        // With this option, each file is a unit.
        let options = ImageFolderOptions { unit_bytes: 1, ..ImageFolderOptions::default() };
        let stop = StopAfter::new(questions);
        let first = ingest_imagefolder(&world.lake, &world.source(), &world.table, &options, &stop).await;
        let done = match first {
            Ok(report) => {
                assert!(questions >= 12 && report.resumed_units == 0);
                assert!(stop.0.load(Ordering::Relaxed) <= 2);
                continue;
            }
            Err(Error::Stopped { units_done, units }) => {
                assert_eq!((units, units_done as u64), (6, questions / 2));
                units_done as u64
            }
            Err(error) => panic!("{error}"),
        };
        assert!(!world.exists().await);
        let report = world.ingest(&options).await.unwrap();
        assert_eq!((report.rows, report.resumed_units, report.version), (6, done, 1));
        assert_eq!(world.rows().await.num_rows(), 6);
        let lake = world.root.path().join("lake");
        assert_eq!(files_with(&lake, "ingest"), 3, "only the marker and the list of files are left");
    }
}

#[tokio::test]
async fn create_refuses_a_table_that_exists() {
    let world = World::new().await;
    world.put_images();
    world.ingest(&ImageFolderOptions::default()).await.unwrap();
    let error = world.ingest(&ImageFolderOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("--mode append"), "{error}");
}

#[tokio::test]
async fn a_source_that_is_there_is_not_appended_unless_again() {
    let world = World::new().await;
    world.put_images();
    assert_eq!(world.ingest(&append()).await.unwrap_err().kind(), ErrorKind::NotFound);
    world.ingest(&ImageFolderOptions::default()).await.unwrap();
    for _ in 0..2 {
        let report = world.ingest(&append()).await.unwrap();
        assert_eq!((report.version, report.rows, report.known_files, report.already_ingested), (1, 6, 6, true));
        assert_eq!(world.rows().await.num_rows(), 6);
    }
    let again = world.ingest(&ImageFolderOptions { again: true, ..append() }).await.unwrap();
    assert_eq!((again.version, again.already_ingested), (2, false));
    assert_eq!(world.rows().await.num_rows(), 12);
}

#[tokio::test]
async fn overwriting_replaces_what_came_between() {
    let world = World::new().await;
    world.put_images();
    let overwrite = ImageFolderOptions { mode: Mode::Overwrite, ..ImageFolderOptions::default() };
    assert_eq!(world.ingest(&overwrite).await.unwrap().version, 1);
    assert!(world.ingest(&overwrite).await.unwrap().already_ingested);
    world.ingest(&ImageFolderOptions { again: true, ..append() }).await.unwrap();
    let report = world.ingest(&overwrite).await.unwrap();
    assert_eq!((report.version, report.already_ingested), (3, false));
    assert_eq!(world.rows().await.num_rows(), 6);
}

#[tokio::test]
async fn appended_classes_keep_their_labels() {
    let world = World::new().await;
    world.put("cat/1.png", &png(2, 2, 0));
    world.put("dog/1.png", &png(2, 2, 1));
    world.ingest(&ImageFolderOptions::default()).await.unwrap();
    world.put("bee/1.png", &png(2, 2, 2));
    let append = ImageFolderOptions { mode: Mode::Append, ..ImageFolderOptions::default() };
    let error = world.ingest(&append).await.unwrap_err();
    assert!(error.to_string().contains("--classes") && error.to_string().contains("cat,dog"), "{error}");
    let classes = Some(["cat", "dog", "bee"].map(String::from).to_vec());
    assert_eq!(world.ingest(&ImageFolderOptions { classes, ..append }).await.unwrap().version, 2);
}

#[tokio::test]
async fn units_whose_files_are_gone_are_written_again() {
    let world = World::new().await;
    world.put_images();
    let options = ImageFolderOptions { unit_bytes: 1, ..ImageFolderOptions::default() };
    let stop = StopAfter::new(7);
    ingest_imagefolder(&world.lake, &world.source(), &world.table, &options, &stop).await.unwrap_err();
    std::fs::remove_dir_all(world.root.path().join("lake/data.lance")).unwrap();
    let report = world.ingest(&options).await.unwrap();
    assert_eq!((report.rows, report.resumed_units), (6, 0));
    assert_eq!(world.rows().await.num_rows(), 6);
}

/// Processes that share only the lake's folder append a source once.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_is_appended_once_by_any_number_of_processes() {
    for _ in 0..4 {
        let world = World::new().await;
        create_from_other_images(&world).await;
        world.put_images();
        let mut processes = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let uri = world.root.path().join("lake").to_str().unwrap().to_string();
            let (source, table) = (world.source(), world.table.clone());
            processes.spawn(async move {
                let lake = LakeStore::open(&uri, &StorageOptions::default()).await.unwrap();
                let append =
                    ImageFolderOptions { mode: Mode::Append, unit_bytes: 300, ..ImageFolderOptions::default() };
                ingest_imagefolder(&lake, &source, &table, &append, &NoProgress).await.unwrap()
            });
        }
        for report in processes.join_all().await {
            assert_eq!((report.version, report.rows), (2, 6));
        }
        assert_eq!(world.rows().await.num_rows(), 9);
    }
}

#[tokio::test]
async fn rows_that_were_overwritten_are_appended_again() {
    let world = World::new().await;
    create_from_other_images(&world).await;
    world.put_images();
    assert_eq!(world.ingest(&append()).await.unwrap().version, 2);
    let other = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(other.path().join("a")).unwrap();
    std::fs::write(other.path().join("a/new.png"), png(4, 6, 78)).unwrap();
    let overwrite = ImageFolderOptions { mode: Mode::Overwrite, ..ImageFolderOptions::default() };
    ingest_imagefolder(&world.lake, other.path(), &world.table, &overwrite, &NoProgress).await.unwrap();
    let report = world.ingest(&append()).await.unwrap();
    assert_eq!((report.version, report.already_ingested), (4, false));
    assert_eq!(world.rows().await.num_rows(), 7);

    // Another table of the same name replaces the table.
    std::fs::remove_dir_all(world.root.path().join("lake/data.lance")).unwrap();
    ingest_imagefolder(&world.lake, other.path(), &world.table, &ImageFolderOptions::default(), &NoProgress)
        .await
        .unwrap();
    for _ in 0..2 {
        world.ingest(&append()).await.unwrap();
        assert_eq!(world.rows().await.num_rows(), 7);
    }
}

#[tokio::test]
async fn a_damaged_marker_is_an_error_not_a_second_ingest() {
    let world = World::new().await;
    create_from_other_images(&world).await;
    world.put_images();
    world.ingest(&append()).await.unwrap();
    // The folder with the damaged files, and whether the source grows before it is ingested again.
    for (folder, grows) in [("ingest/done", false), ("ingest/files/data", true)] {
        let folder = world.root.path().join("lake/_stoker").join(folder);
        for file in std::fs::read_dir(&folder).unwrap() {
            std::fs::write(file.unwrap().path(), "").unwrap();
        }
        if grows {
            world.put("c/9.png", &png(4, 6, 9));
        }
        let error = world.ingest(&append()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::DataCorrupt && error.to_string().contains("_stoker/ingest/"), "{error}");
        assert_eq!(world.rows().await.num_rows(), 9);
    }
}

#[tokio::test]
async fn a_commit_without_its_marker_is_found_again() {
    let world = World::new().await;
    create_from_other_images(&world).await;
    world.put_images();
    let append = ImageFolderOptions { unit_bytes: 1, ..append() };
    // The journal then has five of six units.
    let stop = StopAfter::new(11);
    ingest_imagefolder(&world.lake, &world.source(), &world.table, &append, &stop).await.unwrap_err();
    let folder = world.root.path().join("lake/_stoker/ingest");
    let runs = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let runs: Vec<PathBuf> = runs.filter(|path| !path.ends_with("done") && !path.ends_with("files")).collect();
    let files = runs.iter().flat_map(|run| std::fs::read_dir(run).unwrap().map(|file| file.unwrap().path()));
    let journal: Vec<(PathBuf, Vec<u8>)> = files.map(|file| (file.clone(), std::fs::read(file).unwrap())).collect();
    assert_eq!(journal.len(), 6, "five units and where they began");
    let report = world.ingest(&append).await.unwrap();
    std::fs::remove_dir_all(folder.join("done")).unwrap();
    forget_versions(&folder.join("files/data"));
    for (path, bytes) in journal {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let again = world.ingest(&append).await.unwrap();
    assert_eq!((again.version, again.rows, again.already_ingested), (report.version, 6, true));
    assert_eq!(world.rows().await.num_rows(), 9);
    assert_eq!(files_with(&folder, ""), 4, "two lists of files are left");
}

/// Removes the versions from the lists of files, so that they are as before their commits.
fn forget_versions(folder: &Path) {
    for file in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        if json.get("version").is_some() {
            json["version"] = serde_json::Value::Null;
            std::fs::write(&file, json.to_string()).unwrap();
        }
    }
}

#[test]
fn a_panic_of_a_decoder_is_an_error() {
    assert_eq!(catch_panic(|| Ok::<i32, String>(3), |reason| reason), Ok(3));
    let failed = catch_panic(|| -> Result<(), String> { panic!("row {} is odd", 7) }, |reason| reason);
    assert_eq!(failed.unwrap_err(), "its decoder failed: row 7 is odd");
}
