//! Dictionaries of small compressed rows in tables that statements make.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_clock::Environment;
use stoker_columns::{CompressedTensor, fit, target_schema, with_codec};
use stoker_lake::{CommitMode, Table, WriteOptions};
use stoker_types::{SnapshotRef, TableName};

use super::fixture::Fixture;
use crate::{BulkInsert, IfMissing, IfPresent};

fn name(name: &str) -> TableName {
    TableName::try_new(name).expect("a name")
}

/// Returns vectors of 96 numbers: twelve of forty patterns of eight numbers.
fn patterns(num_rows: usize) -> FixedSizeListArray {
    let mut state = 7_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    };
    let patterns: Vec<Vec<f32>> = (0..40).map(|_| (0..8).map(|_| random() as f32 * 1e-4).collect()).collect();
    let values: Vec<f32> = (0..12 * num_rows).flat_map(|_| patterns[random() as usize % 40].clone()).collect();
    let rows = values.chunks(96).map(|row| Some(row.iter().copied().map(Some).collect::<Vec<_>>()));
    FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(rows, 96)
}

/// Rows of an id and a vector.
fn rows(num_rows: usize) -> RecordBatch {
    let vectors = patterns(num_rows);
    let emb = Field::new("emb", vectors.data_type().clone(), true);
    let fields = vec![Field::new("id", DataType::Int64, false), with_codec(&emb, "zstd")];
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(0..num_rows as i64)), Arc::new(vectors)];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("a batch")
}

/// Makes the table `plain`, whose vectors are compressed without a dictionary.
async fn plain(fixture: &Fixture, num_rows: usize) {
    let (lake, rows) = (fixture.engine.lake(), rows(num_rows));
    let target: SchemaRef = target_schema(&rows.schema(), None).expect("columns");
    let mut writer = lake.writer(&name("plain"), &target, false, WriteOptions::default()).await.expect("a writer");
    writer.write(&fit(&rows, &target).expect("frames")).await.expect("rows");
    let (schema, drafts) = (writer.schema(), writer.finish().await.expect("fragments"));
    lake.commit(&name("plain"), &schema, CommitMode::Create, drafts, None).await.expect("a version");
}

async fn table(fixture: &Fixture, table: &str) -> Table {
    fixture.engine.lake().table(&name(table), &SnapshotRef::Latest).await.expect("a table")
}

/// Returns the compressed column of a table, and checks its values.
async fn checked(fixture: &Fixture, name: &str, num_rows: usize) -> CompressedTensor {
    let schema = table(fixture, name).await.schema();
    let tensor = CompressedTensor::try_of(schema.field_with_name("emb").expect("a column")).expect("metadata");
    let tensor = tensor.expect("tensors");
    let (mut found, expected) = (Vec::new(), rows(num_rows));
    for batch in fixture.rows(&format!("SELECT decompress(emb) AS emb FROM {name} ORDER BY id")).await {
        found.extend_from_slice(batch["emb"].as_fixed_size_list().values().as_primitive::<Float32Type>().values());
    }
    let expected: &[f32] = expected["emb"].as_fixed_size_list().values().as_primitive::<Float32Type>().values();
    assert_eq!(found, expected);
    tensor
}

#[tokio::test]
async fn copies_of_small_rows_get_a_dictionary() {
    let fixture = Fixture::new(1).await;
    plain(&fixture, 500).await;
    assert_eq!(checked(&fixture, "plain", 500).await.dictionary, None);
    fixture.done("CREATE TABLE copied AS SELECT * FROM plain ORDER BY id").await;
    let copied = checked(&fixture, "copied", 500).await;
    assert!(copied.dictionary.is_some());
    // Copies of it keep it, and rows that are inserted use it.
    fixture.done("CREATE TABLE again AS SELECT * FROM copied").await;
    assert_eq!(checked(&fixture, "again", 500).await, copied);
    fixture.done("DELETE FROM again WHERE id >= 100").await;
    fixture.done("INSERT INTO again SELECT id, decompress(emb) FROM plain WHERE id >= 100").await;
    assert_eq!(checked(&fixture, "again", 500).await, copied);
    // A replaced table, also one that reads itself.
    fixture.done("CREATE OR REPLACE TABLE plain AS SELECT * FROM plain").await;
    assert!(checked(&fixture, "plain", 500).await.dictionary.is_some());
}

#[tokio::test]
async fn few_rows_and_no_rows_get_none() {
    let fixture = Fixture::new(1).await;
    plain(&fixture, 100).await;
    for (copy, condition, num_rows) in [("few", "true", 100), ("empty", "false", 0)] {
        fixture.done(&format!("CREATE TABLE {copy} AS SELECT * FROM plain WHERE {condition}")).await;
        assert_eq!(checked(&fixture, copy, num_rows).await.dictionary, None);
    }
}

#[tokio::test]
async fn bulk_inserts_into_new_tables_make_dictionaries() {
    let fixture = Fixture::new(1).await;
    for (if_present, version) in [(IfPresent::Append, 1), (IfPresent::Replace, 2)] {
        let (rows, environment) = (rows(400), Environment::default());
        let schema = rows.schema();
        let begun = BulkInsert::begin(&fixture.engine, &environment, name("t"), &schema, IfMissing::Create, if_present);
        let mut insert = begun.await.expect("an insert");
        insert.write(&rows.slice(0, 0)).await.expect("no rows");
        for start in [0, 200] {
            insert.write(&rows.slice(start, 200)).await.expect("rows");
        }
        assert_eq!(insert.commit().await.expect("a version").version, Some(version));
        assert!(checked(&fixture, "t", 400).await.dictionary.is_some());
    }
}

#[tokio::test]
async fn rows_that_wait_for_a_dictionary_and_do_not_fit_are_named() {
    let fixture = Fixture::new(1).await;
    let (rows, environment) = (rows(400), Environment::default());
    let schema = rows.schema();
    let (create, fail) = (IfMissing::Create, IfPresent::Fail);
    let begun = BulkInsert::begin(&fixture.engine, &environment, name("t"), &schema, create, fail);
    let mut insert = begun.await.expect("an insert");
    insert.write(&rows.slice(0, 200)).await.expect("rows");
    // Rows whose ids are texts, which are cast when the files are begun.
    let texts = (200..400).map(|id| if id == 250 { "none".to_string() } else { id.to_string() });
    let ids: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let vectors = rows.slice(200, 200)["emb"].clone();
    insert.write(&RecordBatch::try_from_iter([("id", ids), ("emb", vectors)]).expect("a batch")).await.expect("rows");
    let error = insert.commit().await.expect_err("a text that is no number").to_string();
    assert!(error.contains("column id, row 251") && error.contains("none"), "{error}");
    assert!(!fixture.engine.lake().has_table(&name("t")).await.expect("an answer"));
}
