//! Assigns the values of a query to the columns of a table, as SQL does: with the casts of `CAST`, except that a value
//! which does not fit is an error that names the column and the row.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, RecordBatch, RecordBatchOptions, UInt16Array, UInt64Array,
    new_null_array,
};
use arrow_buffer::NullBuffer;
use arrow_cast::display::array_value_to_string;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use arrow_select::take::take;
use half::bf16;
use stoker_columns::{CompressedTensor, Mismatch, SmallFloat, TensorType, is_bfloat16, kind_of};

use crate::{Error, Result};

/// The most characters of a value in a message.
const SHOWN_CHARS_MAX: usize = 60;

/// The rows of a batch, for messages.
#[derive(Clone, Copy)]
pub(crate) enum RowNames<'a> {
    /// They are counted, from this number on.
    From(u64),
    /// They are rows of the table with these addresses.
    Addresses(&'a [u64]),
}

/// A value that cannot be assigned to a column.
struct Misfit {
    /// The row, counted from the first value; `None` if all values do not fit.
    row: Option<usize>,
    reason: String,
}

/// Assigns columns to the columns of a table. Columns of the table without values become NULL.
///
/// `sources` tells for each column of `target` the index of its values in `columns`.
///
/// # Errors
/// `InvalidRequest` for a value that does not fit, and NULL in a column that has no NULL.
pub(crate) fn assign_all(
    attempted: &str,
    target: &SchemaRef,
    sources: &[Option<usize>],
    columns: &[ArrayRef],
    num_rows: usize,
    rows: RowNames<'_>,
) -> Result<RecordBatch> {
    let mut assigned = Vec::with_capacity(sources.len());
    for (field, source) in target.fields().iter().zip(sources) {
        let values = match source.and_then(|source| columns.get(source)) {
            Some(values) => values.clone(),
            None => new_null_array(field.data_type(), num_rows),
        };
        let fitting = assign(field, &values).and_then(|values| without_nulls(field, values));
        assigned.push(fitting.map_err(|misfit| misfit.into_error(attempted, field, rows))?);
    }
    // The rows are checked above; the schema of the batch allows NULL so that it need not be checked again.
    let fields: Vec<FieldRef> = target.fields().iter().map(nullable).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), assigned, &options);
    batch.map_err(|source| Error::internal(format!("{attempted}: {source}")))
}

fn nullable(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_nullable(true))
}

impl From<Mismatch> for Misfit {
    fn from(Mismatch { row, expected, found }: Mismatch) -> Self {
        Self { row, reason: format!("{expected} is needed, not {found}") }
    }
}

impl Misfit {
    fn all(reason: impl Into<String>) -> Self {
        Self { row: None, reason: reason.into() }
    }

    fn at(row: usize, reason: impl Into<String>) -> Self {
        Self { row: Some(row), reason: reason.into() }
    }

    fn into_error(self, attempted: &str, field: &Field, rows: RowNames<'_>) -> Error {
        let column = field.name();
        let place = match (self.row, rows) {
            (None, _) => format!("column {column}"),
            (Some(row), RowNames::From(first)) => format!("column {column}, row {}", first + row as u64 + 1),
            (Some(row), RowNames::Addresses(addrs)) => match addrs.get(row) {
                Some(addr) => format!("column {column}, the row whose row_id is {addr}"),
                None => format!("column {column}, a new row"),
            },
        };
        Error::refused(format!("{attempted}: {place}"), self.reason)
    }
}

/// Refuses NULL in a column that has none.
fn without_nulls(field: &Field, values: ArrayRef) -> std::result::Result<ArrayRef, Misfit> {
    let has_none = !field.is_nullable() || kind_of(field).storage(field).refuses_nulls;
    if !has_none || values.null_count() == 0 {
        return Ok(values);
    }
    match (0..values.len()).find(|row| values.is_null(*row)) {
        None => Ok(values),
        Some(row) => Err(Misfit::at(row, "its value is NULL, and the column has no NULL")),
    }
}

