//! Writes of rows with the metadata of their columns.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field, Schema};
use futures::TryStreamExt as _;
use stoker_columns::is_encoded_image;
use stoker_formats::HUGGING_FACE_KEY;
use stoker_types::calls::WriteKey;
use stoker_types::{ErrorKind, TableName, WriteMode, WriteRequest};

use super::fixture::Fixture;
use crate::{Result, TableWrite, find_write};

fn request(mode: WriteMode) -> WriteRequest {
    WriteRequest {
        table: TableName::try_new("t").expect("a name"),
        mode,
        rows_per_fragment_max: None,
        page_bytes: None,
        has_features: false,
        key: None,
    }
}

fn keyed(mode: WriteMode, key: &str) -> WriteRequest {
    WriteRequest { key: Some(WriteKey { key: key.into(), since_version: 0 }), ..request(mode) }
}

fn batch(values: impl Array + 'static) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("a", Arc::new(values) as ArrayRef, true)]).expect("a batch")
}

async fn write(fixture: &Fixture, request: &WriteRequest, batches: &[RecordBatch]) -> Result<u64> {
    let lake = fixture.engine.lake();
    let mut write = TableWrite::begin(lake, request, &batches[0].schema()).await?;
    for batch in batches {
        if let Err(error) = write.write(batch).await {
            write.abort().await;
            return Err(error);
        }
    }
    write.commit().await
}

async fn rows(fixture: &Fixture, sql: &str) -> RecordBatch {
    let query = fixture.engine.query(sql, &[]).await.expect("a query");
    let batches: Vec<RecordBatch> = query.execute().await.expect("rows").try_collect().await.expect("rows");
    arrow_select::concat::concat_batches(&query.schema(), &batches).expect("rows")
}

#[tokio::test]
async fn modes_do_what_they_say() {
    let fixture = Fixture::new(3).await;
    let one = [batch(Int64Array::from(vec![1]))];
    let error = write(&fixture, &request(WriteMode::Append), &one).await.expect_err("no table");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(write(&fixture, &request(WriteMode::Create), &one).await.expect("a version"), 1);
    let error = write(&fixture, &request(WriteMode::Create), &one).await.expect_err("it exists");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(write(&fixture, &request(WriteMode::CreateOrAppend), &one).await.expect("a version"), 2);
    assert_eq!(rows(&fixture, "SELECT a FROM t").await.num_rows(), 2);
    let text = [batch(StringArray::from(vec!["x"]))];
    assert_eq!(write(&fixture, &request(WriteMode::Overwrite), &text).await.expect("a version"), 3);
    assert_eq!(rows(&fixture, "SELECT a FROM t").await.column(0).as_string::<i32>().value(0), "x");
}

#[tokio::test]
async fn numbers_are_widened_and_others_refused_with_their_rows() {
    let fixture = Fixture::new(3).await;
    let floats = [batch(arrow_array::Float64Array::from(vec![0.5]))];
    write(&fixture, &request(WriteMode::Create), &floats).await.expect("a version");
    let append = request(WriteMode::Append);
    write(&fixture, &append, &[batch(Int32Array::from(vec![7]))]).await.expect("a version");
    let values = rows(&fixture, "SELECT a FROM t ORDER BY a").await;
    assert_eq!(values.column(0).as_primitive::<Float64Type>().values(), &[0.5, 7.0]);
    let batches = [batch(Int64Array::from(vec![1, 2])), batch(Int64Array::from(vec![3, (1 << 53) + 1]))];
    let error = write(&fixture, &append, &batches).await.expect_err("inexact").to_string();
    assert!(error.contains("table t: column a row 3: expected a number that Float64 holds exactly"), "{error}");
    let error = write(&fixture, &append, &[batch(StringArray::from(vec!["x"]))]).await.expect_err("no number");
    assert!(error.to_string().contains("column a should be"), "{error}");
    assert_eq!(rows(&fixture, "SELECT a FROM t").await.num_rows(), 2);
}

