//! Tests of the URIs of lakes, and of errors about stores that cannot be reached.

use std::net::TcpListener;
use std::time::Duration;

use stoker_types::{ErrorKind, SnapshotRef};

use super::data::{TestResult, append, latest, memory_lake, schema, small, table_name, test_lake};
use crate::{LakeStore, StorageOptions};

/// A request that takes longer than this is considered to hang.
const HANG: Duration = Duration::from_secs(120);

#[tokio::test]
async fn other_schemes_are_refused_with_the_supported_ones() {
    for uri in ["http://host/lake", "file+uring:///tmp/lake", "hf://datasets/x", "s3+ddb://bucket/x", "", "s3://"] {
        let error = LakeStore::open(uri, &StorageOptions::default()).await.expect_err("the scheme is not supported");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{uri}: {error}");
    }
    let error = LakeStore::open("ftp://user:secret@host/lake", &StorageOptions::default()).await;
    let error = error.expect_err("the scheme is not supported").to_string();
    assert!(error.contains("scheme 'ftp' is not supported; use a local path, file://, s3://, gs://, az://"), "{error}");
    assert!(!error.contains("secret"), "{error}");
}

#[tokio::test]
async fn a_path_and_its_url_are_the_same_lake() -> TestResult {
    let test = test_lake().await;
    let path = test.folder.path().join("a folder");
    let path = path.to_str().ok_or("the path is UTF-8")?;
    let by_path = LakeStore::open(&format!("{path}/"), &StorageOptions::default()).await?;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&by_path, &name, &schema, 0..3, small(10, 100)).await?;
    let url = format!("file://{}", path.replace(' ', "%20"));
    let by_url = LakeStore::open(&url, &StorageOptions::default()).await?;
    assert_eq!((by_url.uri(), by_path.uri()), (path, path));
    assert_eq!(latest(&by_url, &name).await?.num_rows(), 3);
    assert_eq!(latest(&by_url, &name).await?.uri(), format!("{path}/t.lance"));
    Ok(())
}

#[tokio::test]
async fn a_memory_lake_lives_as_long_as_its_values() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..3, small(10, 100)).await?;
    let copy = lake.clone();
    drop(lake);
    assert_eq!(copy.table(&name, &SnapshotRef::Latest).await?.num_rows(), 3);
    assert!(memory_lake().await.tables().await?.is_empty(), "another one is another lake");
    Ok(())
}

#[tokio::test]
async fn a_refused_endpoint_is_named() -> TestResult {
    // No process listens on this port.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let endpoint = format!("http://{address}");
    let options = [
        ("aws_endpoint", endpoint.as_str()),
        ("aws_region", "us-east-1"),
        ("aws_access_key_id", "test"),
        ("aws_secret_access_key", "very-secret"),
    ];
    let options = StorageOptions::new(options.map(|(key, value)| (key.to_string(), value.to_string())));
    assert!(!format!("{options:?}").contains("very-secret"));
    let lake = LakeStore::open("s3://bucket/lake", &options).await?;
    let name = table_name("t");
    let opening = tokio::time::timeout(HANG, lake.table(&name, &SnapshotRef::Latest));
    let error = opening.await?.expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = format!("{error}");
    assert!(text.contains("opening table t in s3://bucket/lake") && text.contains(&endpoint), "{text}");
    assert!(!format!("{error:?}").contains("very-secret"));
    let error = tokio::time::timeout(HANG, lake.tables()).await?.expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    Ok(())
}

#[tokio::test]
async fn places_that_are_no_lakes_are_named() -> TestResult {
    let test = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    assert!(test.lake.tables().await?.is_empty(), "a folder without tables is a lake");
    let open = async |path: &str| {
        let path = test.folder.path().join(path);
        LakeStore::open(path.to_str().expect("UTF-8"), &StorageOptions::default()).await.expect("it opens")
    };

    let missing = open("missing").await;
    let error = missing.tables().await.expect_err("there is no folder");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("missing does not exist; check the path"), "{error}");
    let error = missing.table(&name, &SnapshotRef::Latest).await.expect_err("there is no folder");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("; there is no folder /"), "{error}");
    assert!(!missing.has_table(&name).await?);
    append(&missing, &name, &schema, 0..3, small(10, 100)).await?;
    assert_eq!(missing.tables().await?, std::slice::from_ref(&name));

    let table = open("missing/t.lance").await;
    let error = table.tables().await.expect_err("it is a table");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().ends_with(&format!("{}, as the lake, and t as the table", missing.uri())), "{error}");
    let error = table.table(&name, &SnapshotRef::Latest).await.expect_err("it is a table");
    assert!(error.to_string().contains("missing/t.lance is itself a table"), "{error}");

    std::fs::write(test.folder.path().join("file"), "text")?;
    let error = open("file").await.tables().await.expect_err("it is a file");
    assert!(error.to_string().contains("is a file; a lake is the folder"), "{error}");
    Ok(())
}
