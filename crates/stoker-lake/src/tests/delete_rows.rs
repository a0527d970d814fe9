//! Tests that deleted rows are missing from later versions, and only from those.

use std::collections::{BTreeSet, HashMap};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::DataType;
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance_table::io::deletion::deletion_file_path;
use object_store::path::Path;
use stoker_store::seal::is_sealed;
use stoker_types::{ErrorKind, SnapshotRef};

use super::data::{
    TestResult, addresses, append, latest, memory_lake, rows, schema, small, table_name, tensor, tensor_bytes,
    test_lake,
};
use crate::{ChangeNote, CommitMode, DeletedRows, DenseProbe, LakeStore, ScanRequest, StorageOptions, Table};

/// The address of a row in a table with fragments of 10 rows.
fn address(row: u64) -> u64 {
    ((row / 10) << 32) | (row % 10)
}

/// Creates a table `t` of `num_rows` rows in fragments of 10, as version 1.
async fn table_of(lake: &LakeStore, num_rows: usize) -> Result<Table, Box<dyn std::error::Error>> {
    let (name, schema) = (table_name("t"), schema(&[]));
    append(lake, &name, &schema, 0..num_rows, small(10, 1000)).await?;
    Ok(latest(lake, &name).await?)
}

async fn ids(table: &Table) -> Result<Vec<i64>, Box<dyn std::error::Error>> {
    let request = ScanRequest { columns: vec!["id".into()], ..ScanRequest::default() };
    let batches: Vec<RecordBatch> = table.scan(&request).await?.try_collect().await?;
    Ok(batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect())
}

fn done(version: u64, num_deleted: u64, num_deleted_before: u64) -> DeletedRows {
    DeletedRows { version, num_deleted, num_deleted_before }
}

/// Deletes rows of table `t`, with their number as a property of the transaction.
async fn delete(lake: &LakeStore, addrs: &[u64]) -> crate::Result<DeletedRows> {
    let note = |num_rows: u64| ChangeNote {
        predicate: "rows of a test".into(),
        properties: HashMap::from([("num_rows".into(), num_rows.to_string())]),
    };
    lake.delete_rows(&table_name("t"), addrs, "deleting rows", &note).await
}

async fn compact(table: &Table) -> TestResult {
    let mut dataset: Dataset = table.dataset().as_ref().clone();
    compact_files(&mut dataset, CompactionOptions::default(), None).await?;
    Ok(())
}

#[tokio::test]
async fn rows_are_gone_from_later_versions_only() -> TestResult {
    let lake = memory_lake().await;
    let (name, before) = (table_name("t"), table_of(&lake, 30).await?);
    let bad = [address(3), address(15), address(3)];
    assert_eq!(delete(&lake, &bad).await?, done(2, 2, 0));
    let table = latest(&lake, &name).await?;
    assert_eq!((table.version(), table.num_rows()), (2, 28));
    assert_eq!(ids(&table).await?, (0..30).filter(|id| ![3, 15].contains(id)).collect::<Vec<_>>());
    let error = table.take(&["id".into()], &[address(3)]).await.expect_err("the row is gone");
    assert!(error.to_string().contains("it was deleted"), "{error}");
    table.dataset().validate().await?;
    let transaction = table.dataset().read_transaction_by_version(2).await?.ok_or("the version has a transaction")?;
    let properties = transaction.transaction_properties.ok_or("the transaction has properties")?;
    assert_eq!(properties.get("num_rows").map(String::as_str), Some("2"));

    let old = lake.table(&name, &SnapshotRef::Version(1)).await?;
    for pinned in [&before, &old] {
        assert_eq!(pinned.num_rows(), 30);
        assert_eq!(ids(pinned).await?, (0..30).collect::<Vec<_>>());
        assert_eq!(pinned.take(&["id".into()], &bad).await?.num_rows(), 3);
    }
    Ok(())
}

#[tokio::test]
async fn a_whole_fragment_may_go() -> TestResult {
    let lake = memory_lake().await;
    let name = table_name("t");
    table_of(&lake, 30).await?;
    let whole: Vec<u64> = (10..20).map(address).collect();
    assert_eq!(delete(&lake, &[]).await?, done(1, 0, 0));
    assert_eq!(delete(&lake, &whole).await?, done(2, 10, 0));
    assert_eq!(delete(&lake, &whole).await?, done(2, 0, 10));
    // The next call deletes a row of the removed fragment with one that still exists; a later one follows a
    // compaction.
    assert_eq!(delete(&lake, &[address(12), address(20)]).await?, done(3, 1, 1));
    compact(&latest(&lake, &name).await?).await?;
    let compacted = latest(&lake, &name).await?;
    assert_eq!(compacted.fragments().len(), 1);
    assert_eq!(delete(&lake, &whole).await?, done(compacted.version(), 0, 10));
    assert_eq!(ids(&compacted).await?, (0..10).chain(21..30).collect::<Vec<_>>());
    // The last call leaves a table without rows.
    let rest = addresses(&compacted);
    assert_eq!(delete(&lake, &rest).await?, done(compacted.version() + 1, 19, 0));
    let empty = latest(&lake, &name).await?;
    assert_eq!((empty.num_rows(), empty.num_deleted(&rest).await?), (0, 19));
    Ok(())
}

