//! Computes upper bounds on a function call from its arguments: the bytes of its result, and its steps of work.
//!
//! The estimates use the lengths of arguments and do not compute the result. The bounds on bytes include offsets.

use arrow_array::cast::AsArray as _;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::ArrowNativeType as _;
use arrow_schema::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;
use stoker_columns::fixed_row_bytes;

/// The most bytes of a value's offset, view and validity.
const VALUE_BYTES: u64 = 17;
/// The most bytes of a number as text.
const NUMBER_BYTES: u64 = 48;
/// The most bytes of an element of a vector while a list is cast: as it was, its index, and its value.
const VECTOR_ELEMENT_BYTES: u64 = 24;
/// The most bytes per character of a time format that a directive may become.
const FORMAT_FACTOR: u64 = 32;
/// The most bytes that a compiled pattern may hold besides its text while it runs.
const PATTERN_BYTES: u64 = 1 << 20;

/// Upper bounds on one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The bytes of the result.
    pub(crate) bytes: u64,
    /// Steps of a few nanoseconds each, or 0 if the work is proportional to the bytes that are read and written.
    pub(crate) work: u64,
}

/// The arguments of a call over some rows.
pub(crate) struct Call<'a> {
    pub(crate) args: &'a [ColumnarValue],
    pub(crate) num_rows: u64,
    /// The type of the result.
    pub(crate) result: &'a DataType,
}

impl Call<'_> {
    /// Returns the bytes of an argument over all rows. A constant counts once for each row.
    fn bytes(&self, index: usize) -> u64 {
        match self.args.get(index) {
            None => 0,
            Some(ColumnarValue::Array(array)) => array_bytes(array),
            Some(ColumnarValue::Scalar(value)) => self.num_rows.saturating_mul(scalar_bytes(value)),
        }
    }

    /// Returns the bytes of the longest value of an argument.
    fn longest(&self, index: usize) -> u64 {
        match self.args.get(index) {
            None => 0,
            Some(ColumnarValue::Array(array)) => longest(array),
            Some(ColumnarValue::Scalar(value)) => scalar_bytes(value),
        }
    }

    /// Returns the number of elements of a list over all rows, including the elements of nested lists.
    fn elements(&self, index: usize) -> u64 {
        match self.args.get(index) {
            None => 0,
            Some(ColumnarValue::Array(array)) => num_elements(array),
            Some(ColumnarValue::Scalar(value)) => {
                let elements = value.to_array().map_or(u64::MAX, |array| num_elements(&array));
                self.num_rows.saturating_mul(elements)
            }
        }
    }

    fn text(&self, index: usize) -> Option<&str> {
        match self.args.get(index)? {
            ColumnarValue::Scalar(value) => value.try_as_str().flatten(),
            ColumnarValue::Array(_) => None,
        }
    }

    fn is_column(&self, index: usize) -> bool {
        matches!(self.args.get(index), Some(ColumnarValue::Array(_)))
    }

    fn all_bytes(&self) -> u64 {
        (0..self.args.len()).fold(0, |sum, index| sum.saturating_add(self.bytes(index)))
    }

    /// Returns the cost of a result whose values take `bytes` bytes, with the bytes of their offsets and validity
    /// added.
    fn result(&self, bytes: u64) -> Cost {
        Cost { bytes: bytes.saturating_add(self.num_rows.saturating_mul(VALUE_BYTES)), work: 0 }
    }
}

/// The result is no longer than the first argument.
pub(crate) fn same(call: &Call) -> Cost {
    call.result(call.bytes(0))
}

/// The result is the concatenation of all arguments.
pub(crate) fn joined(call: &Call) -> Cost {
    call.result(call.all_bytes().saturating_add(call.num_rows.saturating_mul(VALUE_BYTES * call.args.len() as u64)))
}

/// The result is the concatenation of all arguments, separated by the first argument.
pub(crate) fn joined_with(call: &Call) -> Cost {
    let separators = call.bytes(0).saturating_mul(call.args.len() as u64);
    call.result(call.all_bytes().saturating_add(separators))
}

