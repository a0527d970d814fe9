//! Parquet files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, ListBuilder, UInt8Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type, UInt8Type, UInt16Type};
use arrow_array::{Array, ArrayRef, BinaryArray, DictionaryArray, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use stoker_columns::{DTYPE_KEY, TensorType, is_encoded_image};
use stoker_types::ErrorKind;

use super::{StopAfter, World};
use crate::{Error, IngestReport, NoProgress, OnError, ParquetOptions, Progress, Result, ingest_parquet};

/// Writes a Parquet file with four rows per row group.
pub(super) fn put(world: &World, name: &str, columns: Vec<(&str, ArrayRef)>) -> PathBuf {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)));
    put_batch(world, name, &batch.unwrap())
}

fn put_batch(world: &World, name: &str, batch: &RecordBatch) -> PathBuf {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(4)).build();
    world.put(name, &encode(batch, properties))
}

fn encode(batch: &RecordBatch, properties: WriterProperties) -> Vec<u8> {
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

/// A moment during an ingest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The sources are listed, and no row is read.
    Listed,
    /// The ingest reports progress for the first time.
    FirstProgress,
    /// The ingest asks for the n-th time, from 0, whether to stop.
    Question(u64),
}

/// Performs an action once during an ingest.
pub(super) struct Meddler<F> {
    moment: Moment,
    /// The numbers of progress reports and of questions so far.
    progress: AtomicU64,
    questions: AtomicU64,
    action: F,
}

impl<F: Fn() + Send + Sync> Meddler<F> {
    pub(super) fn new(moment: Moment, action: F) -> Self {
        Self { moment, progress: AtomicU64::new(0), questions: AtomicU64::new(0), action }
    }

    fn reach(&self, moment: Moment) {
        if self.moment == moment {
            (self.action)();
        }
    }
}

impl<F: Fn() + Send + Sync> Progress for Meddler<F> {
    fn total(&self, _files: u64, _bytes: u64) {
        self.reach(Moment::Listed);
    }

    fn advance(&self, _files: u64, _rows: u64, _bytes: u64) {
        if self.progress.fetch_add(1, Ordering::Relaxed) == 0 {
            self.reach(Moment::FirstProgress);
        }
    }

    fn should_stop(&self) -> bool {
        self.reach(Moment::Question(self.questions.fetch_add(1, Ordering::Relaxed)));
        false
    }
}

/// Changes the modification time of a file.
pub(super) fn touch(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.set_modified(modified + Duration::from_secs(1)).unwrap();
}

async fn ingest(world: &World, options: &ParquetOptions) -> Result<IngestReport> {
    ingest_parquet(&world.lake, &[world.source()], &world.table, options, &NoProgress).await
}

fn ids(rows: i64) -> (&'static str, ArrayRef) {
    ("id", Arc::new(Int64Array::from_iter_values(0..rows)))
}

/// Returns lists of 6 numbers, except that the list at row `odd.0` has `odd.1` numbers.
fn lists(rows: usize, odd: Option<(usize, usize)>) -> ArrayRef {
    let mut builder = ListBuilder::new(UInt8Builder::new());
    for row in 0..rows {
        let length = odd.filter(|odd| odd.0 == row).map_or(6, |odd| odd.1);
        builder.values().append_slice(&vec![row as u8; length]);
        builder.append(true);
    }
    Arc::new(builder.finish())
}

