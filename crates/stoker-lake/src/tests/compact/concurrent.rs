//! Commits of others during a compaction.

use std::sync::atomic::{AtomicU32, Ordering};

use stoker_types::{StatementProgress, TagName};
use tokio::runtime::Handle;

use super::{STEP, appended, delete, ids, options, read, wide_schema};
use crate::tests::data::{TestLake, TestResult, append, latest, small, table_name, test_lake};
use crate::{ChangeNote, Compacted, IndexKind, LakeStore, StorageOptions};

/// The rows of fragments that hold two appends.
const PAIR: u64 = 2 * STEP as u64 + 1;

/// Compacts table `t`, and does other work when a phase begins: the first times that it begins, if it begins again.
async fn compact_while<W: Future<Output = TestResult>>(
    test: &TestLake,
    rows_max: u64,
    phase: &str,
    times: u32,
    work: impl Fn(LakeStore) -> W + Sync,
) -> Result<Compacted, Box<dyn std::error::Error>> {
    // Others are other processes, with a lake of their own.
    let lake = LakeStore::open(test.lake.uri(), &StorageOptions::default()).await?;
    let begun = AtomicU32::new(0);
    let report = |progress: StatementProgress| {
        let begins = progress.phase == phase && progress.done == 0;
        if begins && begun.fetch_add(1, Ordering::Relaxed) < times {
            let done = tokio::task::block_in_place(|| Handle::current().block_on(work(lake.clone())));
            done.expect("the other work is done");
        }
    };
    let done = test.lake.compact(&table_name("t"), &options(rows_max), &ChangeNote::default(), &report).await?;
    assert!(begun.load(Ordering::Relaxed) >= times, "{phase}");
    Ok(done)
}

