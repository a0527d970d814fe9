//! Makes columns of the bytes of rows.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::types::Date32Type;
use arrow_array::{ArrayRef, BooleanArray, FixedSizeListArray, Int64Array, PrimitiveArray, downcast_primitive};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer, ScalarBuffer};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType};

use super::{ArrayColumn, ArrayElement};

/// Values of a column, some of which may be none.
#[derive(Debug)]
pub(super) struct DecodedColumn {
    pub array: ArrayRef,
    /// The rows whose values cannot be stored, ascending, and why. Their places in the array have any value.
    pub bad: Vec<(usize, String)>,
}

impl ArrayColumn {
    /// Makes the values of rows of `row_bytes` bytes each. The bytes of numbers that lie as in memory are not copied.
    ///
    /// # Errors
    /// Types that do not fit the column, which is a defect.
    pub(super) fn decode(&self, rows: &Buffer, row_bytes: usize) -> Result<DecodedColumn, ArrowError> {
        let values = self.values(rows, row_bytes);
        let (array, bad) = match &self.layout.element {
            ArrayElement::Utf32(_) => self.texts(&values, utf32),
            ArrayElement::Utf8(_) => self.texts(&values, utf8),
            ArrayElement::Date => dates(&values),
            ArrayElement::Timestamp(_) | ArrayElement::Duration(_) => {
                (cast(&times(&values), &self.layout.element.scalar_type())?, Vec::new())
            }
            ArrayElement::Flag if self.shape.is_empty() => (flags(&values), Vec::new()),
            ArrayElement::Flag => (self.list(zeros_and_ones(values))?, Vec::new()),
            ArrayElement::Number(_) | ArrayElement::Small(_) => (self.list(values)?, Vec::new()),
        };
        let bad = bad.into_iter().map(|(row, reason)| (row, format!("column {}: {reason}", self.name))).collect();
        Ok(DecodedColumn { array, bad })
    }

    /// Returns the bytes of the column, in the order of memory.
    fn values(&self, rows: &Buffer, row_bytes: usize) -> Buffer {
        if self.is_whole(row_bytes) && !self.is_swapped() {
            return rows.clone();
        }
        let num_rows = rows.len() / row_bytes.max(1);
        let mut values = MutableBuffer::new(num_rows.saturating_mul(self.num_bytes));
        for row in rows.chunks_exact(row_bytes.max(1)) {
            let value = self.offset.checked_add(self.num_bytes).and_then(|end| row.get(self.offset..end));
            values.extend_from_slice(value.unwrap_or_default());
        }
        if self.is_swapped() {
            let number_bytes = self.layout.element.number_bytes();
            values.as_slice_mut().chunks_exact_mut(number_bytes).for_each(<[u8]>::reverse);
        }
        values.into()
    }

    /// Returns numbers, or lists of them if the rows have a shape.
    fn list(&self, values: Buffer) -> Result<ArrayRef, ArrowError> {
        let field = self.field();
        let DataType::FixedSizeList(item, length) = field.data_type() else {
            return numbers(field.data_type(), values);
        };
        let values = numbers(item.data_type(), values)?;
        Ok(Arc::new(FixedSizeListArray::try_new(item.clone(), *length, values, None)?))
    }

    fn texts(&self, values: &[u8], read: fn(&[u8], &mut String) -> Option<String>) -> (ArrayRef, Vec<(usize, String)>) {
        let (mut texts, mut bad, mut text) = (StringBuilder::new(), Vec::new(), String::new());
        for (row, value) in values.chunks_exact(self.num_bytes.max(1)).enumerate() {
            text.clear();
            if let Some(reason) = read(value, &mut text) {
                bad.push((row, reason));
            }
            texts.append_value(&text);
        }
        (Arc::new(texts.finish()), bad)
    }
}

fn numbers(data_type: &DataType, values: Buffer) -> Result<ArrayRef, ArrowError> {
    macro_rules! array {
        ($type:ty, $values:expr) => {
            Ok(Arc::new(PrimitiveArray::<$type>::new(ScalarBuffer::from($values), None)) as ArrayRef)
        };
    }
    downcast_primitive! {
        data_type => (array, values),
        other => Err(ArrowError::InvalidArgumentError(format!("{other} is no type of numbers")))
    }
}

fn flags(values: &[u8]) -> ArrayRef {
    let is_set = |index: usize| values.get(index).is_some_and(|value| *value != 0);
    Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(values.len(), is_set), None))
}

/// Returns flags as bytes that are 0 or 1. NumPy writes no other ones.
fn zeros_and_ones(values: Buffer) -> Buffer {
    if values.iter().all(|value| *value <= 1) {
        return values;
    }
    let mut ones = MutableBuffer::new(values.len());
    ones.extend(values.iter().map(|value| u8::from(*value != 0)));
    ones.into()
}

/// Returns numbers of 64 bits; NumPy's time that is none (NaT) is null.
fn times(values: &[u8]) -> ArrayRef {
    let (times, _) = values.as_chunks::<8>();
    let times = times.iter().map(|time| Some(i64::from_le_bytes(*time)).filter(|time| *time != i64::MIN));
    Arc::new(times.collect::<Int64Array>())
}

fn dates(values: &[u8]) -> (ArrayRef, Vec<(usize, String)>) {
    let (days, _) = values.as_chunks::<8>();
    let mut bad = Vec::new();
    let mut dates = Vec::with_capacity(days.len());
    for (row, day) in days.iter().enumerate() {
        let day = i64::from_le_bytes(*day);
        let date = i32::try_from(day).ok();
        if date.is_none() && day != i64::MIN {
            bad.push((row, format!("the day {day} since 1970 does not fit 32 bits")));
        }
        dates.push(date);
    }
    (Arc::new(dates.into_iter().collect::<PrimitiveArray<Date32Type>>()), bad)
}

/// Adds the code points up to the zeros at the end. Returns what is wrong with them.
fn utf32(value: &[u8], text: &mut String) -> Option<String> {
    let (codes, _) = value.as_chunks::<4>();
    let length = codes.iter().rposition(|code| *code != [0; 4]).map_or(0, |last| last + 1);
    for code in codes.iter().take(length) {
        let code = u32::from_le_bytes(*code);
        match char::from_u32(code) {
            Some(c) => text.push(c),
            None => return Some(format!("the text has the number {code:#x}, which is no character")),
        }
    }
    None
}

/// Adds the bytes up to the zeros at the end. Returns what is wrong with them.
fn utf8(value: &[u8], text: &mut String) -> Option<String> {
    let length = value.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    match std::str::from_utf8(value.get(..length).unwrap_or_default()) {
        Ok(valid) => {
            text.push_str(valid);
            None
        }
        Err(error) => Some(format!("the text is not UTF-8 from byte {} on", error.valid_up_to())),
    }
}
