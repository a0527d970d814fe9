//! Widens values to the type of a table's column, without loss.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, OffsetSizeTrait, StructArray, new_null_array,
};
use arrow_buffer::OffsetBuffer;
use arrow_cast::display::array_value_to_string;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, FieldRef};

use crate::Mismatch;
use crate::ingest::{plain, to_plain};

/// The most characters of a value in a message.
const SHOWN_CHARS_MAX: usize = 60;

/// Whether values of type `found` can be stored as `to` without loss.
///
/// | `found` | `to` |
/// |---|---|
/// | integers | integers with the whole range of `found` |
/// | integers | floats, for values that these hold exactly; [`widened`] refuses others |
/// | floats | floats of at least as many bits |
/// | text, binary | the same with other offsets, and without views |
/// | dictionaries, run-end encodings | as their values |
/// | lists and structs | lists and structs of the same structure, whose values are widened |
/// | nulls of no type | any type |
pub(crate) fn widens(to: &DataType, found: &DataType) -> bool {
    match (to, &plain(found)) {
        (_, DataType::Null) => true,
        (to, found) if to.is_integer() && found.is_integer() => holds_integers(to, found),
        (to, found) if to.is_floating() => found.is_integer() || found.is_floating() && width(to) >= width(found),
        (DataType::Utf8 | DataType::LargeUtf8, DataType::Utf8 | DataType::LargeUtf8)
        | (DataType::Binary | DataType::LargeBinary, DataType::LargeBinary) => true,
        (DataType::FixedSizeList(to, length), DataType::FixedSizeList(found, found_length)) => {
            length == found_length && widens(to.data_type(), found.data_type())
        }
        (DataType::List(to) | DataType::LargeList(to), DataType::List(found) | DataType::LargeList(found)) => {
            widens(to.data_type(), found.data_type())
        }
        (DataType::Struct(to), DataType::Struct(found)) => {
            let same = |(to, found): (&FieldRef, &FieldRef)| {
                to.name() == found.name() && widens(to.data_type(), found.data_type())
            };
            to.len() == found.len() && to.iter().zip(found).all(same)
        }
        (to, found) => to.equals_datatype(found),
    }
}

/// Whether integers of type `to` have the range of those of type `found`.
fn holds_integers(to: &DataType, found: &DataType) -> bool {
    match (to.is_signed_integer(), found.is_signed_integer()) {
        (true, false) => width(to) > width(found),
        (false, true) => false,
        _ => width(to) >= width(found),
    }
}

fn width(data_type: &DataType) -> usize {
    data_type.primitive_width().unwrap_or(0)
}

/// Returns values in a type for which [`widens`] is true. Values that have the type already are not copied.
///
/// # Errors
/// The first integer that a float does not hold exactly; a null in lists that have none.
pub(crate) fn widened(to: &DataType, values: &ArrayRef) -> Result<ArrayRef, Mismatch> {
    if values.data_type() == to {
        return Ok(values.clone());
    }
    let values = match plain(values.data_type()).equals_datatype(values.data_type()) {
        true => values,
        false => &to_plain(values)?,
    };
    match (to, values.data_type()) {
        (to, found) if to == found => Ok(values.clone()),
        (to, DataType::Null) => Ok(new_null_array(to, values.len())),
        (DataType::FixedSizeList(item, length), DataType::FixedSizeList(..)) => fixed_size_lists(item, *length, values),
        (DataType::List(item), DataType::List(_)) => lists::<i32, i32>(item, values),
        (DataType::List(item), DataType::LargeList(_)) => lists::<i64, i32>(item, values),
        (DataType::LargeList(item), DataType::List(_)) => lists::<i32, i64>(item, values),
        (DataType::LargeList(item), DataType::LargeList(_)) => lists::<i64, i64>(item, values),
        (DataType::Struct(fields), DataType::Struct(_)) => {
            let columns = fields.iter().zip(values.as_struct().columns());
            let columns =
                columns.map(|(field, column)| widened(field.data_type(), column)).collect::<Result<_, _>>()?;
            let fields = fields.iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true))).collect();
            let structs = StructArray::try_new(fields, columns, values.nulls().cloned());
            structs.map(|structs| Arc::new(structs) as ArrayRef).map_err(|error| unlike(to, &error))
        }
        (to, found) => {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            let wide = cast_with_options(values, to, &options).map_err(|error| unlike(to, &error))?;
            if to.is_floating() && found.is_integer() {
                check_exact(&wide, values)?;
            }
            Ok(wide)
        }
    }
}

