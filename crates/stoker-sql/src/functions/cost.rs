//! What a call of a function takes at most, from its arguments: bytes of its result, and steps of work.
//!
//! Estimates look at lengths alone. All of them are upper bounds of the result's bytes, offsets included.

use arrow_array::cast::AsArray as _;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;

/// Bytes of a value's offset, view and validity, at most.
const VALUE_BYTES: u64 = 17;
/// Bytes of a number as text, at most.
const NUMBER_BYTES: u64 = 48;
/// Bytes that one directive of a time's format may become, for each of its characters.
const FORMAT_FACTOR: u64 = 32;
/// Bytes that a compiled pattern may hold beside its text while it runs.
const PATTERN_BYTES: u64 = 1 << 20;

/// Upper bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Of the result.
    pub(crate) bytes: u64,
    /// Steps of a few nanoseconds, where they are more than the bytes that are read and written.
    pub(crate) work: u64,
}

/// A call over some rows.
pub(crate) struct Call<'a> {
    pub(crate) args: &'a [ColumnarValue],
    pub(crate) num_rows: u64,
}

impl Call<'_> {
    /// The bytes of an argument over all rows; a constant counts for each.
    fn bytes(&self, index: usize) -> u64 {
        match self.args.get(index) {
            None => 0,
            Some(ColumnarValue::Array(array)) => array_bytes(array),
            Some(ColumnarValue::Scalar(value)) => self.num_rows.saturating_mul(scalar_bytes(value)),
        }
    }

    /// The bytes of the longest value of an argument.
    fn longest(&self, index: usize) -> u64 {
        match self.args.get(index) {
            None => 0,
            Some(ColumnarValue::Array(array)) => longest(array),
            Some(ColumnarValue::Scalar(value)) => scalar_bytes(value),
        }
    }

    /// The elements of a list over all rows, those of lists in it included.
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

    /// The bytes of a result with so many bytes of values.
    fn result(&self, bytes: u64) -> Cost {
        Cost { bytes: bytes.saturating_add(self.num_rows.saturating_mul(VALUE_BYTES)), work: 0 }
    }
}

/// No longer than the first argument.
pub(super) fn same(call: &Call) -> Cost {
    call.result(call.bytes(0))
}

/// All arguments, one behind the other.
pub(super) fn joined(call: &Call) -> Cost {
    call.result(call.all_bytes().saturating_add(call.num_rows.saturating_mul(VALUE_BYTES * call.args.len() as u64)))
}

/// All arguments with the first between them.
pub(super) fn joined_with(call: &Call) -> Cost {
    let separators = call.bytes(0).saturating_mul(call.args.len() as u64);
    call.result(call.all_bytes().saturating_add(separators))
}

/// Texts whose characters become others, of four bytes at most.
pub(super) fn fourfold(call: &Call) -> Cost {
    call.result(call.bytes(0).saturating_mul(4))
}

/// Values that become others of eight times the bytes at most.
pub(super) fn eightfold(call: &Call) -> Cost {
    call.result(call.all_bytes().saturating_mul(9))
}

/// `lpad(text, characters, filling)`.
pub(super) fn padded(call: &Call) -> Cost {
    let length = match call.args.get(1) {
        Some(ColumnarValue::Scalar(value)) => value.cast_to(&DataType::Int64).ok().and_then(|value| match value {
            ScalarValue::Int64(length) => length.and_then(|length| u64::try_from(length).ok()),
            _ => None,
        }),
        _ => Some(u64::from(u32::MAX)),
    };
    call.result(call.num_rows.saturating_mul(length.unwrap_or(0)).saturating_mul(4))
}

/// `replace(text, from, to)`.
pub(super) fn replaced(call: &Call) -> Cost {
    let from = call.text(1).map_or(1, |from| from.len().max(1) as u64);
    let num_matches = (call.bytes(0) / from).saturating_add(call.num_rows);
    call.result(call.bytes(0).saturating_add(num_matches.saturating_mul(call.longest(2))))
}

