//! Folders of `save_to_disk`, and features.

mod fuzz;

use std::sync::Arc;

use arrow::ipc::writer::StreamWriter;
use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, Float32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Schema};
use serde_json::{Value, json};
use stoker_columns::{TensorType, encoded_video, is_encoded_image};

use super::{HuggingFace, feature_columns};
use crate::read_files::{MemoryFolder, ReadFiles, read, read_default};
use crate::{FileFormat as _, FormatOptions, format_of};

const JPEG: &[u8] = b"\xff\xd8\xff";

fn stream(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    bytes
}

/// A column of structs of bytes and paths.
fn files(rows: &[(Option<&[u8]>, Option<&str>)]) -> ArrayRef {
    let bytes: ArrayRef = Arc::new(rows.iter().map(|(bytes, _)| *bytes).collect::<BinaryArray>());
    let paths: ArrayRef = Arc::new(rows.iter().map(|(_, path)| *path).collect::<StringArray>());
    let fields = vec![Field::new("bytes", DataType::Binary, true), Field::new("path", DataType::Utf8, true)];
    Arc::new(StructArray::new(fields.into(), vec![bytes, paths], None))
}

fn state(names: &[&str]) -> Vec<u8> {
    let files: Vec<Value> = names.iter().map(|name| json!({ "filename": name })).collect();
    json!({ "_data_files": files, "_fingerprint": "0", "_format_columns": null, "_split": "train" }).to_string().into()
}

fn info(features: &Value) -> Vec<u8> {
    json!({ "citation": "", "features": features }).to_string().into()
}

