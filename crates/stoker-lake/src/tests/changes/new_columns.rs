//! Tests of new columns: in the places of others, for some rows, in drafts; and of restored versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use stoker_types::{ErrorKind, SnapshotRef};

use super::counters::{address, counters};
use super::model::{Failure, Value, id, rows_of};
use crate::tests::data::{TestResult, latest, memory_lake, rows, small, table_name, tensor, test_lake};
use crate::{ChangeNote, ColumnDraft, CommitKey, DenseProbe, Error, IndexKind, NewColumns, OtherRows, Table};

fn number(name: &str) -> Field {
    Field::new(name, DataType::Int64, true)
}

fn numbers(name: &str, values: &[i64]) -> RecordBatch {
    let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    RecordBatch::try_new(Arc::new(Schema::new(vec![number(name)])), vec![values]).expect("one column")
}

async fn write(columns: &mut NewColumns, name: &str, ids: &[i64], value: impl Fn(i64) -> i64) -> crate::Result<()> {
    let addrs: Vec<u64> = ids.iter().map(|id| address(*id as u64)).collect();
    let values: Vec<i64> = ids.iter().map(|id| value(*id)).collect();
    columns.write(&addrs, &numbers(name, &values)).await
}

/// The values of a column by the id of the row.
async fn values(table: &Table, column: &str) -> Result<BTreeMap<i64, Value>, Failure> {
    Ok(rows_of(table).await?.iter().map(|(_, row)| (id(row), row[column].clone())).collect())
}

fn expected(ids: impl Iterator<Item = i64>, value: impl Fn(i64) -> Option<i64>) -> BTreeMap<i64, Value> {
    ids.map(|id| (id, value(id).map_or(Value::Null, Value::Number))).collect()
}