/// Widens the items of fixed-size lists. They stay nullable, because the kind of the column says which nulls it takes.
fn fixed_size_lists(item: &FieldRef, length: i32, values: &ArrayRef) -> Result<ArrayRef, Mismatch> {
    let list = values.as_fixed_size_list();
    let row_len = usize::try_from(length).unwrap_or(1).max(1);
    let items = widened(item.data_type(), list.values()).map_err(|wrong| of_row(wrong, |index| index / row_len))?;
    let item = Arc::new(item.as_ref().clone().with_nullable(true));
    let lists = FixedSizeListArray::try_new_with_length(item, length, items, list.nulls().cloned(), list.len());
    lists.map(|lists| Arc::new(lists) as ArrayRef).map_err(|error| unlike(values.data_type(), &error))
}

/// Widens the items of lists.
fn lists<Found: OffsetSizeTrait, Wide: OffsetSizeTrait>(
    item: &FieldRef,
    values: &ArrayRef,
) -> Result<ArrayRef, Mismatch> {
    let list = values.as_list::<Found>();
    let index = |offset: &Found| offset.as_usize();
    // Items of other rows, which the lists share memory with, are left out.
    let first = list.value_offsets().first().map_or(0, index);
    let offsets: Vec<usize> = list.value_offsets().iter().map(|offset| offset.as_usize() - first).collect();
    let items = list.values().slice(first, offsets.last().copied().unwrap_or(0));
    let row_of = |index: usize| offsets.partition_point(|offset| *offset <= index).saturating_sub(1);
    if !item.is_nullable()
        && let Some(index) = (0..items.len()).find(|index| items.is_null(*index))
    {
        return Err(Mismatch::new(Some(row_of(index)), "a list without nulls", "a null"));
    }
    let items = widened(item.data_type(), &items).map_err(|wrong| of_row(wrong, row_of))?;
    let too_long = || Mismatch::new(None, "lists of fewer items", format!("{} items", items.len()));
    let offsets: Vec<Wide> =
        offsets.iter().map(|offset| Wide::from_usize(*offset)).collect::<Option<_>>().ok_or_else(too_long)?;
    let lists =
        GenericListArray::try_new(item.clone(), OffsetBuffer::new(offsets.into()), items, list.nulls().cloned());
    lists.map(|lists| Arc::new(lists) as ArrayRef).map_err(|error| unlike(values.data_type(), &error))
}

fn of_row(wrong: Mismatch, row_of: impl Fn(usize) -> usize) -> Mismatch {
    Mismatch { row: wrong.row.map(row_of), ..wrong }
}

/// Refuses integers that changed when they became floats.
fn check_exact(floats: &ArrayRef, integers: &ArrayRef) -> Result<(), Mismatch> {
    // A float that no integer of this type equals becomes null.
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let to = floats.data_type();
    let back = cast_with_options(floats, integers.data_type(), &options).map_err(|error| unlike(to, &error))?;
    let (found, expected) = (back.to_data(), integers.to_data());
    if found == expected {
        return Ok(());
    }
    let is_other = |row: &usize| back.slice(*row, 1).to_data() != integers.slice(*row, 1).to_data();
    match (0..integers.len()).find(is_other) {
        None => Ok(()),
        Some(row) => {
            let number = shown(integers, row);
            Err(Mismatch::new(Some(row), format!("a number that {to} holds exactly"), number))
        }
    }
}

fn unlike(to: &DataType, error: &arrow_schema::ArrowError) -> Mismatch {
    Mismatch::new(None, to.to_string(), error.to_string())
}

/// A value as text, shortened.
fn shown(values: &ArrayRef, row: usize) -> String {
    let text = array_value_to_string(values, row).unwrap_or_default();
    let brief: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if brief.len() < text.len() { format!("{brief}…") } else { brief }
}

/// Whether a field holds the bits of floats that Arrow lacks: no number, so that it is not widened.
pub(crate) fn is_of_bits(field: &Field) -> bool {
    field.metadata().contains_key(crate::DTYPE_KEY)
}

#[cfg(test)]
mod tests {
    use arrow_array::types::{Int32Type, Int64Type, UInt8Type};
    use arrow_array::{
        Float32Array, Float64Array, Int8Array, Int32Array, Int64Array, LargeStringArray, ListArray, NullArray,
        StringArray, UInt32Array, UInt64Array,
    };

    use super::*;

    fn item(data_type: DataType) -> FieldRef {
        Arc::new(Field::new("item", data_type, true))
    }

    /// Checks that values are widened without a change.
    #[track_caller]
    fn check(values: impl Array + 'static, to: &DataType, expected: impl Array + 'static) {
        let values: ArrayRef = Arc::new(values);
        assert!(widens(to, values.data_type()), "{} to {to}", values.data_type());
        let wide = widened(to, &values).expect("wide values");
        assert_eq!(wide.data_type(), to);
        assert_eq!(wide.to_data(), expected.to_data());
    }