#[tokio::test]
async fn declared_tensors_vectors_and_images() {
    let world = World::new().await;
    let mut vectors = ListBuilder::new(Float32Builder::new());
    let mut fixed = FixedSizeListBuilder::new(Float32Builder::new(), 2);
    for row in 0..9 {
        vectors.values().append_slice(&[row as f32; 3]);
        vectors.append(true);
        fixed.values().append_slice(&[row as f32; 2]);
        fixed.append(true);
    }
    let vectors: ArrayRef = Arc::new(vectors.finish());
    let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values((0..9u8).map(|row| [row, 0, 1, row])));
    let words: DictionaryArray<Int32Type> = ["x", "y", "x", "x", "y", "y", "x", "x", "z"].into_iter().collect();
    put(
        &world,
        "1.parquet",
        vec![
            ids(9),
            ("tensor", lists(9, None)),
            ("vector", vectors.clone()),
            ("half", vectors),
            ("raw", bytes.clone()),
            ("photo", bytes),
            ("fixed", Arc::new(fixed.finish())),
            ("word", Arc::new(words)),
        ],
    );
    let schema = world.put("schema.json", br#"{"drop": ["id"], "vectors": {"vector": 3}, "images": ["photo"]}"#);
    let tensors = ["tensor=uint8[3,1,2]", "half=bfloat16[3]", "raw=uint16[2]"].map(|text| text.parse().unwrap());
    let options = ParquetOptions { tensors: tensors.to_vec(), schema: Some(schema), ..ParquetOptions::default() };
    let report = ingest(&world, &options).await.unwrap();
    assert_eq!((report.rows, report.files, report.version), (9, 1, 1));
    let rows = world.rows().await;
    let schema = rows.schema();
    let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["tensor", "vector", "half", "raw", "photo", "fixed", "word"]);
    assert_eq!(TensorType::of(schema.field(0)).unwrap().shape, [3, 1, 2]);
    assert!(!schema.field(0).is_nullable() && !schema.field(1).is_nullable());
    assert_eq!(rows.column(0).as_fixed_size_list().value(7).as_primitive::<UInt8Type>().values(), &[7; 6]);
    assert_eq!(rows.column(1).as_fixed_size_list().value(8).as_primitive::<Float32Type>().values(), &[8.0; 3]);
    assert_eq!(schema.field(2).metadata().get(DTYPE_KEY).map(String::as_str), Some("bfloat16"));
    let bits = half::bf16::from_f32(5.0).to_bits();
    assert_eq!(rows.column(2).as_fixed_size_list().value(5).as_primitive::<UInt16Type>().values(), &[bits; 3]);
    assert_eq!(rows.column(3).as_fixed_size_list().value(4).as_primitive::<UInt16Type>().values(), &[4, 1025]);
    assert!(is_encoded_image(schema.field(4)));
    assert_eq!(rows.column(4).as_binary::<i64>().value(3), [3, 0, 1, 3]);
    assert_eq!(rows.column(5).as_fixed_size_list().value(1).as_primitive::<Float32Type>().values(), &[1.0; 2]);
    assert_eq!(*rows.column(6).data_type(), DataType::Utf8);
    assert_eq!(rows.column(6).as_string::<i32>().value(8), "z");
}

#[tokio::test]
async fn tensor_extensions_are_kept() {
    let world = World::new().await;
    let tensor = TensorType { element: DataType::UInt8, shape: vec![2, 3] };
    let field = tensor.to_field("tensor");
    let values = lists(5, None);
    let array = arrow_cast::cast(&values, field.data_type()).unwrap();
    let schema = Arc::new(Schema::new(vec![field]));
    put_batch(&world, "1.parquet", &RecordBatch::try_new(schema, vec![array]).unwrap());
    ingest(&world, &ParquetOptions::default()).await.unwrap();
    assert_eq!(TensorType::of(world.rows().await.schema().field(0)), Some(tensor));
}

#[tokio::test]
async fn values_that_do_not_fit_are_named() {
    let tensor = |text: &str| ParquetOptions { tensors: vec![text.parse().unwrap()], ..ParquetOptions::default() };
    let bytes = |odd: Option<&'static [u8]>| -> ArrayRef {
        Arc::new(BinaryArray::from_iter((0..7).map(|row| if row == 5 { odd } else { Some(b"abcdef".as_slice()) })))
    };
    let numbers: ArrayRef = {
        let mut builder = ListBuilder::new(arrow_array::builder::Int64Builder::new());
        for row in 0..7 {
            builder.values().append_slice(&[100 * row, 1]);
            builder.append(true);
        }
        Arc::new(builder.finish())
    };
    let cases: [(ArrayRef, &str, &str); 5] = [
        (
            lists(7, Some((6, 5))),
            "x=uint8[2,3]",
            "row 6 column x: expected uint8[2,3], found a list of 5 elements instead of 6",
        ),
        (bytes(Some(b"abc")), "x=uint8[6]", "row 5 column x: expected uint8[6], found 3 bytes instead of 6"),
        (bytes(None), "x=uint8[6]", "row 5 column x: expected uint8[6], found null"),
        (numbers, "x=uint8[2]", "row 3 column x: expected uint8[2], found an element of type Int64"),
        (Arc::new(StringArray::from(vec!["a"; 7])), "x=uint8[6]", "column x: expected uint8[6], found Utf8"),
    ];
    for (array, spec, expected) in cases {
        let world = World::new().await;
        put(&world, "1.parquet", vec![ids(7), ("x", array)]);
        let error = ingest(&world, &ParquetOptions { on_error: OnError::Skip, ..tensor(spec) }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.to_string().contains(expected) && error.to_string().contains("1.parquet"), "{error}");
        assert!(!world.exists().await);
    }
}

