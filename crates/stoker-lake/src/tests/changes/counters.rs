//! Changes of a table of counters: conflicts, keys, and rows that do not fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::scalar::ScalarIndexParams;
use stoker_types::{ErrorKind, SnapshotRef};

use super::model::{Failure, Row, Value, batch, id, rows_of};
use crate::tests::data::{TestResult, latest, memory_lake, small, table_name, test_lake};
use crate::{
    ChangeNote, Changed, CommitKey, CommitMode, Error, Isolation, LakeStore, RowChange, StorageOptions, Table,
};

/// Creates table `t` with the columns `id` and `n`, and a row of `n` = 0 for each id, in fragments of 5.
pub async fn counters(lake: &LakeStore, num_rows: i64) -> Result<Table, Failure> {
    let (name, fields) = (table_name("t"), counter_fields());
    let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
    let mut writer = lake.writer(&name, &schema, false, small(5, 1_000)).await?;
    writer.write(&counter_rows(0..num_rows, 0)).await?;
    lake.commit(&name, &schema, CommitMode::Create, writer.finish().await?, None).await?;
    Ok(latest(lake, &name).await?)
}

pub fn counter_fields() -> [Field; 2] {
    [Field::new("id", DataType::Int64, false), Field::new("n", DataType::Int64, true)]
}

fn counter_rows(ids: std::ops::Range<i64>, n: i64) -> RecordBatch {
    let rows: Vec<Row> =
        ids.map(|id| [("id".into(), Value::Number(id)), ("n".into(), Value::Number(n))].into()).collect();
    batch(&counter_fields(), rows.iter())
}

/// New values of column `n`.
fn numbers(values: &[i64]) -> RecordBatch {
    let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    RecordBatch::try_from_iter([("n", values)]).expect("one column")
}

/// The value of `n` of each id.
async fn counts(table: &Table) -> Result<BTreeMap<i64, i64>, Failure> {
    let number = |value: &Value| match value {
        Value::Number(number) => *number,
        other => panic!("{other:?} is no number"),
    };
    Ok(rows_of(table).await?.iter().map(|(_, row)| (id(row), number(&row["n"]))).collect())
}

/// The address of a row in a table with fragments of 5 rows.
pub fn address(row: u64) -> u64 {
    ((row / 5) << 32) | (row % 5)
}

async fn change(lake: &LakeStore, table: &Table) -> crate::Result<RowChange> {
    lake.change(table, small(5, 1_000)).await
}

/// Updates `n` of one row.
async fn set(lake: &LakeStore, table: &Table, row: u64, n: i64) -> crate::Result<Changed> {
    let mut change = change(lake, table).await?;
    change.update(&[address(row)], &numbers(&[n]))?;
    change.commit(None, &ChangeNote::default()).await
}

fn assert_conflict<T: std::fmt::Debug>(result: crate::Result<T>, newest: u64, what: &str) {
    let error = result.expect_err("others committed in between");
    assert!(matches!(&error, Error::Conflict { version, .. } if *version == newest), "{error}");
    assert!(error.kind().is_transient() && error.to_string().contains(what), "{error}");
}

#[tokio::test]
async fn the_first_committer_wins() -> TestResult {
    let lake = memory_lake().await;
    let table = counters(&lake, 10).await?;
    assert_eq!(set(&lake, &table, 3, 7).await?.version, 2);
    assert_conflict(set(&lake, &table, 3, 8).await, 2, "rows were updated, deleted or moved");
    assert_conflict(set(&lake, &table, 9, 8).await, 2, "rows were updated, deleted or moved");
    let mut late = change(&lake, &table).await?;
    late.delete(&[address(0)]);
    assert_conflict(late.commit(None, &ChangeNote::default()).await, 2, "rows were updated, deleted or moved");
    let found = counts(&latest(&lake, &table_name("t")).await?).await?;
    assert_eq!(found, (0..10).map(|id| (id, if id == 3 { 7 } else { 0 })).collect());
    Ok(())
}

#[tokio::test]
async fn new_rows_and_indexes_do_not_matter_unless_the_change_is_serializable() -> TestResult {
    let lake = memory_lake().await;
    let table = counters(&lake, 10).await?;
    let mut dataset = table.dataset().as_ref().clone();
    dataset.create_index(&["id"], IndexType::BTree, None, &ScalarIndexParams::default(), true).await?;
    let insert = async |table: &Table, ids: std::ops::Range<i64>, isolation: Isolation| {
        let mut change = change(&lake, table).await?.with_isolation(isolation);
        change.insert(&counter_rows(ids, 1)).await?;
        change.commit(None, &ChangeNote::default()).await
    };
    assert_eq!(insert(&table, 10..12, Isolation::Serializable).await?.version, 3, "an index is no row");
    assert_eq!(set(&lake, &table, 3, 7).await?.version, 4, "rows were added only");
    // Rows that are only inserted depend on no others.
    assert_eq!(insert(&table, 12..14, Isolation::Snapshot).await?.version, 5);
    assert_conflict(insert(&table, 14..16, Isolation::Serializable).await, 5, "rows were updated");
    let table = lake.table(&table_name("t"), &SnapshotRef::Version(4)).await?;
    assert_conflict(insert(&table, 14..16, Isolation::Serializable).await, 5, "rows were added");
    let found = counts(&latest(&lake, &table_name("t")).await?).await?;
    let expected = |id: i64| if id == 3 { 7 } else { i64::from(id >= 10) };
    assert_eq!(found, (0..14).map(|id| (id, expected(id))).collect());
    Ok(())
}

