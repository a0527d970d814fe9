//! Tests that a file of a heavy column contains the checksums of its rows.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, FixedSizeBinaryArray, Int64Array, LargeBinaryArray, RecordBatch, RecordBatchIterator,
    StringArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lance::Dataset;
use lance::dataset::ColumnAlteration;
use stoker_checksum::checksum;
use stoker_columns::HEAVY_KEY;
use stoker_types::ErrorKind;

use super::data::{
    TestResult, addresses, append, image_field, latest, media, memory_lake, rows, schema, small, table_name, tensor,
    tensor_bytes, test_lake,
};
use crate::{CommitMode, DenseProbe, LakeStore, Table, row_checksums};

/// An id and four columns of other types than tensors; `image` and `raw` contain nulls.
fn values_schema() -> SchemaRef {
    let heavy = [(HEAVY_KEY.to_string(), "true".to_string())];
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        image_field("image"),
        Field::new("raw", DataType::Binary, true),
        Field::new("text", DataType::Utf8, true).with_metadata(heavy.into()),
        Field::new("fixed", DataType::FixedSizeBinary(2_000), false),
    ]))
}

/// The bytes of a row's value in `image`, `raw` or `text`; `None` for a null.
fn value(column: &str, row: usize) -> Option<Vec<u8>> {
    match column {
        "image" => (row % 4 != 1).then(|| media(row)),
        "raw" => (!row.is_multiple_of(3)).then(|| media(row)[..row * 10].to_vec()),
        _ => Some(format!("row {row}").into_bytes()),
    }
}

fn values(first: usize, num_rows: usize) -> RecordBatch {
    let numbers = || first..first + num_rows;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(numbers().map(|row| row as i64))),
        Arc::new(LargeBinaryArray::from_iter(numbers().map(|row| value("image", row)))),
        Arc::new(BinaryArray::from_iter(numbers().map(|row| value("raw", row)))),
        Arc::new(StringArray::from_iter_values(numbers().map(|row| format!("row {row}")))),
        Arc::new(FixedSizeBinaryArray::try_from_iter(numbers().map(|row| vec![row as u8; 2_000])).expect("one size")),
    ];
    RecordBatch::try_new(values_schema(), columns).expect("the columns fit")
}

async fn values_table(lake: &LakeStore) -> Result<Table, Box<dyn std::error::Error>> {
    let (name, schema) = (table_name("values"), values_schema());
    let mut writer = lake.writer(&name, &schema, false, small(23, 150_000)).await?;
    for first in (0..60).step_by(10) {
        writer.write(&values(first, 10)).await?;
    }
    lake.commit(&name, &schema, CommitMode::Create, writer.finish().await?, None).await?;
    Ok(latest(lake, &name).await?)
}

#[tokio::test]
async fn tensors_have_checksums() -> TestResult {
    let lake = test_lake().await.lake;
    let fields = [tensor("pixels", DataType::UInt8, &[3, 700]), tensor("state", DataType::Float32, &[300])];
    let (name, schema) = (table_name("t"), schema(&fields));
    append(&lake, &name, &schema, 0..60, small(25, 10_000)).await?;
    let table = latest(&lake, &name).await?;
    for (column, row_bytes) in [("pixels", 2_100), ("state", 1_200)] {
        let checksums = table.checksums(column).await?.ok_or("the column has checksums")?;
        let expected = |row| Some(checksum(&tensor_bytes(row, row_bytes).collect::<Vec<_>>()));
        assert_eq!(checksums.load(&addresses(&table)).await?, (0..60).map(expected).collect::<Vec<_>>(), "{column}");
        let DenseProbe::Dense(dense) = table.dense_column(column).await? else { return Err("it is dense".into()) };
        let of_dense = dense.checksums.clone().ok_or("a dense column has its checksums")?;
        assert_eq!(of_dense.load(&[7]).await?, [expected(7)]);
        let again = table.checksums(column).await?.ok_or("the column has checksums")?;
        assert!(Arc::ptr_eq(&of_dense, &again), "a dense column's checksums are found once");
    }
    Ok(())
}

#[tokio::test]
async fn binary_values_and_text_have_checksums_and_nulls_have_none() -> TestResult {
    let test = test_lake().await;
    for lake in [test.lake, memory_lake().await] {
        let table = values_table(&lake).await?;
        let all = addresses(&table);
        assert_eq!(table.fragments().len(), 3);
        for column in ["image", "raw", "text"] {
            let checksums = table.checksums(column).await?.ok_or("the column has checksums")?;
            let expected: Vec<_> = (0..60).map(|row| value(column, row).map(|bytes| checksum(&bytes))).collect();
            assert_eq!(checksums.load(&all).await?, expected, "{column}");
            let taken = table.take(&[column.to_string()], &all).await?;
            let of_rows = row_checksums(taken.column(0)).ok_or("the type has checksums")?;
            assert_eq!(of_rows, expected.iter().map(|value| value.unwrap_or(0)).collect::<Vec<_>>(), "{column}");
        }
        for column in ["id", "fixed"] {
            assert!(table.checksums(column).await?.is_none(), "{column}");
        }
        table.dataset().validate().await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_unknown_column_is_refused() -> TestResult {
    let lake = memory_lake().await;
    let error = values_table(&lake).await?.checksums("nope").await.map(|_| ()).expect_err("there is no such column");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    Ok(())
}

#[tokio::test]
async fn rows_of_other_writers_are_unchecked_and_renamed_columns_are_not() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[1_500])]));
    append(&lake, &name, &schema, 0..10, small(100, 5_000)).await?;
    let table = latest(&lake, &name).await?;
    let mut dataset: Dataset = table.dataset().as_ref().clone();
    let theirs = rows(&table.schema(), 10, 5);
    dataset.append(RecordBatchIterator::new([Ok(theirs)], table.schema()), None).await?;
    dataset.alter_columns(&[ColumnAlteration::new("x".into()).rename("y".into())]).await?;
    let table = latest(&lake, &name).await?;
    let checksums = table.checksums("y").await?.ok_or("one file has checksums")?;
    let mine = |row| Some(checksum(&tensor_bytes(row, 1_500).collect::<Vec<_>>()));
    let expected: Vec<_> = (0..10).map(mine).chain([None; 5]).collect();
    assert_eq!(checksums.load(&addresses(&table)).await?, expected);
    Ok(())
}