#[tokio::test]
async fn rows_that_do_not_exist_are_named() -> TestResult {
    let lake = memory_lake().await;
    let name = table_name("t");
    let check = async |addrs: &[u64], message: &str| {
        let error = delete(&lake, addrs).await.expect_err("a row does not exist");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    };
    check(&[0], "table t in memory://").await;
    table_of(&lake, 30).await?;
    check(&[0, 9 << 32], "(fragment 9, offset 0) of t@1 does not exist; there is no such fragment").await;
    check(&[u64::MAX], "there is no such fragment").await;
    let beyond = [address(19), address(19) + 1, address(19) + 2];
    check(&beyond, "(fragment 1, offset 10) of t@1 does not exist; the fragment has 10 rows").await;
    assert_eq!(latest(&lake, &name).await?.version(), 1);

    // Lance compacts small fragments, and fragments with deletions.
    delete(&lake, &[address(3)]).await?;
    compact(&latest(&lake, &name).await?).await?;
    let compacted = latest(&lake, &name).await?;
    check(&[address(15)], "its fragment was rewritten or replaced: take the row's address from a newer version").await;
    assert_eq!(latest(&lake, &name).await?.version(), compacted.version());
    assert_eq!(compacted.num_rows(), 29);
    Ok(())
}

/// Several lakes over one folder share nothing, like several processes.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_commits_lose_nothing() -> TestResult {
    let test = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    table_of(&test.lake, 60).await?;
    let uri = test.folder.path().to_str().expect("UTF-8").to_string();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..9u64 {
        let (uri, name, schema) = (uri.clone(), name.clone(), schema.clone());
        tasks.spawn(async move {
            let lake = LakeStore::open(&uri, &StorageOptions::default()).await?;
            if task % 3 == 2 {
                let first = 60 + task as usize / 3 * 10;
                append(&lake, &name, &schema, first..first + 10, small(100, 1000)).await?;
                return Ok(0);
            }
            // Neighbouring tasks delete some of the same rows.
            let addrs: Vec<u64> = (task * 4..task * 4 + 7).map(address).collect();
            Ok::<_, crate::Error>(delete(&lake, &addrs).await?.num_deleted)
        });
    }
    let deleted: Vec<u64> = tasks.join_all().await.into_iter().collect::<Result<_, _>>()?;
    let bad: BTreeSet<i64> = [0i64, 1, 3, 4, 6, 7].into_iter().flat_map(|task| task * 4..task * 4 + 7).collect();
    assert_eq!(deleted.iter().sum::<u64>(), bad.len() as u64, "each row is deleted by one commit");
    let table = latest(&test.lake, &name).await?;
    let mut found = ids(&table).await?;
    found.sort_unstable();
    assert_eq!(found, (0..90).filter(|id| !bad.contains(id)).collect::<Vec<_>>());
    table.dataset().validate().await?;
    for fragment in table.dataset().manifest().fragments.iter() {
        let Some(file) = &fragment.deletion_file else { continue };
        let path = deletion_file_path(&Path::from("t"), fragment.id, file);
        assert!(is_sealed(&path), "{path} has no checksum in its name: Lance joined two deletions");
    }
    Ok(())
}

#[tokio::test]
async fn many_rows_go_at_once() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    let mut writer = lake.writer(&name, &schema, false, small(25_000, 1 << 20)).await?;
    writer.write(&rows(&schema, 0, 60_000)).await?;
    lake.commit(&name, &schema, CommitMode::Create, writer.finish().await?, None).await?;
    let table = latest(&lake, &name).await?;
    let bad = addresses(&table).into_iter().enumerate().filter(|(row, _)| row % 6 != 0);
    let bad: Vec<u64> = bad.map(|(_, addr)| addr).collect();
    assert_eq!(delete(&lake, &bad).await?, done(2, 50_000, 0));
    assert_eq!(delete(&lake, &bad).await?, done(2, 0, 50_000));
    let table = latest(&lake, &name).await?;
    assert_eq!(table.num_rows(), 10_000);
    assert_eq!(ids(&table).await?, (0..60_000).step_by(6).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn heavy_columns_stay_dense() -> TestResult {
    let test = test_lake().await;
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[1500])]));
    append(&test.lake, &name, &schema, 0..30, small(10, 4000)).await?;
    delete(&test.lake, &[address(0), address(15), address(29)]).await?;
    let table = latest(&test.lake, &name).await?;
    let DenseProbe::Dense(dense) = table.dense_column("x").await? else { return Err("x is dense".into()) };
    for row in (0..30u64).filter(|row| ![0, 15, 29].contains(row)) {
        let addr = address(row);
        let file = dense.file((addr >> 32) as u32).ok_or("every fragment has a file")?;
        let (offset, _) = file.locate(addr & 0xffff_ffff).ok_or("every row has a place")?;
        let expected: Vec<u8> = tensor_bytes(row as usize, 1500).collect();
        assert_eq!(file.reader.read(offset..offset + 1500).await?, expected, "row {row}");
    }
    Ok(())
}
