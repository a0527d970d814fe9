//! Rows for the tests: each value is a function of the row's number.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, LargeBinaryArray, RecordBatch, StringArray, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_columns::{TensorType, encoded_image};
use stoker_types::{SnapshotRef, TableName};

use crate::{CommitMode, FragmentDraft, LakeStore, StorageOptions, Table, WriteOptions};

pub type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A lake in a folder that is removed after the test.
pub struct TestLake {
    pub lake: LakeStore,
    pub folder: tempfile::TempDir,
}

pub async fn test_lake() -> TestLake {
    let folder = tempfile::tempdir().expect("the system has a folder for temporary files");
    let uri = folder.path().to_str().expect("the path is UTF-8").to_string();
    let lake = LakeStore::open(&uri, &StorageOptions::default()).await.expect("a local folder is a lake");
    TestLake { lake, folder }
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

/// A schema with an integer `id`, a text `name` and the given tensors.
pub fn schema(tensors: &[Field]) -> SchemaRef {
    let mut fields = vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)];
    fields.extend_from_slice(tensors);
    Arc::new(Schema::new(fields))
}

pub fn image_field(name: &str) -> Field {
    encoded_image::new_field(name, true)
}

/// The rows `first..first + rows` of a table with this schema.
pub fn rows(schema: &SchemaRef, first: usize, rows: usize) -> RecordBatch {
    let columns = schema.fields().iter().map(|field| column(field, first, rows)).collect();
    RecordBatch::try_new(schema.clone(), columns).expect("columns have the types of the schema")
}

fn column(field: &Field, first: usize, rows: usize) -> ArrayRef {
    let numbers = first..first + rows;
    match field.data_type() {
        DataType::Int64 => Arc::new(Int64Array::from_iter_values(numbers.map(|row| row as i64))),
        DataType::Utf8 => {
            Arc::new(StringArray::from_iter(numbers.map(|row| (row % 5 != 0).then(|| format!("row {row}")))))
        }
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter_values(numbers.map(media))),
        DataType::FixedSizeList(item, length) => {
            let width = item.data_type().primitive_width().expect("tensors are numbers") * *length as usize;
            let bytes: Vec<u8> = numbers.flat_map(|row| tensor_bytes(row, width)).collect();
            let items = rows * *length as usize;
            // The copy is aligned; a `Vec<u8>` may begin at any address.
            let buffer = Buffer::from_slice_ref(&bytes);
            let items = ArrayData::builder(item.data_type().clone()).len(items).add_buffer(buffer).build();
            let list = ArrayData::builder(field.data_type().clone()).len(rows);
            let list = list.add_child_data(items.expect("the buffer holds the items")).build();
            make_array(list.expect("the items make whole lists"))
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

/// The bytes of a row's tensor of `width` bytes.
pub fn tensor_bytes(row: usize, width: usize) -> impl Iterator<Item = u8> {
    (0..width).map(move |byte| (row * 31 + byte * 7 + (byte >> 8)) as u8)
}

/// Writes rows in batches of 7 and returns the fragments.
pub async fn drafts(
    lake: &LakeStore,
    name: &TableName,
    schema: &SchemaRef,
    numbers: std::ops::Range<usize>,
    options: WriteOptions,
) -> crate::Result<Vec<FragmentDraft>> {
    let mut writer = lake.writer(name, schema, true, options).await?;
    let mut first = numbers.start;
    while first < numbers.end {
        let count = 7.min(numbers.end - first);
        // The batch is a slice with an offset, as importers produce them.
        let before = first.min(2);
        let batch = rows(schema, first - before, before + count);
        writer.write(&batch.slice(before, count)).await?;
        first += count;
    }
    writer.finish().await
}

/// Appends rows to a table, which is created if it does not exist.
pub async fn append(
    lake: &LakeStore,
    name: &TableName,
    schema: &SchemaRef,
    numbers: std::ops::Range<usize>,
    options: WriteOptions,
) -> crate::Result<u64> {
    let drafts = drafts(lake, name, schema, numbers, options).await?;
    lake.commit(name, schema, CommitMode::CreateOrAppend, drafts, None).await
}

pub async fn latest(lake: &LakeStore, name: &TableName) -> crate::Result<Table> {
    lake.table(name, &SnapshotRef::Latest).await
}

/// Write options with small fragments and pages.
pub fn small(rows_per_fragment_max: u64, page_bytes: usize) -> WriteOptions {
    WriteOptions { rows_per_fragment_max, page_bytes, ..WriteOptions::default() }
}

/// The addresses of all rows of a table, including deleted rows.
pub fn addresses(table: &Table) -> Vec<u64> {
    let of = |fragment: &crate::FragmentInfo| {
        let id = u64::from(fragment.id);
        (0..fragment.physical_rows).map(move |row| id << 32 | row)
    };
    table.fragments().iter().flat_map(of).collect()
}