#[tokio::test]
async fn columns_take_the_places_of_others() -> TestResult {
    let lake = memory_lake().await;
    let (name, note) = (table_name("t"), ChangeNote::default());
    counters(&lake, 12).await?;
    latest(&lake, &name).await?.create_index("n", IndexKind::BTree).await?;
    let table = latest(&lake, &name).await?;
    let old = table.dataset().schema().field("n").ok_or("a column")?.id;
    let text = [Field::new("n", DataType::Utf8, true)];
    let mut replaced = lake.replace_columns(&table, &text, small(5, 1_000)).await?;
    for part in [0..5, 5..10, 10..12] {
        let addrs: Vec<u64> = part.clone().map(address).collect();
        let values: ArrayRef = Arc::new(StringArray::from_iter_values(part.map(|id| format!("<{id}>"))));
        replaced.write(&addrs, &RecordBatch::try_from_iter([("n", values)])?).await?;
    }
    let version = replaced.commit(None, &note).await?;
    let table = latest(&lake, &name).await?;
    assert_eq!((table.version(), table.schema().field(1).data_type().clone()), (version, DataType::Utf8));
    assert!(table.dataset().schema().field("n").ok_or("a column")?.id > old, "a column of another type has another id");
    let found = values(&table, "n").await?;
    assert_eq!(found, (0..12).map(|id| (id, Value::Text(format!("<{id}>")))).collect());
    assert!(table.indexes().await?.is_empty(), "the index of the old column is gone");
    let before = lake.table(&name, &SnapshotRef::Version(version - 1)).await?;
    assert_eq!(values(&before, "n").await?, expected(0..12, |_| Some(0)));
    assert_eq!(before.indexes().await?.len(), 1);
    for (field, message) in [(number("m"), "it has no column \"m\""), (number("_rowid"), "reserved")] {
        let error = lake.replace_columns(&table, &[field], small(5, 1_000)).await.err().ok_or("it is refused")?;
        assert!(error.kind() == ErrorKind::InvalidRequest && error.to_string().contains(message), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn rows_without_values_are_null_or_zero() -> TestResult {
    let lake = memory_lake().await;
    let (name, note) = (table_name("t"), ChangeNote::default());
    let table = counters(&lake, 15).await?;
    let mut added =
        lake.add_columns(&table, &[number("m")], small(5, 1_000)).await?.with_other_rows(OtherRows::Null)?;
    write(&mut added, "m", &[1, 3, 11], |id| id * 10).await?;
    added.commit(None, &note).await?;
    let table = latest(&lake, &name).await?;
    let of_some = |id| [1, 3, 11].contains(&id).then_some(id * 10);
    assert_eq!(values(&table, "m").await?, expected(0..15, of_some));

    let fields = [tensor("x", DataType::UInt8, &[1_500]), Field::new("x_valid", DataType::Boolean, false)];
    let added = lake.add_columns(&table, &fields, small(5, 4_000)).await?;
    let mut added = added.with_other_rows(OtherRows::Null)?;
    let schema = Arc::new(Schema::new(vec![fields[0].clone()]));
    let x = rows(&schema, 7, 1).column(0).clone();
    let valid: ArrayRef = Arc::new(arrow_array::BooleanArray::from(vec![true]));
    added.write(&[address(7)], &RecordBatch::try_from_iter([("x", x), ("x_valid", valid)])?).await?;
    added.commit(None, &note).await?;
    let table = latest(&lake, &name).await?;
    let probe = table.dense_column("x").await?;
    assert!(matches!(probe, DenseProbe::Dense(_)), "zeros keep the column dense");
    let found = rows_of_tensor(&table).await?;
    assert_eq!(found.len(), 15);
    for (row, bytes) in found {
        let expected: Vec<u8> = match row {
            7 => crate::tests::data::tensor_bytes(7, 1_500).collect(),
            _ => vec![0; 1_500],
        };
        assert!(bytes == expected, "row {row}");
    }
    let texts = [Field::new("s", DataType::Utf8, false)];
    let refused = lake.add_columns(&table, &texts, small(5, 1_000)).await?.with_other_rows(OtherRows::Null);
    let error = refused.err().ok_or("a text is not zero")?;
    assert!(error.to_string().contains("column s has no NULL"), "{error}");
    Ok(())
}

/// The bytes of the tensor `x` of each row.
async fn rows_of_tensor(table: &Table) -> Result<Vec<(i64, Vec<u8>)>, Failure> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, UInt8Type};
    use futures::TryStreamExt;

    let columns = vec!["id".to_string(), "x".to_string()];
    let request = crate::ScanRequest { columns, batch_size: 4, ..crate::ScanRequest::default() };
    let batches: Vec<RecordBatch> = table.scan(&request).await?.try_collect().await?;
    let mut found = Vec::new();
    for batch in &batches {
        let ids = batch.column(0).as_primitive::<Int64Type>();
        let lists = batch.column(1).as_fixed_size_list();
        for row in 0..batch.num_rows() {
            found.push((ids.value(row), lists.value(row).as_primitive::<UInt8Type>().values().to_vec()));
        }
    }
    Ok(found)
}

#[tokio::test]
async fn filled_columns_keep_the_values_of_other_rows() -> TestResult {
    let lake = memory_lake().await;
    let (name, note) = (table_name("t"), ChangeNote::default());
    counters(&lake, 15).await?;
    latest(&lake, &name).await?.create_index("n", IndexKind::BTree).await?;
    let table = latest(&lake, &name).await?;
    let mut filled = lake.fill_columns(&table, &["n".into()], small(5, 1_000)).await?;
    write(&mut filled, "n", &[2, 4, 12], |id| id).await?;
    filled.commit(None, &note).await?;
    let table = latest(&lake, &name).await?;
    assert_eq!(values(&table, "n").await?, expected(0..15, |id| Some(if [2, 4, 12].contains(&id) { id } else { 0 })));
    let covered: Vec<u64> = table.indexes().await?.iter().map(|index| index.num_rows_covered).collect();
    assert_eq!(covered, [5], "the index answers for the fragment that did not change");
    Ok(())
}

#[tokio::test]
async fn drafts_hold_until_their_values_would_be_others() -> TestResult {
    let test = test_lake().await;
    let (lake, name, note) = (&test.lake, table_name("t"), ChangeNote::default());
    let table = counters(lake, 15).await?;
    let inputs = ["n".to_string()];
    let first_id = table.id_for_drafts(7).await?;
    let begin = async |table: &Table| {
        let columns = lake.add_columns(table, &[number("m")], small(5, 1_000)).await?;
        Ok::<_, Error>(columns.with_drafts(Some(&inputs), first_id))
    };
    let mut first = begin(&table).await?;
    let mut drafts = Vec::new();
    for fragment in 0..3_u32 {
        let ids: Vec<i64> = (0..5).map(|row| i64::from(fragment) * 5 + row).collect();
        write(&mut first, "m", &ids, |id| id * 10).await?;
        drafts.push(serde_json::to_string(&first.end_fragment(fragment).await?)?);
    }
    // The process ends here. Its files stay.
    first.abort().await;
    let draft = |index: usize| serde_json::from_str::<ColumnDraft>(&drafts[index]);
    for index in 0..3 {
        assert!(lake.column_draft_exists(&name, &draft(index)?).await?);
        assert!(draft(index)?.bytes() > 0);
    }

    // Others delete a row, add a column, and update the input of the second fragment.
    lake.delete_rows(&name, &[address(1)], "deleting", &|_| ChangeNote::default()).await?;
    let table = latest(lake, &name).await?;
    lake.add_columns(&table, &[number("k")], small(5, 1_000)).await?.commit(None, &note).await?;
    let table = latest(lake, &name).await?;
    let mut change = lake.change(&table, small(5, 1_000)).await?;
    change.update(&[address(6)], &numbers("n", &[3]))?;
    change.commit(None, &note).await?;
    let table = latest(lake, &name).await?;
    let mut second = begin(&table).await?;
    assert_eq!([0, 1, 2].map(|index| second.adopt(draft(index).expect("a draft"))), [true, false, true]);
    assert_eq!([0, 1, 2].map(|fragment| second.is_finished(fragment)), [true, false, true]);
    write(&mut second, "m", &[5, 6, 7, 8, 9], |id| id * 100).await?;
    let key = CommitKey { key: "once", since_version: 0, chosen_at: None };
    let version = second.commit(Some(key), &note).await?;
    let table = latest(lake, &name).await?;
    let left = (0..15).filter(|id| *id != 1);
    let value = |id| Some(if (5..10).contains(&id) { id * 100 } else { id * 10 });
    assert_eq!(values(&table, "m").await?, expected(left.clone(), value));
    assert_eq!(values(&table, "k").await?, expected(left, |_| None));
    let id_of = |column: &str| table.dataset().schema().field(column).map(|field| field.id);
    assert_eq!(id_of("m"), Some(first_id));
    assert!(id_of("k") < Some(first_id), "columns that others add meanwhile do not get ids of drafts");
    // Where others have the id, the columns get another one, and the drafts do not fit.
    let columns = lake.add_columns(&table, &[number("l")], small(5, 1_000)).await?;
    let mut columns = columns.with_drafts(Some(&inputs), first_id);
    assert!(!columns.adopt(draft(0)?));
    columns.abort().await;

    // A commit of another process that lost keeps the files that the journal names.
    let older = lake.table(&name, &SnapshotRef::Version(version - 1)).await?;
    let mut late = begin(&older).await?;
    assert!(late.adopt(draft(0)?) && late.adopt(draft(2)?));
    write(&mut late, "m", &[5, 6, 7, 8, 9], |id| id).await?;
    let error = late.commit(None, &note).await.err().ok_or("a conflict")?;
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
    assert!(lake.column_draft_exists(&name, &draft(0)?).await?);
    assert_eq!(values(&latest(lake, &name).await?, "m").await?[&0], Value::Number(0));
    let again = begin(&older).await?.commit(Some(key), &note).await;
    assert_eq!(again.ok(), Some(version), "a commit with the same key took effect");
    Ok(())
}

#[tokio::test]
async fn older_versions_become_the_newest() -> TestResult {
    let test = test_lake().await;
    let (lake, name, note) = (&test.lake, table_name("t"), ChangeNote::default());
    let table = counters(lake, 10).await?;
    lake.delete_rows(&name, &[address(1), address(7)], "deleting", &|_| ChangeNote::default()).await?;
    lake.drop_columns(&latest(lake, &name).await?, &["n".into()], &note).await?;
    assert_eq!(lake.restore(&name, 1, &note).await?, 4);
    let restored = latest(lake, &name).await?;
    assert_eq!((restored.num_rows(), restored.schema()), (10, table.schema()));
    assert_eq!(values(&restored, "n").await?, expected(0..10, |_| Some(0)));
    assert_eq!(lake.restore(&name, 2, &note).await?, 5);
    assert_eq!(latest(lake, &name).await?.num_rows(), 8);
    // New rows get fragments of their own, also where the restored version has fewer.
    let mut change = lake.change(&latest(lake, &name).await?, small(5, 1_000)).await?;
    change.insert(&RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(vec![20])) as ArrayRef)])?).await?;
    change.commit(None, &note).await?;
    assert_eq!(lake.restore(&name, 5, &note).await?, 7);
    let mut change = lake.change(&latest(lake, &name).await?, small(5, 1_000)).await?;
    change.insert(&RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(vec![21])) as ArrayRef)])?).await?;
    change.commit(None, &note).await?;
    let found: Vec<i64> = values(&latest(lake, &name).await?, "n").await?.into_keys().collect();
    assert_eq!(found, [0, 2, 3, 4, 5, 6, 8, 9, 21]);
    assert_eq!(lake.table(&name, &SnapshotRef::Version(6)).await?.num_rows(), 9, "it stays");
    for (version, kind, message) in
        [(8, ErrorKind::InvalidRequest, "it is the newest version"), (99, ErrorKind::NotFound, "99")]
    {
        let error = lake.restore(&name, version, &note).await.err().ok_or("it is refused")?;
        assert!(error.kind() == kind && error.to_string().contains(message), "{error}");
    }
    Ok(())
}
