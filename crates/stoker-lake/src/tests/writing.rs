//! Tests of what writers accept and refuse.

use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, UInt8Array, types::UInt8Type};
use arrow_schema::{DataType, Field, Schema};
use stoker_types::ErrorKind;

use super::data::{
    TestResult, append, drafts, image_field, latest, media, rows, schema, small, table_name, tensor, test_lake,
};
use crate::{CommitKey, CommitMode, FragmentDraft, WriteOptions};

fn tensor_batch(column: &str, values: ArrayRef) -> RecordBatch {
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..values.len() as i64));
    RecordBatch::try_from_iter_with_nullable([("id", id, false), (column, values, true)]).expect("the columns fit")
}

fn bytes_schema(nullable: bool) -> Arc<Schema> {
    let item = Field::new("item", DataType::UInt8, true);
    let list = DataType::FixedSizeList(item.into(), 2000);
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("x", list, nullable)]))
}

#[tokio::test]
async fn a_null_in_a_heavy_column_is_refused_with_its_row() -> TestResult {
    let lake = test_lake().await.lake;
    let mut writer = lake.writer(&table_name("t"), &bytes_schema(true), false, WriteOptions::default()).await?;
    let some = || Some(vec![Some(1u8); 2000]);
    let good = FixedSizeListArray::from_iter_primitive::<UInt8Type, _, _>((0..5).map(|_| some()), 2000);
    writer.write(&tensor_batch("x", Arc::new(good))).await?;
    let lists = (0..4).map(|row| if row == 2 { None } else { some() });
    let nulls = FixedSizeListArray::from_iter_primitive::<UInt8Type, _, _>(lists, 2000);
    let error = writer.write(&tensor_batch("x", Arc::new(nulls))).await.expect_err("row 7 is null");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("column x must not have nulls, but row 7 has one"), "{error}");

    let mut items = vec![Some(1u8); 4 * 2000];
    items[2000 * 3 + 17] = None;
    let field = Arc::new(Field::new("item", DataType::UInt8, true));
    let items = FixedSizeListArray::try_new(field, 2000, Arc::new(UInt8Array::from(items)), None)?;
    let error = writer.write(&tensor_batch("x", Arc::new(items))).await.expect_err("an item of row 8 is null");
    assert!(error.to_string().contains("row 8"), "{error}");
    writer.abort().await;
    Ok(())
}

#[tokio::test]
async fn a_mismatch_names_the_column_and_both_types() -> TestResult {
    let lake = test_lake().await.lake;
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[1500])]));
    append(&lake, &name, &schema, 0..3, WriteOptions::default()).await?;

    let check = async |fields: Vec<Field>, message: &str| {
        let schema = Arc::new(Schema::new(fields));
        let error =
            lake.writer(&name, &schema, true, WriteOptions::default()).await.err().expect("the schema does not fit");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.to_string().contains(message), "{error}");
    };
    let id = Field::new("id", DataType::Int64, false);
    let text = Field::new("name", DataType::Utf8, true);
    let x = tensor("x", DataType::UInt8, &[1500]);
    check(vec![id.clone(), text.clone()], "column x is missing").await;
    check(
        vec![Field::new("id", DataType::Int32, false), text.clone(), x.clone()],
        "column id should be non-null Int64",
    )
    .await;
    check(vec![Field::new("id", DataType::Int64, true), text.clone(), x.clone()], "not nullable Int64").await;
    check(vec![id.clone(), text.clone(), tensor("x", DataType::UInt8, &[30, 50])], "[30,50]").await;
    check(vec![id, text, x, Field::new("y", DataType::Utf8, true)], "the table has no column y").await;

    let mut writer = lake.writer(&name, &schema, true, WriteOptions::default()).await?;
    let batch = RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(vec![1])) as ArrayRef)])?;
    let error = writer.write(&batch).await.expect_err("columns are missing");
    assert!(error.to_string().contains("column name is missing"), "{error}");
    Ok(())
}

