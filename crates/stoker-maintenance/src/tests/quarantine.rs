//! Tests that excluded rows are missing from later versions, and that the transaction says why.

use lance::Dataset;
use stoker_lake::{LakeStore, Table};
use stoker_types::{ErrorKind, SnapshotRef};

use super::data::{TestResult, append, latest, memory_lake, schema, small, table_name, test_lake};
use crate::{Quarantined, quarantine};

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

fn done(version: u64, num_excluded: u64, num_excluded_before: u64) -> Quarantined {
    Quarantined { version, num_excluded, num_excluded_before }
}

#[tokio::test]
async fn rows_are_gone_from_later_versions_only() -> TestResult {
    let test = test_lake().await;
    let lake = test.lake;
    let (name, before) = (table_name("t"), table_of(&lake, 30).await?);
    let bad = [address(3), address(15), address(3)];
    assert_eq!(quarantine(&lake, &name, &bad, Some("torn")).await?, done(2, 2, 0));
    let table = latest(&lake, &name).await?;
    assert_eq!((table.version(), table.num_rows()), (2, 28));
    let error = table.take(&["id".into()], &[address(3)]).await.expect_err("the row is gone");
    assert!(error.to_string().contains("it was deleted"), "{error}");

    let old = lake.table(&name, &SnapshotRef::Version(1)).await?;
    for pinned in [&before, &old] {
        assert_eq!(pinned.num_rows(), 30);
        assert_eq!(pinned.take(&["id".into()], &bad).await?.num_rows(), 3);
    }
    let dataset = Dataset::open(&table.uri()).await?;
    dataset.validate().await?;
    let transaction = dataset.read_transaction_by_version(2).await?.ok_or("the version has a transaction")?;
    let properties = transaction.transaction_properties.ok_or("the transaction has properties")?;
    let kept = |key: &str| properties.get(key).map(String::as_str);
    assert_eq!((kept("stoker.quarantine_rows"), kept("stoker.quarantine_reason")), (Some("2"), Some("torn")));
    Ok(())
}

#[tokio::test]
async fn rows_are_excluded_once() -> TestResult {
    let lake = memory_lake().await;
    let name = table_name("t");
    table_of(&lake, 30).await?;
    assert_eq!(quarantine(&lake, &name, &[], None).await?, done(1, 0, 0));
    assert_eq!(quarantine(&lake, &name, &[3], None).await?, done(2, 1, 0));
    assert_eq!(quarantine(&lake, &name, &[3, 4, 5], None).await?, done(3, 2, 1));
    assert_eq!(quarantine(&lake, &name, &[4, 3, 4], None).await?, done(3, 0, 2));
    let table = latest(&lake, &name).await?;
    assert_eq!((table.version(), table.num_rows()), (3, 27));
    assert_eq!(table.num_deleted(&[3, 4, 6, 6]).await?, 2);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_excluded_is_named() -> TestResult {
    let lake = memory_lake().await;
    let name = table_name("t");
    let check = async |addrs: &[u64], message: &str| {
        let error = quarantine(&lake, &name, addrs, None).await.expect_err("a row does not exist");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    };
    check(&[0], "table t in memory://").await;
    table_of(&lake, 30).await?;
    check(&[0, 9 << 32], "(fragment 9, offset 0) of t@1 does not exist; there is no such fragment").await;
    check(&[u64::MAX], "there is no such fragment").await;
    let beyond = [address(19), address(19) + 1, address(19) + 2];
    check(&beyond, "(fragment 1, offset 10) of t@1 does not exist; the fragment has 10 rows").await;
    let long = "x".repeat(1025);
    let error = quarantine(&lake, &name, &[0], Some(&long)).await.expect_err("the reason is too long");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(error.to_string().contains("1025 bytes; give at most 1024"), "{error}");
    assert_eq!(latest(&lake, &name).await?.version(), 1);
    Ok(())
}
