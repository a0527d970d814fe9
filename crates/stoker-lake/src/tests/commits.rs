//! Tests that commits are atomic, happen once, and do not change the lake when they fail.

use std::path::Path;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use lance::dataset::cleanup::{CleanupPolicy, cleanup_old_versions};
use lance::dataset::optimize::{CompactionOptions, compact_files};
use stoker_types::{ErrorKind, SnapshotRef};

use super::data::{TestResult, append, drafts, latest, memory_lake, rows, schema, small, table_name, test_lake};
use crate::{CommitKey, CommitMode, LakeStore, StorageOptions, WriteOptions};

/// The names of the manifests in a table's `_versions` folder, sorted.
fn manifests(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join("t.lance/_versions")).expect("the table has versions");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("the folder is readable").file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn modes_create_append_and_overwrite() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    let written = async |numbers| drafts(&lake, &name, &schema, numbers, small(100, 1000)).await;

    let error = lake.commit(&name, &schema, CommitMode::Append, written(0..3).await?, None).await;
    assert_eq!(error.expect_err("there is no table").kind(), ErrorKind::NotFound);
    assert_eq!(lake.commit(&name, &schema, CommitMode::Create, written(0..3).await?, None).await?, 1);
    let error = lake.commit(&name, &schema, CommitMode::Create, written(0..3).await?, None).await;
    assert_eq!(error.expect_err("the table exists").kind(), ErrorKind::AlreadyExists);
    assert_eq!(lake.commit(&name, &schema, CommitMode::Append, written(3..5).await?, None).await?, 2);
    assert_eq!(lake.commit(&name, &schema, CommitMode::CreateOrAppend, written(5..6).await?, None).await?, 3);
    assert_eq!(latest(&lake, &name).await?.num_rows(), 6);
    assert_eq!(lake.commit(&name, &schema, CommitMode::Overwrite, written(0..2).await?, None).await?, 4);
    assert_eq!(latest(&lake, &name).await?.num_rows(), 2);
    Ok(())
}

#[tokio::test]
async fn an_empty_table_can_be_created() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    lake.commit(&name, &schema, CommitMode::Create, Vec::new(), None).await?;
    let table = latest(&lake, &name).await?;
    assert_eq!((table.num_rows(), table.schema().fields().len()), (0, 2));
    Ok(())
}

#[tokio::test]
async fn a_failed_commit_leaves_the_lake_as_it_was() -> TestResult {
    let test = test_lake().await;
    let (lake, name, schema) = (&test.lake, table_name("t"), schema(&[]));
    append(lake, &name, &schema, 0..5, small(100, 1000)).await?;
    let before = manifests(test.folder.path());

    let other = Arc::new(Schema::new(vec![Field::new("id", DataType::Utf8, true)]));
    let mut writer = lake.writer(&table_name("other"), &other, false, WriteOptions::default()).await?;
    let text: arrow_array::ArrayRef = Arc::new(arrow_array::StringArray::from(vec!["x"]));
    writer.write(&arrow_array::RecordBatch::try_new(other.clone(), vec![text])?).await?;
    let drafts = writer.finish().await?;
    for (schema, mode) in [(&other, CommitMode::Append), (&other, CommitMode::Create), (&schema, CommitMode::Append)] {
        lake.commit(&name, schema, mode, drafts.clone(), None).await.expect_err("the rows do not fit");
    }
    assert_eq!(manifests(test.folder.path()), before);
    assert_eq!(latest(lake, &name).await?.num_rows(), 5);
    Ok(())
}

#[tokio::test]
async fn fragments_that_number_columns_otherwise_are_refused() -> TestResult {
    let lake = memory_lake().await;
    let name = table_name("t");
    let field = |name: &str| Field::new(name, DataType::Int64, false);
    let ab = Arc::new(Schema::new(vec![field("a"), field("b")]));
    let ba = Arc::new(Schema::new(vec![field("b"), field("a")]));
    append(&lake, &name, &ab, 0..2, WriteOptions::default()).await?;
    // These drafts are written without regard to the table: their first column is `b`.
    let mut writer = lake.writer(&name, &ba, false, WriteOptions::default()).await?;
    writer.write(&rows(&ba, 0, 2)).await?;
    let drafts = writer.finish().await?;
    let error = lake.commit(&name, &ba, CommitMode::Append, drafts, None).await.expect_err("a and b would swap");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("written for another schema"), "{error}");
    Ok(())
}

