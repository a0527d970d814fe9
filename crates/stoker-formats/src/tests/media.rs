//! Folders of media.

use std::path::Path;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use stoker_columns::{kind_of, video_index_of};

use super::{MemoryFolder, plan, read_file, refuses, rows};
use crate::{AnyFilesFormat, AudioFolderFormat, FileFormat, RowFiles, VideoFolderFormat, format_named, format_of};

fn texts(rows: &RecordBatch, column: &str) -> Vec<String> {
    let column = rows.column_by_name(column).unwrap();
    column.as_string::<i32>().iter().flatten().map(str::to_string).collect()
}

fn numbers(rows: &RecordBatch, column: &str) -> Vec<i64> {
    rows.column_by_name(column).unwrap().as_primitive::<Int64Type>().values().to_vec()
}

fn columns(rows: &RecordBatch) -> Vec<String> {
    rows.schema().fields().iter().map(|field| field.name().clone()).collect()
}

fn sound(name: &str) -> (&str, Vec<u8>) {
    (name, [b"fLaC", name.as_bytes()].concat())
}

/// Why a file cannot be read.
fn reason(files: &dyn RowFiles, file: usize) -> String {
    read_file(files.read(file).unwrap().as_mut(), 1 << 20).expect_err("a bad file").to_string()
}

#[test]
fn folders_are_classes() {
    let names = ["cat/a.flac", "bird/deep/b.WAV", "cat/.hidden.flac", "cat/list.txt", "cat/c.mp3"];
    let folder = MemoryFolder::new(names.map(sound));
    assert_eq!(format_of(folder.as_ref()).map(FileFormat::name), Some("audiofolder"));
    let rows = rows(&AudioFolderFormat, folder);
    assert_eq!(columns(&rows), ["audio", "label", "label_name", "path"]);
    assert_eq!(texts(&rows, "path"), ["bird/deep/b.WAV", "cat/a.flac", "cat/c.mp3"]);
    assert_eq!(texts(&rows, "label_name"), ["bird", "cat", "cat"]);
    assert_eq!(numbers(&rows, "label"), [0, 1, 1]);
    let audio = rows.column(0).as_binary::<i64>();
    assert_eq!((audio.value(1), audio.value(2)), (&b"fLaCcat/a.flac"[..], &b"fLaCcat/c.mp3"[..]));
}

#[test]
fn files_beside_folders_have_no_classes() {
    let rows = rows(&AudioFolderFormat, MemoryFolder::new(["cat/a.flac", "b.flac"].map(sound)));
    assert_eq!(columns(&rows), ["audio", "path"]);
}

#[test]
fn folders_of_splits_are_no_classes() {
    let names = ["test/cat/b.flac", "train/bird/a.flac", "train/cat/a.flac"];
    let rows = rows(&AudioFolderFormat, MemoryFolder::new(names.map(sound)));
    assert_eq!(columns(&rows), ["audio", "label", "label_name", "path", "split"]);
    assert_eq!(
        (texts(&rows, "split"), numbers(&rows, "label")),
        (["test", "train", "train"].map(String::from).to_vec(), vec![1, 0, 1])
    );
    let rows = super::rows(&AudioFolderFormat, MemoryFolder::new(["test/b.flac", "train/cat/a.flac"].map(sound)));
    assert_eq!(columns(&rows), ["audio", "path", "split"]);
}

#[test]
fn sounds_begin_as_sounds() {
    let good: [&[u8]; 12] = [
        b"RIFF\0\0\0\0WAVEfmt ",
        b"RF64\0\0\0\0WAVEfmt ",
        b"fLaC",
        b"OggS",
        b"ID3\x04",
        b"\xff\xfb\x90\x64",
        b"\xff\xf3\x40\xc0",
        b"\xff\xf1\x50\x80",
        b"\xff\xf9\x50\x80",
        b"ADIF",
        b"\0\0\0\x20ftypM4A ",
        b"\xff\xe3\x18\xc4",
    ];
    let files = good.iter().zip(10..).map(|(file, index)| (format!("{index}.mp3"), file.to_vec()));
    assert_eq!(rows(&AudioFolderFormat, MemoryFolder::new(files)).num_rows(), good.len());

    let wrong: [&[u8]; 5] = [b"", b"RIFF\0\0\0\0AVI LIST", b"<html>", b"\xff\xd8\xff\xe0", b"\xff\xff\xff\xff"];
    let files = wrong.iter().zip(10..).map(|(file, index)| (format!("{index}.mp3"), file.to_vec()));
    let folder = MemoryFolder::new(files.chain([("20.mp3".to_string(), b"fLaC".to_vec())]));
    let files = plan(&AudioFolderFormat, folder).unwrap();
    assert_eq!(files.files(), ["10.mp3", "11.mp3", "12.mp3", "13.mp3", "14.mp3", "20.mp3"]);
    assert_eq!(reason(files.as_ref(), 0), "10.mp3: it is no sound: it has no bytes");
    assert_eq!(reason(files.as_ref(), 2), "12.mp3: it is no sound: it has 6 bytes that begin with \"<html>\"");
    for wrong in [1, 3, 4] {
        assert!(reason(files.as_ref(), wrong).contains("it is no sound"));
    }
    let (good, _) = read_file(files.read(5).unwrap().as_mut(), 1 << 20).unwrap();
    assert_eq!(texts(&good[0], "path"), ["20.mp3"]);
}

