//! Tests of the layout that `describe` reports for tables of Stoker's writer.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::types::UInt8Type;
use arrow_array::{Array, FixedSizeBinaryArray, ListArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use stoker_lake::{CommitMode, Table, WriteOptions};
use stoker_types::ColumnLayout;

use super::data::{TestResult, append, image_field, latest, media, memory_lake, schema, table_name, tensor, test_lake};
use crate::describe;

const PAGE_BYTES_MAX: u64 = 8 << 20;

async fn layout(table: &Table) -> stoker_lake::Result<BTreeMap<String, ColumnLayout>> {
    Ok(describe(table).await?.into_iter().map(|column| (column.name.clone(), column)).collect())
}

#[tokio::test]
async fn heavy_pages_are_dense_and_just_under_8_mib() -> TestResult {
    let lake = test_lake().await.lake;
    let name = table_name("images");
    let fields = [
        tensor("image", DataType::UInt8, &[3, 224, 224]),
        tensor("state", DataType::Float32, &[2048]),
        image_field("jpeg"),
    ];
    let schema = schema(&fields);
    append(&lake, &name, &schema, 0..300, WriteOptions::default()).await?;
    let columns = layout(&latest(&lake, &name).await?).await?;

    let image = &columns["image"];
    assert!(image.dense && image.heavy && image.why_not_dense.is_none());
    assert_eq!(image.bytes_per_row, Some(150_528));
    // 54 rows of 150,528 bytes fit into a page of 8,257,536 bytes.
    assert_eq!((image.num_chunks, image.chunk_bytes_max), (6, 54 * 150_528));
    assert_eq!(image.compression, "none");
    assert_eq!(image.kind, "tensor uint8[3, 224, 224]");
    assert_eq!(image.has_nulls, Some(false));

    // The pages of a narrower heavy column in the same table are full too.
    let state = &columns["state"];
    assert!(state.dense && state.heavy);
    assert_eq!((state.num_chunks, state.chunk_bytes_max), (1, 300 * 8192));

    let jpeg = &columns["jpeg"];
    assert!(jpeg.heavy && !jpeg.dense && jpeg.why_not_dense.is_some());
    assert_eq!((jpeg.kind.as_str(), jpeg.compression.as_str()), ("encoded image", "none"));
    assert!(jpeg.num_chunks >= 2, "{jpeg:?}");

    for column in columns.values() {
        assert!(column.chunk_bytes_max < PAGE_BYTES_MAX, "{column:?}");
    }
    assert!(!columns["id"].heavy && !columns["id"].dense);
    Ok(())
}

#[tokio::test]
async fn lists_count_their_leaves_and_fixed_bytes_are_not_dense() -> TestResult {
    let lake = memory_lake().await;
    let name = table_name("t");
    let lists = (0..10).map(|row| Some(media(row).into_iter().map(Some)));
    let lists = ListArray::from_iter_primitive::<UInt8Type, _, _>(lists);
    let fixed = FixedSizeBinaryArray::try_from_iter((0..10u8).map(|row| vec![row; 2_000]))?;
    let schema = Arc::new(Schema::new(vec![
        Field::new("lists", lists.data_type().clone(), false),
        Field::new("fixed", fixed.data_type().clone(), false),
    ]));
    let mut writer = lake.writer(&name, &schema, false, WriteOptions::default()).await?;
    writer.write(&RecordBatch::try_new(schema.clone(), vec![Arc::new(lists), Arc::new(fixed)])?).await?;
    let (schema, drafts) = (writer.schema(), writer.finish().await?);
    lake.commit(&name, &schema, CommitMode::Create, drafts, None).await?;
    let columns = layout(&latest(&lake, &name).await?).await?;
    let bytes: usize = (0..10).map(|row| media(row).len()).sum();
    assert!(columns["lists"].bytes >= bytes as u64, "{:?}", columns["lists"]);
    assert_eq!(columns["lists"].bytes_per_row, Some(columns["lists"].bytes / 10));
    assert_eq!(columns["lists"].has_nulls, Some(false), "an empty list is no null");
    assert!(columns["fixed"].heavy && !columns["fixed"].dense, "{:?}", columns["fixed"]);
    Ok(())
}