#[tokio::test]
async fn unknown_columns_and_other_schemas_are_refused() {
    let world = World::new().await;
    put(&world, "1.parquet", vec![ids(3)]);
    let error = ingest(&world, &ParquetOptions { drop: vec!["nope".into()], ..Default::default() }).await.unwrap_err();
    assert!(error.to_string().contains("nope; columns: id"), "{error}");
    put(&world, "2.parquet", vec![("id", Arc::new(StringArray::from(vec!["a"])))]);
    let error = ingest(&world, &ParquetOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("expected Int64, found Utf8"), "{error}");
}

#[tokio::test]
async fn damaged_files_fail_or_are_skipped() {
    let world = World::new().await;
    let good = put(&world, "1.parquet", vec![ids(9)]);
    world.put("2.parquet", b"this is text");
    let bytes = std::fs::read(good).unwrap();
    world.put("3.parquet", &bytes[..bytes.len() / 2]);
    let error = ingest(&world, &ParquetOptions::default()).await.unwrap_err();
    assert!(matches!(&error, Error::Unreadable { path, .. } if path.ends_with("2.parquet")), "{error}");
    let report = ingest(&world, &ParquetOptions { on_error: OnError::Skip, ..Default::default() }).await.unwrap();
    assert_eq!((report.rows, report.files, report.skipped.len()), (9, 3, 2));
}

#[tokio::test]
async fn a_damaged_row_group_is_left_out_as_a_whole() {
    let world = World::new().await;
    let path = put(&world, "1.parquet", vec![ids(12), ("x", lists(12, None))]);
    let file = File::open(&path).unwrap();
    let builder = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let (start, length) = builder.metadata().row_group(1).column(1).byte_range();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[start as usize..(start + length) as usize].fill(0xff);
    std::fs::write(&path, &bytes).unwrap();
    let error = ingest(&world, &ParquetOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("row group 1 (rows 4 to 8)"), "{error}");
    let report = ingest(&world, &ParquetOptions { on_error: OnError::Skip, ..Default::default() }).await.unwrap();
    assert_eq!((report.rows, report.skipped.len()), (8, 1));
    assert_eq!(world.rows().await.num_rows(), 8);
}

#[tokio::test]
async fn a_stopped_ingest_goes_on_without_duplicates() {
    let world = World::new().await;
    put(&world, "1.parquet", vec![ids(11)]);
    let options = ParquetOptions { unit_bytes: 1, ..ParquetOptions::default() };
    let files = [world.source()];
    let stop = StopAfter::new(4);
    let error = ingest_parquet(&world.lake, &files, &world.table, &options, &stop).await.unwrap_err();
    assert!(matches!(error, Error::Stopped { units_done: 1, units: 3 }), "{error}");
    let report = ingest(&world, &options).await.unwrap();
    assert_eq!((report.rows, report.resumed_units, report.files), (11, 1, 1));
    let rows = world.rows().await;
    let found = rows.column(0).as_primitive::<arrow_array::types::Int64Type>();
    assert_eq!(found.values().to_vec(), (0..11).collect::<Vec<i64>>());
}