#[test]
fn videos_have_the_mark_and_need_an_index() {
    let folder = MemoryFolder::new([("a/x.mp4", b"\0\0\0\x10ftypisom\0\0\0\0".to_vec()), ("a/y.webm", vec![1])]);
    let files = plan(&VideoFolderFormat, folder).unwrap();
    let schema = files.schema();
    assert_eq!(video_index_of(schema.field(0)), Some("video_index"));
    assert_eq!(kind_of(schema.field(0)).name(), "encoded_video");
    let [mp4, webm] = [0, 1].map(|file| reason(files.as_ref(), file));
    assert!(mp4.starts_with("a/x.mp4: it is no video whose frames are known"), "{mp4}");
    assert!(webm.ends_with("it has 1 bytes that begin with \"\\x01\""), "{webm}");
}

#[test]
fn videos_are_rows() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stoker-video/tests/fixtures");
    let file = |name: &str| std::fs::read(fixtures.join(name)).unwrap();
    let folder = MemoryFolder::new([("a/x.mp4", file("h264.mp4")), ("b/y.webm", file("vp9.webm"))]);
    let rows = rows(&VideoFolderFormat, folder);
    assert_eq!(columns(&rows), ["video", "label", "label_name", "path"]);
    let videos = rows.column(0).as_binary::<i64>();
    assert_eq!((videos.value(0), videos.value(1)), (&file("h264.mp4")[..], &file("vp9.webm")[..]));
}

#[test]
fn any_files_are_rows_with_their_sizes() {
    let folder = MemoryFolder::new([("a/x", b"abc".to_vec()), ("b", Vec::new()), ("train/y", b"d".to_vec())]);
    assert!(format_of(folder.as_ref()).is_none());
    let rows = rows(format_named("files").unwrap(), folder);
    assert_eq!(columns(&rows), ["bytes", "path", "size"]);
    assert_eq!(
        (texts(&rows, "path"), numbers(&rows, "size")),
        (["a/x", "b", "train/y"].map(String::from).to_vec(), vec![3, 0, 1])
    );
    assert_eq!(rows.column(0).as_binary::<i64>().iter().flatten().collect::<Vec<_>>(), [&b"abc"[..], b"", b"d"]);
}

#[test]
fn each_file_is_known_by_its_name() {
    let names: Vec<String> = (0..1200).map(|index| format!("{index:04}.bin")).collect();
    let files = plan(&AnyFilesFormat, MemoryFolder::new(names.iter().map(|name| (name.clone(), vec![1; 10])))).unwrap();
    assert_eq!(files.files(), names);
    let mut reader = files.read(7).unwrap();
    let row = reader.next(1).unwrap().unwrap();
    assert_eq!((row.batch.num_rows(), row.source_bytes, texts(&row.batch, "path")), (1, 10, vec!["0007.bin".into()]));
    assert!(reader.next(1).unwrap().is_none());
}

#[test]
fn files_that_change_are_refused() {
    let folder = MemoryFolder::new([sound("a.flac"), sound("b.flac")]).with_changed("a.flac", b"fLaC");
    let files = plan(&AudioFolderFormat, folder).unwrap();
    assert_eq!(reason(files.as_ref(), 0), "a.flac: it has 4 bytes, and had 10 when the folder was listed");
    assert!(read_file(files.read(1).unwrap().as_mut(), 1).is_ok());
}

#[test]
fn metadata_beside_the_files_is_not_lost_silently() {
    let folder = MemoryFolder::new([sound("a.flac"), ("metadata.csv", b"file_name,text".to_vec())]);
    refuses(&AudioFolderFormat, folder, &["metadata.csv", "ingest the file itself"]);
}
