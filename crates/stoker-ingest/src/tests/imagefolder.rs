//! Folders of images.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type};
use image::{GrayImage, ImageFormat};
use stoker_columns::{TensorType, is_encoded_image};
use stoker_lake::{LakeStore, StorageOptions};
use stoker_types::ErrorKind;

use super::parquet::{Meddler, Moment, touch};
use super::{World, encode, pixels, png};
use crate::{
    Channels, Error, ImageFolderOptions, ImageSize, Images, Layout, Mode, NoProgress, OnError, Splits,
    ingest_imagefolder,
};

fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    let column = batch.column_by_name(column).unwrap().as_string::<i32>();
    column.iter().map(|text| text.unwrap().to_string()).collect()
}

fn labels(batch: &RecordBatch) -> Vec<i64> {
    batch.column_by_name("label").unwrap().as_primitive::<Int64Type>().values().to_vec()
}

fn tensor(batch: &RecordBatch, row: usize) -> Vec<u8> {
    let column = batch.column_by_name("image").unwrap().as_fixed_size_list().value(row);
    column.as_primitive::<UInt8Type>().values().to_vec()
}

fn chw(image: &image::RgbImage) -> Vec<u8> {
    (0..3).flat_map(|channel| image.pixels().map(move |pixel| pixel.0[channel])).collect()
}

#[tokio::test]
async fn rows_are_sorted_by_path_and_labelled_by_class() {
    let world = World::new().await;
    world.put_images();
    world.put("a/notes.txt", b"no image");
    world.put("a/._1.png", b"hidden");
    let report = world.ingest(&ImageFolderOptions::default()).await.unwrap();
    assert_eq!((report.rows, report.files, report.skipped.len(), report.version), (6, 6, 0, 1));
    let rows = world.rows().await;
    assert_eq!(texts(&rows, "path"), ["a/1.png", "a/deep/2.png", "b/1.png", "b/2.png", "c/1.png", "c/2.png"]);
    assert_eq!(labels(&rows), [0, 0, 1, 1, 2, 2]);
    assert_eq!(texts(&rows, "label_name"), ["a", "a", "b", "b", "c", "c"]);
    assert_eq!(texts(&rows, "split"), ["all"; 6]);
    let schema = rows.schema();
    assert_eq!(TensorType::of(schema.field(0)).unwrap().shape, [3, 4, 6]);
    for (row, seed) in [(0, 2), (1, 3), (2, 0), (5, 5)] {
        assert_eq!(tensor(&rows, row), chw(&pixels(4, 6, seed)), "row {row}");
    }
}

#[tokio::test]
async fn all_formats_decode_to_what_the_decoder_says() {
    let world = World::new().await;
    let image = pixels(8, 8, 9);
    let files = [
        ("a/1.png", encode(image.clone(), ImageFormat::Png)),
        ("a/2.webp", encode(image.clone(), ImageFormat::WebP)),
        ("a/3.JPG", encode(image.clone(), ImageFormat::Jpeg)),
        ("a/4.png", encode(image.clone(), ImageFormat::Jpeg)),
    ];
    for (name, bytes) in &files {
        world.put(name, bytes);
    }
    world.ingest(&ImageFolderOptions { layout: Layout::Hwc, ..ImageFolderOptions::default() }).await.unwrap();
    let rows = world.rows().await;
    for (row, (name, bytes)) in files.iter().enumerate() {
        let expected = image::load_from_memory(bytes).unwrap().into_rgb8().into_raw();
        assert_eq!(tensor(&rows, row), expected, "{name}");
    }
    assert_eq!(tensor(&rows, 0), image.into_raw());
}

#[tokio::test]
async fn encoded_and_both_keep_the_bytes_of_the_files() {
    for (images, column) in [(Images::Encoded, "image"), (Images::Both, "image_bytes")] {
        let world = World::new().await;
        world.put_images();
        world.ingest(&ImageFolderOptions { images, ..ImageFolderOptions::default() }).await.unwrap();
        let rows = world.rows().await;
        assert!(is_encoded_image(rows.schema().field_with_name(column).unwrap()));
        let bytes = rows.column_by_name(column).unwrap().as_binary::<i64>();
        assert_eq!(bytes.value(2), png(4, 6, 0));
        if images == Images::Both {
            assert_eq!(tensor(&rows, 2), chw(&pixels(4, 6, 0)));
        }
    }
}

#[tokio::test]
async fn splits_are_found_by_their_names() {
    let world = World::new().await;
    for name in ["train/cat/1.png", "train/dog/1.png", "val/cat/1.png"] {
        world.put(name, &png(2, 2, 1));
    }
    world.ingest(&ImageFolderOptions::default()).await.unwrap();
    let rows = world.rows().await;
    assert_eq!(texts(&rows, "split"), ["train", "train", "val"]);
    assert_eq!(labels(&rows), [0, 1, 0]);
}

