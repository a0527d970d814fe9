//! Tests of compressed tensors.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt8Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, Int32Array, LargeBinaryArray, RecordBatch,
    UInt16Array,
};
use arrow_schema::{DataType, Field, Schema};

use super::{lists, tensor, with};
use crate::*;

fn compressed(plain: &Field, codec: &str) -> CompressedTensor {
    CompressedTensor::try_new(plain, codec.parse().expect("a codec")).expect("tensors")
}

fn column(field: &Field, values: ArrayRef) -> ArrayRef {
    let DataType::FixedSizeList(item, length) = field.data_type() else { panic!("{field:?}") };
    Arc::new(FixedSizeListArray::new(item.clone(), *length, values, None))
}

fn floats(rows: usize) -> ArrayRef {
    let values = (0..rows * 6).map(|number| if number == 5 { f32::NAN } else { number as f32 * 0.5 });
    Arc::new(Float32Array::from_iter_values(values))
}

#[test]
fn rows_come_back_as_tensors() {
    let plain = tensor(DataType::Float32, &[2, 3]);
    let values = column(&plain, floats(50));
    for codec in ["zstd", "lz4", "byte_stream_split", "pco"] {
        let compressed = compressed(&plain, codec);
        let frames = compressed.compress(&values).expect("frames");
        assert_eq!((frames.data_type(), frames.len()), (&DataType::LargeBinary, 50));
        let field = compressed.to_field("x");
        kind_of(&field).check(&field, &frames).expect("frames");
        let back = compressed.decompress(&frames).expect("tensors");
        assert_eq!(back.data_type(), compressed.tensor_field("x").data_type());
        let bits = |array: &ArrayRef| -> Vec<u32> {
            let lists = array.as_fixed_size_list();
            lists.values().as_primitive::<Float32Type>().values().iter().map(|value| value.to_bits()).collect()
        };
        assert_eq!(bits(&back), bits(&values), "{codec}");
        // A slice begins in the middle of the elements.
        let part = compressed.decompress(&compressed.compress(&values.slice(7, 3)).expect("frames")).expect("tensors");
        assert_eq!(bits(&part), bits(&values)[42..60], "{codec}");
    }
}

#[test]
fn large_columns_are_compressed_by_several_threads_in_order() {
    let plain = tensor(DataType::UInt8, &[1 << 16]);
    let values: Vec<u8> = (0..100 << 16).map(|at: u32| (at >> 16) as u8).collect();
    let values = column(&plain, Arc::new(arrow_array::UInt8Array::from(values)));
    let compressed = compressed(&plain, "lz4");
    let frames = compressed.compress(&values).expect("frames");
    let back = compressed.decompress(&frames).expect("tensors");
    for (row, bytes) in back.as_fixed_size_list().iter().enumerate() {
        let bytes = bytes.expect("a row");
        assert!(bytes.as_primitive::<UInt8Type>().values().iter().all(|byte| usize::from(*byte) == row), "{row}");
    }
}

#[test]
fn metadata_says_what_the_rows_are() {
    let named = with(
        tensor(DataType::UInt16, &[3, 4, 5]),
        &[
            (DTYPE_KEY, "bfloat16"),
            (MASK_KEY, "x_valid"),
            (EXTENSION_METADATA_KEY, r#"{"shape":[3,4,5],"permutation":[1,2,0],"dim_names":["C","H","W"]}"#),
        ],
    );
    let compressed = compressed(&named, "pco:4");
    let field = compressed.to_field("x");
    assert_eq!(field.metadata()[CODEC_KEY], "pco:4");
    assert_eq!(kind_of(&field).name(), "compressed_tensor");
    assert_eq!(kind_of(&field).label(&field), "tensor bfloat16[H=4, W=5, C=3] (pco)");
    assert!(is_heavy(&field) && !field.is_nullable());
    assert_eq!(CompressedTensor::try_of(&field), Ok(Some(compressed.clone())));
    let back = compressed.tensor_field("x");
    assert!(same_meaning(&back, &named), "{back:?}");
    assert_eq!(back.metadata()[MASK_KEY], "x_valid");
    assert_eq!(kind_of(&back).numpy(&back), kind_of(&named).numpy(&named));
    let bits = column(&named, Arc::new(UInt16Array::from_iter_values(0..600)));
    let frames = compressed.compress(&bits).expect("frames");
    assert_eq!(
        *compressed.decompress(&frames).expect("tensors"),
        *column(&back, bits.as_fixed_size_list().values().clone())
    );
    assert_eq!(CompressedTensor::try_of(&named), Ok(None));
}

#[test]
fn damaged_metadata_is_named() {
    let field = compressed(&tensor(DataType::Float32, &[2, 3]), "zstd").to_field("x");
    for (key, value, part) in [
        (SHAPE_KEY, "[4294967296, 4294967296, 4]", "more than 1073741824 bytes"),
        (SHAPE_KEY, "[0]", "no elements"),
        (SHAPE_KEY, "[-1]", "no list of sizes"),
        (SHAPE_KEY, "2", "no list of sizes"),
        (DTYPE_KEY, "bool", "no known type"),
        (CODEC_KEY, "gzip", "there is no such codec"),
        (PERMUTATION_KEY, "[0, 0]", "does not fit the shape"),
        (DIM_NAMES_KEY, "[", "no JSON"),
    ] {
        let damaged = with(field.clone(), &[(key, value)]);
        let error = CompressedTensor::try_of(&damaged).expect_err(value);
        assert!(error.contains(part) && error.contains(key), "{error}");
        assert_eq!(kind_of(&damaged).label(&damaged), "compressed tensor (its metadata is damaged)");
        let frames: ArrayRef = Arc::new(LargeBinaryArray::from(vec![&b""[..]]));
        assert!(kind_of(&damaged).check(&damaged, &frames).is_err());
    }
    let other = Field::new("x", DataType::Int32, false).with_metadata(field.metadata().clone());
    assert!(CompressedTensor::try_of(&other).expect_err("numbers").contains("Int32"));
}

/// Rows of twelve of forty patterns of eight numbers.
fn patterns(rows: usize) -> ArrayRef {
    let mut state = 7_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    };
    let patterns: Vec<Vec<f32>> = (0..40).map(|_| (0..8).map(|_| random() as f32 * 1e-4).collect()).collect();
    let values = (0..12 * rows).flat_map(|_| patterns[random() as usize % 40].clone());
    Arc::new(Float32Array::from_iter_values(values))
}

