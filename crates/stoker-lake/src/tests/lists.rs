//! Lists of numbers, which are read without Lance's decoder.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, Int64Array, ListArray, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::take::take_record_batch;
use futures::TryStreamExt;
use lance::Dataset;
use stoker_types::ErrorKind;

use super::data::{TestResult, addresses, latest, memory_lake, small, table_name, test_lake};
use crate::{CommitMode, LakeStore, ScanRequest, StorageOptions, Table};

/// The columns `id`, `tokens` (lists of which some are empty or null) and `deep`, which Lance decodes.
fn list_schema() -> SchemaRef {
    let list = |item: DataType| DataType::List(Arc::new(Field::new_list_field(item, true)));
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("tokens", list(DataType::Int32), true),
        Field::new("deep", list(list(DataType::Int32)), true),
    ]))
}

fn list_rows(numbers: std::ops::Range<usize>) -> RecordBatch {
    let tokens = |row: usize| (row % 11 != 5).then(|| (0..row * 37 % 700).map(move |token| Some((row + token) as i32)));
    let tokens = ListArray::from_iter_primitive::<Int32Type, _, _>(numbers.clone().map(tokens));
    let inner = numbers.clone().map(|row| Some((0..2 + row % 3).map(move |item| Some(item as i32))));
    let inner = ListArray::from_iter_primitive::<Int32Type, _, _>(inner);
    let field = Arc::new(Field::new_list_field(inner.data_type().clone(), true));
    let offsets = arrow_buffer::OffsetBuffer::from_lengths(numbers.clone().map(|_| 1));
    let deep = ListArray::new(field, offsets, Arc::new(inner), None);
    let ids = Int64Array::from_iter_values(numbers.map(|row| row as i64));
    let columns: Vec<ArrayRef> = vec![Arc::new(ids), Arc::new(tokens), Arc::new(deep)];
    RecordBatch::try_new(list_schema(), columns).expect("columns have the types of the schema")
}

/// Makes a table of 300 rows in fragments of 100.
async fn list_table(lake: &LakeStore) -> crate::Result<Table> {
    let (name, schema) = (table_name("t"), list_schema());
    let mut writer = lake.writer(&name, &schema, true, small(100, 1 << 20)).await?;
    for first in (0..300).step_by(50) {
        writer.write(&list_rows(first..first + 50)).await?;
    }
    let drafts = writer.finish().await?;
    lake.commit(&name, &schema, CommitMode::CreateOrAppend, drafts, None).await?;
    latest(lake, &name).await
}

fn names(columns: &[&str]) -> Vec<String> {
    columns.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn lists_are_taken_in_any_order_beside_other_columns() -> TestResult {
    let test = test_lake().await;
    for lake in [&test.lake, &memory_lake().await] {
        let table = list_table(lake).await?;
        assert!(table.list_column("tokens").await?.is_some(), "lists are read without Lance's decoder");
        assert!(table.list_column("deep").await?.is_none() && table.list_column("id").await?.is_none());
        let all = list_rows(0..300);
        let orders: [Vec<u64>; 4] =
            [(0..300).collect(), vec![299, 0, 7, 7, 142, 5], (0..300).rev().step_by(3).collect(), vec![16]];
        for order in orders {
            let addrs: Vec<u64> = order.iter().map(|row| ((row / 100) << 32) | (row % 100)).collect();
            for columns in [&["tokens"][..], &["deep", "tokens", "id"], &["tokens", "id"]] {
                let taken = table.take(&names(columns), &addrs).await?;
                let expected = take_record_batch(&all, &UInt64Array::from(order.clone()))?;
                for (column, name) in taken.columns().iter().zip(columns) {
                    assert_eq!(column, expected.column_by_name(name).ok_or("the column exists")?, "{name}");
                }
                assert_eq!(taken.num_columns(), columns.len());
            }
        }
        assert_eq!(table.take(&names(&["tokens"]), &[]).await?.num_rows(), 0);
    }
    Ok(())
}

#[tokio::test]
async fn rows_that_are_not_there_are_named() -> TestResult {
    let lake = memory_lake().await;
    let table = list_table(&lake).await?;
    let mut dataset: Dataset = table.dataset().as_ref().clone();
    dataset.delete("id in (3, 150)").await?;
    let table = latest(&lake, &table_name("t")).await?;
    for (addr, message) in [(3, "it was deleted"), ((1 << 32) | 50, "it was deleted"), (9 << 32, "no such fragment")] {
        for columns in [&["tokens"][..], &["tokens", "id"]] {
            let error = table.take(&names(columns), &[addr, 0]).await.expect_err("there is no such row");
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.to_string().contains(message), "{error}");
        }
    }
    let taken = table.take(&names(&["id", "tokens"]), &[4, (1 << 32) | 51]).await?;
    assert_eq!(taken.column(0).as_primitive::<Int64Type>().values(), &[4, 151]);
    assert_eq!(taken.column(1).as_list::<i32>().value_length(0), 148);
    Ok(())
}

#[tokio::test]
async fn flipped_bytes_of_lists_are_damage() -> TestResult {
    let test = test_lake().await;
    let intact = {
        let table = list_table(&test.lake).await?;
        table.take(&names(&["tokens"]), &addresses(&table)).await?
    };
    let uri = test.folder.path().to_str().unwrap_or_default();
    let mut files: Vec<_> = std::fs::read_dir(test.folder.path().join("t.lance/data"))?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::path);
    let path = files[0].path();
    let stored = std::fs::read(&path)?;
    let mut num_errors = 0;
    for at in (0..stored.len()).step_by(1_201) {
        let mut damaged = stored.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&path, &damaged)?;
        let table = latest(&LakeStore::open(uri, &StorageOptions::default()).await?, &table_name("t")).await?;
        match table.take(&names(&["tokens"]), &addresses(&table)).await {
            Ok(found) => assert_eq!(found, intact, "byte {at}"),
            Err(error) => {
                num_errors += 1;
                assert_eq!(error.kind(), ErrorKind::DataCorrupt, "byte {at}: {error}");
                assert!(error.to_string().contains("t@1"), "byte {at}: {error}");
            }
        }
    }
    assert!(num_errors > 20, "{num_errors} of {} bytes", stored.len() / 1_201);
    Ok(())
}

#[tokio::test]
async fn taken_lists_are_those_that_lance_decodes() -> TestResult {
    let lake = memory_lake().await;
    let table = list_table(&lake).await?;
    let request = ScanRequest { columns: names(&["id", "tokens"]), ..ScanRequest::default() };
    let batches: Vec<RecordBatch> = table.scan(&request).await?.try_collect().await?;
    let addrs = addresses(&table);
    let taken = table.take(&names(&["id", "tokens"]), &addrs).await?;
    let scanned = arrow_select::concat::concat_batches(&batches[0].schema(), &batches)?;
    assert_eq!(taken.columns(), scanned.columns());
    Ok(())
}
