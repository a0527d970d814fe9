//! The mean of vectors over rows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, UInt8Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, FixedSizeListArray, UInt16Array};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl as _, EmitTo, GroupsAccumulator};
use half::bf16;

use crate::vector_avg::{OneGroup, VectorAvg, VectorSums};

type Row<T> = Option<Vec<Option<T>>>;

fn item(element: DataType) -> FieldRef {
    Arc::new(Field::new_list_field(element, true))
}

fn vectors<T: ArrowPrimitiveType>(rows: Vec<Row<T::Native>>, length: i32) -> ArrayRef {
    Arc::new(FixedSizeListArray::from_iter_primitive::<T, _, _>(rows, length))
}

fn pair(one: f32, other: f32) -> Row<f32> {
    Some(vec![Some(one), Some(other)])
}

fn floats() -> VectorSums {
    VectorSums::new(item(DataType::Float32), 2, None)
}

#[test]
fn rows_with_nulls_do_not_count() {
    let rows = vec![pair(1.0, 2.0), None, Some(vec![Some(5.0), None]), pair(3.0, -2.0), pair(9.0, 9.0)];
    // The slices leave out the last row.
    let column = vectors::<Float32Type>(rows, 2);
    let mut all = OneGroup::new(floats());
    all.update_batch(&[column.slice(0, 2)]).expect("rows");
    all.update_batch(&[column.slice(2, 2)]).expect("rows");
    let mean = ScalarValue::FixedSizeList(Arc::new(
        vectors::<Float32Type>(vec![pair(2.0, 0.0)], 2).as_fixed_size_list().clone(),
    ));
    assert_eq!(all.evaluate().expect("a mean"), mean);
    assert_eq!(all.evaluate().expect("the same mean"), mean, "a window function asks for each row");
    assert!(Accumulator::size(&all) >= 24);
}

#[test]
fn no_rows_have_no_mean() {
    let mut none = OneGroup::new(floats());
    none.update_batch(&[vectors::<Float32Type>(vec![None], 2)]).expect("rows");
    let mean = none.evaluate().expect("a mean");
    assert!(mean.is_null());
    assert_eq!(mean.data_type(), DataType::FixedSizeList(item(DataType::Float32), 2));
}

#[test]
fn groups_are_filtered_merged_and_emitted() {
    let column = vectors::<Float32Type>(
        vec![pair(1.0, 1.0), pair(2.0, 4.0), None, pair(4.0, 8.0), pair(100.0, 100.0), pair(200.0, 200.0)],
        2,
    );
    let filter = BooleanArray::from(vec![Some(true), Some(true), Some(true), Some(true), Some(false), None]);
    let mut partial = floats();
    partial.update_batch(&[column], &[0, 1, 2, 1, 1, 0], Some(&filter), 4).expect("rows");
    assert!(partial.size() >= 4 * (2 * 8 + 8));
    let state = partial.state(EmitTo::First(3)).expect("a state");
    assert_eq!(state[1].as_primitive::<UInt64Type>().values().to_vec(), [1, 2, 0]);
    assert_eq!(&partial.evaluate(EmitTo::All).expect("means"), &vectors::<Float32Type>(vec![None], 2));

    let mut merged = floats();
    merged.merge_batch(&state, &[2, 0, 1], None, 3).expect("states");
    merged.merge_batch(&state, &[2, 2, 1], None, 3).expect("states");
    let first = merged.evaluate(EmitTo::First(1)).expect("means");
    assert_eq!(&first, &vectors::<Float32Type>(vec![pair(3.0, 6.0)], 2));
    // (1 + 1 + 2 + 4) / 4 and (1 + 1 + 4 + 8) / 4; the second group has no rows.
    let rest = merged.evaluate(EmitTo::All).expect("means");
    assert_eq!(&rest, &vectors::<Float32Type>(vec![None, pair(2.0, 3.5)], 2));

    let mut one = OneGroup::new(floats());
    one.merge_batch(&state).expect("states");
    let state: Vec<ArrayRef> =
        one.state().expect("a state").iter().map(|value| value.to_array().expect("a row")).collect();
    let mut other = OneGroup::new(floats());
    other.merge_batch(&state).expect("states");
    other.merge_batch(&state).expect("states");
    // (1 + 2 + 4) / 3 and (1 + 4 + 8) / 3.
    let mean = other.evaluate().expect("a mean").to_array().expect("a row");
    assert_eq!(&mean, &vectors::<Float32Type>(vec![pair(7.0 / 3.0, 13.0 / 3.0)], 2));
}

#[test]
fn long_columns_are_converted_in_parts() {
    let length = 1000;
    let rows: Vec<Row<u8>> = (0..200u8).map(|row| Some(vec![Some(row); length])).collect();
    let mut all = OneGroup::new(VectorSums::new(item(DataType::Float32), 1000, None));
    all.update_batch(&[vectors::<UInt8Type>(rows, 1000)]).expect("rows");
    let mean = all.evaluate().expect("a mean").to_array().expect("a row");
    assert_eq!(&mean, &vectors::<Float32Type>(vec![Some(vec![Some(99.5); length])], 1000));
}

#[test]
fn elements_are_numbers_of_any_type() {
    let average = VectorAvg::new();
    let of = |element: DataType| average.return_type(&[DataType::FixedSizeList(item(element), 3)]);
    for element in [DataType::Float16, DataType::Float32, DataType::UInt8, DataType::Int64] {
        assert_eq!(of(element).expect("a type"), DataType::FixedSizeList(item(DataType::Float32), 3));
    }
    assert_eq!(of(DataType::Float64).expect("a type"), DataType::FixedSizeList(item(DataType::Float64), 3));
    assert!(of(DataType::Utf8).is_err());
    let error = average.return_type(&[DataType::List(item(DataType::Float32))]).expect_err("a list").to_string();
    assert!(error.contains("cast it to a vector"), "{error}");

    let mut doubles = OneGroup::new(VectorSums::new(item(DataType::Float64), 1, None));
    let rows = vec![Some(vec![Some(1e300)]), Some(vec![Some(1.0)])];
    doubles.update_batch(&[vectors::<Float64Type>(rows, 1)]).expect("rows");
    let mean = doubles.evaluate().expect("a mean").to_array().expect("a row");
    assert_eq!(&mean, &vectors::<Float64Type>(vec![Some(vec![Some(5e299)])], 1));

    let bits = UInt16Array::from_iter_values([1.0, 4.0].map(|value| bf16::from_f32(value).to_bits()));
    let column: ArrayRef = Arc::new(FixedSizeListArray::new(item(DataType::UInt16), 1, Arc::new(bits), None));
    let mut bfloats =
        OneGroup::new(VectorSums::new(item(DataType::Float32), 1, Some(stoker_columns::SmallFloat::BFloat16)));
    bfloats.update_batch(&[column]).expect("rows");
    let mean = bfloats.evaluate().expect("a mean").to_array().expect("a row");
    assert_eq!(&mean, &vectors::<Float32Type>(vec![Some(vec![Some(2.5)])], 1));
}
