//! A lake with two versions of `samples` and a table `labels`, and the same rows in memory for brute-force results.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray, UInt8Array,
};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use futures::TryStreamExt as _;
use stoker_columns::TensorType;
use stoker_lake::{CommitMode, LakeStore, StorageOptions, WriteOptions};
use stoker_types::{ErrorKind, ParamValue, SnapshotRef, TableName, TagName};
use tempfile::TempDir;

use crate::{Engine, EngineOptions, Error, RowSet, SampleQuery};

/// The number of rows of `samples` at version 1; version 2 has [`NUM_NEWEST`].
pub const NUM_TAGGED: i64 = 250;
pub const NUM_NEWEST: i64 = 300;
pub const DIMENSIONS: usize = 4;
const IMAGE_BYTES: usize = 2 * 32 * 32;

pub struct Fixture {
    pub dir: TempDir,
    pub engine: Engine,
}

/// A row of `samples`.
#[derive(Clone, Debug)]
pub struct Row {
    pub id: i64,
    pub label: i64,
    pub name: Option<String>,
    pub split: &'static str,
    pub emb: [f32; DIMENSIONS],
}

/// Returns the rows of `samples` with ids below `num_rows`.
pub fn rows(num_rows: i64) -> Vec<Row> {
    let row = |id: i64| Row {
        id,
        label: id % 10,
        name: (id % 7 != 0).then(|| format!("n{id}")),
        split: if id % 5 == 0 { "test" } else { "train" },
        emb: [(id * 7 % 13) as f32, (id * 3 % 11) as f32, (id % 5) as f32, 1.0],
    };
    (0..num_rows).map(row).collect()
}

fn vectors(item: DataType, length: usize, values: ArrayRef) -> ArrayRef {
    let item = Arc::new(Field::new("item", item, true));
    Arc::new(FixedSizeListArray::new(item, length as i32, values, None))
}

fn batch(first: i64, last: i64) -> RecordBatch {
    let rows: Vec<Row> = rows(last).split_off(first as usize);
    let image = TensorType { element: DataType::UInt8, shape: vec![2, 32, 32] }.to_field("image");
    let image = image.with_data_type(DataType::FixedSizeList(
        Arc::new(Field::new("item", DataType::UInt8, true)),
        IMAGE_BYTES as i32,
    ));
    let emb = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, true)), DIMENSIONS as i32);
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("label", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("split", DataType::Utf8, false),
        Field::new("emb", emb, false),
        image,
    ]);
    let embs = Float32Array::from_iter_values(rows.iter().flat_map(|row| row.emb));
    let images = UInt8Array::from_iter_values(rows.iter().flat_map(|row| vec![(row.id % 256) as u8; IMAGE_BYTES]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.id))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.label))),
        Arc::new(StringArray::from_iter(rows.iter().map(|row| row.name.clone()))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.split))),
        vectors(DataType::Float32, DIMENSIONS, Arc::new(embs)),
        vectors(DataType::UInt8, IMAGE_BYTES, Arc::new(images)),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).expect("a valid batch")
}

fn labels() -> RecordBatch {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("label", Arc::new(Int64Array::from_iter_values(0..8))),
        ("title", Arc::new(StringArray::from_iter_values((0..8).map(|label| format!("title {label}"))))),
        ("weight", Arc::new(Float64Array::from_iter_values((0..8).map(|label| f64::from(label) / 2.0)))),
    ];
    RecordBatch::try_from_iter(columns).expect("a valid batch")
}

pub fn table_name(name: &str) -> TableName {
    TableName::try_new(name).expect("a valid name")
}