#[test]
fn small_rows_of_a_new_table_share_a_dictionary() {
    let plain = tensor(DataType::Float32, &[12, 8]);
    let target = target_schema(&Schema::new(vec![with_codec(&plain, "zstd:5")]), None).expect("a schema");
    assert!(may_have_dictionaries(&target));
    let values = column(&plain, patterns(3_000));
    let schema = Arc::new(Schema::new(vec![plain.clone()]));
    let batch = RecordBatch::try_new(schema.clone(), vec![values.clone()]).expect("a batch");
    let shared = with_dictionaries(&target, &batch);
    let field = shared.field(0);
    let tensor = CompressedTensor::try_of(field).expect("metadata").expect("tensors");
    assert!(tensor.dictionary.is_some() && !may_have_dictionaries(&shared));
    assert_eq!((tensor.codec.to_string().as_str(), &tensor.to_field("x")), ("zstd:5", field));
    assert!(!tensor.tensor_field("x").metadata().contains_key(DICTIONARY_KEY));
    // Later rows are shorter than without, and come back.
    let later = column(&plain, patterns(3_100)).slice(3_000, 100);
    let alone = compressed(&plain, "zstd:5");
    let (frames, longer) = (tensor.compress(&later).expect("frames"), alone.compress(&later).expect("frames"));
    let bytes = |frames: &ArrayRef| frames.as_binary::<i64>().values().len();
    assert!(2 * bytes(&frames) < bytes(&longer), "{} and {}", bytes(&frames), bytes(&longer));
    let back = tensor.decompress(&frames).expect("tensors");
    assert_eq!(
        back.as_fixed_size_list().values(),
        &alone.decompress(&longer).expect("tensors").as_fixed_size_list().values().clone()
    );
    assert_eq!(*tensor.decompress(&longer).expect("frames without it"), *back);
    // A table with the dictionary keeps it, and its frames fit no other column.
    let appended = target_schema(&schema, Some(&shared)).expect("a schema");
    assert_eq!(appended.field(0), field);
    let refused = kind_of(&alone.to_field("x")).check(&alone.to_field("x"), &frames).expect_err("no dictionary");
    assert!(refused.found.contains("the column has none"), "{refused}");
    assert!(alone.decompress(&frames).expect_err("no dictionary").found.contains("the column has none"));
    // Few rows and nulls make none.
    for few in [batch.slice(0, 100), RecordBatch::new_empty(schema)] {
        assert_eq!(with_dictionaries(&target, &few), target);
    }
}

#[test]
fn damaged_dictionaries_are_named() {
    let field = compressed(&tensor(DataType::Float32, &[2, 3]), "zstd").to_field("x");
    for (value, part) in [
        ("?", "no base64"),
        ("AAAA", "no dictionary of Zstandard"),
        ("N6Qw7AEAAAAAAAAA", "it is damaged"),
        (&"A".repeat(87_385)[..], "87385 characters"),
    ] {
        let error = CompressedTensor::try_of(&with(field.clone(), &[(DICTIONARY_KEY, value)])).expect_err(part);
        assert!(error.contains(part) && error.contains(DICTIONARY_KEY), "{error}");
    }
}