#[tokio::test]
async fn changed_columns_are_a_conflict_for_all() -> TestResult {
    let lake = memory_lake().await;
    let table = counters(&lake, 10).await?;
    let note = ChangeNote::default();
    let mut added = lake.add_columns(&table, &[Field::new("m", DataType::Int64, true)], small(5, 1_000)).await?;
    added.write(&[address(0)], &RecordBatch::try_from_iter([("m", numbers(&[1]).column(0).clone())])?).await?;
    added.abort().await;
    assert_eq!(lake.rename_column(&table, "n", "m", &note).await?, 2);
    assert_conflict(set(&lake, &table, 3, 7).await, 2, "columns were added, dropped or changed");
    assert_conflict(lake.drop_columns(&table, &["n".into()], &note).await, 2, "columns were");
    let mut late = change(&lake, &table).await?;
    late.insert(&counter_rows(20..21, 0)).await?;
    assert_conflict(late.commit(None, &note).await, 2, "columns were");
    Ok(())
}

/// Several lakes over one folder share nothing, like several processes.
#[tokio::test(flavor = "multi_thread")]
async fn counters_that_many_writers_increment_add_up() -> TestResult {
    const NUM_WRITERS: u64 = 8;
    const NUM_CHANGES: u64 = 5;
    let test = test_lake().await;
    counters(&test.lake, 20).await?;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..NUM_WRITERS {
        let uri = test.lake.uri().to_string();
        writers.spawn(async move {
            let lake = LakeStore::open(&uri, &StorageOptions::default()).await?;
            for number in 0..NUM_CHANGES {
                // Neighbouring writers increment the same rows. Each change also inserts a row.
                let row = (writer / 2 * 3 + number) % 20;
                loop {
                    let table = latest(&lake, &table_name("t")).await?;
                    let before = table.take(&["n".into()], &[address(row)]).await?;
                    let n = before.column(0).as_primitive::<Int64Type>().value(0);
                    let mut change = change(&lake, &table).await?;
                    change.update(&[address(row)], &numbers(&[n + 1]))?;
                    let id = (1_000 + writer * NUM_CHANGES + number) as i64;
                    change.insert(&counter_rows(id..id + 1, 0)).await?;
                    match change.commit(None, &ChangeNote::default()).await {
                        Ok(_) => break,
                        Err(Error::Conflict { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(done) = writers.join_next().await {
        done??;
    }
    let table = latest(&test.lake, &table_name("t")).await?;
    let found = counts(&table).await?;
    assert_eq!(found.values().sum::<i64>() as u64, NUM_WRITERS * NUM_CHANGES);
    assert_eq!(table.num_rows(), 20 + NUM_WRITERS * NUM_CHANGES);
    assert_eq!(found.len() as u64, table.num_rows(), "each row was inserted once");
    table.dataset().validate().await?;
    Ok(())
}

#[tokio::test]
async fn a_key_takes_effect_once_and_tells_the_same_numbers() -> TestResult {
    let lake = memory_lake().await;
    counters(&lake, 10).await?;
    let increment = async |key: &str| {
        let table = latest(&lake, &table_name("t")).await?;
        let mut change = change(&lake, &table).await?;
        let zeros: Vec<u64> = (0..10).filter(|row| row % 2 == 0).map(address).collect();
        let old = table.take(&["n".into()], &zeros).await?;
        let new: Vec<i64> = old.column(0).as_primitive::<Int64Type>().values().iter().map(|n| n + 1).collect();
        change.update(&zeros, &numbers(&new))?;
        if table.num_rows() == 10 {
            change.delete(&[address(1)]);
        }
        let key = CommitKey { key, since_version: 0, chosen_at: None };
        change.commit(Some(key), &ChangeNote::default()).await
    };
    let first = increment("a").await?;
    assert_eq!(first, Changed { version: 2, num_deleted: 1, num_updated: 5, num_inserted: 0 });
    assert_eq!(increment("a").await?, first, "the repetition would have deleted nothing");
    assert_eq!(increment("b").await?.version, 3);
    assert_eq!(increment("a").await?, first);
    let found = counts(&latest(&lake, &table_name("t")).await?).await?;
    assert_eq!((found[&0], found[&2], found[&3]), (2, 2, 0));
    Ok(())
}

#[tokio::test]
async fn rows_and_values_that_do_not_fit_are_named() -> TestResult {
    let lake = memory_lake().await;
    let table = counters(&lake, 10).await?;
    let note = ChangeNote::default();
    let check = async |change: RowChange, kind: ErrorKind, message: &str| {
        let error = change.commit(None, &note).await.expect_err("a row does not fit");
        assert!(error.kind() == kind && error.to_string().contains(message), "{error}");
        assert_eq!(latest(&lake, &table_name("t")).await.expect("a table").version(), 1);
    };
    let mut twice = change(&lake, &table).await?;
    twice.update(&[address(3), address(7)], &numbers(&[1, 2]))?;
    twice.update(&[address(3)], &numbers(&[3]))?;
    check(twice, ErrorKind::InvalidRequest, "(fragment 0, offset 3) of t@1 gets values from more than one source row")
        .await;
    let mut both = change(&lake, &table).await?;
    both.update(&[address(3)], &numbers(&[3]))?;
    both.delete(&[address(3)]);
    check(both, ErrorKind::InvalidRequest, "(fragment 0, offset 3) of t@1 is deleted and updated").await;
    let mut missing = change(&lake, &table).await?;
    missing.update(&[address(4) + 1], &numbers(&[3]))?;
    check(missing, ErrorKind::NotFound, "(fragment 0, offset 5) of t@1 does not exist; the fragment has 5 rows").await;
    let mut missing = change(&lake, &table).await?;
    missing.delete(&[9 << 32]);
    check(missing, ErrorKind::NotFound, "there is no such fragment").await;

    let mut change = change(&lake, &table).await?;
    let refused = |result: crate::Result<()>, message: &str| {
        let error = result.expect_err("the values do not fit");
        assert!(error.to_string().contains(message), "{error}");
    };
    refused(change.update(&[1, 2], &numbers(&[1])), "2 rows were named, but 1 have new values");
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let ids = RecordBatch::try_from_iter_with_nullable([("id", ids, true)])?;
    refused(change.update(&[1, 2], &ids), "column id must not have nulls, but row 1 has one");
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    refused(
        change.update(&[1], &RecordBatch::try_from_iter([("n", texts.clone())])?),
        "column n should be Int64, not Utf8",
    );
    refused(change.update(&[1], &RecordBatch::try_from_iter([("m", texts)])?), "of no column of the table");
    refused(change.insert(&numbers(&[1])).await, "column id has no value, and it must not have nulls");
    change.update(&[1], &numbers(&[1]))?;
    let both = counter_rows(0..1, 1);
    refused(change.update(&[2], &both), "the same columns");
    change.abort().await;

    let mut small = lake.change(&table, small(5, 1_000)).await?.with_values_bytes_max(100);
    small.update(&[0], &numbers(&[1]))?;
    let error = small.update(&(1..9).collect::<Vec<_>>(), &numbers(&[1; 8])).expect_err("more than 100 bytes");
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    assert!(error.to_string().contains("change the rows in parts"), "{error}");
    Ok(())
}

#[tokio::test]
async fn rows_that_miss_nullable_columns_are_inserted_with_nulls() -> TestResult {
    let lake = memory_lake().await;
    let table = counters(&lake, 5).await?;
    let mut insert = change(&lake, &table).await?;
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    insert.insert(&RecordBatch::try_from_iter([("id", ids)])?).await?;
    insert.commit(None, &ChangeNote::default()).await?;
    let rows = rows_of(&latest(&lake, &table_name("t")).await?).await?;
    assert_eq!(rows.last().map(|(_, row)| row["n"].clone()), Some(Value::Null));
    // A change of no rows makes no version.
    let table = latest(&lake, &table_name("t")).await?;
    let nothing = change(&lake, &table).await?.commit(None, &ChangeNote::default()).await?;
    assert_eq!(nothing, Changed { version: 2, ..Changed::default() });
    Ok(())
}

#[tokio::test]
async fn whole_fragments_are_dropped_and_their_rows_stay_deleted() -> TestResult {
    let lake = memory_lake().await;
    let table = counters(&lake, 20).await?;
    let mut mixed = change(&lake, &table).await?;
    mixed.delete(&(5..10).map(address).collect::<Vec<_>>());
    mixed.update(&[address(0)], &numbers(&[9]))?;
    assert_eq!(mixed.commit(None, &ChangeNote::default()).await?.num_deleted, 5);
    let table = latest(&lake, &table_name("t")).await?;
    assert_eq!(table.fragments().iter().map(|fragment| fragment.id).collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(table.num_deleted(&[address(7), address(10)]).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_row_that_is_deleted_several_times_counts_once() -> TestResult {
    let lake = memory_lake().await;
    let table = counters(&lake, 10).await?;
    let mut change = change(&lake, &table).await?;
    for _ in 0..3 {
        change.delete(&[address(7), address(2), address(7)]);
    }
    let changed = change.commit(None, &ChangeNote::default()).await?;
    assert_eq!(changed, Changed { version: 2, num_deleted: 2, ..Changed::default() });
    let found = counts(&latest(&lake, &table_name("t")).await?).await?;
    assert_eq!(found.into_keys().collect::<Vec<_>>(), [0, 1, 3, 4, 5, 6, 8, 9]);
    Ok(())
}