/// The result replaces each character of a text by characters of at most four times the bytes.
pub(crate) fn fourfold(call: &Call) -> Cost {
    call.result(call.bytes(0).saturating_mul(4))
}

/// The result takes at most nine times the bytes of the arguments.
pub(crate) fn eightfold(call: &Call) -> Cost {
    call.result(call.all_bytes().saturating_mul(9))
}

/// The cost of `lpad(text, characters, filling)`: four bytes for each character.
pub(crate) fn padded(call: &Call) -> Cost {
    let length = match call.args.get(1) {
        Some(ColumnarValue::Scalar(value)) => value.cast_to(&DataType::Int64).ok().and_then(|value| match value {
            ScalarValue::Int64(length) => length.and_then(|length| u64::try_from(length).ok()),
            _ => None,
        }),
        _ => Some(u64::from(u32::MAX)),
    };
    call.result(call.num_rows.saturating_mul(length.unwrap_or(0)).saturating_mul(4))
}

/// The cost of `replace(text, from, to)`.
pub(crate) fn replaced(call: &Call) -> Cost {
    let from = call.text(1).map_or(1, |from| from.len().max(1) as u64);
    let num_matches = (call.bytes(0) / from).saturating_add(call.num_rows);
    call.result(call.bytes(0).saturating_add(num_matches.saturating_mul(call.longest(2))))
}

/// The cost of `regexp_replace(text, pattern, to, flags)`, in which `to` may repeat the match.
pub(crate) fn replaced_matches(call: &Call) -> Cost {
    let everywhere = call.is_column(3) || call.text(3).is_some_and(|flags| flags.contains('g'));
    let num_matches = if everywhere { call.bytes(0).saturating_add(call.num_rows) } else { call.num_rows };
    let repeats =
        call.text(2).map_or(call.longest(2), |to| to.bytes().filter(|b| matches!(b, b'\\' | b'$')).count() as u64);
    let bytes = call.bytes(0).saturating_mul(repeats.saturating_add(1));
    let bytes = bytes.saturating_add(num_matches.saturating_mul(call.longest(2)).saturating_mul(2));
    with_pattern(call, call.result(bytes))
}

/// The cost of functions that search for a pattern and return a number or a boolean.
pub(crate) fn searched(call: &Call) -> Cost {
    with_pattern(call, call.result(0))
}

/// The cost of `regexp_match(text, pattern)`, in which each group may be as long as the text.
pub(crate) fn captured(call: &Call) -> Cost {
    let groups = match call.text(1) {
        Some(pattern) => pattern.bytes().filter(|byte| *byte == b'(').count() as u64,
        None => call.longest(1),
    };
    let values = call.num_rows.saturating_mul(VALUE_BYTES).saturating_mul(groups.saturating_add(1));
    with_pattern(call, call.result(call.bytes(0).saturating_mul(groups.saturating_add(1)).saturating_add(values)))
}

/// Adds the cost of a pattern. In the worst case each byte of a text meets each state of the pattern. If the pattern is
/// a column, the pattern of each row is compiled and kept.
fn with_pattern(call: &Call, cost: Cost) -> Cost {
    let work = call.bytes(0).saturating_mul(call.longest(1));
    let compiled = if call.is_column(1) { call.num_rows.saturating_mul(PATTERN_BYTES) } else { 0 };
    Cost { bytes: cost.bytes.saturating_add(compiled), work }
}

/// The cost of `levenshtein(one, other)`, which fills a table of the two lengths.
pub(crate) fn distance(call: &Call) -> Cost {
    let work = call.bytes(0).saturating_mul(call.longest(1));
    Cost { work, ..call.result(call.longest(0).saturating_add(call.longest(1)).saturating_mul(8)) }
}

/// The cost of testing whether lists have elements in common: each element may be compared with each element of the
/// other list.
pub(crate) fn all_pairs(call: &Call) -> Cost {
    let (one, other) = (call.elements(0), call.elements(1));
    let work = one.saturating_mul(other) / call.num_rows.max(1);
    Cost { work, ..call.result(call.all_bytes()) }
}

