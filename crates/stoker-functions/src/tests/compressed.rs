//! The function that decompresses tensors.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Int64Array, LargeBinaryArray};
use arrow_schema::{DataType, Field};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarUDFImpl as _};
use stoker_columns::{CompressedTensor, SHAPE_KEY, TensorType};
use stoker_types::ErrorKind;

use super::call;
use crate::cost::{Call, tensors};
use crate::decompress::Decompress;
use crate::tensor_reduction::TensorReduction;
use crate::{Error, tensor_shape::TensorShape};

fn column() -> (CompressedTensor, ArrayRef) {
    let plain = TensorType { element: DataType::Float32, shape: vec![2, 2] }.to_field("x");
    let rows = (0..3).map(|row| Some((0..4).map(move |at| Some((row * 4 + at) as f32)).collect::<Vec<_>>()));
    let rows: ArrayRef = Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(rows, 4));
    let tensor = CompressedTensor::try_new(&plain, "zstd".parse().expect("a codec")).expect("tensors");
    let frames = tensor.compress(&rows).expect("frames");
    (tensor, frames)
}

#[test]
fn frames_become_tensors() {
    let (tensor, frames) = column();
    let found = call(&Decompress::new(), tensor.to_field("x"), frames.clone()).expect("tensors");
    let values: Vec<f32> = found.as_fixed_size_list().values().as_primitive::<Float32Type>().values().to_vec();
    assert_eq!(values, (0..12).map(|value| value as f32).collect::<Vec<_>>());
    let field: Arc<Field> = Arc::new(tensor.to_field("x"));
    let args = ReturnFieldArgs { arg_fields: &[field], scalar_arguments: &[None] };
    let returned = Decompress::new().return_field_from_args(args).expect("a field");
    assert_eq!(TensorType::of(&returned).map(|tensor| tensor.shape), Some(vec![2, 2]));
    let means = call(&TensorReduction::mean(), returned.as_ref().clone(), found).expect("means");
    assert_eq!(means.as_primitive::<Float64Type>().values(), &[1.5, 5.5, 9.5]);

    let with_null: ArrayRef = Arc::new(LargeBinaryArray::from(vec![None, Some(frames.as_binary::<i64>().value(1))]));
    let found = call(&Decompress::new(), tensor.to_field("x"), with_null).expect("tensors");
    assert_eq!((found.is_null(0), found.is_valid(1)), (true, true));
}

#[test]
fn other_columns_and_damaged_frames_are_named() {
    let (tensor, frames) = column();
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let error = call(&Decompress::new(), Field::new("n", DataType::Int64, true), numbers).expect_err("numbers");
    assert!(error.to_string().contains("n (Int64) is no column of compressed tensors"), "{error}");
    let mut metadata = tensor.to_field("x").metadata().clone();
    metadata.insert(SHAPE_KEY.into(), "[4294967296, 4294967296, 4294967296]".into());
    let overflowing = tensor.to_field("x").with_metadata(metadata);
    let error = call(&Decompress::new(), overflowing, frames.clone()).expect_err("a shape that overflows");
    assert!(error.to_string().contains("column x") && error.to_string().contains("1073741824"), "{error}");
    let damaged: ArrayRef = Arc::new(LargeBinaryArray::from(vec![frames.as_binary::<i64>().value(0), b"text"]));
    match call(&Decompress::new(), tensor.to_field("x"), damaged) {
        Err(DataFusionError::External(error)) => {
            let error = error.downcast_ref::<Error>().expect("an error of this crate");
            assert_eq!(error.kind(), ErrorKind::DataCorrupt);
            assert!(error.to_string().contains("column x, row 1"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn functions_of_tensors_say_what_to_write() {
    let (tensor, frames) = column();
    let mean = call(&TensorReduction::mean(), tensor.to_field("x"), frames.clone()).expect_err("frames");
    assert!(mean.to_string().contains("write tensor_mean(decompress(x))"), "{mean}");
    let shape = call(&TensorShape::new(), tensor.to_field("x"), frames).expect_err("frames");
    assert!(shape.to_string().contains("write tensor_shape(decompress(x))"), "{shape}");
}

#[test]
fn the_memory_of_the_tensors_is_reserved_whatever_the_frames_declare() {
    let (tensor, _) = column();
    let nulls: ArrayRef = Arc::new(LargeBinaryArray::new_null(1_000));
    let args = [ColumnarValue::Array(nulls)];
    let tensors_type = tensor.tensor_field("x").data_type().clone();
    let cost = tensors(&Call { args: &args, num_rows: 1_000, result: &tensors_type });
    assert!(cost.bytes >= 16_000, "{cost:?}");
}
