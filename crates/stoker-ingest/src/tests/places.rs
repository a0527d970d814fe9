//! Sources that are not files of this machine: what is found in buckets, and what is read of standard input.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stoker_buckets::ListedObject;
use stoker_formats::FileBytes;
use stoker_lake::StorageOptions;

use crate::place::{NamedSources, StandardInput, shown, walk_objects};
use crate::walk::Rules;
use crate::{Error, OnError};

/// Returns folders and files of a bucket with objects of these names and sizes, and what was left out.
fn found(folder: &str, objects: &[(&str, u64)], extensions: &[&str]) -> (Vec<String>, Vec<(String, u64)>) {
    let objects: Vec<(String, ListedObject)> = objects
        .iter()
        .map(|(key, bytes)| (key.to_string(), ListedObject { bytes: *bytes, ..ListedObject::default() }))
        .collect();
    let rules = Rules { extensions, hidden: b".", on_error: OnError::Fail };
    let walk = walk_objects(Path::new("s3://b/data"), folder, &objects, &rules);
    let name = |path: &Path| path.strip_prefix("s3://b/data").unwrap().to_str().unwrap().to_string();
    let entries = walk.entries.iter().map(|entry| match entry.is_folder {
        true => format!("{}/", name(&entry.path)),
        false => format!("{} {}", name(&entry.path), entry.stamp.bytes),
    });
    (entries.collect(), walk.left_out.into_iter().collect())
}

#[test]
fn objects_are_files_in_folders() {
    let objects = [
        ("data/", 0),
        ("data/a", 0),
        ("data/a/1.png", 5),
        ("data/a-b/2.PNG", 6),
        ("data/a/notes.txt", 7),
        ("data/empty.png", 0),
        ("data/.hidden/3.png", 8),
        ("data/a/.4.png", 9),
    ];
    let (entries, left_out) = found("data", &objects, &["png"]);
    assert_eq!(entries, ["a/", "a-b/", "a/1.png 5", "a-b/2.PNG 6", "empty.png 0"]);
    assert_eq!(left_out, [(".txt".to_string(), 1)]);
}

#[test]
fn lakes_in_buckets_are_left_out() {
    let objects = [
        ("x/1.csv", 1),
        ("x/lake/_stoker/specs/1", 1),
        ("x/lake/t.lance/data/1.lance", 1),
        ("x/lake/deep/_stoker/2", 1),
        ("y/2.csv", 1),
    ];
    let (entries, left_out) = found("", &objects, &[]);
    assert_eq!(entries, ["x/", "y/", "x/1.csv 1", "y/2.csv 1"]);
    assert_eq!(left_out, [("Stoker lakes".to_string(), 1)]);
    // A source that is a lake itself is the user's wish.
    let (entries, _) = found("x/lake", &[("x/lake/_stoker/1", 1), ("x/lake/a.csv", 1)], &["csv"]);
    assert_eq!(entries, ["_stoker/", "a.csv 1"]);
}

#[tokio::test]
async fn sources_in_several_places_and_wrong_uris_are_refused_without_secrets() {
    let open = async |sources: &[&str], options: StorageOptions| {
        let sources: Vec<PathBuf> = sources.iter().map(PathBuf::from).collect();
        let opened = tokio::task::spawn_blocking(move || NamedSources::open(&sources, &options)).await.unwrap();
        opened.map(|_| ()).unwrap_err()
    };
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().to_str().unwrap();
    let own = StorageOptions::new([("aws_region".to_string(), "x".to_string())]);
    for (sources, options, said) in [
        (vec!["s3://b/a", local], StorageOptions::default(), "is on this machine, and other sources are not"),
        (vec![local], own.clone(), "--source-option is not valid: the sources are on this machine"),
        (vec!["ftp://host/a"], StorageOptions::default(), "SOURCE is not valid: ftp://host/a: scheme 'ftp'"),
        (vec!["https://me:secret@host/a?sig=secret"], StorageOptions::default(), "must not contain credentials"),
        (vec!["s3://a/x", "s3://b/x"], own.clone(), "it is in s3://b, and another source in s3://a"),
        (vec!["https://h/a?sig=secret", "https://i/a"], own, "it is in https://i"),
        (vec!["http://host/a?sig=secret"], StorageOptions::default(), "http:// is not encrypted"),
    ] {
        let error = open(&sources, options).await;
        let text = error.to_string();
        assert!(matches!(error, Error::InvalidOption { .. }), "{sources:?}: {text}");
        assert!(text.contains(said) && !text.contains("secret"), "{sources:?}: {text}");
    }
    assert_eq!(shown(Path::new("https://host/a?sig=secret")), Path::new("https://host/a"));
    assert_eq!(shown(Path::new("a?b")), Path::new("a?b"));
}

/// An input that comes in pieces of a few bytes.
struct Pieces(Vec<u8>);

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let length = self.0.len().min(into.len()).min(3000);
        into[..length].copy_from_slice(&self.0[..length]);
        self.0.drain(..length);
        Ok(length)
    }
}

#[test]
fn standard_input_is_read_twice_at_its_beginning_and_once_in_order() {
    let bytes: Vec<u8> = (0..1_000_000u32).map(|index| (index / 5) as u8).collect();
    let input = Arc::new(StandardInput::new(Box::new(Pieces(bytes.clone()))));
    let read = |file: &dyn FileBytes, at: usize, length: usize| {
        let mut into = vec![0; length];
        file.read_at(at as u64, &mut into).map(|()| assert!(into == bytes[at..at + length], "{length} bytes at {at}"))
    };
    let first = input.open().unwrap();
    assert_eq!(first.size(), u64::MAX, "it is not known yet");
    read(&first, 0, 8).unwrap();
    read(&first, 8, 200_000).unwrap();
    let second = input.open().unwrap();
    for (at, length) in [(0, 8), (0, 100), (100, 150_000), (150_100, 60_000), (210_100, 700_000), (910_100, 89_900)] {
        read(&second, at, length).unwrap();
    }
    assert_eq!(second.size(), 1_000_000);
    assert!(second.read_at(0, &mut [0; 8]).unwrap_err().to_string().contains("is read in order"));
    let ended = second.read_at(1_000_000, &mut [0; 8]).unwrap_err();
    assert_eq!(ended.to_string(), "standard input ended in the middle of a message");
    assert!(input.open().is_err(), "it was read");
}

#[test]
fn an_input_without_bytes_is_an_empty_file() {
    let input = Arc::new(StandardInput::new(Box::new(std::io::empty())));
    assert_eq!(input.open().unwrap().size(), 0);
}
