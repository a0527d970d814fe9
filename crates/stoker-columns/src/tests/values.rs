//! The numbers of columns with nulls, of rows of different lengths, and of padded rows, against a model of lists.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, FixedSizeListBuilder, Float32Builder, Int32Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type, UInt8Type};
use arrow_array::{Array, ArrayRef, BooleanArray, FixedSizeListArray, Int32Array, ListArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};
use proptest::prelude::*;

use super::with;
use crate::ragged::{PADDED_BYTES_MAX, Padding, ragged_values};
use crate::*;

/// Lists in lists of numbers, each of which may be null.
type Row = Option<Vec<Option<Vec<Option<i32>>>>>;

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let maybe = |strategy| prop::option::weighted(0.8, strategy);
    let list = prop::collection::vec(prop::option::weighted(0.9, any::<i32>()), 0..5);
    prop::collection::vec(maybe(prop::collection::vec(prop::option::weighted(0.8, list), 0..4).boxed()), 0..9)
}

fn array(rows: &[Row]) -> ArrayRef {
    let mut builder = ListBuilder::new(ListBuilder::new(Int32Builder::new()));
    for row in rows {
        for list in row.iter().flatten() {
            for number in list.iter().flatten() {
                builder.values().values().append_option(*number);
            }
            builder.values().append(list.is_some());
        }
        builder.append(row.is_some());
    }
    Arc::new(builder.finish())
}

fn field(array: &ArrayRef) -> Field {
    Field::new("x", array.data_type().clone(), true)
}

/// The same rows, whose null lists hide numbers, as a writer may leave them.
fn with_hidden(lists: &ListArray, hidden: i32) -> ArrayRef {
    let inner = lists.values().as_list::<i32>();
    let (mut numbers, mut lengths) = (Vec::new(), Vec::new());
    for list in 0..inner.len() {
        let values = inner.value(list);
        match inner.is_null(list) {
            true => numbers.extend(std::iter::repeat_n(Some(7), hidden as usize)),
            false => numbers.extend(values.as_primitive::<Int32Type>().iter()),
        }
        lengths.push(if inner.is_null(list) { hidden as usize } else { values.len() });
    }
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let inner = ListArray::new(item, offsets, Arc::new(Int32Array::from(numbers)), inner.nulls().cloned());
    let item = Arc::new(Field::new("item", inner.data_type().clone(), true));
    Arc::new(ListArray::new(item, lists.offsets().clone(), Arc::new(inner), lists.nulls().cloned()))
}

fn known(row: &Row) -> Vec<Vec<i32>> {
    let lists = row.iter().flatten();
    lists.map(|list| list.iter().flatten().map(|number| number.unwrap_or(0)).collect()).collect()
}

fn is_whole(row: &Row) -> bool {
    let whole = |list: &Option<Vec<Option<i32>>>| list.as_ref().is_some_and(|list| list.iter().all(Option::is_some));
    row.as_ref().is_some_and(|row| row.iter().all(whole))
}

fn padding() -> Padding {
    Padding { fill: (-1i32).to_le_bytes().to_vec(), multiple: 1, length: None, truncates: false, needs_mask: true }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn ragged_rows_are_those_of_the_model(rows in rows(), start in 0usize..4, hidden in 0i32..3) {
        let start = start.min(rows.len());
        let array = with_hidden(array(&rows).as_list(), hidden).slice(start, rows.len() - start);
        let field = field(&array);
        let rows = &rows[start..];
        let ragged = ragged_values(&field, &array).unwrap().expect("a ragged column");
        let (outer, inner) = (&ragged.offsets[0], &ragged.offsets[1]);
        let numbers = ragged.values.as_primitive::<Int32Type>();
        prop_assert_eq!(numbers.null_count(), 0);
        prop_assert_eq!(ragged.num_rows(), rows.len());
        for (row, expected) in rows.iter().enumerate() {
            let lists = outer[row] as usize..outer[row + 1] as usize;
            let found: Vec<Vec<i32>> =
                lists.map(|list| numbers.values()[inner[list] as usize..inner[list + 1] as usize].to_vec()).collect();
            prop_assert_eq!(found, known(expected));
        }
        let valid = row_validity(&field, &array);
        for (row, expected) in rows.iter().enumerate() {
            prop_assert_eq!(valid.as_ref().is_none_or(|valid| valid.is_valid(row)), is_whole(expected));
        }
    }

    #[test]
    fn padded_rows_are_those_of_the_model(rows in rows(), multiple in 1usize..4, length in 0usize..4) {
        let array = array(&rows);
        let ragged = ragged_values(&field(&array), &array).unwrap().expect("a ragged column");
        let longest = rows.iter().map(|row| known(row).len()).max().unwrap_or(0);
        let fixed = Padding { length: Some(length), ..padding() };
        let refused = ragged.padded(&fixed, 1, 0).err().map(|wrong| wrong.row.expect("a row"));
        prop_assert_eq!(refused, rows.iter().position(|row| known(row).len() > length));
        for padding in [Padding { multiple, ..padding() }, Padding { truncates: true, ..fixed }] {
            let size = padding.length.unwrap_or(longest.next_multiple_of(multiple));
            let padded = ragged.padded(&padding, 1, 0).unwrap();
            let inner = rows.iter().flat_map(known).map(|list| list.len()).max().unwrap_or(0);
            prop_assert_eq!(&padded.sizes, &[rows.len(), size, inner]);
            let (numbers, mask) = (padded.values.as_primitive::<Int32Type>(), padded.mask.unwrap());
            for (row, expected) in rows.iter().enumerate() {
                let expected = known(expected);
                prop_assert_eq!(padded.lengths[row], expected.len().min(size) as i64);
                for at in 0..size * inner {
                    let place = row * size * inner + at;
                    let number = expected.get(at / inner).and_then(|list| list.get(at % inner));
                    prop_assert_eq!(numbers.value(place), number.copied().unwrap_or(-1));
                    prop_assert_eq!(mask.as_primitive::<UInt8Type>().value(place), u8::from(number.is_some()));
                }
            }
        }
    }
}

