//! Tests of snapshots and tags, and of the errors about them.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_schema::DataType;
use futures::TryStreamExt as _;
use stoker_types::{ErrorKind, SnapshotRef, TableName, TagName};

use super::data::{
    TestLake, TestResult, append, drafts, latest, memory_lake, schema, small, table_name, tensor, test_lake,
};
use crate::exact_commit::IndifferentTo;
use crate::{CommitMode, DenseProbe, HeldVersions, LakeStore, ScanRequest, StorageOptions, Table};

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

/// The ids of all rows, ascending.
async fn ids(lake: &LakeStore, name: &TableName) -> Result<Vec<i64>, Box<dyn std::error::Error>> {
    let request = ScanRequest { columns: vec!["id".into()], ..ScanRequest::default() };
    let batches: Vec<RecordBatch> = latest(lake, name).await?.scan(&request).await?.try_collect().await?;
    let ids = batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
    let mut ids: Vec<i64> = ids.collect();
    ids.sort_unstable();
    Ok(ids)
}

#[tokio::test]
async fn branches_share_files_and_have_versions_of_their_own() -> TestResult {
    let TestLake { lake, folder: _folder } = test_lake().await;
    let image = tensor("image", DataType::UInt8, &[1, 64, 64]);
    let (name, schema) = (table_name("t"), schema(&[image]));
    append(&lake, &name, &schema, 0..5, small(100, 1000)).await?;
    let branch = lake.create_branch(&latest(&lake, &name).await?, "dev", nothing).await?;
    assert_eq!((branch.name().as_str(), branch.num_rows()), ("t@dev", 5));
    append(&lake, branch.name(), &schema, 5..8, small(100, 1000)).await?;
    append(&lake, &name, &schema, 10..12, small(100, 1000)).await?;
    let (of_branch, of_table) = (table_name("t@dev"), name.clone());
    assert_eq!(ids(&lake, &of_branch).await?, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(ids(&lake, &of_table).await?, [0, 1, 2, 3, 4, 10, 11]);
    let probe = latest(&lake, &of_branch).await?.dense_column("image").await?;
    let DenseProbe::Dense(column) = probe else { panic!("files of the table are read as plain bytes: {probe:?}") };
    assert!(column.checksums.is_some());
    let nested = lake.create_branch(&latest(&lake, &of_branch).await?, "nested", nothing).await?;
    assert_eq!(ids(&lake, nested.name()).await?, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(matches!(nested.dense_column("image").await?, DenseProbe::Dense(_)), "files of two other branches");

    let exists = lake.create_branch(&nested, "dev", nothing).await.expect_err("it exists");
    assert_eq!(exists.kind(), ErrorKind::AlreadyExists, "{exists}");
    for (name, held) in [(&name, HeldVersions::Refuse), (&table_name("none@dev"), HeldVersions::Drop)] {
        assert!(lake.drop_branch(name, held, nothing).await.is_err(), "{name}");
    }
    let refused = lake.drop_branch(&of_branch, HeldVersions::Refuse, nothing).await.expect_err("a branch began at it");
    assert!(refused.to_string().contains("branches began at it: nested"), "{refused}");
    lake.drop_branch(nested.name(), HeldVersions::Refuse, nothing).await?;
    lake.drop_branch(&of_branch, HeldVersions::Refuse, nothing).await?;
    assert!(!lake.has_table(&of_branch).await?);
    assert_eq!(ids(&lake, &of_table).await?, [0, 1, 2, 3, 4, 10, 11]);
    let gone = lake.table(&of_branch, &SnapshotRef::Latest).await.expect_err("it is gone");
    assert!(gone.to_string().contains("branch 'dev' of table t does not exist; the table has no branches"), "{gone}");
    let again = append(&lake, &of_branch, &schema, 5..8, small(100, 1000)).await.expect_err("it is gone");
    assert_eq!(again.kind(), ErrorKind::NotFound, "{again}");
    Ok(())
}

#[tokio::test]
async fn tags_and_holds_of_a_branch_are_not_those_of_its_table() -> TestResult {
    let TestLake { lake, folder: _folder } = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..5, small(100, 1000)).await?;
    let branch = lake.create_branch(&latest(&lake, &name).await?, "dev", nothing).await?;
    for table in [&name, branch.name()] {
        append(&lake, table, &schema, 5..8, small(100, 1000)).await?;
    }
    let (of_branch, of_table) = (latest(&lake, branch.name()).await?, latest(&lake, &name).await?);
    of_branch.create_tag(&TagName::try_new("tried")?).await?;
    assert!(of_table.tags().await?.is_empty());
    assert_eq!(of_branch.tags().await?.into_iter().collect::<Vec<_>>(), [("tried".to_string(), 2)]);
    let tag = SnapshotRef::Tag("tried".into());
    assert_eq!(lake.table(branch.name(), &tag).await?.snapshot().to_string(), "t@dev@2");
    let other = lake.table(&name, &tag).await.expect_err("a tag of the branch");
    assert!(other.to_string().contains("AT (BRANCH => 'dev', TAG => 'tried')"), "{other}");
    let taken = of_table.create_tag(&TagName::try_new("tried")?).await.expect_err("one table, one tag of a name");
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);

    lake.hold([&of_branch.snapshot()], &[]).await;
    assert_eq!(of_branch.list_holds().await?.len(), 1);
    assert!(of_table.list_holds().await?.is_empty());
    of_branch.delete_tag(&TagName::try_new("tried")?).await?;
    let held = lake.drop_branch(branch.name(), HeldVersions::Refuse, nothing).await.expect_err("a stream reads it");
    assert!(held.to_string().contains("streams read its versions 2"), "{held}");
    let held = lake.drop_table(&name, HeldVersions::Refuse).await.expect_err("a stream reads it");
    assert!(held.to_string().contains("2 of branch 'dev'"), "{held}");
    lake.drop_branch(branch.name(), HeldVersions::Drop, nothing).await?;
    lake.drop_table(&name, HeldVersions::Refuse).await?;
    Ok(())
}