async fn write(lake: &LakeStore, name: &str, batch: RecordBatch) -> u64 {
    let name = table_name(name);
    let options = WriteOptions { rows_per_fragment_max: 100, ..WriteOptions::default() };
    let mut writer = lake.writer(&name, &batch.schema(), true, options).await.expect("a writer");
    writer.write(&batch).await.expect("written rows");
    let drafts = writer.finish().await.expect("drafts");
    lake.commit(&name, &batch.schema(), CommitMode::CreateOrAppend, drafts, None).await.expect("a version")
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with_options(EngineOptions { target_partitions: 3, ..EngineOptions::default() }).await
    }

    pub async fn with_options(options: EngineOptions) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let uri = dir.path().to_str().expect("a UTF-8 path");
        let lake = LakeStore::open(uri, &StorageOptions::default()).await.expect("a lake");
        assert_eq!(write(&lake, "samples", batch(0, NUM_TAGGED)).await, 1);
        let first = lake.table(&table_name("samples"), &SnapshotRef::Latest).await.expect("samples");
        first.create_tag(&TagName::try_new("v1").expect("a valid name")).await.expect("a tag");
        assert_eq!(write(&lake, "samples", batch(NUM_TAGGED, NUM_NEWEST)).await, 2);
        write(&lake, "labels", labels()).await;
        Self { dir, engine: Engine::new(lake, options) }
    }

    /// Appends rows to `samples`.
    pub async fn append(&self, num_rows: i64) {
        write(self.engine.lake(), "samples", batch(NUM_NEWEST, NUM_NEWEST + num_rows)).await;
    }

    /// Returns all rows of a query as one batch.
    pub async fn try_collect(&self, sql: &str, params: &[ParamValue]) -> Result<RecordBatch, Error> {
        let query = self.engine.query(sql, params).await?;
        let stream = query.execute().await?;
        let schema = stream.schema();
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        Ok(concat_batches(&schema, &batches)?)
    }

    pub async fn collect(&self, sql: &str) -> RecordBatch {
        self.collect_with(sql, &[]).await
    }

    pub async fn collect_with(&self, sql: &str, params: &[ParamValue]) -> RecordBatch {
        self.try_collect(sql, params).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub async fn sample(&self, sql: &str) -> (SampleQuery, Arc<RowSet>) {
        let query = self.engine.sample(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let row_set = self.engine.row_set(&query).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        (query, row_set)
    }

    /// Checks that a query is refused with this kind and a message that contains all of `parts`.
    pub async fn refuses(&self, sql: &str, params: &[ParamValue], kind: ErrorKind, parts: &[&str]) {
        let error = match self.try_collect(sql, params).await {
            Ok(batch) => panic!("{sql} gave {batch:?}"),
            Err(error) => error,
        };
        check_error(sql, &error, kind, parts);
    }

    /// Does the same as [`Fixture::refuses`] for sample queries.
    pub async fn refuses_sample(&self, sql: &str, parts: &[&str]) {
        match self.engine.sample(sql, &[]).await {
            Ok(query) => panic!("{sql} gave {query:?}"),
            Err(error) => check_error(sql, &error, ErrorKind::InvalidRequest, parts),
        }
    }

    /// Removes every data file of `samples` that holds images.
    pub fn remove_images(&self) -> usize {
        let folder = self.dir.path().join("samples.lance/data");
        let files = fs::read_dir(folder).expect("the data folder");
        let files: Vec<PathBuf> = files.map(|file| file.expect("an entry").path()).collect();
        let is_heavy = |path: &&PathBuf| fs::metadata(path).expect("a file").len() >= (50 * IMAGE_BYTES) as u64;
        let heavy: Vec<&PathBuf> = files.iter().filter(is_heavy).collect();
        for path in &heavy {
            fs::remove_file(path).expect("a removable file");
        }
        heavy.len()
    }
}

pub fn check_error(sql: &str, error: &Error, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{sql}: {error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{sql}: {error} does not contain {part:?}");
    }
}

pub fn ints(batch: &RecordBatch, column: &str) -> Vec<i64> {
    let column = batch.column_by_name(column).expect("the column");
    column.as_primitive::<Int64Type>().values().to_vec()
}

pub fn floats(batch: &RecordBatch, column: &str) -> Vec<f32> {
    let column = batch.column_by_name(column).expect("the column");
    column.as_primitive::<Float32Type>().values().to_vec()
}

/// Returns the ids of a row set's rows, read through its first source.
pub async fn ids(row_set: &RowSet) -> Vec<i64> {
    let ordinals: Vec<u64> = (0..row_set.num_rows()).collect();
    let resolved = row_set.resolve(&ordinals).await.expect("resolved rows");
    let taken = row_set.sources()[0].take(&["id".to_string()], &resolved.addrs[0]).await.expect("ids");
    assert_eq!(taken.num_rows(), ordinals.len());
    ints(&taken, "id")
}

/// Returns the `k` rows of `rows` nearest to `query` by squared distance; ties are ordered by id.
pub fn nearest(rows: &[Row], query: [f32; DIMENSIONS], k: usize) -> Vec<(i64, f32)> {
    let distance = |row: &Row| row.emb.iter().zip(query).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
    let mut found: Vec<(i64, f32)> = rows.iter().map(|row| (row.id, distance(row))).collect();
    found.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    found.truncate(k);
    found
}
