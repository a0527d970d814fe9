//! Files of any format: rows, bad rows, resumption and appending.

use std::os::unix::fs::symlink;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use stoker_types::ErrorKind;

use super::files_format::formats;
use super::parquet::touch;
use super::{StopAfter, World, files_with};
use crate::files::ingest_with;
use crate::{
    Error, FilesOptions, IngestReport, LAKES_LEFT_OUT, Mode, NoProgress, OnError, Progress, Result, Skipped,
    ingest_files,
};

pub(super) async fn ingest_as(world: &World, options: &FilesOptions, progress: &dyn Progress) -> Result<IngestReport> {
    ingest_with(&world.lake, &[world.source()], &world.table, options, progress, formats()).await
}

pub(super) async fn ingest(world: &World, options: &FilesOptions) -> Result<IngestReport> {
    ingest_as(world, options, &NoProgress).await
}

/// Writes a file whose rows have these ids.
pub(super) fn put_ids(world: &World, name: &str, ids: std::ops::Range<i64>) {
    let rows: String = ids.map(|id| format!("{id},name {id}\n")).collect();
    world.put(name, format!("id:int,name:str\n{rows}").as_bytes());
}

pub(super) async fn found_ids(world: &World) -> Vec<i64> {
    world.rows().await["id"].as_primitive::<Int64Type>().values().to_vec()
}

pub(super) fn skip() -> FilesOptions {
    FilesOptions { on_error: OnError::Skip, ..FilesOptions::default() }
}

fn append() -> FilesOptions {
    FilesOptions { mode: Mode::Append, ..FilesOptions::default() }
}

