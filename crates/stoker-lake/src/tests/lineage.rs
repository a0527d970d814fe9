//! Tests of commits that the store delayed until a cleanup had freed their version number.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use lance::dataset::cleanup::{CleanupPolicy, cleanup_old_versions};
use lance::dataset::optimize::{CompactionOptions, compact_files};
use stoker_types::{ErrorKind, TagName};

use super::data::{TestLake, TestResult, addresses, append, drafts, latest, schema, small, table_name, test_lake};
use crate::{ChangeNote, CommitKey, CommitMode, LakeStore, StorageOptions};

/// The number of rows of the table before, of each commit by others, and of our own commit.
const NUM_ROWS: (usize, usize, usize) = (3, 1, 2);

/// Opens the lake again, as another process does.
async fn opened(test: &TestLake) -> crate::Result<LakeStore> {
    LakeStore::open(test.lake.uri(), &StorageOptions::default()).await
}

/// Commits our own rows under a key.
async fn commit(lake: &LakeStore) -> crate::Result<u64> {
    let (name, schema) = (table_name("t"), schema(&[]));
    let drafts = drafts(lake, &name, &schema, 10..10 + NUM_ROWS.2, small(100, 1000)).await?;
    let key = CommitKey { key: "own", since_version: 0, chosen_at: None };
    lake.commit(&name, &schema, CommitMode::Append, drafts, Some(key)).await
}

/// Compacts all fragments of the newest version into one.
async fn compact(lake: &LakeStore) -> TestResult {
    let mut dataset = latest(lake, &table_name("t")).await?.dataset().as_ref().clone();
    compact_files(&mut dataset, CompactionOptions::default(), None).await?;
    Ok(())
}

async fn clean_up(lake: &LakeStore) -> TestResult {
    let newest = latest(lake, &table_name("t")).await?;
    let before_version = Some(newest.version());
    let policy = CleanupPolicy { before_version, error_if_tagged_old_versions: false, ..CleanupPolicy::default() };
    cleanup_old_versions(newest.dataset(), policy).await?;
    Ok(())
}

/// A table whose version 2 is our own commit. While that commit stalled, others made `num_foreign` commits and removed
/// old versions, so that the number 2 was free again.
async fn stalled(num_foreign: usize, is_compacted: bool) -> Result<TestLake, Box<dyn std::error::Error>> {
    let test = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&test.lake, &name, &schema, 0..NUM_ROWS.0, small(100, 1000)).await?;
    assert_eq!(commit(&opened(&test).await?).await?, 2);
    let manifest = test.folder.path().join("t.lance/_versions").join(format!("{}.manifest", u64::MAX - 2));
    let held_back = std::fs::read(&manifest)?;
    std::fs::remove_file(&manifest)?;
    let others = opened(&test).await?;
    for _ in 0..num_foreign {
        append(&others, &name, &schema, 20..20 + NUM_ROWS.1, small(100, 1000)).await?;
    }
    if is_compacted {
        compact(&others).await?;
    }
    clean_up(&others).await?;
    assert!(!manifest.exists(), "the slot is free");
    std::fs::write(&manifest, held_back)?;
    Ok(test)
}

#[tokio::test]
async fn a_key_in_a_slot_that_others_left_behind_is_committed_again() -> TestResult {
    for num_foreign in [2, 3, 8] {
        let test = stalled(num_foreign, false).await?;
        let lake = opened(&test).await?;
        let committed = commit(&lake).await?;
        assert_eq!(committed, num_foreign as u64 + 2);
        assert_eq!(commit(&opened(&test).await?).await?, committed, "it is found again");
        let num_rows = NUM_ROWS.0 + num_foreign * NUM_ROWS.1 + NUM_ROWS.2;
        assert_eq!(latest(&lake, &table_name("t")).await?.num_rows(), num_rows as u64);
    }
    Ok(())
}

#[tokio::test]
async fn a_key_of_which_nothing_tells_is_neither_committed_nor_repeated() -> TestResult {
    let test = stalled(3, true).await?;
    let lake = opened(&test).await?;
    let error = commit(&lake).await.expect_err("the fragments of both sides are gone");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("version 2 of table t: the outcome is unknown"), "{error}");
    assert_eq!(latest(&lake, &table_name("t")).await?.num_rows(), (NUM_ROWS.0 + 3 * NUM_ROWS.1) as u64);
    Ok(())
}

#[tokio::test]
async fn a_key_in_a_version_with_a_tag_is_committed() -> TestResult {
    let test = test_lake().await;
    let (lake, name) = (&test.lake, table_name("t"));
    append(lake, &name, &schema(&[]), 0..NUM_ROWS.0, small(100, 1000)).await?;
    assert_eq!(commit(lake).await?, 2);
    latest(lake, &name).await?.create_tag(&TagName::try_new("kept")?).await?;
    append(lake, &name, &schema(&[]), 20..21, small(100, 1000)).await?;
    compact(lake).await?;
    clean_up(lake).await?;
    assert_eq!(commit(&opened(&test).await?).await?, 2);
    assert_eq!(latest(lake, &name).await?.num_rows(), (NUM_ROWS.0 + 1 + NUM_ROWS.2) as u64);
    Ok(())
}

/// Gives all rows another name in place, and returns the version.
async fn rename(lake: &LakeStore, to: &str, key: Option<&str>) -> crate::Result<u64> {
    let table = latest(lake, &table_name("t")).await?;
    let all = addresses(&table);
    let names: ArrayRef = Arc::new(StringArray::from(vec![to; all.len()]));
    let mut change = lake.change(&table, small(100, 1000)).await?;
    change.update(&all, &RecordBatch::try_from_iter([("name", names)]).expect("one column"))?;
    let key = key.map(|key| CommitKey { key, since_version: 0, chosen_at: None });
    Ok(change.commit(key, &ChangeNote::default()).await?.version)
}

/// An update adds no fragments by which it could be recognised. The transaction of the next version tells.
#[tokio::test]
async fn an_update_in_a_slot_that_others_left_behind_is_made_again() -> TestResult {
    for num_foreign in [2, 3] {
        let test = test_lake().await;
        let (name, schema) = (table_name("t"), schema(&[]));
        append(&test.lake, &name, &schema, 0..NUM_ROWS.0, small(100, 1000)).await?;
        assert_eq!(rename(&opened(&test).await?, "own", Some("own")).await?, 2);
        let manifest = test.folder.path().join("t.lance/_versions").join(format!("{}.manifest", u64::MAX - 2));
        let held_back = std::fs::read(&manifest)?;
        std::fs::remove_file(&manifest)?;
        let others = opened(&test).await?;
        for _ in 0..num_foreign {
            rename(&others, "theirs", None).await?;
        }
        clean_up(&others).await?;
        assert!(!manifest.exists(), "the slot is free");
        std::fs::write(&manifest, held_back)?;
        let lake = opened(&test).await?;
        match rename(&lake, "own", Some("own")).await {
            Ok(version) => assert_eq!((version, num_foreign), (4, 2)),
            Err(error) => {
                assert_eq!((error.kind(), num_foreign), (ErrorKind::Unavailable, 3));
                assert!(error.to_string().contains("the outcome is unknown"), "{error}");
            }
        }
        if num_foreign == 2 {
            assert_eq!(rename(&opened(&test).await?, "own", Some("own")).await?, 4, "it is found again");
        }
    }
    Ok(())
}
