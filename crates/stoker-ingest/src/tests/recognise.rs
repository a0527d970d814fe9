//! The kinds of sources, and what ingests of image folders and of Parquet files would write.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array};
use stoker_lake::StorageOptions;

use super::files_format::formats;
use super::{World, parquet};
use crate::files::recognise_with;
use crate::{
    Error, FilesOptions, ImageFolderOptions, Images, NoProgress, OnError, ParquetOptions, SourceKind, ingest_files,
    inspect_imagefolder, inspect_parquet, recognise_sources,
};

/// Returns what a folder with empty files of these names is taken for.
async fn kind(names: &[&str], name: Option<&str>) -> Result<(SourceKind, u64), Error> {
    let world = World::new().await;
    for name in names {
        world.put(name, b"x");
    }
    let found = recognise_with(&[world.source()], name, &StorageOptions::default(), formats()).await?;
    assert_eq!(found.bytes, found.files);
    Ok((found.kind, found.files))
}

#[tokio::test]
async fn folders_are_recognised() {
    let lines = SourceKind::Format("lines");
    let cases: [(&[&str], SourceKind, u64); 9] = [
        (&["a/1.jpg", "b/2.PNG", "notes.txt"], SourceKind::Imagefolder, 2),
        (&["train/a/1.jpg", "train/b/2.webp"], SourceKind::Imagefolder, 2),
        (&["a/1.jpg", "a/2.jpg", "b/1.jpg", "old.rows"], SourceKind::Imagefolder, 3),
        (&["a/1.jpg", "b/1.jpg", "labels.csv", "t.rows"], lines, 1),
        (&["a/1.jpg", "b/1.jpg", "x.txt", "y.txt", "z.rows"], lines, 1),
        (&["images/1.jpg", "images/2.jpg", "t.rows"], lines, 1),
        (&["images/1.jpg", "images/2.jpg"], SourceKind::Imagefolder, 2),
        (&["data/a.parquet", "b.pq", "README.md"], SourceKind::Parquet, 2),
        (&["a/1.jpg", "b/1.jpg", "c.parquet"], SourceKind::Parquet, 1),
    ];
    for (names, expected, files) in cases {
        assert_eq!(kind(names, None).await.unwrap(), (expected, files), "{names:?}");
    }
    let mixed = ["a/1.jpg", "b/1.jpg", "c.parquet", "t.rows"];
    for (name, expected) in
        [("imagefolder", SourceKind::Imagefolder), ("parquet", SourceKind::Parquet), ("lines", lines)]
    {
        assert_eq!(kind(&mixed, Some(name)).await.unwrap().0, expected);
        assert_eq!(expected.to_string(), name);
    }
}

#[tokio::test]
async fn what_was_seen_is_said_when_nothing_is_recognised() {
    let error = kind(&["a.xyz", "b.xyz", "LICENSE"], None).await.unwrap_err().to_string();
    assert!(
        error.ends_with(
            "no kind is recognised; seen: 2 .xyz, 1 without ending; kinds for --as: imagefolder, parquet, lines"
        ),
        "{error}"
    );
    let error = kind(&["a.xyz"], Some("parquet")).await.unwrap_err().to_string();
    assert!(error.ends_with("no file is of the kind parquet; seen: 1 .xyz"), "{error}");
    let error = kind(&["a.xyz"], Some("zip")).await.unwrap_err().to_string();
    assert!(error.contains("there is no kind zip; kinds: imagefolder, parquet, lines"), "{error}");
    let nothing = recognise_with(&[PathBuf::from("/nonexistent")], None, &StorageOptions::default(), formats()).await;
    assert!(matches!(nothing, Err(Error::List { .. })));
}

#[tokio::test]
async fn a_row_of_any_file_is_made_by_name_only() {
    let world = World::new().await;
    world.put("a.xyz", b"abc");
    world.put("b/c", b"");
    world.put(".hidden", b"x");
    let sources = [world.source()];
    assert!(matches!(recognise_sources(&sources, None, &StorageOptions::default()).await, Err(Error::Empty { .. })));
    let found = recognise_sources(&sources, Some("files"), &StorageOptions::default()).await.unwrap();
    assert_eq!((found.kind, found.files, found.bytes), (SourceKind::Format("files"), 2, 3));
    assert!(SourceKind::names().contains(&"files"));
    let options = FilesOptions::default();
    let error = ingest_files(&world.lake, &sources, &world.table, &options, &NoProgress).await.unwrap_err();
    assert!(matches!(&error, Error::Empty { .. }) && error.to_string().contains(", files"), "{error}");
    let options = FilesOptions { format: Some("files".into()), ..options };
    let report = ingest_files(&world.lake, &sources, &world.table, &options, &NoProgress).await.unwrap();
    assert_eq!((report.rows, report.left_out.len()), (2, 0));
    let rows = world.rows().await;
    assert_eq!(rows["size"].as_primitive::<Int64Type>().values(), &[3, 0]);
}

#[tokio::test]
async fn inspections_of_images_and_parquet_files() {
    let world = World::new().await;
    world.put_images();
    world.put("a/notes.txt", b"text");
    world.put("a/1.webp", b"this is text");
    let options = ImageFolderOptions { on_error: OnError::Skip, ..ImageFolderOptions::default() };
    let found = inspect_imagefolder(&world.source(), &options).await.unwrap();
    assert_eq!((found.kind.as_str(), found.files, found.rows.num_rows()), ("imagefolder", 7, 6));
    assert_eq!((found.table_bytes, found.skipped.len(), found.left_out[".txt"]), (7 * 3 * 4 * 6, 1, 1));
    let options = ImageFolderOptions { images: Images::Encoded, ..options };
    let found = inspect_imagefolder(&world.source(), &options).await.unwrap();
    assert_eq!((found.table_bytes, found.schema.fields().len()), (found.bytes, 5));

    let world = World::new().await;
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
    parquet::put(&world, "a.parquet", vec![("id", ids)]);
    let found = inspect_parquet(&[world.source()], &ParquetOptions::default()).await.unwrap();
    assert_eq!((found.kind.as_str(), found.files), ("parquet", 1));
    assert!((4..=10).contains(&found.rows.num_rows()), "{} rows", found.rows.num_rows());
    assert!((800..2_000).contains(&found.table_bytes), "{} bytes", found.table_bytes);
    assert!(!world.root.path().join("lake/data.lance").exists());
}
