//! Arrow IPC: types, compression, dictionaries, and files that lie.

mod fuzz;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::ipc::CompressionType;
use arrow::ipc::writer::{DictionaryHandling, FileWriter, IpcWriteOptions, StreamWriter};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    FixedSizeListArray, Float64Array, Int8Array, Int64Array, LargeBinaryArray, ListArray, NullArray, RecordBatch,
    StringArray, StringViewArray, StructArray, TimestampMicrosecondArray,
};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};
use stoker_columns::{TensorType, is_encoded_image};

use super::ArrowIpc;
use crate::read_files::{MemoryFolder, ReadFiles, plan, read, read_default, read_files};
use crate::{FileFormat as _, FormatOptions};

pub(super) fn batch() -> RecordBatch {
    let keys = vec![Some("x"), None, Some("y"), Some("x")];
    let dictionary: DictionaryArray<Int8Type> = keys.into_iter().collect();
    let nested: DictionaryArray<Int32Type> =
        vec![Some("p"), Some("q"), None, Some("p"), Some("p")].into_iter().collect();
    let offsets = arrow_buffer::OffsetBuffer::new(vec![0, 2, 2, 4, 5].into());
    let item = Arc::new(Field::new("item", nested.data_type().clone(), true));
    let lists = ListArray::new(item, offsets, Arc::new(nested), Some(vec![true, false, true, true].into()));
    let structs = StructArray::from(vec![
        (Arc::new(Field::new("n", DataType::Int64, true)), Arc::new(Int64Array::from(vec![1, 2, 3, 4])) as ArrayRef),
        (
            Arc::new(Field::new("t", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec!["a", "", "c", "d"])) as ArrayRef,
        ),
    ]);
    let long = "a text that is longer than twelve bytes";
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("flag", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]))),
        ("whole", Arc::new(Int64Array::from(vec![Some(1), None, Some(i64::MIN), Some(3)]))),
        ("float", Arc::new(Float64Array::from(vec![0.5, 1.5, f64::INFINITY, -0.0]))),
        ("text", Arc::new(StringArray::from(vec![Some("a"), None, Some("ä"), Some(long)]))),
        ("bytes", Arc::new(LargeBinaryArray::from(vec![Some(b"a".as_slice()), None, Some(b""), Some(b"\xff")]))),
        ("view", Arc::new(StringViewArray::from(vec![Some("short"), None, Some(long), Some("")]))),
        ("bytes_view", Arc::new(BinaryViewArray::from(vec![Some(b"s".as_slice()), None, Some(long.as_bytes()), None]))),
        ("dictionary", Arc::new(dictionary)),
        ("lists", Arc::new(lists)),
        ("structs", Arc::new(structs)),
        ("date", Arc::new(Date32Array::from(vec![0, 1, 2, 3]))),
        ("time", Arc::new(TimestampMicrosecondArray::from(vec![0, 1, 2, 3]).with_timezone("UTC"))),
        ("decimal", Arc::new(Decimal128Array::from(vec![1, 2, 3, 4]).with_precision_and_scale(10, 2).unwrap())),
        ("null", Arc::new(NullArray::new(4))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

/// Writes batches as a file, or as a stream.
pub(super) fn written(batches: &[RecordBatch], compression: Option<CompressionType>, is_file: bool) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let schema = batches[0].schema();
    let mut bytes = Vec::new();
    if is_file {
        let mut writer = FileWriter::try_new_with_options(&mut bytes, &schema, options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
    } else {
        let mut writer = StreamWriter::try_new_with_options(&mut bytes, &schema, options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
    }
    bytes
}

fn read_bytes(bytes: Vec<u8>) -> crate::Result<ReadFiles> {
    read_default(&ArrowIpc, &MemoryFolder::new([("a.arrow", bytes)]))
}

fn error(bytes: Vec<u8>) -> String {
    read_bytes(bytes).unwrap_err().to_string()
}

#[test]
fn values_are_equal_and_plain() {
    let batch = batch();
    for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        for is_file in [true, false] {
            let bytes = written(&[batch.clone(), batch.slice(1, 2), batch.slice(0, 0)], compression, is_file);
            let read = read_bytes(bytes.clone()).unwrap();
            assert_eq!(read.rows.num_rows(), 6);
            assert_eq!(read.reasons(), Vec::<String>::new());
            for (index, field) in read.rows.schema_ref().fields().iter().enumerate() {
                let expected = cast(batch.column(index), field.data_type()).unwrap();
                assert_eq!(&read.rows.column(index).slice(0, 4), &expected, "{}", field.name());
                assert_eq!(&read.rows.column(index).slice(4, 2), &expected.slice(1, 2), "{}", field.name());
            }
            assert!(read.source_bytes <= bytes.len() as u64 && read.source_bytes > bytes.len() as u64 / 3);
        }
    }
}

#[test]
fn types_are_those_of_tables() {
    let read = read_bytes(written(&[batch()], None, true)).unwrap();
    let data_type = |name: &str| read.rows.schema_ref().field_with_name(name).unwrap().data_type().clone();
    assert_eq!(data_type("dictionary"), DataType::Utf8);
    assert_eq!(data_type("view"), DataType::Utf8);
    assert_eq!(data_type("bytes_view"), DataType::LargeBinary);
    assert_eq!(data_type("lists"), DataType::new_list(DataType::Utf8, true));
}

#[test]
fn dictionaries_expand_in_parts() {
    let value = "x".repeat(100_000);
    let keys = arrow_array::Int32Array::from(vec![0; 1000]);
    let dictionary = DictionaryArray::new(keys, Arc::new(StringArray::from(vec![value.as_str()])));
    let batch = RecordBatch::try_from_iter([("a", Arc::new(dictionary) as ArrayRef)]).unwrap();
    let folder = MemoryFolder::new([("a.arrow", written(&[batch], None, false))]);
    let files = plan(&ArrowIpc, &folder, &FormatOptions::default()).unwrap();
    let first = files.read(0).unwrap().next(1_000_000).unwrap().unwrap();
    assert_eq!(first.batch.num_rows(), 10);
    assert_eq!(read_files(files.as_ref(), 1 << 24).unwrap().rows.num_rows(), 1000);
}

#[test]
fn dictionaries_of_media_expand_in_parts() {
    const NUM_ROWS: usize = 10_000_000;
    let mut image = b"\xff\xd8\xff".to_vec();
    image.resize(1 << 20, 0);
    let options = FormatOptions { images: vec!["image".into()], ..FormatOptions::default() };
    let field = |name: &str, array: &ArrayRef| Arc::new(Field::new(name, array.data_type().clone(), true));
    let structs = |bytes: ArrayRef, path: ArrayRef| -> ArrayRef {
        Arc::new(StructArray::from(vec![(field("bytes", &bytes), bytes), (field("path", &path), path)]))
    };
    let dictionary =
        |keys: Int8Array, values: ArrayRef| -> ArrayRef { Arc::new(DictionaryArray::<Int8Type>::new(keys, values)) };
    // 10 TiB when they are plain.
    let bytes = dictionary(Int8Array::from(vec![0; NUM_ROWS]), Arc::new(BinaryArray::from_vec(vec![image.as_slice()])));
    let path = dictionary(Int8Array::new_null(NUM_ROWS), Arc::new(StringArray::from(vec!["x.jpg"])));
    let batch = RecordBatch::try_from_iter([("image", structs(bytes, path))]).unwrap();
    let folder = MemoryFolder::new([("a.arrow", written(&[batch], None, false))]);
    let mut reader = plan(&ArrowIpc, &folder, &options).unwrap().read(0).unwrap();
    for _ in 0..3 {
        let read = reader.next(8 << 20).unwrap().unwrap();
        assert_eq!((read.batch.num_rows(), read.bad.len()), (8, 0));
        assert!(read.batch.get_array_memory_size() < 64 << 20, "{} bytes", read.batch.get_array_memory_size());
        assert_eq!(read.batch.column(0).as_binary::<i64>().value(7), image);
    }

    let values = structs(
        Arc::new(BinaryArray::from_opt_vec(vec![Some(b"\xff\xd8\xff".as_slice()), None])),
        Arc::new(StringArray::from(vec![None, Some("x.jpg")])),
    );
    let batch = RecordBatch::try_from_iter([("image", dictionary(Int8Array::from(vec![0, 1, 0]), values))]).unwrap();
    let files = [("a.arrow", written(&[batch], None, false)), ("x.jpg", b"\xff\xd8\xff\xe0".to_vec())];
    let read = read(&ArrowIpc, &MemoryFolder::new(files), &options).unwrap();
    assert_eq!(read.reasons(), Vec::<String>::new());
    let found: Vec<Option<&[u8]>> = read.rows.column(0).as_binary::<i64>().iter().collect();
    assert_eq!(found, [Some(b"\xff\xd8\xff".as_slice()), Some(b"\xff\xd8\xff\xe0"), Some(b"\xff\xd8\xff")]);
}

#[test]
fn dictionaries_can_be_replaced_and_grow() {
    let of = |values: &[&str]| {
        let values: DictionaryArray<Int32Type> = values.iter().copied().collect();
        RecordBatch::try_from_iter([("a", Arc::new(values) as ArrayRef)]).unwrap()
    };
    let batches = [of(&["x", "y"]), of(&["x", "y", "z", "x"]), of(&["q"])];
    for (handling, batches) in [(DictionaryHandling::Resend, &batches[..]), (DictionaryHandling::Delta, &batches[..2])]
    {
        let options = IpcWriteOptions::default().with_dictionary_handling(handling);
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new_with_options(&mut bytes, &batches[0].schema(), options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
        let read = read_bytes(bytes).unwrap();
        let expected = ["x", "y", "x", "y", "z", "x", "q"];
        assert_eq!(read.rows.column(0).as_ref(), &StringArray::from(expected[..read.rows.num_rows()].to_vec()));
        assert_eq!(read.rows.num_rows(), batches.iter().map(RecordBatch::num_rows).sum::<usize>());
    }
}

#[test]
fn tensors_and_images_are_recognised() {
    let tensor = TensorType { element: DataType::Float32, shape: vec![1, 2] }.to_field("tensor");
    let lists = [Some(vec![Some(1.0), Some(2.0)]), None, Some(vec![Some(3.0), Some(4.0)])];
    let tensors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(lists, 2);
    let files = [Some(b"\xff\xd8\xff".as_slice()), Some(b"\xff\xd8\xff"), Some(b"no image")];
    let fields = vec![tensor.with_nullable(true), Field::new("image", DataType::LargeBinary, true)];
    let columns: Vec<ArrayRef> = vec![Arc::new(tensors), Arc::new(LargeBinaryArray::from(files.to_vec()))];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let folder = MemoryFolder::new([("a.feather", written(&[batch], None, true))]);
    let options = FormatOptions { images: vec!["image".into()], ..FormatOptions::default() };
    let read = read(&ArrowIpc, &folder, &options).unwrap();
    let image = "expected a JPEG, PNG or WebP file, found 8 bytes that begin with \"no image\"";
    let reasons = [
        "1: column tensor: expected 2 numbers without nulls, found null".to_string(),
        format!("2: column image: {image}"),
    ];
    assert_eq!(read.reasons(), reasons);
    assert_eq!(read.rows.num_rows(), 1);
    assert_eq!(TensorType::of(read.rows.schema_ref().field(0)).unwrap().shape, [1, 2]);
    assert!(is_encoded_image(read.rows.schema_ref().field(1)));
}

#[test]
fn features_in_the_schema_decide() {
    let features = r#"{"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}"#;
    let metadata = HashMap::from([("huggingface".to_string(), features.to_string())]);
    let schema = Schema::new_with_metadata(vec![Field::new("label", DataType::Int64, true)], metadata);
    let labels: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(-1), Some(2), None]));
    let batch = RecordBatch::try_new(Arc::new(schema), vec![labels]).unwrap();
    let read = read_bytes(written(&[batch], None, false)).unwrap();
    assert_eq!(read.rows.column(0).as_ref(), &Int64Array::from(vec![Some(1), Some(-1), None]));
    assert_eq!(read.rows.column(1).as_ref(), &StringArray::from(vec![Some("dog"), None, None]));
    assert_eq!(read.reasons(), ["2: column label: expected a class below 2, found 2"]);
}

