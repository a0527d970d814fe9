//! Tests of the layout of data files that Stoker's writer makes, and of what a survey of their footers says.

use std::sync::Arc;

use arrow_array::types::UInt8Type;
use arrow_array::{Array, FixedSizeBinaryArray, ListArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use stoker_types::ErrorKind;

use super::data::{TestResult, append, image_field, latest, media, memory_lake, schema, table_name, tensor, test_lake};
use crate::{CommitMode, FragmentTally, Obstacle, WriteOptions};

const PAGE_BYTES_MAX: u64 = 8 << 20;

#[tokio::test]
async fn heavy_pages_are_plain_bytes_and_just_under_8_mib() -> TestResult {
    let lake = test_lake().await.lake;
    let name = table_name("images");
    let fields = [
        tensor("image", DataType::UInt8, &[3, 224, 224]),
        tensor("state", DataType::Float32, &[2048]),
        image_field("jpeg"),
    ];
    let schema = schema(&fields);
    append(&lake, &name, &schema, 0..300, WriteOptions::default()).await?;
    let table = latest(&lake, &name).await?;

    let image = table.survey("image").await?;
    assert_eq!((image.obstacle(), image.bytes_per_row), (None, Some(150_528)));
    // 54 rows of 150,528 bytes fit into a page of 8,257,536 bytes.
    assert_eq!((image.num_chunks, image.chunk_bytes_max), (6, 54 * 150_528));
    assert_eq!(image.encodings, ["none"]);

    // The pages of a narrower heavy column in the same table are full too.
    let state = table.survey("state").await?;
    assert_eq!((state.obstacle(), state.num_chunks, state.chunk_bytes_max), (None, 1, 300 * 8192));

    let jpeg = table.survey("jpeg").await?;
    assert_eq!(jpeg.obstacle(), Some(Obstacle::NotFixedSizeLists));
    assert!(jpeg.num_chunks >= 2 && !jpeg.has_general_compression(), "{jpeg:?}");

    for column in ["id", "name", "image", "state", "jpeg"] {
        let survey = table.survey(column).await?;
        assert!(survey.chunk_bytes_max < PAGE_BYTES_MAX, "{column}: {survey:?}");
        assert_eq!((survey.unchecked, survey.obstacles.len()), (FragmentTally::default(), 0), "{column}");
    }
    let error = table.survey("nothing").await.expect_err("the column does not exist");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    Ok(())
}

#[tokio::test]
async fn surveys_of_lists_count_their_leaves() -> TestResult {
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
    let table = latest(&lake, &name).await?;
    let (survey, bytes) = (table.survey("lists").await?, (0..10).map(|row| media(row).len() as u64).sum());
    assert!(survey.bytes >= bytes, "{survey:?}");
    assert_eq!(table.bytes_per_row("lists").await?, Some(survey.bytes / 10));
    assert_eq!(table.bytes_per_row("fixed").await?, Some(2_000));
    assert!(table.data_bytes() > survey.bytes);
    Ok(())
}

#[tokio::test]
async fn each_heavy_column_has_a_file_of_its_own() -> TestResult {
    let lake = test_lake().await.lake;
    let name = table_name("t");
    let fields = [tensor("a", DataType::UInt8, &[1500]), tensor("b", DataType::Int16, &[900]), image_field("c")];
    append(&lake, &name, &schema(&fields), 0..10, WriteOptions::default()).await?;
    let table = latest(&lake, &name).await?;
    let fragment = &table.dataset().fragments()[0];
    let mut columns_per_file: Vec<usize> = fragment.files.iter().map(|file| file.fields.len()).collect();
    columns_per_file.sort_unstable();
    assert_eq!(columns_per_file, [1, 1, 1, 2]);
    table.dataset().validate().await?;
    Ok(())
}