/// A dataset with one file, and other files beside it.
fn saved(features: &Value, columns: Vec<(&str, ArrayRef)>, others: &[(&'static str, &[u8])]) -> MemoryFolder {
    let own = [
        ("state.json", state(&["data-00000-of-00001.arrow"])),
        ("dataset_info.json", info(features)),
        ("data-00000-of-00001.arrow", stream(columns)),
    ];
    let others = others.iter().map(|(name, bytes)| (*name, bytes.to_vec()));
    MemoryFolder::new(own.into_iter().chain(others))
}

fn read_saved(features: &Value, columns: Vec<(&str, ArrayRef)>) -> crate::Result<ReadFiles> {
    read_default(&HuggingFace, &saved(features, columns, &[]))
}

#[test]
fn media_and_labels() {
    let features = json!({
        "image": { "_type": "Image" },
        "sound": { "sampling_rate": 16000, "_type": "Audio" },
        "label": { "names": ["cat", "dog"], "_type": "ClassLabel" },
        "text": { "dtype": "string", "_type": "Value" },
    });
    let images = files(&[
        (Some(JPEG), Some("a.jpg")),
        (None, Some("images/b.jpg")),
        (None, None),
        (None, Some("/elsewhere/c.jpg")),
        (None, Some("images/gone.jpg")),
        (Some(b"no image"), None),
    ]);
    let sounds =
        files(&[(Some(b"RIFF"), None), (None, None), (Some(b"x"), None), (None, None), (None, None), (None, None)]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("image", images),
        ("sound", sounds),
        ("label", Arc::new(Int64Array::from(vec![Some(0), Some(1), None, Some(0), Some(0), Some(0)]))),
        ("text", Arc::new(StringArray::from(vec!["a", "b", "c", "d", "e", "f"]))),
    ];
    let folder = saved(&features, columns, &[("images/b.jpg", b"\xff\xd8\xff\xe0")]);
    assert_eq!(format_of(&folder).map(|format| format.name()), Some("huggingface"));
    let read = read_default(&HuggingFace, &folder).unwrap();
    let reasons = [
        "3: column image: \"/elsewhere/c.jpg\" is an absolute path; paths should be relative to the folder",
        "4: column image: the folder has no file \"images/gone.jpg\"",
        "5: column image: expected a JPEG, PNG or WebP file, found 8 bytes that begin with \"no image\"",
    ];
    assert_eq!(read.reasons(), reasons);
    let names: Vec<&str> = read.rows.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["image", "sound", "label", "label_name", "text"]);
    assert!(is_encoded_image(read.rows.schema_ref().field(0)));
    let values = |column: usize| read.rows.column(column).as_binary::<i64>().iter().collect::<Vec<_>>();
    assert_eq!(values(0), [Some(JPEG), Some(b"\xff\xd8\xff\xe0"), None]);
    assert_eq!(values(1), [Some(b"RIFF".as_slice()), None, Some(b"x")]);
    assert_eq!(read.rows.column(3).as_ref(), &StringArray::from(vec![Some("cat"), Some("dog"), None]));
}

#[test]
fn arrays_become_tensors() {
    let features = json!({ "a": { "shape": [2, 2], "dtype": "float32", "_type": "Array2D" } });
    let numbers = Float32Array::from_iter_values((0..10u8).map(f32::from));
    let item = |data_type: DataType| Arc::new(Field::new("item", data_type, true));
    let rows: ArrayRef = Arc::new(ListArray::new(
        item(DataType::Float32),
        OffsetBuffer::new(vec![0, 2, 4, 6, 8, 10].into()),
        Arc::new(numbers),
        None,
    ));
    let lists: ArrayRef = Arc::new(ListArray::new(
        item(rows.data_type().clone()),
        OffsetBuffer::new(vec![0, 2, 4, 5].into()),
        rows,
        None,
    ));
    let read = read_saved(&features, vec![("a", lists.clone())]).unwrap();
    let tensor = TensorType::of(read.rows.schema_ref().field(0)).unwrap();
    assert_eq!((tensor.element, tensor.shape), (DataType::Float32, vec![2, 2]));
    let values = read.rows.column(0).as_fixed_size_list().values().clone();
    let expected: Vec<f32> = (0..8u8).map(f32::from).collect();
    assert_eq!(values.as_primitive::<Float32Type>().values().as_ref(), expected);
    assert_eq!(read.reasons(), ["2: column a: expected float32[2,2], found a list of 1 elements instead of 2"]);
    let dynamic = json!({ "a": { "shape": [null, 2], "dtype": "float32", "_type": "Array2D" } });
    let read = read_saved(&dynamic, vec![("a", lists)]).unwrap();
    assert_eq!((read.rows.num_rows(), read.reasons().len()), (3, 0));
}

#[test]
fn other_features_keep_their_type() {
    let features = json!({
        "list": { "feature": { "dtype": "int64", "_type": "Value" }, "length": -1, "_type": "Sequence" },
        "translation": { "languages": ["de", "en"], "_type": "Translation" },
    });
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let list: ArrayRef = Arc::new(ListArray::new(
        item,
        OffsetBuffer::new(vec![0, 2].into()),
        Arc::new(Int64Array::from(vec![1, 2])),
        None,
    ));
    let text = |value: &str| Arc::new(StringArray::from(vec![value])) as ArrayRef;
    let translation: ArrayRef = Arc::new(StructArray::from(vec![
        (Arc::new(Field::new("de", DataType::Utf8, true)), text("ja")),
        (Arc::new(Field::new("en", DataType::Utf8, true)), text("yes")),
    ]));
    let read = read_saved(&features, vec![("list", list.clone()), ("translation", translation.clone())]).unwrap();
    assert_eq!(read.rows.columns(), [list, translation]);
}

#[test]
fn splits_become_a_column() {
    let numbers = |numbers: Vec<i64>| stream(vec![("n", Arc::new(Int64Array::from(numbers)))]);
    let features = json!({ "n": { "dtype": "int64", "_type": "Value" } });
    let mut files: Vec<(&'static str, Vec<u8>)> = vec![
        ("dataset_dict.json", br#"{"splits": ["train", "test"]}"#.to_vec()),
        ("train/state.json", state(&["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"])),
        ("train/dataset_info.json", info(&features)),
        ("train/data-00000-of-00002.arrow", numbers(vec![1, 2])),
        ("train/data-00001-of-00002.arrow", numbers(vec![3])),
        ("test/state.json", state(&["data-00000-of-00001.arrow"])),
        ("test/dataset_info.json", info(&features)),
        ("test/data-00000-of-00001.arrow", numbers(vec![4])),
    ];
    let read = read_default(&HuggingFace, &MemoryFolder::new(files.clone())).unwrap();
    assert_eq!(read.rows.column(0).as_ref(), &Int64Array::from(vec![1, 2, 3, 4]));
    assert_eq!(read.rows.column(1).as_ref(), &StringArray::from(vec!["train", "train", "train", "test"]));
    assert_eq!(read.rows.schema_ref().field(1).name(), "split");
    files[0].1 = br#"{"splits": ["../train"]}"#.to_vec();
    let leaves = read_default(&HuggingFace, &MemoryFolder::new(files)).unwrap_err().to_string();
    assert_eq!(leaves, "dataset_dict.json: \"../train\" is no name of a split");
}

#[test]
fn damaged_folders_are_no_plain_arrow_files() {
    let data = || ("data.arrow", stream(vec![("n", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]));
    let check = |files: Vec<(&'static str, Vec<u8>)>, said: &str| {
        let folder = MemoryFolder::new(files);
        assert_eq!(format_of(&folder).map(|format| format.name()), Some("huggingface"), "{said}");
        let error = read_default(&HuggingFace, &folder).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
    };
    let whole = state(&["data.arrow"]);
    let cut = whole[..whole.len() / 2].to_vec();
    let indices = br#"{"_data_files": [{"filename": "data.arrow"}], "_indices_data_files": [{"filename": "i.arrow"}]}"#;
    check(vec![("state.json", cut.clone()), data()], "state.json: EOF");
    check(vec![("state.json", indices.to_vec()), data()], "state.json: the dataset has a file of row numbers");
    check(vec![("state.json", state(&["gone.arrow"])), data()], "state.json: the folder has no file \"gone.arrow\"");
    check(vec![("state.json", Vec::new()), ("dataset_info.json", info(&json!({}))), data()], "state.json: EOF");
    check(vec![("state.json", whole.clone()), ("dataset_info.json", b"{".to_vec()), data()], "dataset_info.json: EOF");
    let in_train = || ("train/data.arrow", data().1);
    check(
        vec![("dataset_dict.json", b"{".to_vec()), ("train/state.json", whole.clone()), in_train()],
        "dataset_dict.json",
    );
    let splits = || ("dataset_dict.json", br#"{"splits": ["train", "test"]}"#.to_vec());
    check(vec![splits(), ("train/state.json", whole.clone()), in_train()], "could not read test/state.json");
    check(vec![splits(), ("train/state.json", cut), ("test/state.json", whole), in_train()], "train/state.json: EOF");

    let other = [("state.json", br#"{"step": 7}"#.to_vec()), data()];
    assert_eq!(format_of(&MemoryFolder::new(other)).map(|format| format.name()), Some("arrow"));
    let other = [splits(), ("train/state.json", b"[]".to_vec()), data()];
    assert_eq!(format_of(&MemoryFolder::new(other)).map(|format| format.name()), Some("arrow"));
}

#[test]
fn broken_folders_are_refused() {
    let plan = |files: &[(&'static str, Vec<u8>)]| {
        let folder = Arc::new(MemoryFolder::new(files.iter().cloned()));
        HuggingFace.plan(folder, vec!["data.arrow".into()], &FormatOptions::default()).unwrap_err().to_string()
    };
    let data = || stream(vec![("n", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]);
    let gone = plan(&[("state.json", state(&["data.arrow"]))]);
    assert_eq!(gone, "state.json: the folder has no file \"data.arrow\"");
    let leaves = plan(&[("state.json", state(&["../data.arrow"])), ("data.arrow", data())]);
    assert_eq!(leaves, "state.json: the folder has no file \"../data.arrow\"");
    assert!(plan(&[("state.json", b"{".to_vec())]).starts_with("state.json: EOF"));
    let other = json!({ "m": { "dtype": "int64", "_type": "Value" } });
    let other =
        plan(&[("state.json", state(&["data.arrow"])), ("data.arrow", data()), ("dataset_info.json", info(&other))]);
    assert_eq!(other, "data.arrow, column m: the features have this column, and the file does not");
    let indices = br#"{"_data_files": [{"filename": "data.arrow"}], "_indices_data_files": [{"filename": "i.arrow"}]}"#;
    let indices = plan(&[("state.json", indices.to_vec()), ("data.arrow", data())]);
    assert!(indices.contains("the dataset has a file of row numbers"), "{indices}");
    let snapshot = MemoryFolder::new([("data/train-00000-of-00001.parquet", "PAR1"), ("README.md", "")]);
    assert_eq!(HuggingFace.recognise(&snapshot), None);
}

#[test]
fn features_of_parquet_decide() {
    let columns = |features: &Value, field: Field| {
        let json = json!({ "info": { "features": features } }).to_string();
        feature_columns(&json, &Schema::new(vec![field])).map_err(|error| error.to_string())
    };
    let media = files(&[(Some(JPEG), None), (None, Some("x.jpg"))]);
    let image = Field::new("x", media.data_type().clone(), true);
    let [column] = columns(&json!({ "x": { "_type": "Image" } }), image.clone()).unwrap().try_into().unwrap();
    assert!(is_encoded_image(&column.ingest.field));
    let wrong = column.ingest.conversion.convert(&column.ingest.field, &media).unwrap_err();
    assert_eq!((wrong.row, wrong.to_string().as_str()), (Some(1), "expected the bytes of a file, found only its path"));
    let [column] = columns(&json!({ "x": { "_type": "Video" } }), image.clone()).unwrap().try_into().unwrap();
    assert!(encoded_video::video_of(&column.ingest.field).is_none() && column.ingest.field.metadata().len() == 1);
    let number = || Field::new("x", DataType::Int64, true);
    let error = |features: Value, field: Field| columns(&features, field).unwrap_err();
    assert!(error(json!({ "x": { "_type": "Image" } }), number()).contains("Image: expected binary"));
    assert!(error(json!({ "x": { "_type": "ClassLabel" } }), image.clone()).contains("ClassLabel: expected int64"));
    assert!(error(json!({ "x": { "names": [1], "_type": "ClassLabel" } }), number()).contains("a name is no text"));
    assert!(error(json!({ "x": { "_type": "Array2D" } }), number()).contains("Array2D: the feature has no shape"));
    let shape = json!({ "x": { "shape": [1, 2, 3], "dtype": "int8", "_type": "Array2D" } });
    assert!(error(shape, number()).contains("the shape has 3 dimensions"));
    let large = json!({ "x": { "shape": [4294967296u64, 4294967296u64], "dtype": "int8", "_type": "Array2D" } });
    assert!(error(large, number()).contains("product is below 2^31"));
    assert_eq!(columns(&json!(null), number()).unwrap().len(), 1);
    assert!(feature_columns("nonsense", &Schema::empty()).is_err());
}

#[test]
fn options_go_before_features() {
    let features = json!({ "x": { "_type": "Value", "dtype": "binary" } });
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![JPEG]));
    let options = FormatOptions { images: vec!["x".into()], ..FormatOptions::default() };
    let read = read(&HuggingFace, &saved(&features, vec![("x", bytes)], &[]), &options).unwrap();
    assert!(is_encoded_image(read.rows.schema_ref().field(0)));
}