#[test]
fn later_files_have_the_columns_of_the_first() {
    let of = |name: &str, array: ArrayRef| written(&[RecordBatch::try_from_iter([(name, array)]).unwrap()], None, true);
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let error = |second: Vec<u8>| {
        let folder = MemoryFolder::new([("a.ipc", of("n", numbers.clone())), ("b.ipc", second)]);
        read_default(&ArrowIpc, &folder).unwrap_err().to_string()
    };
    assert_eq!(error(of("n", text)), "b.ipc, column n: expected Int64, found Utf8");
    let missing = "b.ipc, column n: the file does not have this column of the first file";
    assert_eq!(error(of("m", numbers.clone())), missing);
}

#[test]
fn damaged_and_other_files_are_refused() {
    let file = written(&[batch()], None, true);
    let stream = written(&[batch()], None, false);
    assert_eq!(error(Vec::new()), "a.arrow: the file is empty");
    let cut = "a.arrow: the file has no footer at its end: it is cut off, or was not closed";
    assert_eq!(error(file[..file.len() - 1].to_vec()), cut);
    assert_eq!(error(file[..9].to_vec()), cut);
    let error_of_cut = error(stream[..stream.len() - 100].to_vec());
    assert!(error_of_cut.contains("is cut off: its body should have"), "{error_of_cut}");
    let csv = error(b"a,b\n1,2\n".to_vec());
    assert!(csv.starts_with("a.arrow: no Arrow IPC file or stream (") && csv.contains("\"a,b\\n1,2\\n\""), "{csv}");
    assert!(error(b"FEA1....".to_vec()).contains("Feather version 1"));
    let mut long = stream.clone();
    long[4..8].copy_from_slice(&i32::MAX.to_le_bytes());
    assert!(error(long).contains("should have 2147483647 bytes"));
    let mut negative = stream;
    negative[4..8].copy_from_slice(&(-5i32).to_le_bytes());
    assert!(error(negative).contains("has a negative length"));
}