/// `regexp_replace(text, pattern, to, flags)`: `to` may repeat what was found.
pub(super) fn replaced_matches(call: &Call) -> Cost {
    let everywhere = call.is_column(3) || call.text(3).is_some_and(|flags| flags.contains('g'));
    let num_matches = if everywhere { call.bytes(0).saturating_add(call.num_rows) } else { call.num_rows };
    let repeats =
        call.text(2).map_or(call.longest(2), |to| to.bytes().filter(|b| matches!(b, b'\\' | b'$')).count() as u64);
    let bytes = call.bytes(0).saturating_mul(repeats.saturating_add(1));
    let bytes = bytes.saturating_add(num_matches.saturating_mul(call.longest(2)).saturating_mul(2));
    with_pattern(call, call.result(bytes))
}

/// Patterns that are looked for: the result is a number or a truth value.
pub(super) fn searched(call: &Call) -> Cost {
    with_pattern(call, call.result(0))
}

/// `regexp_match(text, pattern)`: each group may be as long as the text.
pub(super) fn captured(call: &Call) -> Cost {
    let groups = match call.text(1) {
        Some(pattern) => pattern.bytes().filter(|byte| *byte == b'(').count() as u64,
        None => call.longest(1),
    };
    let values = call.num_rows.saturating_mul(VALUE_BYTES).saturating_mul(groups.saturating_add(1));
    with_pattern(call, call.result(call.bytes(0).saturating_mul(groups.saturating_add(1)).saturating_add(values)))
}

/// In the worst case each byte of a text meets each state of the pattern. Each pattern of a column is compiled and kept.
fn with_pattern(call: &Call, cost: Cost) -> Cost {
    let work = call.bytes(0).saturating_mul(call.longest(1));
    let compiled = if call.is_column(1) { call.num_rows.saturating_mul(PATTERN_BYTES) } else { 0 };
    Cost { bytes: cost.bytes.saturating_add(compiled), work }
}

/// `levenshtein(one, other)` fills a table.
pub(super) fn distance(call: &Call) -> Cost {
    let work = call.bytes(0).saturating_mul(call.longest(1));
    Cost { work, ..call.result(call.longest(0).saturating_add(call.longest(1)).saturating_mul(8)) }
}

/// Whether lists have elements in common: each element may be compared with each.
pub(super) fn all_pairs(call: &Call) -> Cost {
    let (one, other) = (call.elements(0), call.elements(1));
    let work = one.saturating_mul(other) / call.num_rows.max(1);
    Cost { work, ..call.result(call.all_bytes()) }
}

/// `array_replace_all(list, from, to)`.
pub(super) fn replaced_elements(call: &Call) -> Cost {
    call.result(
        call.bytes(0).saturating_add(call.elements(0).saturating_mul(call.longest(2).saturating_add(VALUE_BYTES))),
    )
}

/// `array_to_string(list, separator, null)`.
pub(super) fn listed(call: &Call) -> Cost {
    let element = NUMBER_BYTES + call.longest(1).saturating_add(call.longest(2));
    call.result(call.bytes(0).saturating_add(call.elements(0).saturating_mul(element)))
}

/// `string_to_array(text, separator)`: without a separator, each character is an element.
pub(super) fn split(call: &Call) -> Cost {
    call.result(call.bytes(0).saturating_mul(1 + VALUE_BYTES))
}

/// `to_char(time, format)`.
pub(super) fn formatted(call: &Call) -> Cost {
    call.result(call.bytes(1).saturating_mul(FORMAT_FACTOR))
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

/// The bytes of the longest value.
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
            num_elements(&list.values().slice(first as usize, (last - first) as usize))
        }
        DataType::FixedSizeList(..) => num_elements(array.as_fixed_size_list().values()),
        _ => array.len() as u64,
    }
}

fn ends<T: Copy + Default>(offsets: &[T]) -> (T, T) {
    (offsets.first().copied().unwrap_or_default(), offsets.last().copied().unwrap_or_default())
}