async fn all_ids(test: &TestLake) -> Result<Vec<i64>, Box<dyn std::error::Error>> {
    let mut ids = ids(&read(&latest(&test.lake, &table_name("t")).await?).await?.0);
    ids.sort_unstable();
    Ok(ids)
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_appended_meanwhile_stay() -> TestResult {
    for phase in ["writing rows", "committing"] {
        let test = test_lake().await;
        appended(&test.lake, &wide_schema(), 4).await?;
        let append_more = |lake: LakeStore| async move {
            append(&lake, &table_name("t"), &wide_schema(), 50..60, small(100, 4_000)).await?;
            Ok(())
        };
        let done = compact_while(&test, 1_000, phase, 1, append_more).await?;
        assert_eq!((done.version, done.num_fragments, done.num_new_fragments), (6, 4, 1), "{phase}");
        assert_eq!(all_ids(&test).await?, (0..28).chain(50..60).collect::<Vec<_>>(), "{phase}");
        assert_eq!(latest(&test.lake, &table_name("t")).await?.fragments().len(), 2);
    }
    Ok(())
}

/// New fragments take the ids for which indexes were written. After two times, ids are reserved.
#[tokio::test(flavor = "multi_thread")]
async fn indexes_follow_though_others_append_again_and_again() -> TestResult {
    let test = test_lake().await;
    let (lake, name) = (&test.lake, table_name("t"));
    appended(lake, &wide_schema(), 4).await?;
    latest(lake, &name).await?.create_index("id", IndexKind::BTree).await?;
    let next = AtomicU32::new(0);
    let append_more = |lake: LakeStore| {
        let first = 100 + 10 * next.fetch_add(1, Ordering::Relaxed) as usize;
        async move {
            append(&lake, &table_name("t"), &wide_schema(), first..first + 5, small(100, 4_000)).await?;
            Ok(())
        }
    };
    let done = compact_while(&test, 1_000, "giving indexes the new addresses", 4, append_more).await?;
    assert_eq!((done.num_fragments, done.indexes), (4, vec!["id_idx".to_string()]));
    let table = latest(lake, &name).await?;
    let index = table.indexes().await?.remove(0);
    assert_eq!((index.num_rows_covered, index.num_rows_not_covered), (28, 20));
    let expected = (0..28).chain([100, 110, 120, 130].into_iter().flat_map(|first| first..first + 5));
    assert_eq!(all_ids(&test).await?, expected.collect::<Vec<_>>());
    table.dataset().validate().await?;
    Ok(())
}

/// An index that is built over the old fragments follows, too.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_built_meanwhile_follows() -> TestResult {
    let test = test_lake().await;
    appended(&test.lake, &wide_schema(), 4).await?;
    let create = |lake: LakeStore| async move {
        latest(&lake, &table_name("t")).await?.create_index("id", IndexKind::BTree).await?;
        Ok(())
    };
    let done = compact_while(&test, 1_000, "writing rows", 1, create).await?;
    assert_eq!(done.indexes, ["id_idx"]);
    let index = latest(&test.lake, &table_name("t")).await?.indexes().await?.remove(0);
    assert_eq!((index.num_rows_covered, index.num_rows_not_covered), (28, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_deleted_meanwhile_stay_deleted() -> TestResult {
    for (rows_max, phase) in [(1_000, "writing rows"), (1_000, "committing"), (PAIR, "committing")] {
        let test = test_lake().await;
        appended(&test.lake, &wide_schema(), 4).await?;
        let delete_one = |lake: LakeStore| async move {
            delete(&lake, &[3 << 32 | 2]).await?;
            Ok(())
        };
        let done = compact_while(&test, rows_max, phase, 1, delete_one).await?;
        assert_eq!(all_ids(&test).await?, (0..28).filter(|id| *id != 23).collect::<Vec<_>>(), "{phase}");
        let table = latest(&test.lake, &table_name("t")).await?;
        assert_eq!((done.num_left, table.version()), (0, done.version));
        let num_new = 28_u64.div_ceil(rows_max);
        assert_eq!((done.num_fragments, done.num_new_fragments, done.num_deleted), (4, num_new, 1), "{phase}");
        assert!(table.dataset().fragments().iter().all(|fragment| fragment.deletion_file.is_none()));
        table.dataset().validate().await?;
    }
    Ok(())
}

/// Each plan is overtaken by a deletion in the same fragments.
#[tokio::test(flavor = "multi_thread")]
async fn after_five_conflicts_the_table_is_as_the_others_left_it() -> TestResult {
    let test = test_lake().await;
    appended(&test.lake, &wide_schema(), 2).await?;
    let next = AtomicU32::new(0);
    let delete_next = |lake: LakeStore| {
        let row = u64::from(next.fetch_add(1, Ordering::Relaxed));
        async move {
            delete(&lake, &[row]).await?;
            Ok(())
        }
    };
    let error = compact_while(&test, 1_000, "committing", 5, delete_next).await.expect_err("others were faster");
    assert!(error.to_string().contains("rows were updated, deleted or moved"), "{error}");
    assert_eq!(all_ids(&test).await?, (5..14).collect::<Vec<_>>());
    let table = latest(&test.lake, &table_name("t")).await?;
    let named: usize = table.dataset().fragments().iter().map(|fragment| fragment.files.len()).sum();
    assert_eq!(std::fs::read_dir(test.folder.path().join("t.lance/data"))?.count(), named, "no drafts are left");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn other_columns_rows_and_compactions_are_kept() -> TestResult {
    let test = test_lake().await;
    appended(&test.lake, &wide_schema(), 4).await?;
    let drop_column = |lake: LakeStore| async move {
        let table = latest(&lake, &table_name("t")).await?;
        lake.drop_columns(&table, &["name".to_string()], &ChangeNote::default()).await?;
        Ok(())
    };
    let done = compact_while(&test, PAIR, "committing", 1, drop_column).await?;
    assert_eq!((done.num_fragments, done.num_new_fragments), (4, 2));
    let table = latest(&test.lake, &table_name("t")).await?;
    assert!(table.schema().field_with_name("name").is_err());
    assert_eq!(all_ids(&test).await?, (0..28).collect::<Vec<_>>());
    // Another compaction was faster, and a tag does not matter.
    let compact_first = |lake: LakeStore| async move {
        latest(&lake, &table_name("t")).await?.create_tag(&TagName::try_new("kept")?).await?;
        lake.compact(&table_name("t"), &options(1_000), &ChangeNote::default(), &|_| {}).await?;
        Ok(())
    };
    let done = compact_while(&test, 1_000, "writing rows", 1, compact_first).await?;
    assert_eq!(done, Compacted { version: done.version, ..Compacted::default() }, "nothing is left to do");
    assert_eq!(all_ids(&test).await?, (0..28).collect::<Vec<_>>());
    Ok(())
}
