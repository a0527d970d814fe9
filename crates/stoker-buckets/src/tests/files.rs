//! Files of a bucket.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use stoker_files::FileBytes;

use super::{Store, blocking, bytes};
use crate::{Bucket, Error, Found, ListedObject, SourceUri};

fn source(uri: &str) -> SourceUri {
    SourceUri::parse(uri).unwrap()
}

fn listed(store: &Store, key: &str) -> ListedObject {
    store.listed(key).unwrap()
}

/// Reads a range of a file, or returns the error of the store.
async fn read(
    bucket: &Bucket,
    key: &'static str,
    listed: ListedObject,
    at: u64,
    length: usize,
) -> Result<Vec<u8>, Error> {
    let bucket = bucket.clone();
    blocking(move || {
        let mut into = vec![0; length];
        let read = bucket.file(key, &listed).read_at(at, &mut into);
        read.map(|()| into).map_err(|error| Error::of_io(&error).cloned().unwrap_or(Error::Missing))
    })
    .await
}

#[tokio::test]
async fn files_are_read_at_any_offset() {
    let store = Arc::new(Store::default());
    let content = bytes(9 << 20);
    store.put("a", content.clone(), "1");
    let bucket = store.open();
    for (at, length) in [(0, 10), (5 << 20, 1000), (0, 9 << 20), ((9 << 20) - 3, 3), (100, 0)] {
        let found = read(&bucket, "a", listed(&store, "a"), at, length).await.unwrap();
        assert!(found == content[at as usize..at as usize + length], "{length} bytes at {at}");
    }
    assert_eq!(read(&bucket, "a", listed(&store, "a"), 9 << 20, 1).await, Err(Error::Missing), "past the end");
}

#[tokio::test]
async fn objects_that_changed_are_an_error_of_their_own() {
    let store = Arc::new(Store::default());
    store.put("a", bytes(1000), "1");
    let (bucket, before) = (store.open(), listed(&store, "a"));
    let change = async |said: &str| match read(&bucket, "a", before.clone(), 0, 1000).await {
        Err(Error::Changed { change }) => assert!(change.contains(said), "{change}"),
        other => panic!("{said}: {other:?}"),
    };
    store.put("a", bytes(1000), "2");
    change("it was written again").await;
    store.put("a", bytes(2000), "3");
    change("it had 1000 bytes when it was listed and has 2000 now").await;
    // The store refuses the range, and does not say that the object is smaller.
    store.put("a", bytes(10), "4");
    change("has 10 now").await;
    store.objects.lock().unwrap().clear();
    change("it does not exist any more").await;
}

#[tokio::test]
async fn faults_are_retried_and_refusals_are_not() {
    let store = Arc::new(Store::default());
    store.put("a", bytes(1000), "1");
    let (bucket, object) = (store.open(), listed(&store, "a"));
    let slow = || Error::Unavailable { reason: "503".into() };
    *store.faults.lock().unwrap() = vec![slow(), slow(), slow()];
    assert_eq!(read(&bucket, "a", object.clone(), 0, 1000).await, Ok(bytes(1000)));
    assert_eq!(store.asked().len(), 4);
    *store.faults.lock().unwrap() = vec![slow(); 10];
    assert_eq!(read(&bucket, "a", object.clone(), 0, 1000).await, Err(slow()));
    assert_eq!(store.asked().len(), 4);
    let denied = Error::Denied { reason: "403".into() };
    *store.faults.lock().unwrap() = vec![denied.clone()];
    assert_eq!(read(&bucket, "a", object, 0, 1000).await, Err(denied));
    assert_eq!(store.asked().len(), 1);
}

#[tokio::test]
async fn sources_are_objects_or_folders_and_cut_listings_go_on() {
    let store = Arc::new(Store::default());
    for key in ["a", "a/1", "a/2", "a/deep/3", "ab"] {
        store.put(key, bytes(3), key);
    }
    let bucket = store.open();
    assert_eq!(bucket.find(&source("s3://bucket/a")).await, Ok(Found::File(listed(&store, "a"))));
    *store.cut_listings.lock().unwrap() = vec![1, 0, 1];
    let Ok(Found::Folder(found)) = bucket.find(&source("s3://bucket/a/")).await else { panic!("no folder") };
    let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["a/1", "a/2", "a/deep/3"]);
    assert_eq!(bucket.find(&source("s3://bucket/b")).await, Err(Error::Missing));
    *store.cut_listings.lock().unwrap() = vec![0; 10];
    assert!(bucket.find(&source("s3://bucket")).await.unwrap_err().is_transient());
    assert_eq!(bucket.key("s3://bucket/a/1"), Some("a/1"));
    assert_eq!((bucket.key("s3://bucket"), bucket.key("s3://buckets/a")), (Some(""), None));
}

#[tokio::test]
async fn small_files_are_fetched_ahead_many_at_once() {
    let together = Some(tokio::sync::Barrier::new(50));
    let store = Arc::new(Store { together, ..Store::default() });
    let keys: Vec<String> = (0..50).map(|number| format!("{number:03}")).collect();
    for key in &keys {
        store.put(key, bytes(1000), key);
    }
    let bucket = store.open();
    let files: Vec<(String, ListedObject)> = keys.iter().map(|key| (key.clone(), listed(&store, key))).collect();
    let ahead = bucket.fetch_ahead(files.clone());
    // Reads wait for each other: they end only if all requests are in flight at the same time.
    let reading = bucket.clone();
    blocking(move || {
        for (key, listed) in &files {
            let mut into = vec![0; 1000];
            reading.file(key, listed).read_at(0, &mut into).unwrap();
            assert!(into == bytes(1000));
        }
    })
    .await;
    drop(ahead);
    assert_eq!((store.asked().len(), store.most_in_flight.load(SeqCst)), (50, 50), "each is asked for once");
}

#[tokio::test]
async fn files_that_are_not_opened_are_forgotten() {
    let store = Arc::new(Store::default());
    for key in ["a", "b"] {
        store.put(key, bytes(10), key);
    }
    let bucket = store.open();
    let both = || ["a", "b"].map(|key| (key.to_string(), listed(&store, key)));
    let (first, second) = (bucket.fetch_ahead(both()), bucket.fetch_ahead(both()));
    drop(second);
    // The files of the first call are still there: opening them asks for nothing again.
    assert_eq!(read(&bucket, "a", listed(&store, "a"), 0, 10).await, Ok(bytes(10)));
    drop(first);
    store.asked();
    assert_eq!(read(&bucket, "b", listed(&store, "b"), 0, 10).await, Ok(bytes(10)));
    assert_eq!(store.asked().len(), 1, "it is asked for when it is read");
    store.put("b", bytes(10), "other");
    let ahead = bucket.fetch_ahead([("b".to_string(), ListedObject { version: "b".into(), ..listed(&store, "b") })]);
    let found = read(&bucket, "b", ListedObject { version: "b".into(), ..listed(&store, "b") }, 0, 10).await;
    assert!(matches!(found, Err(Error::Changed { .. })), "{found:?}");
    drop(ahead);
}