/// Assigns values to a column.
fn assign(field: &Field, values: &ArrayRef) -> std::result::Result<ArrayRef, Misfit> {
    let target = field.data_type();
    if Class::of(values.data_type()) == Class::Nested
        && let Some(tensor) = CompressedTensor::try_of(field).map_err(Misfit::all)?
    {
        let tensors = assign(&tensor.tensor_field(field.name()), values)?;
        return tensor.compress(&tensors).map_err(Misfit::from);
    }
    let assigned = match (target, values.data_type()) {
        (target, found) if target == found => values.clone(),
        (target, DataType::Null) => new_null_array(target, values.len()),
        (DataType::FixedSizeList(item, length), _) => vectors(field, item, *length, values)?,
        (target, found) => {
            check_classes(target, found)?;
            cast_rows(values, target)?
        }
    };
    let checked = kind_of(field).check(field, &assigned);
    checked.map(|()| assigned).map_err(Misfit::from)
}

/// What values of a type are, as far as assignments go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Number,
    Bool,
    Text,
    Bytes,
    Time,
    Nested,
}

impl Class {
    fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Bool,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                Self::Bytes
            }
            data_type if data_type.is_numeric() => Self::Number,
            data_type if data_type.is_temporal() => Self::Time,
            DataType::Dictionary(_, value) => Self::of(value),
            DataType::RunEndEncoded(_, value) => Self::of(value.data_type()),
            _ => Self::Nested,
        }
    }

    /// Whether values of this class are assigned to columns of another one without a cast in the statement.
    fn is_assigned_to(self, target: Self) -> bool {
        match (self, target) {
            (Self::Nested, target) | (target, Self::Nested) => target == Self::Nested,
            (Self::Text, _) | (Self::Number, Self::Bool) | (Self::Bool, Self::Number) => true,
            (Self::Bytes | Self::Number | Self::Bool | Self::Time, Self::Text) => true,
            (own, target) => own == target,
        }
    }
}

fn check_classes(target: &DataType, found: &DataType) -> std::result::Result<(), Misfit> {
    match Class::of(found).is_assigned_to(Class::of(target)) {
        true => Ok(()),
        false => Err(Misfit::all(format!("values of type {found} are not assigned to {target}; cast them"))),
    }
}

/// Casts values. The first one that does not fit is an error.
fn cast_rows(values: &ArrayRef, target: &DataType) -> std::result::Result<ArrayRef, Misfit> {
    if Class::of(target) == Class::Nested {
        return cast_nested(values, target);
    }
    let lenient = CastOptions { safe: true, ..CastOptions::default() };
    let assigned = cast_with_options(values, target, &lenient).map_err(|error| Misfit::all(reason(&error)))?;
    let is_lost = |row: usize| assigned.is_null(row) && values.is_valid(row);
    let lost = match assigned.null_count() > values.null_count() {
        true => (0..values.len()).find(|row| is_lost(*row)),
        false => None,
    };
    match lost.or_else(|| first_infinite(values, &assigned)) {
        None => Ok(assigned),
        Some(row) => Err(Misfit::at(row, format!("{} does not fit the type {target}", shown(values, row)))),
    }
}

/// Casts lists and structs, whose elements may not fit.
fn cast_nested(values: &ArrayRef, target: &DataType) -> std::result::Result<ArrayRef, Misfit> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let cast = |values: &ArrayRef| cast_with_options(values, target, &strict);
    cast(values).map_err(|error| {
        let row = (0..values.len()).find(|row| cast(&values.slice(*row, 1)).is_err());
        Misfit { row, reason: reason(&error) }
    })
}

/// Returns the first finite number that became infinite, because the target type has no number that large.
fn first_infinite(values: &ArrayRef, assigned: &ArrayRef) -> Option<usize> {
    let is_narrow = matches!(assigned.data_type(), DataType::Float16 | DataType::Float32);
    if !is_narrow || Class::of(values.data_type()) == Class::Bool {
        return None;
    }
    let wide = |array: &ArrayRef| cast_with_options(array, &DataType::Float64, &CastOptions::default()).ok();
    let (values, assigned) = (wide(values)?, wide(assigned)?);
    let (values, assigned) = (values.as_primitive::<Float64Type>(), assigned.as_primitive::<Float64Type>());
    (0..values.len())
        .find(|row| values.is_valid(*row) && values.value(*row).is_finite() && assigned.value(*row).is_infinite())
}

