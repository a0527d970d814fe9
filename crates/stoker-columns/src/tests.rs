//! Tests of the kinds: which fields each kind holds, and what follows for them.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, LargeBinaryArray, RecordBatch, UInt8Array, UInt16Array};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use proptest::prelude::*;

use crate::*;

mod compressed;
mod indexed;
mod lossy;
mod model;
mod values;

fn field(data_type: DataType) -> Field {
    Field::new("x", data_type, true)
}

fn lists(item: DataType, length: i32) -> DataType {
    DataType::FixedSizeList(Arc::new(Field::new("item", item, true)), length)
}

fn with(field: Field, pairs: &[(&str, &str)]) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.extend(pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())));
    field.with_metadata(metadata)
}

fn tensor(element: DataType, shape: &[usize]) -> Field {
    TensorType { element, shape: shape.to_vec() }.to_field("x")
}

fn numbers(dtype: &str, shape: &[usize], nulls: Nulls) -> NumpyShape {
    NumpyShape { dtype: Some(dtype.into()), shape: shape.to_vec(), nulls, ..objects() }
}

fn objects() -> NumpyShape {
    NumpyShape {
        dtype: None,
        shape: Vec::new(),
        nulls: Nulls::Object,
        small_float: None,
        rows: Rows::Fixed { axes: None },
        names: None,
    }
}