#[test]
fn values_that_do_not_fit_are_named() {
    let tensor = compressed(&tensor(DataType::Float32, &[2, 3]), "zstd");
    let nulls = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vec![Some(vec![Some(0.5); 6]), None], 6);
    let mismatch = tensor.compress(&(Arc::new(nulls) as ArrayRef)).expect_err("a null");
    assert_eq!((mismatch.row, mismatch.found.as_str()), (Some(1), "null"));
    let items = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vec![Some(vec![None; 6])], 6);
    assert!(tensor.compress(&(Arc::new(items) as ArrayRef)).expect_err("a null").found.contains("null element"));
    let short = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vec![Some(vec![Some(0.5); 5])], 5);
    assert!(tensor.compress(&(Arc::new(short) as ArrayRef)).is_err());

    let good = tensor.compress(&column(&tensor.tensor_field("x"), floats(2))).expect("frames");
    let good = good.as_binary::<i64>();
    let mixed: ArrayRef =
        Arc::new(BinaryArray::from(vec![Some(good.value(0)), None, Some(b"\x11\x0a\x07".as_slice())]));
    let field = tensor.to_field("x");
    let mismatch = kind_of(&field).check(&field, &mixed).expect_err("a frame of other rows");
    assert_eq!(mismatch.row, Some(2));
    assert!(mismatch.found.contains("7 elements of float32"), "{mismatch}");
    assert_eq!(tensor.decompress(&mixed).expect_err("a frame of other rows").row, Some(2));
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    assert!(tensor.decompress(&numbers).is_err() && kind_of(&field).check(&field, &numbers).is_err());
    let both = tensor.decompress(&mixed.slice(0, 2)).expect("a row and a null");
    assert_eq!((both.is_valid(0), both.is_null(1)), (true, true));
}

#[test]
fn writers_choose_codecs_by_metadata() {
    let chosen = |field: &Field, codec: &str| chosen_codec(&with_codec(field, codec));
    let image = tensor(DataType::UInt8, &[3, 8, 8]);
    assert_eq!(chosen_codec(&image), Ok(None));
    let field = chosen(&image, "zstd:9").expect("a codec").expect("a column");
    assert_eq!((field.data_type(), field.metadata()[CODEC_KEY].as_str()), (&DataType::LargeBinary, "zstd:9"));
    assert_eq!(chosen_codec(&field), Ok(None));
    let vector = Field::new("x", lists(DataType::Float32, 128), true);
    assert!(is_compressed_tensor(&chosen(&vector, "pco").expect("a codec").expect("a column")));
    let numbers = Field::new("x", DataType::Int64, true);
    let field = chosen(&numbers, "zstd").expect("a codec").expect("a column");
    assert_eq!((field.data_type(), &field.metadata()["lance-encoding:compression"][..]), (&DataType::Int64, "zstd"));
    assert!(field.is_nullable() && !field.metadata().contains_key(CODEC_KEY));
    for (field, codec, part) in [
        (&numbers, "pco", "it compresses tensors and vectors"),
        (&numbers, "gzip", "codecs are zstd, lz4"),
        (&encoded_image::new_field("x", false), "zstd", "compressed already"),
        (&Field::new("x", lists(DataType::Float32, 0), true), "zstd", "no elements"),
        (&Field::new("x", DataType::FixedSizeBinary(9), true), "zstd", "tensors of uint8"),
    ] {
        let error = chosen(field, codec).expect_err(part);
        assert!(error.contains(part) && error.contains("column x"), "{error}");
    }
}

#[test]
fn writes_follow_the_table() {
    let plain = tensor(DataType::Float32, &[2, 3]);
    let schema = |field: &Field| Schema::new(vec![field.clone()]);
    let target = |incoming: &Field, table: Option<&Field>| {
        let table = table.map(schema);
        target_schema(&schema(incoming), table.as_ref()).expect("a schema").field(0).clone()
    };
    let created = target(&with_codec(&plain, "pco:2"), None);
    assert!(is_compressed_tensor(&created));
    // The table decides, whatever the writer asks for.
    assert_eq!(target(&plain, Some(&created)), created);
    assert_eq!(target(&with_codec(&plain, "zstd"), Some(&created)), created);
    let stored = target(&plain, None);
    assert_eq!(target(&with_codec(&plain, "zstd"), Some(&stored)), stored);
    let vector = Field::new("x", lists(DataType::Float32, 6), true);
    let other = tensor(DataType::Float32, &[3, 2]);
    assert!(!is_compressed_tensor(&target(&other, Some(&created))), "a tensor of another shape");
    assert!(!is_compressed_tensor(&target(&vector, Some(&created))), "a vector where tensors are");
    assert!(target_schema(&schema(&with_codec(&plain, "gzip")), None).is_err());

    let batch = RecordBatch::try_new(Arc::new(schema(&plain)), vec![column(&plain, floats(3))]).expect("a batch");
    let fitted = fit(&batch, &schema(&created)).expect("frames");
    assert_eq!(fitted.column(0).data_type(), &DataType::LargeBinary);
    assert_eq!(wrong_value(&fitted, &schema(&created)), None);
    assert_eq!(fit(&fitted, &schema(&created)).expect("frames stay"), fitted);
}