#[tokio::test]
async fn concurrent_commits_all_succeed() -> TestResult {
    let test = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    // Each writer has a lake of its own, as in separate processes. All of them race to create the table.
    let mut commits = tokio::task::JoinSet::new();
    for writer in 0..6usize {
        let lake = LakeStore::open(test.lake.uri(), &StorageOptions::default()).await?;
        let (name, schema) = (name.clone(), schema.clone());
        commits
            .spawn(async move { append(&lake, &name, &schema, writer * 10..writer * 10 + 10, small(100, 1000)).await });
    }
    let mut versions = Vec::new();
    while let Some(version) = commits.join_next().await {
        versions.push(version??);
    }
    versions.sort_unstable();
    assert_eq!(versions, [1, 2, 3, 4, 5, 6]);
    let table = latest(&test.lake, &name).await?;
    assert_eq!(table.num_rows(), 60);
    let taken = table.take(&["id".to_string()], &super::data::addresses(&table)).await?;
    use arrow_array::cast::AsArray;
    let mut ids = taken.column(0).as_primitive::<arrow_array::types::Int64Type>().values().to_vec();
    ids.sort_unstable();
    assert_eq!(ids, (0..60).collect::<Vec<i64>>());
    Ok(())
}

/// Writers lose the race more often than Lance tries within one commit.
#[tokio::test]
async fn many_writers_append_to_one_table() -> TestResult {
    const NUM_WRITERS: usize = 60;
    let test = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&test.lake, &name, &schema, 0..1, small(100, 1000)).await?;
    let mut commits = tokio::task::JoinSet::new();
    for writer in 1..=NUM_WRITERS {
        let lake = LakeStore::open(test.lake.uri(), &StorageOptions::default()).await?;
        let (name, schema) = (name.clone(), schema.clone());
        commits.spawn(async move { append(&lake, &name, &schema, writer..writer + 1, small(100, 1000)).await });
    }
    while let Some(version) = commits.join_next().await {
        version??;
    }
    assert_eq!(latest(&test.lake, &name).await?.num_rows(), 1 + NUM_WRITERS as u64);
    Ok(())
}

#[tokio::test]
async fn only_one_of_concurrent_creators_wins() -> TestResult {
    let test = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    let mut commits = tokio::task::JoinSet::new();
    for writer in 0..4usize {
        let lake = LakeStore::open(test.lake.uri(), &StorageOptions::default()).await?;
        let (name, schema) = (name.clone(), schema.clone());
        commits.spawn(async move {
            let drafts = drafts(&lake, &name, &schema, writer..writer + 1, small(100, 1000)).await?;
            lake.commit(&name, &schema, CommitMode::Create, drafts, None).await
        });
    }
    let mut won = 0;
    while let Some(result) = commits.join_next().await {
        match result? {
            Ok(version) => won += version,
            Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}"),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(latest(&test.lake, &name).await?.num_rows(), 1);
    Ok(())
}

#[tokio::test]
async fn a_key_is_committed_once() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    for key in ["a", "b", "a", "c", "b", "a"] {
        let drafts = drafts(&lake, &name, &schema, 0..2, small(100, 1000)).await?;
        let version = lake.commit(&name, &schema, CommitMode::CreateOrAppend, drafts, Some(once(key))).await?;
        assert_eq!(
            version,
            match key {
                "a" => 1,
                "b" => 2,
                _ => 3,
            }
        );
    }
    assert_eq!(latest(&lake, &name).await?.num_rows(), 6);

    // Concurrent commits of one key happen once too.
    let drafts = drafts(&lake, &name, &schema, 0..2, small(100, 1000)).await?;
    let commit = || lake.commit(&name, &schema, CommitMode::Append, drafts.clone(), Some(once("d")));
    let (one, two, three) = tokio::join!(commit(), commit(), commit());
    assert_eq!((one?, two?, three?), (4, 4, 4));
    Ok(())
}

fn once(key: &str) -> CommitKey<'_> {
    CommitKey { key, since_version: 0, chosen_at: None }
}

/// Several lakes over one folder share nothing, like several processes.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_committed_once_by_any_number_of_writers() -> TestResult {
    let test = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&test.lake, &name, &schema, 0..3, small(100, 1000)).await?;
    let uri = test.folder.path().to_str().expect("UTF-8").to_string();
    for round in 0..8 {
        let key = format!("round {round}");
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..6 {
            let (uri, name, schema, key) = (uri.clone(), name.clone(), schema.clone(), key.clone());
            writers.spawn(async move {
                let lake = LakeStore::open(&uri, &StorageOptions::default()).await?;
                let drafts = drafts(&lake, &name, &schema, 0..2, small(100, 1000)).await?;
                // Two of the writers commit under no key, or under a key of their own.
                let own = format!("{key} {writer}");
                let key = match writer {
                    0 => None,
                    1 => Some(once(&own)),
                    _ => Some(once(&key)),
                };
                lake.commit(&name, &schema, CommitMode::Append, drafts, key).await
            });
        }
        let mut versions: Vec<u64> = writers.join_all().await.into_iter().collect::<Result<_, _>>()?;
        versions.sort_unstable();
        versions.dedup();
        assert_eq!(versions.len(), 3, "{versions:?}");
        assert_eq!(latest(&test.lake, &name).await?.num_rows(), 3 + (round + 1) * 6);
    }
    Ok(())
}