/// The cost of `array_replace_all(list, from, to)`.
pub(crate) fn replaced_elements(call: &Call) -> Cost {
    call.result(
        call.bytes(0).saturating_add(call.elements(0).saturating_mul(call.longest(2).saturating_add(VALUE_BYTES))),
    )
}

/// The cost of `array_to_string(list, separator, null)`.
pub(crate) fn listed(call: &Call) -> Cost {
    let element = NUMBER_BYTES + call.longest(1).saturating_add(call.longest(2));
    call.result(call.bytes(0).saturating_add(call.elements(0).saturating_mul(element)))
}

/// The cost of `string_to_array(text, separator)`. Without a separator, each character is an element.
pub(crate) fn split(call: &Call) -> Cost {
    call.result(call.bytes(0).saturating_mul(1 + VALUE_BYTES))
}

/// The cost of `to_char(time, format)`.
pub(crate) fn formatted(call: &Call) -> Cost {
    call.result(call.bytes(1).saturating_mul(FORMAT_FACTOR))
}

/// The cost of a cast of lists to vectors. The second argument is the number of elements of a vector, which a NULL has
/// too.
pub(crate) fn vectors(call: &Call) -> Cost {
    let num_elements = match call.args.get(1) {
        Some(ColumnarValue::Scalar(ScalarValue::UInt64(Some(num_elements)))) => *num_elements,
        _ => u64::MAX,
    };
    let vector_bytes = num_elements.saturating_mul(VECTOR_ELEMENT_BYTES);
    call.result(call.bytes(0).saturating_add(call.num_rows.saturating_mul(vector_bytes)))
}

/// The cost of `decompress(column)`: the type of the result says how many bytes each row has, and the frame, which may be
/// damaged, does not.
pub(crate) fn tensors(call: &Call) -> Cost {
    let row_bytes = fixed_row_bytes(call.result).map_or(u64::MAX, |bytes| bytes as u64);
    call.result(call.num_rows.saturating_mul(row_bytes))
}

fn scalar_bytes(value: &ScalarValue) -> u64 {
    match value.try_as_str() {
        Some(text) => text.map_or(0, |text| text.len() as u64),
        None => value.size() as u64,
    }
}

fn array_bytes(array: &ArrayRef) -> u64 {
    match array.data_type() {
        DataType::Utf8View => array.as_string_view().lengths().map(u64::from).sum(),
        DataType::Dictionary(..) => (array.len() as u64).saturating_mul(longest(array)),
        _ => array.to_data().get_slice_memory_size().map_or(u64::MAX, |bytes| bytes as u64),
    }
}

/// Returns the bytes of the longest value of an array.
fn longest(array: &ArrayRef) -> u64 {
    match array.data_type() {
        DataType::Utf8 => longest_between(array.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => longest_between(array.as_string::<i64>().value_offsets()),
        DataType::Utf8View => array.as_string_view().lengths().max().map_or(0, u64::from),
        DataType::Dictionary(..) => longest(array.as_any_dictionary().values()),
        _ => array_bytes(array),
    }
}

fn longest_between<T: Copy + Into<i64>>(offsets: &[T]) -> u64 {
    let lengths = offsets.windows(2).map(|pair| pair[1].into() - pair[0].into());
    lengths.max().and_then(|length| u64::try_from(length).ok()).unwrap_or(0)
}

fn num_elements(array: &ArrayRef) -> u64 {
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let (first, last) = ends(list.value_offsets());
            num_elements(&list.values().slice(first as usize, (last - first) as usize))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let (first, last) = ends(list.value_offsets());
            num_elements(&list.values().slice(first.as_usize(), (last - first).as_usize()))
        }
        DataType::FixedSizeList(..) => num_elements(array.as_fixed_size_list().values()),
        _ => array.len() as u64,
    }
}

fn ends<T: Copy + Default>(offsets: &[T]) -> (T, T) {
    (offsets.first().copied().unwrap_or_default(), offsets.last().copied().unwrap_or_default())
}