#[tokio::test]
async fn row_groups_keep_their_order() {
    let world = World::new().await;
    // Two files with more row groups than there are decoders.
    for (name, first) in [("a.parquet", 0), ("b.parquet", 150)] {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 150));
        put(&world, name, vec![("id", ids)]);
    }
    assert_eq!(ingest(&world, &ParquetOptions::default()).await.unwrap().rows, 300);
    let rows = world.rows().await;
    let found = rows["id"].as_primitive::<arrow_array::types::Int64Type>().values().to_vec();
    assert_eq!(found, (0..300).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_file_that_becomes_readable_is_not_confused_with_earlier_units() {
    let world = World::new().await;
    for (name, first) in [("a.parquet", 0), ("b.parquet", 20), ("c.parquet", 40)] {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 20));
        put(&world, name, vec![("id", ids)]);
    }
    let first = world.source().join("a.parquet");
    let bytes = std::fs::read(&first).unwrap();
    let modified = first.metadata().unwrap().modified().unwrap();
    let restore = |bytes: &[u8]| {
        std::fs::write(&first, bytes).unwrap();
        File::options().write(true).open(&first).unwrap().set_modified(modified).unwrap();
    };
    restore(&vec![0; bytes.len()]);
    let options = ParquetOptions { on_error: OnError::Skip, unit_bytes: 1, ..ParquetOptions::default() };
    let stop = StopAfter::new(8);
    let stopped = ingest_parquet(&world.lake, &[world.source()], &world.table, &options, &stop).await;
    assert!(matches!(stopped, Err(Error::Stopped { units_done: 1.., .. })), "{stopped:?}");
    restore(&bytes);
    assert_eq!(ingest(&world, &options).await.unwrap().rows, 60);
    let rows = world.rows().await;
    let found = rows["id"].as_primitive::<arrow_array::types::Int64Type>().values().to_vec();
    assert_eq!(found, (0..60).collect::<Vec<_>>());
}

fn found_ids(rows: &RecordBatch) -> Vec<i64> {
    rows["id"].as_primitive::<arrow_array::types::Int64Type>().values().to_vec()
}

#[tokio::test]
async fn a_file_that_changes_meanwhile_is_an_error_and_never_skipped() {
    type Change = fn(&Path, &[u8]);
    let replaced: Change = |path, other| {
        let new = path.with_extension("new");
        std::fs::write(&new, other).unwrap();
        touch(&new);
        std::fs::rename(&new, path).unwrap();
    };
    let written: Change = |path, other| {
        std::fs::write(path, other).unwrap();
        touch(path);
    };
    let removed: Change = |path, _| std::fs::remove_file(path).unwrap();
    for change in [replaced, written, removed] {
        for moment in [Moment::Listed, Moment::FirstProgress] {
            for on_error in [OnError::Fail, OnError::Skip] {
                let world = World::new().await;
                let other = std::fs::read(put(
                    &world,
                    "1.parquet",
                    vec![("id", Arc::new(Int64Array::from_iter_values(100..112)) as ArrayRef)],
                ));
                let (path, other) = (put(&world, "1.parquet", vec![ids(12)]), other.unwrap());
                // With this option, each of the three row groups is a unit.
                let options = ParquetOptions { on_error, unit_bytes: 1, ..ParquetOptions::default() };
                let meddler = Meddler::new(moment, || change(&path, &other));
                let files = [world.source()];
                let outcome = ingest_parquet(&world.lake, &files, &world.table, &options, &meddler).await;
                let error = outcome.unwrap_err();
                assert!(matches!(&error, Error::Changed { path, .. } if path.ends_with("1.parquet")), "{error}");
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                assert!(!world.exists().await);
                if path.exists() {
                    let report = ingest(&world, &options).await.unwrap();
                    assert_eq!((report.rows, report.resumed_units), (12, 0));
                    assert_eq!(found_ids(&world.rows().await), (100..112).collect::<Vec<_>>());
                }
            }
        }
    }
}

#[tokio::test]
async fn a_file_that_is_written_to_while_it_is_read_is_an_error() {
    let world = World::new().await;
    // The row group has four record batches: when the first one is written, two wait, and the last one cannot be sent
    // yet.
    let batch = RecordBatch::try_from_iter([ids(127)]).unwrap();
    let path = world.put("1.parquet", &encode(&batch, WriterProperties::default()));
    // The first question comes before the unit, the second before its first record batch.
    let meddler = Meddler::new(Moment::Question(2), || touch(&path));
    let options = ParquetOptions { on_error: OnError::Skip, ..ParquetOptions::default() };
    let outcome = ingest_parquet(&world.lake, &[world.source()], &world.table, &options, &meddler).await;
    assert!(matches!(outcome, Err(Error::Changed { .. })), "{outcome:?}");
    assert!(!world.exists().await);
}

#[tokio::test]
async fn many_row_groups_of_one_file_keep_their_order() {
    for unit_bytes in [2_000, 256 << 20] {
        let world = World::new().await;
        put(&world, "1.parquet", vec![ids(2_000)]);
        let options = ParquetOptions { unit_bytes, ..ParquetOptions::default() };
        assert_eq!(ingest(&world, &options).await.unwrap().rows, 2_000);
        assert_eq!(found_ids(&world.rows().await), (0..2_000).collect::<Vec<_>>());
    }
}

