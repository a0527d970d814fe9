//! Tables for the tests: each value is a function of the row's number.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int64Array, LargeBinaryArray, RecordBatch, StringArray, UInt8Array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_columns::{TensorType, encoded_image};
use stoker_lake::{CommitMode, LakeStore, Result, StorageOptions, Table, WriteOptions};
use stoker_types::{SnapshotRef, TableName};

pub type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A lake in a folder that is removed after the test.
pub struct TestLake {
    pub lake: LakeStore,
    _folder: tempfile::TempDir,
}

pub async fn test_lake() -> TestLake {
    let folder = tempfile::tempdir().expect("the system has a folder for temporary files");
    let uri = folder.path().to_str().expect("the path is UTF-8").to_string();
    let lake = LakeStore::open(&uri, &StorageOptions::default()).await.expect("a local folder is a lake");
    TestLake { lake, _folder: folder }
}

pub async fn memory_lake() -> LakeStore {
    LakeStore::open("memory://", &StorageOptions::default()).await.expect("a memory lake opens")
}

pub fn table_name(name: &str) -> TableName {
    TableName::try_new(name).expect("the tests' names are valid")
}

/// A tensor field.
pub fn tensor(name: &str, element: DataType, shape: &[usize]) -> Field {
    TensorType { element, shape: shape.to_vec() }.to_field(name)
}

pub fn image_field(name: &str) -> Field {
    encoded_image::new_field(name, true)
}

/// A schema with an integer `id`, a text `name` and the given fields.
pub fn schema(others: &[Field]) -> SchemaRef {
    let mut fields = vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)];
    fields.extend_from_slice(others);
    Arc::new(Schema::new(fields))
}

/// These rows of a table with this schema.
fn rows(schema: &SchemaRef, numbers: &Range<usize>) -> RecordBatch {
    let columns = schema.fields().iter().map(|field| column(field, numbers.clone())).collect();
    RecordBatch::try_new(schema.clone(), columns).expect("columns have the types of the schema")
}

fn column(field: &Field, numbers: Range<usize>) -> ArrayRef {
    match field.data_type() {
        DataType::Int64 => Arc::new(Int64Array::from_iter_values(numbers.map(|row| row as i64))),
        DataType::Utf8 => Arc::new(StringArray::from_iter_values(numbers.map(|row| format!("row {row}")))),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter_values(numbers.map(media))),
        DataType::FixedSizeList(item, length) => {
            let items = numbers.flat_map(|row| (0..*length as usize).map(move |item| row * 31 + item * 7));
            let items: ArrayRef = match item.data_type() {
                DataType::UInt8 => Arc::new(UInt8Array::from_iter_values(items.map(|value| value as u8))),
                DataType::Float32 => Arc::new(Float32Array::from_iter_values(items.map(|value| value as f32))),
                other => panic!("the tests have no tensors of {other}"),
            };
            Arc::new(FixedSizeListArray::new(item.clone(), *length, items, None))
        }
        other => panic!("the tests have no rows of type {other}"),
    }
}

/// The bytes of a row's media value: they do not compress, and their length differs between rows.
pub fn media(row: usize) -> Vec<u8> {
    let mut state = row as u32 ^ 0x9e37_79b9;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..40_000 + row * 137 % 30_000).map(next).collect()
}

/// Appends rows to a table, which is created if it does not exist.
pub async fn append(
    lake: &LakeStore,
    name: &TableName,
    schema: &SchemaRef,
    numbers: Range<usize>,
    options: WriteOptions,
) -> Result<u64> {
    let mut writer = lake.writer(name, schema, true, options).await?;
    writer.write(&rows(schema, &numbers)).await?;
    lake.commit(name, schema, CommitMode::CreateOrAppend, writer.finish().await?, None).await
}

pub async fn latest(lake: &LakeStore, name: &TableName) -> Result<Table> {
    lake.table(name, &SnapshotRef::Latest).await
}

/// Write options with small fragments and pages.
pub fn small(rows_per_fragment_max: u64, page_bytes: usize) -> WriteOptions {
    WriteOptions { rows_per_fragment_max, page_bytes, ..WriteOptions::default() }
}