#[tokio::test]
async fn columns_may_come_in_any_order() -> TestResult {
    let lake = test_lake().await.lake;
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[1500])]));
    append(&lake, &name, &schema, 0..5, WriteOptions::default()).await?;
    let reversed = Arc::new(schema.project(&[2, 1, 0])?);
    let mut writer = lake.writer(&name, &reversed, true, WriteOptions::default()).await?;
    writer.write(&rows(&schema, 5, 4).project(&[2, 1, 0])?).await?;
    lake.commit(&name, &reversed, CommitMode::Append, writer.finish().await?, None).await?;
    let table = latest(&lake, &name).await?;
    let columns = ["id", "name", "x"].map(String::from);
    let taken = table.take(&columns, &super::data::addresses(&table)).await?;
    assert_eq!(taken.columns(), rows(&table.schema(), 0, 9).columns());
    Ok(())
}

#[tokio::test]
async fn drafts_survive_a_journal_in_json() -> TestResult {
    let lake = test_lake().await.lake;
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[1500])]));
    let written = drafts(&lake, &name, &schema, 0..50, small(20, 8000)).await?;
    assert_eq!(written.iter().map(FragmentDraft::num_rows).collect::<Vec<_>>(), [20, 20, 10]);
    let journal = serde_json::to_string(&written)?;
    let read: Vec<FragmentDraft> = serde_json::from_str(&journal)?;
    assert_eq!(read, written);
    assert!(lake.table(&name, &Default::default()).await.is_err(), "nothing is visible before the commit");
    lake.commit(
        &name,
        &schema,
        CommitMode::Create,
        read,
        Some(CommitKey { key: "ingest 1", since_version: 0, chosen_at: None }),
    )
    .await?;
    assert_eq!(latest(&lake, &name).await?.num_rows(), 50);
    Ok(())
}

#[tokio::test]
async fn encoded_images_are_stored_as_they_are() -> TestResult {
    let lake = test_lake().await.lake;
    let (name, schema) = (table_name("t"), Arc::new(Schema::new(vec![image_field("jpeg")])));
    append(&lake, &name, &schema, 0..40, small(25, 200_000)).await?;
    let table = latest(&lake, &name).await?;
    let taken = table.take(&["jpeg".to_string()], &super::data::addresses(&table)).await?;
    use arrow_array::cast::AsArray;
    let images = taken.column(0).as_binary::<i64>();
    for row in 0..40 {
        assert_eq!(images.value(row), media(row));
    }
    Ok(())
}

#[tokio::test]
async fn a_huge_batch_is_cut_into_fragments_by_bytes() -> TestResult {
    let lake = test_lake().await.lake;
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[10_000])]));
    let options = WriteOptions { bytes_per_fragment_max: 105_000, page_bytes: 30_000, ..WriteOptions::default() };
    let mut writer = lake.writer(&name, &schema, false, options).await?;
    writer.write(&rows(&schema, 0, 95)).await?;
    let drafts = writer.finish().await?;
    assert_eq!(drafts.iter().map(FragmentDraft::num_rows).sum::<u64>(), 95);
    assert!(drafts.iter().all(|draft| draft.num_rows() <= 10), "{:?}", drafts.len());
    Ok(())
}

#[tokio::test]
async fn names_that_scans_and_searches_add_are_refused() -> TestResult {
    let lake = test_lake().await.lake;
    let name = table_name("t");
    for reserved in ["_rowid", "_rowaddr", "_rowoffset", "_distance", "_score", "_rank"] {
        let schema = Arc::new(Schema::new(vec![Field::new(reserved, DataType::Int64, false)]));
        let refused = lake.writer(&name, &schema, false, WriteOptions::default()).await.err().expect("a reserved name");
        assert_eq!(refused.kind(), ErrorKind::InvalidRequest);
        let said = format!("cannot write to table t: the name of column {reserved} is reserved");
        assert!(refused.to_string().starts_with(&said), "{refused}");
        let refused = lake.commit(&name, &schema, CommitMode::Overwrite, Vec::new(), None).await;
        assert!(refused.expect_err("a reserved name").to_string().starts_with(&said));
    }
    let fine = Arc::new(Schema::new(vec![Field::new("_row", DataType::Int64, false)]));
    lake.writer(&name, &fine, false, WriteOptions::default()).await?.abort().await;
    Ok(())
}
