//! Tests of tables that are truncated and dropped.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use stoker_types::{ErrorKind, SnapshotRef, TagName};

use super::counters::counters;
use super::model::{Model, check};
use crate::tests::data::{TestResult, append, drafts, latest, memory_lake, schema, small, table_name, test_lake};
use crate::{ChangeNote, Changed, CommitKey, CommitMode, Error, HeldVersions, IndexKind, LakeStore, StorageOptions};

#[tokio::test]
async fn a_truncated_table_keeps_its_columns_and_its_past() -> TestResult {
    let mut model = Model::create(memory_lake().await, 5).await?;
    let (name, note) = (table_name("t"), ChangeNote::default());
    let changed = model.lake.truncate(&name, &note).await?;
    assert_eq!(changed, Changed { version: 2, num_deleted: 40, ..Changed::default() });
    assert_eq!(model.lake.truncate(&name, &note).await?, Changed { version: 2, ..Changed::default() });
    check(&model.lake.table(&name, &SnapshotRef::Version(1)).await?, &model.rows).await?;
    model.rows.clear();
    let table = model.table().await?;
    assert_eq!((table.num_rows(), table.schema().fields().len()), (0, 4));
    model.change_rows(&table).await?;
    check(&model.table().await?, &model.rows).await
}

#[tokio::test]
async fn a_dropped_table_is_gone_and_its_name_is_free() -> TestResult {
    let test = test_lake().await;
    let (lake, name) = (test.lake.clone(), table_name("t"));
    let error = lake.drop_table(&name, HeldVersions::Refuse).await.expect_err("there is no table");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let mut model = Model::create(lake.clone(), 8).await?;
    let table = model.table().await?;
    model.change_rows(&table).await?;
    model.table().await?.create_tag(&TagName::try_new("gold")?).await?;
    check(&model.table().await?, &model.rows).await?;
    lake.hold(&[table.snapshot()], &[]).await;
    let error = lake.drop_table(&name, HeldVersions::Refuse).await.expect_err("a stream reads version 1");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(error.to_string().contains("streams read its versions 1 and may resume until 2"), "{error}");
    check(&model.table().await?, &model.rows).await?;
    lake.drop_table(&name, HeldVersions::Drop).await?;
    assert!(lake.tables().await?.is_empty() && !lake.has_table(&name).await?);
    assert!(!test.folder.path().join("t.lance").exists());

    // Another table of the name has other rows in the same versions, and none of the tags.
    let mut model = Model::create(lake.clone(), 9).await?;
    check(&model.table().await?, &model.rows).await?;
    let table = model.table().await?;
    assert!(table.tags().await?.is_empty());
    lake.hold(&[table.snapshot()], &[]).await;
    assert_eq!(table.list_holds().await?.len(), 1, "the new version is held anew");
    model.change_rows(&table).await?;
    check(&model.table().await?, &model.rows).await
}

/// A killed drop leaves a table that can be read, or none.
#[tokio::test]
async fn a_table_without_its_newest_manifest_does_not_exist() -> TestResult {
    let test = test_lake().await;
    let mut model = Model::create(test.lake.clone(), 4).await?;
    let table = model.table().await?;
    model.change_rows(&table).await?;
    let newest = model.table().await?;
    let versions = test.folder.path().join("t.lance/_versions");
    for version in 1..newest.version() {
        std::fs::remove_file(versions.join(format!("{}.manifest", u64::MAX - version)))?;
    }
    let lake = LakeStore::open(test.lake.uri(), &StorageOptions::default()).await?;
    check(&latest(&lake, &table_name("t")).await?, &model.rows).await?;
    std::fs::remove_file(versions.join(format!("{}.manifest", u64::MAX - newest.version())))?;
    let lake = LakeStore::open(test.lake.uri(), &StorageOptions::default()).await?;
    assert!(lake.tables().await?.is_empty());
    assert_eq!(
        lake.drop_table(&table_name("t"), HeldVersions::Drop).await.expect_err("no table").kind(),
        ErrorKind::NotFound
    );
    Ok(())
}

/// Rows that were written for a table are not committed to another one of its name, whatever its version is.
#[tokio::test]
async fn a_table_that_was_created_again_is_another_table() -> TestResult {
    let lake = memory_lake().await;
    let (name, note) = (table_name("t"), ChangeNote::default());
    let table = counters(&lake, 10).await?;
    let mut change = lake.change(&table, small(5, 1_000)).await?;
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![100, 101]));
    change.insert(&RecordBatch::try_from_iter([("id", ids)])?).await?;
    lake.drop_table(&name, HeldVersions::Drop).await?;
    counters(&lake, 3).await?;
    lake.truncate(&name, &note).await?;
    let error = change.commit(None, &note).await.expect_err("another table");
    assert!(matches!(&error, Error::Conflict { version: 2, .. }), "{error}");
    assert!(error.to_string().contains("dropped and created again"), "{error}");
    assert_eq!(latest(&lake, &name).await?.version(), 2);
    Ok(())
}

/// A drop removes the files of rows that are not committed yet.
#[tokio::test]
async fn rows_that_a_drop_removed_are_not_committed() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..5, small(100, 1_000)).await?;
    let rows = drafts(&lake, &name, &schema, 5..8, small(100, 1_000)).await?;
    lake.drop_table(&name, HeldVersions::Drop).await?;
    let error = lake.commit(&name, &schema, CommitMode::CreateOrAppend, rows.clone(), None).await;
    let error = error.expect_err("the files are gone");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(error.to_string().contains("table t: it was dropped while rows were written"), "{error}");
    assert!(!lake.has_table(&name).await?);
    append(&lake, &name, &schema, 0..2, small(100, 1_000)).await?;
    let key = CommitKey { key: "a", since_version: 2, chosen_at: None };
    let error = lake.commit(&name, &schema, CommitMode::Append, rows, Some(key)).await.expect_err("the files are gone");
    assert!(error.to_string().contains("it was dropped while rows were written"), "{error}");
    assert_eq!(latest(&lake, &name).await?.num_rows(), 2);
    Ok(())
}

#[tokio::test]
async fn a_table_is_replaced_only_if_others_left_it_as_it_was() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    let key = |since_version| CommitKey { key: "a", since_version, chosen_at: None };
    append(&lake, &name, &schema, 0..5, small(100, 1_000)).await?;
    let base = latest(&lake, &name).await?;
    let rows = drafts(&lake, &name, &schema, 0..2, small(100, 1_000)).await?;
    append(&lake, &name, &schema, 5..6, small(100, 1_000)).await?;
    let error = lake.replace(&base, &schema, rows.clone(), key(1)).await.expect_err("a row was added");
    assert!(matches!(&error, Error::Conflict { version: 2, .. }), "{error}");
    let base = latest(&lake, &name).await?;
    base.create_index("id", IndexKind::BTree).await?;
    assert_eq!(lake.replace(&base, &schema, rows.clone(), key(2)).await?, 4, "an index does not matter");
    assert_eq!(lake.replace(&base, &schema, rows, key(2)).await?, 4, "it is found again");
    assert_eq!(latest(&lake, &name).await?.num_rows(), 2);
    Ok(())
}
