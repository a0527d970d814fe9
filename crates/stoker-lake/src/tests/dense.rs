//! Tests that bytes of dense columns, read by the page table, equal the output of Lance's decoder.

use std::os::unix::fs::FileExt;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

use super::data::{
    TestResult, addresses, append, latest, memory_lake, schema, small, table_name, tensor, tensor_bytes, test_lake,
};
use crate::{DenseColumn, DenseProbe, LakeStore, Table};

const ELEMENTS: [(DataType, usize); 10] = [
    (DataType::UInt8, 1536),
    (DataType::Int8, 1200),
    (DataType::Int16, 777),
    (DataType::UInt16, 600),
    (DataType::Int32, 512),
    (DataType::UInt32, 300),
    (DataType::Int64, 129),
    (DataType::Float16, 1000),
    (DataType::Float32, 300),
    (DataType::Float64, 150),
];

/// The bytes of row `row` of the batch's only column.
fn row_of(batch: &RecordBatch, row: usize) -> Vec<u8> {
    let value = batch.column(0).as_fixed_size_list().value(row).to_data();
    let width = value.data_type().primitive_width().expect("tensors are numbers");
    value.buffers()[0].as_slice()[value.offset() * width..][..value.len() * width].to_vec()
}

async fn dense(table: &Table, column: &str) -> Result<std::sync::Arc<DenseColumn>, Box<dyn std::error::Error>> {
    match table.dense_column(column).await? {
        DenseProbe::Dense(dense) => Ok(dense),
        DenseProbe::NotDense { reason } => Err(format!("{column} is not dense: {reason}").into()),
    }
}

/// Compares every row of a column, read in three ways: by `take`, by the reader, and (in local lakes) from the file.
async fn check_column(table: &Table, column: &str) -> TestResult {
    let column = column.to_string();
    let dense = dense(table, &column).await?;
    let all = addresses(table);
    let taken = table.take(std::slice::from_ref(&column), &all).await?;
    for (index, addr) in all.iter().enumerate() {
        let file = dense.file((addr >> 32) as u32).ok_or("every fragment has a file")?;
        let (offset, rows_left) = file.locate(addr & 0xffff_ffff).ok_or("every row has a place")?;
        assert!(rows_left >= 1);
        let expected = row_of(&taken, index);
        assert_eq!(expected, tensor_bytes(index, dense.row_bytes).collect::<Vec<_>>(), "{column} row {index}");
        let range = offset..offset + dense.row_bytes as u64;
        assert_eq!(file.reader.read(range).await?, expected, "{column} row {index}");
        if let Some(local) = file.reader.local() {
            let mut bytes = vec![0; dense.row_bytes];
            local.read_exact_at(&mut bytes, offset)?;
            assert_eq!(bytes, expected);
        }
    }
    let first = table.fragments()[0];
    let file = dense.file(first.id).ok_or("every fragment has a file")?;
    assert_eq!(file.locate(first.physical_rows), None);
    assert!(file.runs.len() > 1, "several pages");
    assert_eq!(file.runs[0].offset % 64, 0, "pages begin at multiples of 64 bytes");
    Ok(())
}

async fn check_all_types(lake: &LakeStore) -> TestResult {
    let name = table_name("tensors");
    let fields: Vec<_> =
        ELEMENTS.iter().map(|(element, length)| tensor(&format!("t_{element}"), element.clone(), &[*length])).collect();
    let schema = schema(&fields);
    append(lake, &name, &schema, 0..40, small(17, 5000)).await?;
    append(lake, &name, &schema, 40..51, small(17, 5000)).await?;
    let table = latest(lake, &name).await?;
    assert_eq!(table.num_rows(), 51);
    assert_eq!(table.fragments().iter().map(|fragment| fragment.num_rows).collect::<Vec<_>>(), [17, 17, 6, 11]);
    for field in &fields {
        check_column(&table, field.name()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn bytes_equal_the_decoder_on_a_local_lake() -> TestResult {
    check_all_types(&test_lake().await.lake).await
}

#[tokio::test]
async fn bytes_equal_the_decoder_on_a_memory_lake() -> TestResult {
    check_all_types(&memory_lake().await).await
}

#[tokio::test]
async fn neighbouring_rows_lie_in_one_piece() -> TestResult {
    let lake = test_lake().await.lake;
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[2000])]));
    append(&lake, &name, &schema, 0..25, small(1000, 10 * 2000 + 5)).await?;
    let table = latest(&lake, &name).await?;
    let dense = dense(&table, "x").await?;
    let file = dense.file(0).ok_or("there is one fragment")?;
    assert_eq!(file.runs.iter().map(|run| run.first_row).collect::<Vec<_>>(), [0, 10, 20]);
    let left: Vec<_> = [0, 9, 10, 24].iter().map(|row| file.locate(*row).map(|(_, left)| left)).collect();
    assert_eq!(left, [Some(10), Some(1), Some(10), Some(1)]);
    Ok(())
}

#[tokio::test]
async fn vectors_of_256_bytes_are_dense_and_scalars_are_not() -> TestResult {
    let lake = test_lake().await.lake;
    let vector = DataType::FixedSizeList(arrow_schema::Field::new("item", DataType::Float32, true).into(), 64);
    let fields = [arrow_schema::Field::new("embedding", vector, false), tensor("tiny", DataType::Float32, &[4])];
    let (name, schema) = (table_name("t"), schema(&fields));
    append(&lake, &name, &schema, 0..30, small(20, 1 << 20)).await?;
    let table = latest(&lake, &name).await?;
    assert_eq!(dense(&table, "embedding").await?.row_bytes, 256);
    for column in ["tiny", "id", "name"] {
        let probe = table.dense_column(column).await?;
        assert!(matches!(probe, DenseProbe::NotDense { ref reason } if !reason.is_empty()), "{column}: {probe:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_unknown_column_is_refused_by_name() -> TestResult {
    let lake = test_lake().await.lake;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..3, small(20, 1000)).await?;
    let error = latest(&lake, &name).await?.dense_column("nope").await.expect_err("there is no such column");
    assert_eq!(error.kind(), stoker_types::ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("\"nope\"; columns: id, name"), "{error}");
    Ok(())
}