/// Rows keep their order, and each comes once, although 40 MB of strings in the middle of a row group make record
/// batches larger after the first one and smaller after the strings.
#[tokio::test]
async fn rows_of_very_different_sizes_keep_their_order() {
    let world = World::new().await;
    let wide = "wide".repeat(12_500);
    let text = |row: i64| if (4_000..4_800).contains(&row) { wide.clone() } else { row.to_string() };
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..8_000).map(text)));
    let batch = RecordBatch::try_from_iter([ids(8_000), ("text", texts), ("list", lists(8_000, None))]).unwrap();
    // With many pages, lists reach over page borders.
    let properties = WriterProperties::builder().set_data_page_row_count_limit(500).set_write_batch_size(100);
    let path = world.put("1.parquet", &encode(&batch, properties.build()));
    assert!(path.metadata().unwrap().len() < 1_000_000);
    assert_eq!(ingest(&world, &ParquetOptions::default()).await.unwrap().rows, 8_000);
    let rows = world.rows().await;
    assert_eq!(found_ids(&rows), (0..8_000).collect::<Vec<_>>());
    let (texts, lists) = (rows["text"].as_string::<i32>(), rows["list"].as_list::<i32>());
    for row in 0..8_000usize {
        assert!(texts.value(row) == text(row as i64), "row {row}");
        assert_eq!(lists.value(row).as_primitive::<UInt8Type>().values(), &[row as u8; 6], "row {row}");
    }
}

/// Returns structs of a file's bytes and its path, as Hugging Face stores images; row 1 is null.
fn hugging_face_files() -> ArrayRef {
    let bytes: ArrayRef = Arc::new(BinaryArray::from_iter([Some(b"\xff\xd8\xff 0"), None, Some(b"\xff\xd8\xff 2")]));
    let paths: ArrayRef = Arc::new(StringArray::from_iter([Some("0.jpg"), None, None]));
    let field = |name: &str, array: &ArrayRef| Arc::new(Field::new(name, array.data_type().clone(), true));
    let fields = vec![(field("bytes", &bytes), bytes), (field("path", &paths), paths)];
    let (fields, arrays): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
    let nulls = NullBuffer::from(vec![true, false, true]);
    Arc::new(StructArray::new(fields.into(), arrays, Some(nulls)))
}

#[tokio::test]
async fn hugging_face_images_become_encoded_images_unless_they_are_something_else() {
    let said = |kind: &str| format!(r#"{{"info": {{"features": {{"x": {{"_type": "{kind}"}}}}}}}}"#);
    let as_is = ParquetOptions { as_is: vec!["x".into()], ..ParquetOptions::default() };
    let cases = [
        (None, ParquetOptions::default(), true),
        (Some(said("Image")), ParquetOptions::default(), true),
        (Some("no JSON".to_string()), ParquetOptions::default(), true),
        (Some(said("Audio")), ParquetOptions::default(), false),
        (Some(said("Image")), as_is, false),
    ];
    for (metadata, options, is_image) in cases {
        let world = World::new().await;
        let (ids, files) = (ids(3), hugging_face_files());
        let fields =
            vec![Field::new("id", ids.1.data_type().clone(), true), Field::new("x", files.data_type().clone(), true)];
        let metadata = metadata.map(|text| ("huggingface".to_string(), text));
        let schema = Schema::new_with_metadata(fields, metadata.into_iter().collect());
        let batch = RecordBatch::try_new(Arc::new(schema), vec![ids.1, files]).unwrap();
        put_batch(&world, "a.parquet", &batch);
        ingest(&world, &options).await.unwrap();
        let rows = world.rows().await;
        let (schema, x) = (rows.schema(), &rows["x"]);
        assert_eq!(is_encoded_image(schema.field_with_name("x").unwrap()), is_image, "{options:?}");
        assert_eq!(x.null_count(), 1);
        match is_image {
            true => assert_eq!(x.as_binary::<i64>().value(2), b"\xff\xd8\xff 2"),
            false => assert_eq!(x.as_struct().column(1).as_string::<i32>().value(0), "0.jpg"),
        }
    }
    let world = World::new().await;
    put(&world, "a.parquet", vec![ids(3)]);
    let unknown = ParquetOptions { as_is: vec!["y".into()], ..ParquetOptions::default() };
    assert!(ingest(&world, &unknown).await.unwrap_err().to_string().starts_with("--as-is is not valid"));
}
