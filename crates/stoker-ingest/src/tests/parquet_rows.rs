//! Rows as Parquet files.

use std::fs::File;
use std::io::{ErrorKind as IoErrorKind, Write};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, UInt8Array};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use stoker_columns::TensorType;
use stoker_types::ErrorKind;

use crate::parquet_rows::ROW_GROUP_ROWS_MAX;
use crate::{ParquetRows, Result};

/// Returns rows with an id, a tensor and a vector.
fn rows(ids: Range<i64>, vectors: Option<NullBuffer>) -> RecordBatch {
    let tensor = TensorType { element: DataType::UInt8, shape: vec![1, 2] }.to_field("tensor");
    let DataType::FixedSizeList(item, _) = tensor.data_type() else { panic!("a tensor is a list") };
    let bytes: UInt8Array = ids.clone().flat_map(|id| [id as u8, 7]).map(Some).collect();
    let tensors = FixedSizeListArray::new(item.clone(), 2, Arc::new(bytes), None);
    let values = ids.clone().map(|id| Some(vec![Some(id as f32), Some(0.5), None]));
    let vectors_of = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(values, 3);
    let (field, length, values, _) = vectors_of.into_parts();
    let vector = Field::new("vector", DataType::FixedSizeList(field.clone(), length), true);
    let fields = vec![Field::new("id", DataType::Int64, true), tensor, vector];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(ids.map(|id| (id % 2 == 0).then_some(id)).collect::<Int64Array>()),
        Arc::new(tensors),
        Arc::new(FixedSizeListArray::new(field, length, values, vectors)),
    ];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn written(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let (mut file, mut out) = (ParquetRows::try_new(schema)?, Vec::new());
    batches.iter().try_for_each(|batch| file.write(batch, &mut out))?;
    file.finish(&mut out)?;
    Ok(out)
}

fn read(bytes: &[u8]) -> (SchemaRef, Vec<RecordBatch>) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(stored(bytes)).unwrap().with_batch_size(1 << 20);
    let schema = reader.schema().clone();
    (schema, reader.build().unwrap().collect::<std::result::Result<_, _>>().unwrap())
}

/// Returns a file with these bytes, which the reader takes.
fn stored(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn rows_come_back_with_their_types() {
    let batch = rows(0..10, None);
    let file = written(&batch.schema(), &[batch.slice(0, 4), batch.slice(4, 0), batch.slice(4, 6)]).unwrap();
    let (schema, found) = read(&file);
    assert_eq!(schema, batch.schema());
    assert_eq!(found, [batch]);
}

#[test]
fn no_rows_are_a_file_too() {
    let schema = rows(0..0, None).schema();
    let (found, batches) = read(&written(&schema, &[]).unwrap());
    assert_eq!((found, batches.len()), (schema, 0));
}

#[test]
fn row_groups_have_a_limit() {
    let num_rows = ROW_GROUP_ROWS_MAX as i64 + 5;
    let batch = rows(0..num_rows, None).project(&[0]).unwrap();
    let file = SerializedFileReader::new(stored(&written(&batch.schema(), &[batch]).unwrap())).unwrap();
    let counts: Vec<i64> = file.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(counts, [ROW_GROUP_ROWS_MAX as i64, 5]);
}

#[test]
fn null_vectors_are_refused_by_name() {
    let batch = rows(0..3, Some(NullBuffer::from(vec![true, false, true])));
    let error = written(&batch.schema(), &[batch]).expect_err("a null vector");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().starts_with("column vector has nulls"), "{error}");
}

/// A writer to a disk that is full.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(IoErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_fails_is_named_as_the_cause() {
    let batch = rows(0..3, None);
    let mut file = ParquetRows::try_new(&batch.schema()).unwrap();
    let error = file.write(&batch, &mut Full).and_then(|()| file.finish(&mut Full)).expect_err("a full disk");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().starts_with("cannot write the Parquet file"), "{error}");
}