#[tokio::test]
async fn unreadable_files_fail_or_are_skipped() {
    let world = World::new().await;
    world.put_images();
    let bad = world.put("a/0.png", b"this is text");
    let cut = world.put("b/3.png", &png(4, 6, 1)[..60]);
    let error = world.ingest(&ImageFolderOptions::default()).await.unwrap_err();
    assert!(matches!(&error, Error::Unreadable { path, .. } if path.ends_with("a/0.png")), "{error}");
    assert!(!world.exists().await);
    for images in [Images::Tensor, Images::Encoded] {
        let options =
            ImageFolderOptions { images, on_error: OnError::Skip, mode: Mode::Overwrite, ..Default::default() };
        let report = world.ingest(&options).await.unwrap();
        let paths: Vec<_> = report.skipped.iter().map(|skipped| std::path::PathBuf::from(&skipped.path)).collect();
        assert_eq!(paths, [bad.canonicalize().unwrap(), cut.canonicalize().unwrap()]);
        assert_eq!((report.rows, report.files), (6, 8));
        assert_eq!(texts(&world.rows().await, "path")[0], "a/1.png");
    }
}

#[tokio::test]
async fn other_sizes_need_a_size() {
    let world = World::new().await;
    world.put_images();
    world.put("a/2.png", &png(5, 6, 1));
    let error = world.ingest(&ImageFolderOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    let text = error.to_string();
    assert!(
        text.contains("a/2.png") && text.contains("4x6") && text.contains("5x6") && text.contains("--size"),
        "{text}"
    );
    let size = Some(ImageSize { height: 3, width: 2 });
    world.ingest(&ImageFolderOptions { size, ..ImageFolderOptions::default() }).await.unwrap();
    let rows = world.rows().await;
    assert_eq!((rows.num_rows(), tensor(&rows, 1).len()), (7, 18));
}

#[tokio::test]
async fn grey_images_stay_grey_when_asked() {
    let world = World::new().await;
    let gray = GrayImage::from_fn(3, 2, |x, y| image::Luma([(x + y) as u8]));
    world.put("a/1.png", &encode(gray.clone(), ImageFormat::Png));
    let options = ImageFolderOptions { channels: Channels::Auto, ..ImageFolderOptions::default() };
    world.ingest(&options).await.unwrap();
    assert_eq!(tensor(&world.rows().await, 0), gray.into_raw());
    world.put("a/2.png", &png(2, 3, 0));
    let error = world.ingest(&ImageFolderOptions { mode: Mode::Overwrite, ..options }).await.unwrap_err();
    assert!(error.to_string().contains("--channels"), "{error}");
}

#[tokio::test]
async fn images_over_the_limit_are_refused() {
    let world = World::new().await;
    world.put("a/1.png", &png(100, 100, 0));
    let error = world.ingest(&ImageFolderOptions { image_bytes_max: 29_999, ..Default::default() }).await.unwrap_err();
    assert!(error.to_string().contains("30000 bytes"), "{error}");
}

#[tokio::test]
async fn folders_of_another_kind_are_refused() {
    let world = World::new().await;
    assert_eq!(world.ingest(&ImageFolderOptions::default()).await.unwrap_err().kind(), ErrorKind::NotFound);
    std::fs::create_dir_all(world.source().join("a")).unwrap();
    assert!(matches!(world.ingest(&ImageFolderOptions::default()).await, Err(Error::Empty { .. })));
    world.put("1.png", &png(2, 2, 0));
    let error = world.ingest(&ImageFolderOptions::default()).await.unwrap_err();
    assert!(matches!(error, Error::Layout { .. }) && error.to_string().contains("CLASS/"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn names_that_are_not_utf_8_fail_or_are_skipped() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new().await;
    world.put_images();
    let name = std::ffi::OsStr::from_bytes(b"b/\xff.png");
    std::fs::write(world.source().join(name), png(4, 6, 9)).unwrap();
    let error = world.ingest(&ImageFolderOptions::default()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::DataCorrupt && error.to_string().contains("UTF-8"), "{error}");
    let report =
        world.ingest(&ImageFolderOptions { on_error: OnError::Skip, ..ImageFolderOptions::default() }).await.unwrap();
    assert_eq!((report.rows, report.files, report.skipped.len()), (6, 7, 1));
}

#[tokio::test]
async fn an_image_that_changes_meanwhile_is_an_error_and_never_skipped() {
    type Change = fn(&std::path::Path);
    // The file becomes larger than the limit, keeps its length, or is removed.
    let changes: [Change; 3] =
        [|path| std::fs::write(path, vec![0u8; 50_000]).unwrap(), touch, |path| std::fs::remove_file(path).unwrap()];
    for change in changes {
        for on_error in [OnError::Fail, OnError::Skip] {
            let world = World::new().await;
            world.put_images();
            let path = world.source().join("b/2.png");
            let options = ImageFolderOptions { on_error, image_bytes_max: 40_000, ..ImageFolderOptions::default() };
            let meddler = Meddler::new(Moment::Listed, || change(&path));
            let outcome = ingest_imagefolder(&world.lake, &world.source(), &world.table, &options, &meddler).await;
            let error = outcome.unwrap_err();
            assert!(matches!(&error, Error::Changed { path, .. } if path.ends_with("b/2.png")), "{error}");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(!world.exists().await);
        }
    }
}

#[tokio::test]
async fn labels_that_cannot_be_read_are_an_error_of_the_lake() {
    let world = World::new().await;
    world.put_images();
    world.ingest(&ImageFolderOptions::default()).await.unwrap();
    std::fs::remove_dir_all(world.root.path().join("lake/data.lance/data")).unwrap();
    // A lake that has nothing of the table in memory.
    let uri = world.root.path().join("lake");
    let lake = LakeStore::open(uri.to_str().unwrap(), &StorageOptions::default()).await.unwrap();
    let append = ImageFolderOptions { mode: Mode::Append, ..ImageFolderOptions::default() };
    let outcome = ingest_imagefolder(&lake, &world.source(), &world.table, &append, &NoProgress).await;
    let error = outcome.unwrap_err();
    assert!(matches!(&error, Error::Lake(_)) && error.kind() != ErrorKind::Internal, "{error}");
}

/// Ingests these files. Returns the splits of the rows, or the error message.
async fn splits_of(files: &[&str], splits: Splits) -> Result<Vec<String>, String> {
    let world = World::new().await;
    for file in files {
        world.put(file, &png(2, 2, 1));
    }
    let options = ImageFolderOptions { splits, ..ImageFolderOptions::default() };
    match world.ingest(&options).await {
        Ok(_) => Ok(texts(&world.rows().await, "split")),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
            assert!(!world.exists().await);
            Err(error.to_string())
        }
    }
}

#[tokio::test]
async fn folders_that_look_like_splits_are_refused_until_somebody_says_what_they_are() {
    let named = |names: &[&str]| Splits::Named(names.iter().map(ToString::to_string).collect());
    let alike: [&[&str]; 4] = [
        &["extra/cat/1.png", "test/cat/1.png", "train/cat/1.png"],
        &["Test/cat/1.png", "Train/dog/1.png"],
        &["images/cat/1.png", "train/cat/1.png"],
        &["dev/1.png", "train/1.png"],
    ];
    for files in alike {
        let folders: Vec<&str> = files.iter().filter_map(|file| file.split('/').next()).collect();
        let refused = splits_of(files, Splits::Auto).await.unwrap_err();
        let option = format!("--splits {}", folders.join(","));
        assert!(refused.contains(&option) && refused.contains("--no-splits"), "{refused}");
        assert_eq!(splits_of(files, Splits::None).await.unwrap(), vec!["all"; files.len()]);
        let outcome = splits_of(files, named(&folders)).await;
        match files[0].split('/').count() {
            3 => assert_eq!(outcome.unwrap(), folders),
            _ => assert!(outcome.unwrap_err().contains("SPLIT/CLASS/")),
        }
    }
    let classes: [&[&str]; 3] =
        [&["cat/1.png", "test/1.png"], &["cat/a/1.png", "test/1.png", "test/a/1.png"], &["extra/1.png", "plain/1.png"]];
    for files in classes {
        assert_eq!(splits_of(files, Splits::Auto).await.unwrap(), vec!["all"; files.len()]);
    }
    let files = ["extra/cat/1.png", "train/cat/1.png"];
    assert!(splits_of(&files, named(&["train"])).await.unwrap_err().contains("extra"));
    assert!(splits_of(&files, named(&["train", "extra", "tset"])).await.unwrap_err().contains("no folder tset"));
}

#[cfg(unix)]
#[tokio::test]
async fn links_to_nothing_fail_or_are_skipped_and_other_endings_are_counted() {
    let world = World::new().await;
    world.put_images();
    for name in ["a/notes.txt", "b/more.TXT", "b/4.gif", "c/readme", "c/.hidden.txt"] {
        world.put(name, b"no image");
    }
    for name in ["a/gone.png", "a/gone.txt", "gone"] {
        std::os::unix::fs::symlink(world.source().join("nothing"), world.source().join(name)).unwrap();
    }
    std::os::unix::fs::symlink(world.source(), world.source().join("a/circle")).unwrap();
    let error = world.ingest(&ImageFolderOptions::default()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::DataCorrupt && error.to_string().contains("--on-error skip"), "{error}");
    let skip = ImageFolderOptions { on_error: OnError::Skip, ..ImageFolderOptions::default() };
    let report = world.ingest(&skip).await.unwrap();
    assert_eq!((report.rows, report.files, report.skipped.len()), (6, 9, 3), "{:?}", report.skipped);
    assert!(report.skipped.iter().all(|skipped| skipped.reason.contains("link to")), "{:?}", report.skipped);
    let left_out: Vec<(&str, u64)> = report.left_out.iter().map(|(ending, count)| (ending.as_str(), *count)).collect();
    assert_eq!(left_out, [(".gif", 1), (".txt", 3), ("without ending", 1)]);
}