/// Assigns lists to vectors or tensors. Nested lists give the elements of a tensor in row-major order.
fn vectors(field: &Field, item: &FieldRef, length: i32, values: &ArrayRef) -> std::result::Result<ArrayRef, Misfit> {
    let width = usize::try_from(length).unwrap_or_default();
    let levels = levels(values.data_type());
    if levels == 0 {
        return Err(Misfit::all(format!(
            "a list of {length} elements is needed, not values of type {}",
            values.data_type()
        )));
    }
    // Lists that are nested as deeply as a tensor has dimensions must have the sizes of the dimensions.
    let is_of_levels = |shape: &Vec<usize>| levels > 1 && shape.len() == levels;
    let shape = TensorType::of(field).map(|tensor| tensor.shape).filter(is_of_levels);
    let mut elements = values.clone();
    let mut ranges: Vec<Option<(usize, usize)>> =
        (0..values.len()).map(|row| values.is_valid(row).then_some((row, row + 1))).collect();
    for level in 0..levels {
        let Some((inner, offsets)) = lists(&elements) else { break };
        for (row, range) in ranges.iter_mut().enumerate() {
            let Some((start, end)) = range else { continue };
            for index in *start..*end {
                if elements.is_null(index) {
                    return Err(Misfit::at(row, "a list in it is NULL"));
                }
                let found = offsets[index + 1] - offsets[index];
                if let Some(size) = shape.as_ref().and_then(|shape| shape.get(level)).filter(|size| **size != found) {
                    let reason = format!("a list of {found} elements cannot be a dimension of {size}");
                    return Err(Misfit::at(row, reason));
                }
            }
            *range = Some((offsets[*start], offsets[*end]));
        }
        elements = inner;
    }
    for (row, range) in ranges.iter().enumerate() {
        if let Some((start, end)) = range
            && end - start != width
        {
            let reason = format!("a list of {} elements cannot be a vector of {width} elements", end - start);
            return Err(Misfit::at(row, reason));
        }
    }
    let elements = gathered(&elements, &ranges, width).map_err(|error| Misfit::all(reason(&error)))?;
    let of_element = |misfit: Misfit| Misfit { row: misfit.row.map(|index| index / width.max(1)), ..misfit };
    if let Some(float) = SmallFloat::of(field).filter(|float| *float != SmallFloat::BFloat16)
        && elements.data_type() != item.data_type()
    {
        let (name, found) = (float.name(), elements.data_type());
        return Err(Misfit::all(format!("the bits of {name} as UInt8 are needed, not values of type {found}")));
    }
    let elements = match is_bfloat16(field) && *elements.data_type() != DataType::UInt16 {
        true => bfloat16(&elements).map_err(of_element)?,
        false if elements.data_type() == item.data_type() => elements,
        false => {
            check_classes(item.data_type(), elements.data_type())?;
            cast_rows(&elements, item.data_type()).map_err(of_element)?
        }
    };
    let nulls = NullBuffer::from(ranges.iter().map(Option::is_some).collect::<Vec<bool>>());
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    let vectors = FixedSizeListArray::try_new_with_length(item.clone(), length, elements, nulls, values.len());
    vectors.map(|vectors| Arc::new(vectors) as ArrayRef).map_err(|error| Misfit::all(reason(&error)))
}

/// Returns the elements of all rows, each with `width` of them: NULL for rows without a range.
fn gathered(
    elements: &ArrayRef,
    ranges: &[Option<(usize, usize)>],
    width: usize,
) -> std::result::Result<ArrayRef, ArrowError> {
    let are_neighbours = ranges.windows(2).all(|pair| match (pair[0], pair[1]) {
        (Some((_, end)), Some((start, _))) => end == start,
        _ => false,
    });
    match ranges.first() {
        None => return Ok(elements.slice(0, 0)),
        Some(Some((start, _))) if are_neighbours => return Ok(elements.slice(*start, ranges.len() * width)),
        Some(_) => {}
    }
    let of_row = |range: &Option<(usize, usize)>| {
        let start = range.map(|(start, _)| start as u64);
        (0..width as u64).map(move |index| start.map(|start| start + index))
    };
    take(elements, &ranges.iter().flat_map(of_row).collect::<UInt64Array>(), None)
}