#[tokio::test]
async fn a_commit_is_included_until_it_is_overwritten() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    let commit = async |mode, key| {
        let drafts = drafts(&lake, &name, &schema, 0..2, small(100, 1000)).await?;
        lake.commit(&name, &schema, mode, drafts, Some(once(key))).await
    };
    let version = commit(CommitMode::Create, "a").await?;
    commit(CommitMode::Append, "b").await?;
    let table = latest(&lake, &name).await?;
    assert!(table.history().includes_commit("a", version).await? && table.history().includes_commit("b", 2).await?);
    assert!(!table.history().includes_commit("b", version).await? && !table.history().includes_commit("b", 3).await?);
    commit(CommitMode::Overwrite, "c").await?;
    let table = latest(&lake, &name).await?;
    assert!(!table.history().includes_commit("a", version).await? && table.history().includes_commit("c", 3).await?);
    let restore = async |to| -> TestResult {
        let mut dataset = lake.table(&name, &SnapshotRef::Version(to)).await?.dataset().as_ref().clone();
        Ok(dataset.restore().await?)
    };
    restore(2).await?;
    let table = latest(&lake, &name).await?;
    assert!(table.history().includes_commit("a", version).await? && table.history().includes_commit("b", 2).await?);
    restore(1).await?;
    let table = latest(&lake, &name).await?;
    assert!(table.history().includes_commit("a", version).await? && !table.history().includes_commit("b", 2).await?);
    // After a rewrite, rows still belong to their commits.
    restore(2).await?;
    let mut dataset = latest(&lake, &name).await?.dataset().as_ref().clone();
    dataset.delete("id = 1").await?;
    compact_files(&mut dataset, CompactionOptions::default(), None).await?;
    let table = latest(&lake, &name).await?;
    assert!(table.history().includes_commit("a", version).await? && table.history().includes_commit("b", 2).await?);
    Ok(())
}

#[tokio::test]
async fn drafts_exist_until_their_files_are_gone() -> TestResult {
    let test = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    let drafts = drafts(&test.lake, &name, &schema, 0..5, small(100, 1000)).await?;
    assert!(test.lake.draft_exists(&name, &drafts[0]).await?);
    let file = test.folder.path().join("t.lance/data").join(&drafts[0].files()[0]);
    let bytes = std::fs::read(&file)?;
    std::fs::write(&file, &bytes[1..])?;
    assert!(!test.lake.draft_exists(&name, &drafts[0]).await?);
    std::fs::remove_file(&file)?;
    assert!(!test.lake.draft_exists(&name, &drafts[0]).await?);
    Ok(())
}

#[tokio::test]
async fn a_commit_whose_version_is_gone_is_found_by_its_files() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..3, small(100, 1000)).await?;
    let drafts = drafts(&lake, &name, &schema, 3..5, small(100, 1000)).await?;
    lake.commit(&name, &schema, CommitMode::Append, drafts.clone(), Some(once("a"))).await?;
    append(&lake, &name, &schema, 5..6, small(100, 1000)).await?;
    let newest = latest(&lake, &name).await?;
    let policy = CleanupPolicy { before_version: Some(newest.version()), ..CleanupPolicy::default() };
    cleanup_old_versions(newest.dataset(), policy).await?;
    let version = lake.commit(&name, &schema, CommitMode::Append, drafts, Some(once("a"))).await?;
    assert_eq!((version, latest(&lake, &name).await?.num_rows()), (3, 6));
    Ok(())
}

#[tokio::test]
async fn rows_that_were_chosen_before_another_keyed_commit_are_refused() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    let commit = async |key: Option<(&str, u64)>| {
        let drafts = drafts(&lake, &name, &schema, 0..2, small(100, 1000)).await?;
        let key = key.map(|(key, chosen_at)| CommitKey { key, since_version: 0, chosen_at: Some(chosen_at) });
        lake.commit(&name, &schema, CommitMode::CreateOrAppend, drafts, key).await
    };
    commit(None).await?;
    assert_eq!(commit(Some(("a", 1))).await?, 2);
    assert_eq!(commit(Some(("a", 1))).await?, 2, "it is found again");
    let overtaken = commit(Some(("b", 1))).await.expect_err("version 2 came after");
    assert!(matches!(&overtaken, crate::Error::Overtaken { version: 2, .. }), "{overtaken}");
    assert!(overtaken.kind().is_transient(), "who chooses again may succeed");
    commit(None).await?;
    assert_eq!(commit(Some(("b", 2))).await?, 4, "commits without a key do not count");
    assert!(matches!(commit(Some(("c", 9))).await, Err(crate::Error::Overtaken { .. })), "of another table");

    let table = latest(&lake, &name).await?;
    assert_eq!(
        (table.history().find_commit("b", 0).await?, table.history().find_commit("b", 4).await?),
        (Some(4), None)
    );
    let commits = table.keyed_commits(0).await?;
    assert_eq!(commits.found, [(4, "b".to_string()), (2, "a".to_string())]);
    assert!(commits.is_complete);
    assert_eq!(table.keyed_commits(2).await?.found, [(4, "b".to_string())]);
    Ok(())
}