#[test]
fn each_field_has_its_kind() {
    use DataType::*;
    let item = || Arc::new(Field::new("item", Int64, true));
    let bf16 = with(tensor(UInt16, &[4]), &[(DTYPE_KEY, tensor::BFLOAT16)]);
    let broken = with(field(lists(UInt8, 6)), &[(EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR)]);
    let seven = with(broken.clone(), &[(EXTENSION_METADATA_KEY, r#"{"shape":[7]}"#)]);
    let flags = with(
        field(lists(Boolean, 6)),
        &[(EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR), (EXTENSION_METADATA_KEY, r#"{"shape":[2,3]}"#)],
    );
    let entry = vec![Field::new("key", Utf8, false), Field::new("value", Utf8, true)];
    let mapped = Arc::new(Field::new_struct("entries", entry, false));
    let image = encoded_image::new_field("x", false);
    let frames = CompressedTensor::try_new(&tensor(Float32, &[2, 3]), "zstd".parse().unwrap()).unwrap().to_field("x");
    let lists_of = |levels, dtype, shape: &[usize]| NumpyShape {
        rows: Rows::Lists { levels },
        ..numbers(dtype, shape, Nulls::Zero)
    };
    let channels_last = with(
        tensor(UInt8, &[3, 224, 220]),
        &[(EXTENSION_METADATA_KEY, r#"{"shape":[3,224,220],"permutation":[1,2,0],"dim_names":["C","H","W"]}"#)],
    );
    let twice = with(tensor(UInt8, &[2, 3]), &[(EXTENSION_METADATA_KEY, r#"{"shape":[2,3],"permutation":[1,1]}"#)]);
    let unnamed = with(tensor(UInt8, &[2, 3]), &[(EXTENSION_METADATA_KEY, r#"{"shape":[2,3],"dim_names":["H"]}"#)]);
    let fp8 = with(tensor(UInt8, &[4]), &[(DTYPE_KEY, "float8_e4m3fn")]);
    let members = |data: DataType| {
        let sizes = FixedSizeList(Arc::new(Field::new("item", Int32, false)), 3);
        Struct(vec![Field::new("data", data, false), Field::new("shape", sizes, false)].into())
    };
    let pictures = |parameters: &str| {
        let data = List(Arc::new(Field::new("item", UInt8, false)));
        let name = (EXTENSION_NAME_KEY, VARIABLE_SHAPE_TENSOR);
        with(field(members(data)), &[name, (EXTENSION_METADATA_KEY, parameters)])
    };
    let shaped = NumpyShape {
        rows: Rows::Shaped { axes: Some(vec![1, 2, 0]), sizes: vec![None, None, Some(3)] },
        names: Some(["H", "W", "C"].map(String::from).to_vec()),
        ..numbers("uint8", &[], Nulls::Zero)
    };
    let any_shape =
        NumpyShape { rows: Rows::Shaped { axes: None, sizes: vec![None; 3] }, ..numbers("uint8", &[], Nulls::Zero) };
    let files = Struct(vec![Field::new("bytes", LargeBinary, true), Field::new("path", Utf8, true)].into());
    // The field, the name of its kind, its label, whether it is heavy, and its NumPy array.
    let cases: Vec<(Field, &str, &str, bool, NumpyShape)> = vec![
        (field(Int32), "scalar", "scalar", false, numbers("int32", &[], Nulls::Zero)),
        (field(UInt64), "scalar", "scalar", false, numbers("uint64", &[], Nulls::Zero)),
        (field(Float16), "scalar", "scalar", false, numbers("float16", &[], Nulls::NaN)),
        (field(Boolean), "scalar", "scalar", false, numbers("bool", &[], Nulls::Zero)),
        (
            field(Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
            "scalar",
            "timestamp",
            false,
            numbers("datetime64[us]", &[], Nulls::NaT),
        ),
        (field(Date32), "scalar", "timestamp", false, numbers("datetime64[D]", &[], Nulls::NaT)),
        (field(Date64), "scalar", "timestamp", false, numbers("datetime64[ms]", &[], Nulls::NaT)),
        (field(Duration(TimeUnit::Second)), "scalar", "scalar", false, numbers("timedelta64[s]", &[], Nulls::NaT)),
        (field(Time64(TimeUnit::Nanosecond)), "scalar", "scalar", false, objects()),
        (field(Decimal128(20, 2)), "scalar", "scalar", false, objects()),
        (field(FixedSizeBinary(2000)), "scalar", "scalar", true, objects()),
        (field(Map(mapped, false)), "scalar", "scalar", false, objects()),
        (field(Dictionary(Box::new(Int32), Box::new(Utf8))), "scalar", "scalar", false, objects()),
        (field(Utf8), "text", "text", false, objects()),
        (field(Utf8View), "text", "text", false, objects()),
        (field(Binary), "binary", "binary", true, objects()),
        (with(field(LargeBinary), &[(HEAVY_KEY, "false")]), "binary", "binary", false, objects()),
        (field(List(item())), "ragged", "ragged int64[*]", false, lists_of(1, "int64", &[])),
        (
            field(LargeList(Arc::new(Field::new("item", List(item()), true)))),
            "ragged",
            "ragged int64[*, *]",
            false,
            lists_of(2, "int64", &[]),
        ),
        (
            field(List(Arc::new(Field::new("item", lists(Float32, 4), true)))),
            "ragged",
            "ragged float32[*, 4]",
            false,
            lists_of(1, "float32", &[4]),
        ),
        (
            field(List(Arc::new(Field::new("item", Boolean, true)))),
            "ragged",
            "ragged boolean[*]",
            false,
            lists_of(1, "bool", &[]),
        ),
        (field(List(Arc::new(Field::new("item", Utf8, true)))), "list", "list", false, objects()),
        (
            pictures(r#"{"permutation":[1,2,0],"dim_names":["C","H","W"],"uniform_shape":[3,null,null]}"#),
            "ragged",
            "ragged uint8[H=*, W=*, C=3]",
            false,
            shaped,
        ),
        (pictures(""), "ragged", "ragged uint8[*, *, *]", false, any_shape),
        (pictures(r#"{"uniform_shape":[3]}"#), "struct", "struct", false, objects()),
        (field(members(List(item()))), "struct", "struct", false, objects()),
        (field(lists(Utf8, 3)), "list", "list", false, NumpyShape { shape: vec![3], ..objects() }),
        (field(lists(Boolean, 3)), "list", "list bool[3]", false, numbers("bool", &[3], Nulls::Zero)),
        (field(lists(lists(Int16, 4), 3)), "list", "list int16[3, 4]", false, numbers("int16", &[3, 4], Nulls::Zero)),
        (broken, "list", "list uint8[6]", false, numbers("uint8", &[6], Nulls::Zero)),
        (seven, "list", "list uint8[6]", false, numbers("uint8", &[6], Nulls::Zero)),
        (twice, "list", "list uint8[6]", false, numbers("uint8", &[6], Nulls::Zero)),
        (unnamed, "list", "list uint8[6]", false, numbers("uint8", &[6], Nulls::Zero)),
        (flags, "list", "list bool[2, 3]", false, numbers("bool", &[2, 3], Nulls::Zero)),
        (field(files.clone()), "struct", "struct", true, objects()),
        (field(List(Arc::new(Field::new("item", files, true)))), "list", "list", true, objects()),
        (field(List(Arc::new(Field::new("item", LargeBinary, true)))), "list", "list", true, objects()),
        (
            channels_last,
            "tensor",
            "tensor uint8[H=224, W=220, C=3]",
            true,
            NumpyShape {
                rows: Rows::Fixed { axes: Some(vec![1, 2, 0]) },
                names: Some(["H", "W", "C"].map(String::from).to_vec()),
                ..numbers("uint8", &[224, 220, 3], Nulls::Zero)
            },
        ),
        (
            fp8,
            "tensor",
            "tensor float8_e4m3fn[4]",
            false,
            NumpyShape { small_float: Some(SmallFloat::Float8E4M3FN), ..numbers("uint8", &[4], Nulls::Zero) },
        ),
        (field(lists(Float32, 3)), "vector", "vector float32[3]", false, numbers("float32", &[3], Nulls::Zero)),
        (field(lists(Float32, 768)), "vector", "vector float32[768]", true, numbers("float32", &[768], Nulls::Zero)),
        (field(lists(Date32, 2)), "vector", "vector date32[2]", false, NumpyShape { shape: vec![2], ..objects() }),
        (
            tensor(UInt8, &[3, 224, 224]),
            "tensor",
            "tensor uint8[3, 224, 224]",
            true,
            numbers("uint8", &[3, 224, 224], Nulls::Zero),
        ),
        (
            with(tensor(UInt8, &[3, 224, 224]), &[(HEAVY_KEY, "false")]),
            "tensor",
            "tensor uint8[3, 224, 224]",
            false,
            numbers("uint8", &[3, 224, 224], Nulls::Zero),
        ),
        (
            bf16,
            "tensor",
            "tensor bfloat16[4]",
            false,
            NumpyShape { small_float: Some(SmallFloat::BFloat16), ..numbers("uint16", &[4], Nulls::Zero) },
        ),
        (frames, "compressed_tensor", "tensor float32[2, 3] (zstd)", true, objects()),
        (image.clone(), "encoded_image", "encoded image", true, objects()),
        (with(image, &[("lance-encoding:blob", "true")]), "encoded_image", "encoded image", true, objects()),
        (with(field(LargeBinary), &[("lance-encoding:blob", "true")]), "blob", "blob", true, objects()),
        (with(field(LargeBinary), &[(EXTENSION_NAME_KEY, "lance.blob.v2")]), "blob", "blob", true, objects()),
    ];
    for (field, name, label, heavy, shape) in cases {
        let kind = kind_of(&field);
        let found = (kind.name(), kind.label(&field), is_heavy(&field), kind.numpy(&field));
        assert_eq!(found, (name, label.to_string(), heavy, shape), "{field:?}");
    }
}

/// A blob column is read as binary values, in whichever way Lance marks it, and written as a plain column.
#[test]
fn blobs_are_read_as_binary_columns() {
    use DataType::*;
    let descriptor = Field::new("x", Struct(vec![field(LargeBinary), field(Utf8).with_name("uri")].into()), true);
    let typed = [(EXTENSION_NAME_KEY, "lance.blob.v2"), (EXTENSION_METADATA_KEY, ""), (HEAVY_KEY, "false")];
    for marked in [with(descriptor, &typed), with(field(LargeBinary), &[("lance-encoding:blob", "yes")])] {
        let read = blob_as_binary(&marked);
        assert_eq!((read.name(), read.data_type(), read.is_nullable()), (marked.name(), &LargeBinary, true));
        assert_eq!((kind_of(&read).name(), is_heavy(&read)), ("blob", true), "{read:?}");
        assert_eq!(read.metadata().get(EXTENSION_NAME_KEY), None);
        let written = without_blob_mark(&read);
        assert_eq!((kind_of(&written).name(), written.data_type()), ("binary", &LargeBinary));
        assert!(!has_nested_blobs(&marked));
        let list = Field::new("l", List(Arc::new(Field::new("s", Struct(vec![marked].into()), true))), true);
        assert!(has_nested_blobs(&list) && !is_blob(&list));
    }
}

#[test]
fn names_of_kinds_differ() {
    let mut names: Vec<&str> = MARKED.iter().chain(&TYPES).map(|kind| kind.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), MARKED.len() + TYPES.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Each type has exactly one kind, and a mark precedes it.
    #[test]
    fn a_field_has_one_kind(field in model::fields()) {
        let of_type: Vec<&str> = TYPES.iter().filter(|kind| kind.holds(&field)).map(|kind| kind.name()).collect();
        prop_assert_eq!(of_type.len(), 1, "{:?} {:?}", &of_type, &field);
        let marked = MARKED.iter().find(|kind| kind.holds(&field)).map(|kind| kind.name());
        prop_assert_eq!(kind_of(&field).name(), marked.unwrap_or(of_type[0]));
    }

    /// The kinds say of each field what one rule over types and metadata says.
    #[test]
    fn kinds_agree_with_one_rule(field in model::fields()) {
        let kind = kind_of(&field);
        prop_assert_eq!(kind.label(&field), model::label(&field));
        prop_assert_eq!(is_heavy(&field), model::is_heavy(&field));
        prop_assert_eq!(kind.numpy(&field), model::numpy(&field));
        let storage = kind.storage(&field);
        prop_assert_eq!(storage.dense_row_bytes, model::dense_row_bytes(&field));
        prop_assert_eq!(storage.refuses_nulls, model::is_heavy(&field) && fixed_row_bytes(field.data_type()).is_some());
        prop_assert_eq!(storage.compression.is_some(), is_encoded_image(&field));
        prop_assert_eq!(kind.canonical(&field), model::canonical(&field));
        let other = ingest(&Schema::empty(), &field, false).field;
        prop_assert_eq!(other.name(), field.name());
    }
}

#[test]
fn tensor_fields_round_trip() {
    let tensor = TensorType { element: DataType::UInt8, shape: vec![3, 224, 224] };
    let field = tensor.to_field("image");
    assert_eq!(TensorType::of(&field), Some(tensor));
    assert!(is_heavy(&field));
    assert_eq!(fixed_row_bytes(field.data_type()), Some(150_528));
    let light = field.with_metadata([(HEAVY_KEY.to_string(), "false".to_string())].into());
    assert!(!is_heavy(&light));
}

#[test]
fn metadata_of_another_type_is_left_out() {
    let metadata = tensor(DataType::UInt8, &[2, 3]).metadata().clone();
    let cast = Arc::new(field(DataType::Utf8).with_metadata(metadata.clone()));
    assert!(fitting(&cast).metadata().is_empty());
    let same = Arc::new(tensor(DataType::UInt8, &[2, 3]));
    assert_eq!(fitting(&same), same);
    let flags = Arc::new(field(lists(DataType::Boolean, 6)).with_metadata(metadata.clone()));
    assert_eq!(fitting(&flags), flags);
    let longer = Arc::new(field(lists(DataType::Boolean, 7)).with_metadata(metadata));
    assert!(fitting(&longer).metadata().is_empty());
}

#[test]
fn values_that_are_no_images_are_found() {
    let schema = Schema::new(vec![encoded_image::new_field("image", true)]);
    let check = |values: Vec<Option<&[u8]>>| {
        let values: ArrayRef = Arc::new(LargeBinaryArray::from_iter(values));
        let batch = RecordBatch::try_new(Arc::new(schema.clone()), vec![values]).unwrap();
        wrong_value(&batch, &schema).map(|wrong| (wrong.mismatch.row, wrong.mismatch.to_string()))
    };
    assert_eq!(check(vec![Some(b"\xff\xd8\xff\xe0"), None, Some(b"\x89PNG\r\n\x1a\n"), Some(b"RIFF1234WEBP")]), None);
    let text = "expected a JPEG, PNG or WebP file, found 4 bytes that begin with \"text\"";
    assert_eq!(check(vec![None, Some(b"text")]), Some((Some(1), text.to_string())));
    let text = "expected a JPEG, PNG or WebP file, found no bytes";
    assert_eq!(check(vec![Some(b"")]), Some((Some(0), text.to_string())));
}

#[test]
fn declared_tensors_are_parsed_and_converted() {
    for (text, found) in
        [("uint8[3,2]", "uint8[3,2]"), (" bfloat16[ 4 ] ", "bfloat16[4]"), ("float8_e5m2[2]", "float8_e5m2[2]")]
    {
        assert_eq!(TensorSpec::parse(text).unwrap().to_string(), found);
    }
    for bad in ["uint8", "complex64[2]", "uint8[0]", "uint8[]", "uint8[65536,65536]"] {
        TensorSpec::parse(bad).unwrap_err();
    }
    let declared = tensor::declared("x", &TensorSpec::parse("uint16[2]").unwrap());
    let rows: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values([[1, 0, 2, 0], [3, 0, 0, 1]]));
    let converted = declared.conversion.convert(&declared.field, &rows).unwrap();
    assert_eq!(converted.data_type(), declared.field.data_type());
    let values: ArrayRef = Arc::new(UInt16Array::from(vec![1, 2, 3, 256]));
    assert_eq!(converted.to_data().child_data()[0], values.to_data());
    let rows: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values([&[1u8, 0, 2, 0][..], &[3]]));
    let wrong = declared.conversion.convert(&declared.field, &rows).unwrap_err();
    assert_eq!((wrong.row, wrong.expected.as_str()), (Some(1), "uint16[2]"));
    assert_eq!(wrong.found, "1 bytes instead of 4");
    let scalars: ArrayRef = Arc::new(UInt8Array::from(vec![1]));
    assert_eq!(declared.conversion.convert(&declared.field, &scalars).unwrap_err().row, None);
}