#[tokio::test]
async fn a_branch_that_is_made_again_has_nothing_of_the_old_one() -> TestResult {
    let TestLake { lake, folder: _folder } = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..5, small(100, 1000)).await?;
    let table = latest(&lake, &name).await?;
    let old = lake.create_branch(&table, "dev", nothing).await?;
    append(&lake, old.name(), &schema, 5..8, small(100, 1000)).await?;
    let stale = latest(&lake, old.name()).await?;
    let drafts = drafts(&lake, old.name(), &schema, 8..9, small(100, 1000)).await?;
    lake.drop_branch(old.name(), HeldVersions::Refuse, nothing).await?;
    let new = lake.create_branch(&table, "dev", nothing).await?;
    append(&lake, new.name(), &schema, 20..22, small(100, 1000)).await?;
    assert_eq!(ids(&lake, new.name()).await?, [0, 1, 2, 3, 4, 20, 21]);
    assert_eq!(latest(&lake, new.name()).await?.version(), stale.version());
    assert!(!latest(&lake, new.name()).await?.is_same_version(&stale));
    // Rows that were written for the old one, and changes that were computed on it, are refused.
    let lost =
        lake.commit(new.name(), &schema, CommitMode::Append, drafts, None).await.expect_err("its files are gone");
    assert!(lost.to_string().contains("it was dropped while rows were written"), "{lost}");
    let unchanged = lake.check_unchanged(&stale, &latest(&lake, new.name()).await?, IndifferentTo::Rows, &[]).await;
    assert!(unchanged.expect_err("another branch").to_string().contains("dropped and created again"));
    assert_eq!(ids(&lake, new.name()).await?, [0, 1, 2, 3, 4, 20, 21]);
    Ok(())
}

#[tokio::test]
async fn one_process_makes_a_branch() -> TestResult {
    let TestLake { lake, folder } = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..5, small(100, 1000)).await?;
    append(&lake, &name, &schema, 5..9, small(100, 1000)).await?;
    let uri = folder.path().to_str().ok_or("a path")?;
    let mut makers = tokio::task::JoinSet::new();
    for maker in 0..6u64 {
        let (other, name) = (LakeStore::open(uri, &StorageOptions::default()).await?, name.clone());
        makers.spawn(async move {
            let from = other.table(&name, &SnapshotRef::Version(1 + maker % 2)).await?;
            other.create_branch(&from, "dev", nothing).await
        });
    }
    let made = makers.join_all().await;
    let versions: Vec<u64> = made.iter().flatten().map(Table::version).collect();
    assert_eq!(versions.len(), 1, "{made:?}");
    for error in made.iter().filter_map(|made| made.as_ref().err()) {
        assert!(matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::Unavailable), "{error}");
    }
    assert_eq!(latest(&lake, &table_name("t@dev")).await?.version(), versions[0]);
    Ok(())
}