#[tokio::test]
async fn rows_of_files_are_written_in_order() {
    let world = World::new().await;
    put_ids(&world, "b.rows", 5..9);
    put_ids(&world, "a/deep.rows", 0..5);
    world.put("a/notes.txt", b"text");
    world.put(".hidden.rows", b"nonsense");
    let report = ingest(&world, &FilesOptions::default()).await.unwrap();
    assert_eq!((report.version, report.rows, report.files, report.num_skipped()), (1, 9, 2, 0));
    let bytes = ["a/deep.rows", "b.rows"].map(|name| world.source().join(name).metadata().unwrap().len());
    assert_eq!(report.bytes, bytes.iter().sum::<u64>());
    assert_eq!(report.left_out.into_iter().collect::<Vec<_>>(), [(".txt".to_string(), 1)]);
    assert_eq!(found_ids(&world).await, (0..9).collect::<Vec<_>>());
    let rows = world.rows().await;
    assert_eq!(rows["name"].as_string::<i32>().value(7), "name 7");
    let error = ingest(&world, &FilesOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
}

#[tokio::test]
async fn many_small_files_and_large_ones_keep_their_order() {
    for unit_bytes in [1, 2_000, 256 << 20] {
        let world = World::new().await;
        for file in 0..150 {
            put_ids(&world, &format!("{file:03}.rows"), file * 3..file * 3 + 3);
        }
        put_ids(&world, "500.rows", 450..2_000);
        let options = FilesOptions { unit_bytes, ..FilesOptions::default() };
        assert_eq!(ingest(&world, &options).await.unwrap().rows, 2_000);
        assert_eq!(found_ids(&world).await, (0..2_000).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn several_sources_are_one_dataset() {
    let world = World::new().await;
    put_ids(&world, "train/0.rows", 3..6);
    put_ids(&world, "test/0.rows", 0..3);
    put_ids(&world, "more.rows", 6..8);
    let sources = ["train", "test", "more.rows"].map(|name| world.source().join(name));
    let with = async |sources: &[std::path::PathBuf], options: &FilesOptions| {
        ingest_with(&world.lake, sources, &world.table, options, &NoProgress, formats()).await
    };
    assert_eq!(with(&sources[..], &FilesOptions::default()).await.unwrap().rows, 8);
    assert_eq!(found_ids(&world).await, [6, 7, 0, 1, 2, 3, 4, 5], "sorted by name");
    assert!(with(&[world.source()][..], &append()).await.unwrap().already_ingested);
    let error = with(&[world.source(), world.source().join("train")][..], &append()).await.unwrap_err();
    assert!(error.to_string().contains("is named twice"), "{error}");
    let error = with(&[world.source().join("nothing")][..], &append()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn sounds_that_are_new_are_appended_with_the_same_labels() {
    let world = World::new().await;
    for name in ["bird/b.flac", "cat/a.flac"] {
        world.put(name, format!("fLaC {name}").as_bytes());
    }
    let with = async |options: &FilesOptions| {
        ingest_files(&world.lake, &[world.source()], &world.table, options, &NoProgress).await
    };
    let report = with(&FilesOptions::default()).await.unwrap();
    assert_eq!((report.rows, report.files), (2, 2));
    // They are neighbours of the files that the table has.
    for name in ["bird/a.flac", "bird/c.flac", "cat/b.flac"] {
        world.put(name, format!("fLaC {name}").as_bytes());
    }
    let report = with(&append()).await.unwrap();
    assert_eq!((report.rows, report.files, report.known_files), (3, 3, 2));
    let rows = world.rows().await;
    let paths: Vec<_> = rows["path"].as_string::<i32>().iter().flatten().collect();
    assert_eq!(paths, ["bird/b.flac", "cat/a.flac", "bird/a.flac", "bird/c.flac", "cat/b.flac"]);
    assert_eq!(rows["label"].as_primitive::<Int64Type>().values(), &[0, 1, 0, 0, 1]);
    world.put("ant/a.flac", b"fLaC");
    let error = with(&append()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("class bird has label 0 in table"), "{error}");
}

#[tokio::test]
async fn links_to_files_keep_their_names() {
    let world = World::new().await;
    put_ids(&world, "blobs/1f", 0..3);
    let link = world.source().join("a.rows");
    symlink("blobs/1f", &link).unwrap();
    let (sources, options) = ([link], FilesOptions::default());
    let report = ingest_with(&world.lake, &sources, &world.table, &options, &NoProgress, formats()).await.unwrap();
    assert_eq!((report.rows, report.files), (3, 1));
    assert_eq!(found_ids(&world).await, [0, 1, 2]);
}

#[tokio::test]
async fn rows_name_no_files_outside_their_source() {
    let world = World::new().await;
    let jpeg = b"\xff\xd8\xff\xe0 a picture";
    std::fs::create_dir(world.root.path().join("outside")).unwrap();
    std::fs::write(world.root.path().join("outside/key.jpg"), jpeg).unwrap();
    world.put("photos/real.jpg", jpeg);
    world.put("above.jpg", jpeg);
    for (target, link) in [
        ("real.jpg", "photos/in.jpg"),
        ("../above.jpg", "photos/above.jpg"),
        ("../../outside/key.jpg", "photos/out.jpg"),
        ("../outside", "folder"),
    ] {
        symlink(target, world.source().join(link)).unwrap();
    }
    let names = ["photos/in.jpg", "photos/out.jpg", "photos/above.jpg", "folder/key.jpg"];
    let rows: String = names.iter().map(|name| format!("{{\"image\": \"{name}\"}}\n")).collect();
    let listed = world.put("rows.jsonl", rows.as_bytes());
    let options = FilesOptions { images: vec!["image".into()], ..FilesOptions::default() };
    let error = ingest_files(&world.lake, &[world.source()], &world.table, &options, &NoProgress).await.unwrap_err();
    assert!(matches!(&error, Error::Row { path, row: 1, .. } if path.ends_with("rows.jsonl")), "{error}");
    let refused = |name: &str| format!("column image: \"{name}\": the file is a link out of the folder");
    assert!(error.to_string().contains(&refused("photos/out.jpg")), "{error}");
    assert!(!world.exists().await);

    let options = FilesOptions { on_error: OnError::Skip, mode: Mode::Overwrite, ..options };
    let outside = "column image: the folder has no file \"folder/key.jpg\"".to_string();
    let cases = [
        (vec![world.source()], 2, vec![(1u64, refused("photos/out.jpg")), (3, refused("folder/key.jpg"))]),
        // Each source is a folder of its own.
        (
            vec![listed, world.source().join("photos")],
            1,
            vec![(1u64, refused("photos/out.jpg")), (2, refused("photos/above.jpg")), (3, outside)],
        ),
    ];
    for (sources, num_rows, skipped) in cases {
        let report = ingest_files(&world.lake, &sources, &world.table, &options, &NoProgress).await.unwrap();
        assert_eq!(report.rows, num_rows);
        let found: Vec<_> = report.skipped.into_iter().map(|skipped| (skipped.row.unwrap(), skipped.reason)).collect();
        assert_eq!(found, skipped);
    }
}

#[tokio::test]
async fn lakes_in_a_source_are_ignored() {
    let world = World::new().await;
    let ingest_all = async |options: &FilesOptions| {
        let sources = [world.root.path().to_path_buf()];
        ingest_with(&world.lake, &sources, &world.table, options, &NoProgress, formats()).await
    };
    put_ids(&world, "a.rows", 0..3);
    assert_eq!(ingest_all(&FilesOptions::default()).await.unwrap().rows, 3);
    put_ids(&world, "b.rows", 3..5);
    std::fs::copy(world.source().join("b.rows"), world.root.path().join("lake/c.rows")).unwrap();
    let report = ingest_all(&append()).await.unwrap();
    assert_eq!((report.rows, report.known_files), (2, 1));
    assert_eq!(report.left_out.into_iter().collect::<Vec<_>>(), [(LAKES_LEFT_OUT.to_string(), 1)]);
    assert_eq!(found_ids(&world).await, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_stopped_ingest_goes_on_without_duplicates() {
    for questions in 0..8 {
        let world = World::new().await;
        for file in 0..3 {
            put_ids(&world, &format!("{file}.rows"), file * 4..file * 4 + 4);
        }
        let options = FilesOptions { unit_bytes: 1, ..FilesOptions::default() };
        let stopped = ingest_as(&world, &options, &StopAfter::new(questions)).await;
        let Err(Error::Stopped { units_done, units: 3 }) = stopped else { panic!("{stopped:?}") };
        assert!(!world.exists().await);
        let report = ingest(&world, &options).await.unwrap();
        assert_eq!((report.rows, report.resumed_units, report.files), (12, units_done as u64, 3));
        assert_eq!(found_ids(&world).await, (0..12).collect::<Vec<_>>());
        assert_eq!(files_with(&world.root.path().join("lake"), "ingest"), 3, "the journal is gone");
    }
}

#[tokio::test]
async fn of_a_folder_that_grew_the_new_files_are_written() {
    let world = World::new().await;
    put_ids(&world, "b.rows", 0..4);
    ingest(&world, &FilesOptions::default()).await.unwrap();
    touch(&world.source().join("b.rows"));
    put_ids(&world, "a.rows", 4..6);
    put_ids(&world, "c.rows", 6..9);
    let report = ingest(&world, &append()).await.unwrap();
    assert_eq!((report.rows, report.files, report.known_files, report.version), (5, 2, 1, 2));
    assert_eq!(found_ids(&world).await, (0..9).collect::<Vec<_>>());
    assert!(ingest(&world, &append()).await.unwrap().already_ingested);
    put_ids(&world, "b.rows", 20..24);
    assert!(matches!(ingest(&world, &append()).await, Err(Error::OtherContent { .. })));
    assert_eq!(found_ids(&world).await, (0..9).collect::<Vec<_>>());
}

#[tokio::test]
async fn bad_rows_fail_or_are_skipped_by_file_and_number() {
    let world = World::new().await;
    put_ids(&world, "a.rows", 0..3);
    world.put("b.rows", b"id:int,name:str\n3,x\n?,a\n4,x\n5,x\n6,?\n?,?\n");
    let error = ingest(&world, &FilesOptions::default()).await.unwrap_err();
    assert!(matches!(&error, Error::Row { path, row: 1, .. } if path.ends_with("b.rows")), "{error}");
    assert!(error.to_string().contains("b.rows row 1: ?,a is odd; repair"), "{error}");
    assert_eq!(error.kind(), ErrorKind::DataCorrupt);
    assert!(!world.exists().await);
    let report = ingest(&world, &skip()).await.unwrap();
    let rows: Vec<_> = report.skipped.iter().map(|skipped| (skipped.row, skipped.reason.as_str())).collect();
    assert_eq!(rows, [(Some(1), "?,a is odd"), (Some(4), "6,? is odd"), (Some(5), "?,? is odd")]);
    assert!(report.skipped[0].path.ends_with("b.rows"));
    assert_eq!((report.rows, report.num_skipped()), (6, 3));
    assert_eq!(found_ids(&world).await, (0..6).collect::<Vec<_>>());
    let report = ingest(&world, &FilesOptions { mode: Mode::Append, ..skip() }).await.unwrap();
    assert!(report.already_ingested, "files with skipped rows are there");
}

#[tokio::test]
async fn of_many_bad_rows_some_are_listed_and_all_are_counted() {
    let world = World::new().await;
    let rows: String = (0..1_000).map(|row| if row == 500 { "7,x\n" } else { "?,x\n" }).collect();
    world.put("a.rows", format!("id:int,name:str\n{rows}").as_bytes());
    let report = ingest(&world, &skip()).await.unwrap();
    assert_eq!((report.rows, report.skipped.len(), report.num_skipped()), (1, 100, 999));
    let said = report.skipped[99].to_string();
    assert!(said.ends_with("row 99: ?,x is odd; 899 further rows of this file were skipped"), "{said}");
}

#[tokio::test]
async fn of_a_damaged_file_the_rows_before_the_damage_are_kept() {
    let world = World::new().await;
    put_ids(&world, "a.rows", 0..2);
    world.put("b.rows", b"id:int,name:str\n2,x\n3,x\n4,x\n!\n5,x\n");
    put_ids(&world, "c.rows", 9..10);
    let error = ingest(&world, &FilesOptions::default()).await.unwrap_err();
    assert!(matches!(&error, Error::Unreadable { path, .. } if path.ends_with("b.rows")), "{error}");
    assert!(!world.exists().await);
    let report = ingest(&world, &skip()).await.unwrap();
    // Row 4 was in the batch with the damage.
    assert_eq!(found_ids(&world).await, [0, 1, 2, 3, 9]);
    let Skipped { row, reason, .. } = &report.skipped[0];
    assert_eq!((*row, reason.as_str()), (Some(2), "damage after row 3; the rest of the file was left out"));
    world.put("b.rows", b"id:int,name:str\n2,x\n3,x\n4,x\n5,x\n");
    let again = ingest(&world, &FilesOptions { mode: Mode::Append, ..skip() }).await;
    assert!(matches!(again, Err(Error::OtherContent { .. })), "its first rows are there");
}

#[tokio::test]
async fn a_file_without_a_row_is_appended_when_it_was_repaired() {
    for damaged in ["", "nonsense", "id:int,name:str\n!\n", "id:int,name:str\npanic\n", "id:int,name:str\n?,x\n?,y\n"] {
        let world = World::new().await;
        put_ids(&world, "a.rows", 0..2);
        world.put("b.rows", damaged.as_bytes());
        assert_eq!(ingest(&world, &FilesOptions::default()).await.unwrap_err().kind(), ErrorKind::DataCorrupt);
        let report = ingest(&world, &skip()).await.unwrap();
        assert_eq!((report.rows, report.skipped.len(), report.skipped[0].row), (2, 1, None), "{damaged}");
        let append = FilesOptions { mode: Mode::Append, ..skip() };
        assert!(ingest(&world, &append).await.unwrap().already_ingested);
        put_ids(&world, "b.rows", 2..4);
        assert_eq!(ingest(&world, &append).await.unwrap().rows, 2);
        assert_eq!(found_ids(&world).await, [0, 1, 2, 3]);
    }
}

#[tokio::test]
async fn files_lack_columns_and_may_not_have_others() {
    let world = World::new().await;
    put_ids(&world, "a.rows", 0..2);
    world.put("b.rows", b"id:int\n2\n3\n");
    assert_eq!(ingest(&world, &FilesOptions::default()).await.unwrap().rows, 4);
    let rows = world.rows().await;
    assert_eq!((rows["name"].null_count(), rows["name"].is_null(2)), (2, true));
    for (header, said) in [
        ("id:str,name:str", "b.rows, column id: Int64 in the first file, Utf8 here"),
        ("id:int,other:str", "b.rows, column other: the first file has no such column"),
    ] {
        let world = World::new().await;
        put_ids(&world, "a.rows", 0..2);
        world.put("b.rows", format!("{header}\n1,x\n").as_bytes());
        let error = ingest(&world, &skip()).await.unwrap_err();
        assert!(error.to_string().ends_with(said), "{error}");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(!world.exists().await);
    }
}

#[tokio::test]
async fn sources_without_rows_are_refused() {
    let world = World::new().await;
    world.put("notes.txt", b"text");
    let error = ingest(&world, &FilesOptions::default()).await.unwrap_err();
    assert!(error.to_string().ends_with("seen: 1 .txt; give --as with one of lines"), "{error}");
    let other = FilesOptions { format: Some("nope".into()), ..FilesOptions::default() };
    assert!(ingest(&world, &other).await.unwrap_err().to_string().contains("--as is not valid"));
    put_ids(&world, "a.rows", 0..0);
    let error = ingest(&world, &FilesOptions::default()).await.unwrap_err();
    assert!(matches!(error, Error::Empty { .. }), "{error}");
    assert!(error.to_string().ends_with("none of the 1 files contains a row"), "{error}");
    world.put("b.rows", b"id:int,name:str\n?,x\n?,y\n");
    world.put("c.rows", b"id:int,name:str\n!\n");
    let error = ingest(&world, &skip()).await.unwrap_err().to_string();
    assert!(error.contains("none of the 3 files contains a row; the first that was skipped: "), "{error}");
    assert!(error.ends_with("b.rows: row 0: ?,x is odd; 1 further rows of this file were skipped"), "{error}");
}