#[test]
fn nulls_of_fixed_rows_are_zero_and_those_of_floats_nan() {
    let mut builder = FixedSizeListBuilder::new(Float32Builder::new(), 2);
    for (row, valid) in [([Some(1.0), Some(2.0)], true), ([Some(3.0), None], true), ([Some(4.0), None], false)] {
        row.into_iter().for_each(|number| builder.values().append_option(number));
        builder.append(valid);
    }
    let floats: ArrayRef = Arc::new(builder.finish());
    let found = dense_values(&floats).unwrap();
    let found = found.as_primitive::<Float32Type>().values().iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(found, [1.0, 2.0, 3.0, f32::NAN, 0.0, 0.0].map(f32::to_bits));
    let valid = |array: &ArrayRef| row_validity(&field(array), array).map(|nulls| nulls.iter().collect::<Vec<_>>());
    assert_eq!(valid(&floats), Some(vec![true, false, false]));
    assert_eq!(dense_values(&floats.slice(1, 1)).unwrap().len(), 2);
    assert_eq!(valid(&floats.slice(0, 1)), None);

    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(5), None, Some(6)]));
    assert_eq!(dense_values(&numbers.slice(1, 2)).unwrap().as_primitive::<Int32Type>().values(), &[0, 6]);
    assert_eq!(valid(&numbers), Some(vec![true, false, true]));
    let texts: ArrayRef = Arc::new(arrow_array::StringArray::from(vec![Some("a"), None]));
    assert!(dense_values(&texts).is_none());
    assert_eq!(valid(&texts), Some(vec![true, false]));
}

#[test]
fn numbers_without_nulls_are_not_copied() {
    let numbers = Int32Array::from_iter_values(0..12);
    let address = numbers.values().as_ptr();
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let inner = FixedSizeListArray::new(item, 2, Arc::new(numbers), None);
    let item = Arc::new(Field::new("item", inner.data_type().clone(), true));
    let nested: ArrayRef = Arc::new(FixedSizeListArray::new(item, 3, Arc::new(inner), None));
    let found = dense_values(&nested).unwrap();
    assert_eq!((found.as_primitive::<Int32Type>().values().as_ptr(), found.len()), (address, 12));
    let sliced = dense_values(&nested.slice(1, 1)).unwrap();
    assert_eq!(sliced.as_primitive::<Int32Type>().values(), &[6, 7, 8, 9, 10, 11]);
}

#[test]
fn booleans_are_bytes() {
    let mut builder = FixedSizeListBuilder::new(BooleanBuilder::new(), 3);
    for (flags, valid) in [([true, false, true], true), ([true; 3], false), ([false, true, true], true)] {
        flags.into_iter().for_each(|flag| builder.values().append_value(flag));
        builder.append(valid);
    }
    let lists: ArrayRef = Arc::new(builder.finish());
    let bytes = |array: ArrayRef| dense_values(&array).unwrap().as_primitive::<UInt8Type>().values().to_vec();
    assert_eq!(bytes(lists.clone()), [1, 0, 1, 0, 0, 0, 0, 1, 1]);
    assert_eq!(bytes(lists.slice(1, 2)), [0, 0, 0, 0, 1, 1]);
    assert_eq!(bytes(Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))), [1, 0, 0]);
}

