//! Tests of snapshots and tags, and of the errors about them.

use std::fs;
use std::path::Path;

use stoker_types::{ErrorKind, SnapshotRef, TagName};

use super::data::{TestResult, append, latest, memory_lake, schema, small, table_name, test_lake};
use crate::{LakeStore, StorageOptions};

#[tokio::test]
async fn versions_and_tags_stay_as_they_were() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..5, small(100, 1000)).await?;
    let first = latest(&lake, &name).await?;
    let tag = TagName::try_new("v1")?;
    first.create_tag(&tag).await?;
    for start in [5, 10, 15] {
        append(&lake, &name, &schema, start..start + 5, small(100, 1000)).await?;
    }
    assert_eq!(first.num_rows(), 5, "a snapshot does not change");
    assert_eq!(lake.table(&name, &SnapshotRef::Version(2)).await?.num_rows(), 10);
    let tagged = lake.table(&name, &SnapshotRef::Tag("v1".into())).await?;
    assert_eq!((tagged.version(), tagged.num_rows(), tagged.snapshot().to_string()), (1, 5, "t@1".to_string()));
    let versions = latest(&lake, &name).await?.versions().await?;
    assert_eq!(versions.iter().map(|version| version.version).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(versions[0].tags, ["v1"]);
    assert!(versions[1].timestamp_millis >= versions[0].timestamp_millis && versions[0].timestamp_millis > 0);

    let error = latest(&lake, &name).await?.create_tag(&tag).await.expect_err("the tag exists");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("tag 'v1' of table t already exists and names version 1"), "{error}");
    first.delete_tag(&tag).await?;
    assert_eq!(first.delete_tag(&tag).await.expect_err("the tag is gone").kind(), ErrorKind::NotFound);
    assert!(first.tags().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn what_does_not_exist_is_named_with_what_does() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("images"), schema(&[]));
    let check = async |name: &str, at: SnapshotRef, message: &str| {
        let error = lake.table(&table_name(name), &at).await.expect_err("it does not exist");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    };
    check("images", SnapshotRef::Latest, "the lake has no tables").await;
    for start in 0..12 {
        append(&lake, &name, &schema, start..start + 1, small(100, 1000)).await?;
    }
    check("image", SnapshotRef::Latest, "table image in memory://lake does not exist; tables: images").await;
    check("images", SnapshotRef::Version(99), "version 99 of table images does not exist; nearest versions: 3, 4,")
        .await;
    check("images", SnapshotRef::Version(0), "nearest versions: 1, 2").await;
    check("images", SnapshotRef::Tag("v1".into()), "the table has no tags").await;
    latest(&lake, &name).await?.create_tag(&TagName::try_new("first")?).await?;
    check("images", SnapshotRef::Tag("v1".into()), "; tags: first").await;
    check("images", SnapshotRef::Tag("../x".into()), "; tags: first").await;
    assert_eq!(lake.tables().await?, [name]);
    Ok(())
}

#[tokio::test]
async fn the_newest_version_is_that_of_the_files() -> TestResult {
    let own = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&own.lake, &name, &schema, 0..5, small(100, 1000)).await?;
    // Both tables are opened before the files change.
    assert_eq!((latest(&own.lake, &name).await?.version(), latest(&own.lake, &name).await?.version()), (1, 1));
    let other = LakeStore::open(own.lake.uri(), &StorageOptions::default()).await?;
    append(&other, &name, &schema, 5..9, small(100, 1000)).await?;
    assert_eq!(latest(&own.lake, &name).await?.num_rows(), 9, "another process has committed");

    let folder = Path::new(own.lake.uri()).join("t.lance");
    fs::remove_file(folder.join("_versions").join("latest_version_hint.json"))?;
    append(&other, &name, &schema, 9..12, small(100, 1000)).await?;
    assert_eq!(latest(&own.lake, &name).await?.num_rows(), 12, "without a hint");

    let before = latest(&own.lake, &name).await?;
    fs::remove_dir_all(&folder)?;
    assert_eq!(latest(&own.lake, &name).await.expect_err("no table").kind(), ErrorKind::NotFound);
    for start in [0, 1, 2] {
        append(&other, &name, &schema, start..start + 1, small(100, 1000)).await?;
    }
    let again = latest(&own.lake, &name).await?;
    assert_eq!((again.version(), again.num_rows()), (3, 3), "a table that was created again");
    assert!(!again.is_same_version(&before) && again.is_same_version(&latest(&own.lake, &name).await?));
    Ok(())
}