#[tokio::test]
async fn a_key_takes_effect_once() {
    let fixture = Fixture::new(3).await;
    let lake = fixture.engine.lake().clone();
    let one = [batch(Int64Array::from(vec![1]))];
    for _ in 0..2 {
        assert_eq!(write(&fixture, &keyed(WriteMode::Create, "first"), &one).await.expect("a version"), 1);
    }
    for _ in 0..2 {
        assert_eq!(write(&fixture, &keyed(WriteMode::Append, "second"), &one).await.expect("a version"), 2);
    }
    // Both were begun before either was committed.
    let mut writes = Vec::new();
    for _ in 0..2 {
        let mut begun =
            TableWrite::begin(&lake, &keyed(WriteMode::Append, "third"), &one[0].schema()).await.expect("a write");
        begun.write(&one[0]).await.expect("rows");
        writes.push(begun);
    }
    for begun in writes {
        assert_eq!(begun.commit().await.expect("a version"), 3);
    }
    assert_eq!(rows(&fixture, "SELECT a FROM t").await.num_rows(), 3);
    let key = |key: &str, since_version| WriteKey { key: key.into(), since_version };
    assert_eq!(find_write(&lake, "t", &key("second", 0)).await.expect("an answer"), Some(2));
    assert_eq!(find_write(&lake, "t", &key("second", 2)).await.expect("an answer"), None);
    assert_eq!(find_write(&lake, "t", &key("nothing", 0)).await.expect("an answer"), None);
    assert_eq!(find_write(&lake, "nothing", &key("second", 0)).await.expect("an answer"), None);
}

/// Rows of a dataset: a photo, and a label with names.
fn dataset(photos: &[&[u8]], labels: Vec<i64>) -> RecordBatch {
    let fields = vec![Field::new("bytes", DataType::Binary, true), Field::new("path", DataType::Utf8, true)];
    let bytes: ArrayRef = Arc::new(arrow_array::BinaryArray::from_iter_values(photos));
    let paths: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>; photos.len()]));
    let photos = StructArray::new(fields.clone().into(), vec![bytes, paths], None);
    let features = r#"{"info": {"features": {"photo": {"_type": "Image"},
        "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}"#;
    let schema = Schema::new(vec![
        Field::new("photo", DataType::Struct(fields.into()), true),
        Field::new("label", DataType::Int64, true),
    ]);
    let schema = schema.with_metadata(HashMap::from([(HUGGING_FACE_KEY.to_string(), features.to_string())]));
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(photos), Arc::new(Int64Array::from(labels))]).expect("rows")
}

#[tokio::test]
async fn features_decide_the_columns() {
    let fixture = Fixture::new(3).await;
    let with_features = |mode| WriteRequest { has_features: true, ..request(mode) };
    let jpeg: &[u8] = b"\xff\xd8\xff\xe0";
    let good = dataset(&[jpeg, jpeg], vec![1, 0]);
    write(&fixture, &with_features(WriteMode::Create), &[good.clone()]).await.expect("a version");
    let found = rows(&fixture, "SELECT * FROM t").await;
    assert_eq!(
        found.schema().fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(),
        ["photo", "label", "label_name"]
    );
    assert!(is_encoded_image(found.schema().field(0)));
    assert_eq!(found.column(1).as_primitive::<Int64Type>().values(), &[1, 0]);
    assert_eq!(found.column(2).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["dog", "cat"]);
    let append = with_features(WriteMode::Append);
    for (rows, part) in [
        (dataset(&[jpeg, b"text"], vec![0, 0]), "column photo row 1"),
        (dataset(&[jpeg, jpeg], vec![0, 7]), "column label row 1"),
    ] {
        let error = write(&fixture, &append, &[good.clone(), rows]).await.expect_err("refused").to_string();
        let part = part.replace("row 1", "row 3");
        assert!(error.contains(&part), "{error}");
    }
    let error = write(&fixture, &append, &[batch(Int64Array::from(vec![1]))]).await.expect_err("no features");
    assert!(error.to_string().contains("has no features"), "{error}");
}