#[tokio::test]
async fn what_an_interrupted_branch_left_is_no_branch() -> TestResult {
    let TestLake { lake, folder } = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..5, small(100, 1000)).await?;
    let table = latest(&lake, &name).await?;
    let branch = lake.create_branch(&table, "dev", nothing).await?;
    let root = folder.path().join("t.lance");
    fs::remove_file(root.join("_refs/branches/dev.json"))?;
    assert!(!lake.has_table(branch.name()).await?, "the files alone are no branch");
    let busy = lake.create_branch(&table, "dev", nothing).await.expect_err("another process may be making it");
    assert_eq!(busy.kind(), ErrorKind::Unavailable, "{busy}");
    for folder in ["_versions", "_transactions"] {
        for file in fs::read_dir(root.join("tree/dev").join(folder))? {
            fs::File::options().append(true).open(file?.path())?.set_times(old())?;
        }
    }
    let created = lake.create_branch(&table, "dev", nothing).await?;
    assert_eq!(ids(&lake, created.name()).await?, [0, 1, 2, 3, 4]);
    Ok(())
}

#[tokio::test]
async fn one_process_takes_a_branch_from_an_interrupted_one() -> TestResult {
    let TestLake { lake, folder } = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..5, small(100, 1000)).await?;
    let uri = folder.path().to_str().ok_or("a path")?.to_string();
    let claim = folder.path().join("_stoker/branches/t/dev");
    let table = latest(&lake, &name).await?;
    for content in ["", "the-token-of-a-process-that-ended"] {
        fs::create_dir_all(claim.parent().ok_or("a folder")?)?;
        fs::write(&claim, content)?;
        let busy = lake.create_branch(&table, "dev", nothing).await.expect_err("another process makes it");
        assert_eq!(busy.kind(), ErrorKind::Unavailable, "{busy}");
        fs::File::options().append(true).open(&claim)?.set_times(old())?;
        let (running, returned) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (uri, name, running, returned) = (&uri, &name, &running, &returned);
        let makers = (0..6).map(|_| async move {
            let other = LakeStore::open(uri, &StorageOptions::default()).await?;
            let from = latest(&other, name).await?;
            let alone = async |_: &TableName| {
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "one process at a time");
                // The others come while this one works.
                while returned.load(Ordering::SeqCst) < 5 {
                    tokio::task::yield_now().await;
                }
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            };
            let made = other.create_branch(&from, "dev", alone).await;
            returned.fetch_add(1, Ordering::SeqCst);
            made
        });
        let made = futures::future::join_all(makers).await;
        let num_made = made.iter().filter(|made| made.is_ok()).count();
        assert_eq!(num_made, 1, "{made:?}");
        let left: Vec<_> = fs::read_dir(claim.parent().ok_or("a folder")?)?.collect();
        assert!(left.is_empty(), "{left:?}");
        lake.drop_branch(&table_name("t@dev"), HeldVersions::Refuse, nothing).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_others_keep_of_a_branch_is_forgotten_while_nobody_makes_it() -> TestResult {
    let TestLake { lake, folder: _folder } = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..5, small(100, 1000)).await?;
    let (table, of_branch) = (latest(&lake, &name).await?, table_name("t@dev"));
    let check = async |branch: &TableName| {
        assert_eq!(*branch, of_branch);
        assert!(!lake.has_table(branch).await?, "there is no branch then");
        let busy = lake.create_branch(&table, "dev", nothing).await.expect_err("another process changes it");
        assert_eq!(busy.kind(), ErrorKind::Unavailable, "{busy}");
        Ok(())
    };
    lake.create_branch(&table, "dev", check).await?;
    lake.drop_branch(&of_branch, HeldVersions::Refuse, check).await?;
    let failed = lake.create_branch(&table, "dev", async |_| Err(lake.no_table(&name).await?)).await;
    assert!(failed.is_err() && !lake.has_table(&of_branch).await?, "{failed:?}");
    lake.create_branch(&table, "dev", nothing).await?;
    Ok(())
}

async fn nothing(_branch: &TableName) -> crate::Result<()> {
    Ok(())
}

fn old() -> fs::FileTimes {
    fs::FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(86_400))
}