#[test]
fn lies_about_lengths_take_no_memory() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(10_000)]));
    let batch = RecordBatch::try_from_iter([("a", texts)]).unwrap();
    let bytes = written(&[batch], Some(CompressionType::ZSTD), false);
    let length = 10_000i64.to_le_bytes();
    let at = bytes.windows(8).rposition(|window| window == length).unwrap();
    for (lie, reason) in [
        (1i64 << 30, "declares 1073741824 bytes, and has others"),
        (i64::MAX, "bytes are left for"),
        (9_999, "and has others"),
    ] {
        let mut lying = bytes.clone();
        lying[at..at + 8].copy_from_slice(&lie.to_le_bytes());
        let error = error(lying);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn unsupported_types_are_named() {
    let interval: ArrayRef = Arc::new(arrow_array::IntervalYearMonthArray::from(vec![1]));
    let error = error(written(&[RecordBatch::try_from_iter([("a", interval)]).unwrap()], None, true));
    assert_eq!(error, "a.arrow: column a: values of the type Interval with these parameters cannot be read");
}

#[test]
fn names_are_recognised() {
    let folder =
        MemoryFolder::new([("a.arrow", ""), ("b.IPC", ""), ("c.arrows", ""), ("d.arrow.gz", ""), ("e.txt", "")]);
    let names = ["a.arrow", "b.IPC", "c.arrows"].map(String::from).to_vec();
    assert_eq!(ArrowIpc.recognise(&folder), Some(names));
    assert_eq!(ArrowIpc.recognise(&MemoryFolder::new([("a.parquet", "")])), None);
}