/// Tensors of bytes of the given shapes, whose elements count up.
fn tensors(shapes: &[[i32; 2]], lengths: &[usize], nulls: Option<NullBuffer>) -> (Field, ArrayRef) {
    let numbers = Int32Array::from_iter_values(0..lengths.iter().sum::<usize>() as i32);
    let item = Arc::new(Field::new("item", DataType::Int32, false));
    let data = ListArray::new(item.clone(), OffsetBuffer::from_lengths(lengths.to_vec()), Arc::new(numbers), None);
    let sizes = Int32Array::from_iter_values(shapes.iter().flatten().copied());
    let sizes = FixedSizeListArray::new(item, 2, Arc::new(sizes), None);
    let members: Vec<Field> = [("data", data.data_type()), ("shape", sizes.data_type())]
        .map(|(name, data_type)| Field::new(name, data_type.clone(), false))
        .to_vec();
    let array: ArrayRef = Arc::new(StructArray::new(members.into(), vec![Arc::new(data), Arc::new(sizes)], nulls));
    (with(field(&array), &[(EXTENSION_NAME_KEY, VARIABLE_SHAPE_TENSOR)]), array)
}

#[test]
fn tensors_with_shapes_of_their_own_are_padded() {
    let nulls = NullBuffer::from(vec![true, true, false]);
    let (field, array) = tensors(&[[2, 1], [1, 3], [9, 9]], &[2, 3, 2], Some(nulls));
    let ragged = ragged_values(&field, &array).unwrap().expect("a ragged column");
    assert_eq!(&ragged.offsets[0][..], &[0, 2, 5, 5]);
    assert_eq!(ragged.sizes.as_deref(), Some(&[2, 1, 1, 3, 0, 0][..]));
    let padded = ragged.padded(&padding(), 1, 0).unwrap();
    assert_eq!(padded.sizes, [3, 2, 3]);
    let numbers = padded.values.as_primitive::<Int32Type>().values().to_vec();
    assert_eq!(numbers, [0, -1, -1, 1, -1, -1, 2, 3, 4, -1, -1, -1, -1, -1, -1, -1, -1, -1]);
    assert_eq!(padded.lengths, [2, 1, 1, 3, 0, 0]);
    let none = ragged_values(&field, &array.slice(0, 0)).unwrap().expect("a ragged column");
    assert_eq!(none.padded(&padding(), 1, 0).unwrap().sizes, [0, 0, 0]);
    let cut = Padding { length: Some(2), truncates: true, ..padding() };
    let cut = ragged.padded(&cut, 1, 1).unwrap();
    assert_eq!((cut.sizes, cut.lengths), (vec![3, 2, 2], vec![2, 1, 1, 2, 0, 0]));
    assert_eq!(row_validity(&field, &array).map(|nulls| nulls.null_count()), Some(1));
}

#[test]
fn shapes_that_do_not_fit_their_elements_are_found() {
    for shape in [[2, 2], [-1, -3], [i32::MAX, i32::MAX], [0, 3]] {
        let (field, array) = tensors(&[[3, 1], shape], &[3, 3], None);
        let wrong = ragged_values(&field, &array).unwrap_err();
        assert_eq!((wrong.row, wrong.expected.as_str()), (Some(1), "a shape [*, *] of 3 elements"));
    }
    let (field, array) = tensors(&[[3, 1]], &[3], None);
    let uniform = with(field, &[(EXTENSION_METADATA_KEY, r#"{"uniform_shape":[1,null]}"#)]);
    assert_eq!(ragged_values(&uniform, &array).unwrap_err().row, Some(0));
}

#[test]
fn rows_that_do_not_fit_memory_are_refused_before_it_is_taken() {
    let lists = vec![Some(vec![Some(1); 70_000]), Some(vec![])];
    let mut rows = lists;
    rows.extend(std::iter::repeat_n(Some(vec![]), 20_000));
    let array: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(rows));
    let ragged = ragged_values(&field(&array), &array).unwrap().expect("a ragged column");
    let wrong = ragged.padded(&padding(), 1, 0).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        format!("expected at most {PADDED_BYTES_MAX} bytes of padded rows, found 20002 rows of [70000] elements")
    );
    let endless = Padding { multiple: usize::MAX, ..padding() };
    ragged.padded(&endless, 1, 0).unwrap_err();
}

#[test]
fn floats_of_eight_bits_have_the_values_of_their_formats() {
    let cases = [
        ("float8_e4m3fn", [0x38, 0x7e, 0x01, 0xb8], [1.0, 448.0, 1.0 / 512.0, -1.0], 0x7f),
        ("float8_e4m3fnuz", [0x40, 0x7f, 0x01, 0xc0], [1.0, 240.0, 1.0 / 1024.0, -1.0], 0x80),
        ("float8_e5m2", [0x3c, 0x7b, 0x01, 0x7c], [1.0, 57344.0, 1.0 / 65536.0, f32::INFINITY], 0x7d),
        ("float8_e5m2fnuz", [0x40, 0x7f, 0x01, 0xc0], [1.0, 57344.0, 1.0 / 131072.0, -1.0], 0x80),
    ];
    for (name, bits, values, nan) in cases {
        let float = SmallFloat::named(name).expect("a name");
        assert_eq!(bits.map(|bits| float.to_f32(bits)), values, "{name}");
        assert!(float.to_f32(nan).is_nan(), "{name}");
        assert_eq!(float.to_f32(0), 0.0, "{name}");
    }
}
