//! Tests of reading rows by address, of scans and of searches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt64Type};
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use datafusion::prelude::{col, lit};
use futures::TryStreamExt;
use lance::Dataset;
use stoker_types::ErrorKind;

use super::data::{TestResult, append, latest, memory_lake, rows, schema, small, table_name, tensor};
use crate::{CommitMode, LakeStore, Metric, Nearest, ROW_ADDR, RowIdSet, ScanRequest, Table, WriteOptions};

/// A table of 30 rows in fragments of 10, in which rows 3, 4 and 15 are deleted.
async fn table_with_deletions(lake: &LakeStore) -> Result<Table, Box<dyn std::error::Error>> {
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[1500])]));
    append(lake, &name, &schema, 0..30, small(10, 4000)).await?;
    let mut dataset: Dataset = latest(lake, &name).await?.dataset().as_ref().clone();
    dataset.delete("id in (3, 4, 15)").await?;
    Ok(latest(lake, &name).await?)
}

fn address(row: u64) -> u64 {
    ((row / 10) << 32) | (row % 10)
}

fn ids(batch: &RecordBatch) -> Vec<i64> {
    batch.column_by_name("id").expect("the column was asked for").as_primitive::<Int64Type>().values().to_vec()
}

async fn collect(table: &Table, request: ScanRequest) -> Result<RecordBatch, Box<dyn std::error::Error>> {
    let stream = table.scan(&request).await?;
    let schema = stream.schema();
    let batches: Vec<RecordBatch> = stream.try_collect().await?;
    assert!(batches.iter().all(|batch| batch.num_rows() <= request.batch_size.max(1)), "batches keep their size");
    Ok(arrow_select::concat::concat_batches(&schema, &batches)?)
}