/// Converts numbers to bfloat16, which is stored as UInt16.
fn bfloat16(elements: &ArrayRef) -> std::result::Result<ArrayRef, Misfit> {
    check_classes(&DataType::Float32, elements.data_type())?;
    let floats = cast_rows(elements, &DataType::Float32)?;
    let bits = floats.as_primitive::<Float32Type>().iter();
    Ok(Arc::new(bits.map(|value| value.map(|value| bf16::from_f32(value).to_bits())).collect::<UInt16Array>()))
}

/// The number of levels of lists in a type.
fn levels(data_type: &DataType) -> usize {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            1 + levels(item.data_type())
        }
        _ => 0,
    }
}

/// Returns the elements of all lists of an array, and the index at which each list begins and the last one ends; `None`
/// for an array of other values.
fn lists(array: &ArrayRef) -> Option<(ArrayRef, Vec<usize>)> {
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets().iter().map(|offset| usize::try_from(*offset).unwrap_or_default());
            Some((list.values().clone(), offsets.collect()))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let offsets = list.value_offsets().iter().map(|offset| usize::try_from(*offset).unwrap_or_default());
            Some((list.values().clone(), offsets.collect()))
        }
        DataType::FixedSizeList(_, length) => {
            let (list, length) = (array.as_fixed_size_list(), usize::try_from(*length).unwrap_or_default());
            Some((list.values().clone(), (0..=list.len()).map(|index| index * length).collect()))
        }
        _ => None,
    }
}

/// A value as text, shortened.
fn shown(values: &ArrayRef, row: usize) -> String {
    let text = array_value_to_string(values, row).unwrap_or_default();
    let brief: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    let brief = if brief.len() < text.len() { format!("{brief}…") } else { brief };
    if Class::of(values.data_type()) == Class::Text { format!("'{brief}'") } else { brief }
}

fn reason(error: &ArrowError) -> String {
    match error {
        ArrowError::CastError(text) | ArrowError::ParseError(text) | ArrowError::InvalidArgumentError(text) => {
            text.clone()
        }
        other => other.to_string(),
    }
}