    #[test]
    fn numbers_get_wider() {
        check(Int32Array::from(vec![Some(-3), None]), &DataType::Int64, Int64Array::from(vec![Some(-3), None]));
        check(UInt32Array::from(vec![u32::MAX]), &DataType::Int64, Int64Array::from(vec![i64::from(u32::MAX)]));
        check(Float32Array::from(vec![0.1]), &DataType::Float64, Float64Array::from(vec![f64::from(0.1f32)]));
        check(Int8Array::from(vec![-128]), &DataType::Float32, Float32Array::from(vec![-128.0]));
        check(Int64Array::from(vec![1 << 53]), &DataType::Float64, Float64Array::from(vec![9_007_199_254_740_992.0]));
        check(NullArray::new(2), &DataType::Int64, Int64Array::from(vec![None, None]));
        check(StringArray::from(vec!["a"]), &DataType::LargeUtf8, LargeStringArray::from(vec!["a"]));
    }

    #[test]
    fn nothing_gets_narrower() {
        use DataType::{Boolean, Float16, Float32, Float64, Int32, Int64, UInt8, UInt32, UInt64, Utf8};
        for (to, found) in [
            (Int32, Int64),
            (UInt32, Int32),
            (Int64, UInt64),
            (UInt8, Int32),
            (Float32, Float64),
            (Float16, Float32),
            (Int64, Float32),
            (Int64, Boolean),
            (Boolean, UInt8),
            (Utf8, Int64),
            (Int64, Utf8),
        ] {
            assert!(!widens(&to, &found), "{found} to {to}");
            assert!(!widens(&DataType::List(item(to.clone())), &DataType::List(item(found.clone()))));
        }
        let (two, three) = (DataType::FixedSizeList(item(Int64), 2), DataType::FixedSizeList(item(Int64), 3));
        assert!(!widens(&two, &three));
    }

    #[test]
    fn integers_become_floats_only_if_they_stay_the_same() {
        let refused = |values: ArrayRef, to: &DataType| {
            assert!(widens(to, values.data_type()));
            let wrong = widened(to, &values).expect_err("inexact");
            (wrong.row, wrong.to_string())
        };
        let odd = Int64Array::from(vec![Some(1), None, Some((1 << 53) + 1)]);
        let (row, text) = refused(Arc::new(odd), &DataType::Float64);
        assert_eq!(row, Some(2));
        assert_eq!(text, "expected a number that Float64 holds exactly, found 9007199254740993");
        assert_eq!(refused(Arc::new(Int32Array::from(vec![(1 << 24) + 1])), &DataType::Float32).0, Some(0));
        assert_eq!(refused(Arc::new(UInt64Array::from(vec![0, u64::MAX])), &DataType::Float64).0, Some(1));
        assert_eq!(refused(Arc::new(Int64Array::from(vec![i64::MAX])), &DataType::Float64).0, Some(0));
        let rows = [Some(vec![Some(1), Some(2)]), Some(vec![]), None, Some(vec![Some(3), Some((1 << 53) + 1)])];
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(rows));
        let to = DataType::LargeList(item(DataType::Float64));
        assert_eq!(refused(lists.clone(), &to).0, Some(3));
        // The values of other rows, which the slice shares memory with, do not count.
        let wide = widened(&to, &lists.slice(0, 3)).expect("exact");
        assert_eq!(wide.as_list::<i64>().value(0).to_data(), Float64Array::from(vec![1.0, 2.0]).to_data());
        assert_eq!((wide.len(), wide.null_count()), (3, 1));
        let fixed = FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(
            [Some(vec![Some(1), Some(2)]), Some(vec![Some((1 << 53) + 1), Some(0)])],
            2,
        );
        assert_eq!(refused(Arc::new(fixed), &DataType::FixedSizeList(item(DataType::Float64), 2)).0, Some(1));
    }

    #[test]
    fn nested_values_get_wider() {
        let small = FixedSizeListArray::from_iter_primitive::<UInt8Type, _, _>([Some(vec![Some(1), Some(2)])], 2);
        let to = DataType::FixedSizeList(item(DataType::Int32), 2);
        let large = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), Some(2)])], 2);
        check(small, &to, large);
        let without = Arc::new(Field::new("item", DataType::Int64, false));
        let values: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None])]));
        let wrong = widened(&DataType::List(without), &values).expect_err("a null");
        assert_eq!(wrong.to_string(), "expected a list without nulls, found a null");
        let fields = |number: DataType| DataType::Struct(vec![Field::new("x", number, true)].into());
        let DataType::Struct(narrow) = fields(DataType::Int32) else { unreachable!("a struct") };
        let structs = StructArray::new(narrow, vec![Arc::new(Int32Array::from(vec![7]))], None);
        let wide = widened(&fields(DataType::Int64), &(Arc::new(structs) as ArrayRef)).expect("wide");
        assert_eq!(wide.data_type(), &fields(DataType::Int64));
    }
}