#[tokio::test]
async fn take_keeps_order_and_duplicates() -> TestResult {
    let lake = memory_lake().await;
    let table = table_with_deletions(&lake).await?;
    assert_eq!(table.num_rows(), 27);
    assert_eq!(table.fragments().iter().map(|fragment| fragment.num_rows).collect::<Vec<_>>(), [8, 9, 10]);
    let wanted = [29u64, 0, 7, 7, 14, 29, 2, 20];
    let addresses = wanted.map(address);
    let taken = table.take(&["x".into(), "id".into(), "name".into()], &addresses).await?;
    assert_eq!(
        taken.schema().fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(),
        ["x", "id", "name"]
    );
    assert_eq!(ids(&taken), wanted.map(|row| row as i64));
    for (place, row) in wanted.iter().enumerate() {
        let expected = rows(&table.schema(), *row as usize, 1);
        for (column, name) in taken.columns().iter().zip(["x", "id", "name"]) {
            assert_eq!(&column.slice(place, 1), expected.column_by_name(name).ok_or("the column exists")?);
        }
    }
    assert_eq!(table.take(&["id".into()], &[]).await?.num_rows(), 0);
    assert_eq!(table.take(&[], &addresses).await?.num_rows(), 8);
    let ascending: Vec<u64> = (20..30).map(address).collect();
    assert_eq!(ids(&table.take(&["id".into()], &ascending).await?), (20..30).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn addresses_without_rows_are_named() -> TestResult {
    let lake = memory_lake().await;
    let table = table_with_deletions(&lake).await?;
    for (addr, message) in [
        (address(15), "(fragment 1, offset 5) of t@2 does not exist; it was deleted"),
        (9 << 32, "(fragment 9, offset 0) of t@2 does not exist; there is no such fragment"),
        (1 << 32 | 10, "does not exist; the fragment has 10 rows"),
        (u64::MAX, "there is no such fragment"),
    ] {
        for addresses in [vec![addr], vec![address(1), addr, address(0)]] {
            let error = table.take(&["id".into()], &addresses).await.expect_err("there is no such row");
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.to_string().contains(message), "{error}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn scans_filter_limit_and_address() -> TestResult {
    let lake = memory_lake().await;
    let table = table_with_deletions(&lake).await?;
    let request = |columns: &[&str]| ScanRequest {
        columns: columns.iter().map(ToString::to_string).collect(),
        batch_size: 4,
        ..ScanRequest::default()
    };
    let all = collect(&table, request(&["id"])).await?;
    assert_eq!(ids(&all), (0..30).filter(|id| ![3, 4, 15].contains(id)).collect::<Vec<_>>());

    let filter = Some(col("id").gt(lit(13i64)).and(col("name").is_not_null()));
    let filtered = ScanRequest { filter, with_row_addr: true, ..request(&["name", "id"]) };
    let found = collect(&table, filtered).await?;
    let names: Vec<_> = found.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["name", "id", ROW_ADDR]);
    let addresses = found.column(2).as_primitive::<UInt64Type>();
    let expected: Vec<i64> = (14..30).filter(|id| id % 5 != 0).collect();
    assert_eq!(ids(&found), expected);
    assert_eq!(addresses.values().to_vec(), expected.iter().map(|id| address(*id as u64)).collect::<Vec<_>>());

    // This scan reads only addresses, with a filter on a column that is not projected.
    let only = ScanRequest { filter: Some(col("id").lt(lit(5i64))), with_row_addr: true, ..request(&[]) };
    let found = collect(&table, only).await?;
    assert_eq!(found.num_columns(), 1);
    assert_eq!(found.column(0).as_primitive::<UInt64Type>().values().to_vec(), [0, 1, 2]);

    let part = ScanRequest { fragments: Some(vec![2, 0]), limit: Some(9), ..request(&["id"]) };
    let found = collect(&table, part).await?;
    assert_eq!(found.num_rows(), 9);
    assert!(ids(&found).iter().all(|id| !(10..20).contains(id)));

    let error = table.scan(&request(&["id", "nope"])).await.err().ok_or("there is no such column")?;
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    Ok(())
}

#[tokio::test]
async fn a_plan_without_columns_counts_rows() -> TestResult {
    let lake = memory_lake().await;
    let table = table_with_deletions(&lake).await?;
    let request = ScanRequest { filter: Some(col("id").lt(lit(10i64))), batch_size: 4, ..ScanRequest::default() };
    let plan = table.scan_plan(&request).await?;
    assert_eq!(plan.schema().fields().len(), 0);
    let stream = plan.execute(0, Arc::default())?;
    let batches: Vec<RecordBatch> = stream.try_collect().await?;
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 8);
    Ok(())
}

/// A table of 40 rows with ids and the vectors `(id, 1)`.
pub async fn vector_table(lake: &LakeStore) -> Result<Table, Box<dyn std::error::Error>> {
    let vector = DataType::FixedSizeList(Field::new("item", DataType::Float32, true).into(), 2);
    let fields = vec![Field::new("id", DataType::Int64, false), Field::new("v", vector, false)];
    let schema = Arc::new(Schema::new_with_metadata(fields, HashMap::new()));
    let lists = (0..40).map(|row| Some(vec![Some(row as f32), Some(1.0)]));
    let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(lists, 2);
    let batch =
        RecordBatch::try_new(schema.clone(), vec![Arc::new(Int64Array::from_iter_values(0..40)), Arc::new(vectors)])?;
    let name = table_name("vectors");
    let mut writer = lake
        .writer(&name, &schema, false, WriteOptions { rows_per_fragment_max: 25, ..WriteOptions::default() })
        .await?;
    writer.write(&batch).await?;
    lake.commit(&name, &schema, CommitMode::Create, writer.finish().await?, None).await?;
    Ok(latest(lake, &name).await?)
}

/// An exact search for the three nearest vectors.
fn nearest(query: ArrayRef) -> Nearest {
    Nearest {
        column: "v".into(),
        query,
        k: 3,
        metric: Metric::L2,
        use_index: false,
        nprobes: None,
        nprobes_min: None,
        num_candidates: 0,
    }
}

#[tokio::test]
async fn a_search_sees_only_rows_with_the_row_ids() -> TestResult {
    let lake = memory_lake().await;
    let table = vector_table(&lake).await?;
    let scan = ScanRequest {
        filter: Some(col("id").gt_eq(lit(20i64))),
        with_row_id: true,
        batch_size: 10,
        ..ScanRequest::default()
    };
    let row_ids = collect(&table, scan).await?;
    assert_eq!((row_ids.num_columns(), row_ids.num_rows()), (1, 20));
    let query: ArrayRef = Arc::new(Float32Array::from(vec![10.2, 1.0]));
    // Two rows are few enough to be read by themselves.
    for (num_rows, expected) in [(20, vec![20, 21, 22]), (2, vec![20, 21])] {
        let mut rows = RowIdSet::default();
        rows.insert_all(row_ids.slice(0, num_rows).column(0).as_primitive::<UInt64Type>());
        let request = ScanRequest {
            columns: vec!["id".into()],
            row_ids: Some(Arc::new(rows)),
            nearest: Some(nearest(query.clone())),
            with_row_addr: true,
            batch_size: 10,
            ..ScanRequest::default()
        };
        let found = collect(&table, request).await?;
        let names: Vec<_> = found.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names, ["id", "_distance", ROW_ADDR]);
        assert_eq!(ids(&found), expected);
        let distance = found.column(1).as_primitive::<Float32Type>().value(0);
        assert!((distance - 9.8f32 * 9.8).abs() < 1e-3, "{distance}");
    }
    Ok(())
}

#[tokio::test]
async fn a_search_sees_only_rows_that_pass_the_filter() -> TestResult {
    let lake = memory_lake().await;
    let table = vector_table(&lake).await?;
    let query = Arc::new(Float32Array::from(vec![10.2, 1.0]));
    let nearest = nearest(query);
    let request = ScanRequest {
        columns: vec!["id".into()],
        filter: Some(col("id").gt_eq(lit(20i64))),
        nearest: Some(nearest),
        with_row_addr: true,
        batch_size: 10,
        ..ScanRequest::default()
    };
    let found = collect(&table, request).await?;
    let names: Vec<_> = found.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["id", "_distance", ROW_ADDR]);
    // Filtering after the search would find nothing: the three nearest of all rows are 10, 11 and 9.
    assert_eq!(ids(&found), [20, 21, 22]);
    let distance = found.column(1).as_primitive::<Float32Type>().value(0);
    assert!((distance - 9.8f32 * 9.8).abs() < 1e-3, "{distance}");
    Ok(())
}