/// Returns the rows of a batch for which `mask` is true.
pub(crate) fn filtered(columns: &[ArrayRef], mask: &BooleanArray) -> Result<Vec<ArrayRef>> {
    let filter = |column: &ArrayRef| arrow_select::filter::filter(column, mask);
    columns
        .iter()
        .map(filter)
        .collect::<std::result::Result<_, _>>()
        .map_err(|source| Error::internal(source.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{Float64Builder, ListBuilder};
    use arrow_array::types::Int64Type;
    use arrow_array::{Float64Array, Int64Array, ListArray, StringArray};

    use super::*;

    fn assigned(field: &Field, values: impl Array + 'static) -> std::result::Result<ArrayRef, String> {
        let target = Arc::new(Schema::new(vec![field.clone()]));
        let (values, num_rows): (ArrayRef, usize) = (Arc::new(values), 0);
        let num_rows = num_rows + values.len();
        let batch = assign_all("INSERT INTO t", &target, &[Some(0)], &[values], num_rows, RowNames::From(10));
        batch.map(|batch| batch.column(0).clone()).map_err(|error| error.to_string())
    }

    fn vector(element: DataType, length: i32) -> DataType {
        DataType::FixedSizeList(Arc::new(Field::new("item", element, true)), length)
    }

    #[test]
    fn numbers_and_texts_are_cast() {
        let int = Field::new("a", DataType::Int32, true);
        let values = assigned(&int, Int64Array::from(vec![Some(1), None])).expect("numbers");
        assert_eq!(values.data_type(), &DataType::Int32);
        assert_eq!(values.null_count(), 1);
        assigned(&int, StringArray::from(vec!["12", "-3"])).expect("texts of numbers");
        let text = Field::new("a", DataType::Utf8, true);
        let values = assigned(&text, Float64Array::from(vec![1.5])).expect("a number as text");
        assert_eq!(values.as_string::<i32>().value(0), "1.5");
        for (field, values, part) in [
            (&int, Arc::new(Int64Array::from(vec![1, 1 << 40])) as ArrayRef, "column a, row 12: 1099511627776 does"),
            (&int, Arc::new(StringArray::from(vec!["1", "2", "x"])), "column a, row 13: 'x' does not fit"),
            (&Field::new("a", DataType::Float32, true), Arc::new(Float64Array::from(vec![1e300])), "row 11: 1e300"),
            (&Field::new("a", DataType::Date32, true), Arc::new(Int64Array::from(vec![1])), "cast them"),
            (&Field::new("a", DataType::Binary, true), Arc::new(Int64Array::from(vec![1])), "cast them"),
            (
                &Field::new("a", DataType::Int64, false),
                Arc::new(Int64Array::from(vec![None])),
                "row 11: its value is NULL",
            ),
        ] {
            let error = assigned(field, values).expect_err(part);
            assert!(error.contains(part) && error.starts_with("INSERT INTO t"), "{error}");
        }
    }

    #[test]
    fn lists_become_compressed_tensors() {
        let tensor = TensorType { element: DataType::Float32, shape: vec![2] }.to_field("x");
        let tensor = CompressedTensor::try_new(&tensor, "pco".parse().expect("a codec")).expect("a tensor");
        let field = tensor.to_field("x");
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![Some(vec![Some(1), Some(2)])]);
        let frames = assigned(&field, lists).expect("frames");
        let back = tensor.decompress(&frames).expect("tensors");
        assert_eq!(back.as_fixed_size_list().value(0).as_primitive::<Float32Type>().values(), &[1.0, 2.0]);
        assert_eq!(*assigned(&field, frames.as_binary::<i64>().clone()).expect("frames stay"), *frames);
        for (values, part) in [
            (Arc::new(StringArray::from(vec!["[1, 2]"])) as ArrayRef, "row 11: a frame of 2 elements of float32"),
            (Arc::new(Int64Array::from(vec![1])), "cast them"),
            (
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(vec![None::<Vec<Option<i64>>>])),
                "row 11: 2 elements of float32 without nulls is needed, not null",
            ),
            (
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(vec![Some(vec![Some(1)])])),
                "row 11: a list of 1 elements",
            ),
        ] {
            let error = assigned(&field, values).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn lists_become_vectors_and_tensors() {
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
            Some(vec![Some(9), Some(9)]),
            Some(vec![Some(1), Some(2)]),
            None,
            Some(vec![Some(3), Some(4)]),
        ]);
        let field = Field::new("v", vector(DataType::Float32, 2), true);
        let vectors = assigned(&field, lists.slice(1, 3)).expect("vectors");
        let vectors = vectors.as_fixed_size_list();
        assert_eq!((vectors.len(), vectors.is_null(1)), (3, true));
        assert_eq!(vectors.value(2).as_primitive::<Float32Type>().values(), &[3.0, 4.0]);
        let error = assigned(&Field::new("v", vector(DataType::Float32, 3), true), lists).expect_err("too short");
        assert!(error.contains("row 11: a list of 2 elements cannot be a vector of 3"), "{error}");

        let mut nested = ListBuilder::new(ListBuilder::new(Float64Builder::new()));
        for row in [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]] {
            for part in row {
                nested.values().append_value(part.map(Some));
            }
            nested.append(true);
        }
        let nested = nested.finish();
        let tensor = TensorType { element: DataType::UInt8, shape: vec![2, 2] }.to_field("image");
        let tensors = assigned(&tensor, nested.clone()).expect("tensors");
        let bytes = tensors.as_fixed_size_list().value(1);
        assert_eq!(bytes.as_primitive::<arrow_array::types::UInt8Type>().values(), &[5, 6, 7, 8]);
        let other = TensorType { element: DataType::UInt8, shape: vec![4, 1] }.to_field("image");
        let error = assigned(&other, nested).expect_err("another shape");
        assert!(error.contains("a list of 2 elements cannot be a dimension of 4"), "{error}");
    }
}
