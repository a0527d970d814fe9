//! Formats rows for people: of tensors, long lists and binary values, only the beginning is shown.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt16Type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use stoker_columns::SmallFloat;
use stoker_columns::tensor::shape_label;

/// Lists with more elements than this are shortened.
const ELEMENTS_MAX: usize = 8;
/// The number of elements that are shown of a shortened list.
const ELEMENTS_SHOWN: usize = 4;
/// The number of bytes that are shown of a shortened binary value.
const BYTES_SHOWN: usize = 8;

/// Returns the rows with text in place of long values, such as `uint8[3, 224, 224]: 12, 13, 11, 9, …`.
pub fn brief(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let column = brief_column(field, column)?;
        fields.push(Field::new(field.name(), column.data_type().clone(), true));
        columns.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

fn brief_column(field: &Field, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.data_type() {
        DataType::FixedSizeList(_, length) if *length as usize > ELEMENTS_MAX => {
            let (lists, name) = (column.as_fixed_size_list(), shape_label(field));
            texts(column, |row| begin(field, &lists.value(row), name.as_deref()))
        }
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            texts(column, |row| begin(field, &lists.value(row), None))
        }
        DataType::LargeList(_) => {
            let lists = column.as_list::<i64>();
            texts(column, |row| begin(field, &lists.value(row), None))
        }
        DataType::Binary => {
            let values = column.as_binary::<i32>();
            texts(column, |row| Ok(hexadecimal(values.value(row))))
        }
        DataType::LargeBinary => {
            let values = column.as_binary::<i64>();
            texts(column, |row| Ok(hexadecimal(values.value(row))))
        }
        _ => Ok(column.clone()),
    }
}

/// Returns one text for each row; null rows stay null.
fn texts(column: &ArrayRef, text: impl Fn(usize) -> Result<String, ArrowError>) -> Result<ArrayRef, ArrowError> {
    let rows = (0..column.len()).map(|row| if column.is_null(row) { Ok(None) } else { text(row).map(Some) });
    Ok(Arc::new(rows.collect::<Result<StringArray, _>>()?))
}

/// Formats the first elements of a list, or all elements if the list is short.
fn begin(field: &Field, elements: &ArrayRef, name: Option<&str>) -> Result<String, ArrowError> {
    let is_short = name.is_none() && elements.len() <= ELEMENTS_MAX;
    let shown = elements.slice(0, if is_short { elements.len() } else { ELEMENTS_SHOWN.min(elements.len()) });
    let shown = listed(field, &shown)?;
    Ok(match name {
        _ if is_short => format!("[{shown}]"),
        Some(name) => format!("{name}: {shown}, …"),
        None => format!("{} values: {shown}, …", elements.len()),
    })
}

fn listed(field: &Field, elements: &ArrayRef) -> Result<String, ArrowError> {
    if let Some(float) = SmallFloat::of(field) {
        let wide = elements.as_primitive_opt::<UInt16Type>().map(|bits| bits.values().to_vec());
        let narrow = elements.as_primitive_opt::<UInt8Type>();
        let bits = wide.or_else(|| Some(narrow?.values().iter().map(|bits| u16::from(*bits)).collect()));
        if let Some(bits) = bits {
            return Ok(bits.into_iter().map(|bits| float.to_f32(bits).to_string()).collect::<Vec<_>>().join(", "));
        }
    }
    let options = FormatOptions::default().with_null("null");
    let formatter = ArrayFormatter::try_new(elements.as_ref(), &options)?;
    Ok((0..elements.len()).map(|index| formatter.value(index).to_string()).collect::<Vec<_>>().join(", "))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let shown = bytes.iter().take(if bytes.len() <= 2 * BYTES_SHOWN { bytes.len() } else { BYTES_SHOWN });
    let shown = shown.fold(String::new(), |mut text, byte| {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
        text
    });
    if bytes.len() <= 2 * BYTES_SHOWN { shown } else { format!("{} bytes: {shown}…", bytes.len()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{Int32Type, UInt8Type, UInt16Type};
    use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, LargeBinaryArray, ListArray};
    use arrow_cast::display::array_value_to_string;
    use arrow_schema::{DataType, Field};
    use stoker_columns::{DTYPE_KEY, TensorType};

    use super::brief_column;

    fn check(field: &Field, column: ArrayRef, expected: &[&str]) {
        let shown = brief_column(field, &column).unwrap();
        let shown: Vec<String> = (0..column.len()).map(|row| array_value_to_string(&shown, row).unwrap()).collect();
        assert_eq!(shown, expected);
    }

    fn list<T: arrow_array::ArrowPrimitiveType>(values: Vec<T::Native>, length: i32) -> ArrayRef {
        let rows =
            values.chunks(length as usize).map(|row| Some(row.iter().map(|value| Some(*value)).collect::<Vec<_>>()));
        Arc::new(FixedSizeListArray::from_iter_primitive::<T, _, _>(rows.collect::<Vec<_>>(), length))
    }

    #[test]
    fn long_values_begin_and_short_ones_stay() {
        let tensor = TensorType { element: DataType::UInt8, shape: vec![3, 2, 2] }.to_field("x");
        check(
            &tensor,
            list::<UInt8Type>((0..24).collect(), 12),
            &["uint8[3, 2, 2]: 0, 1, 2, 3, …", "uint8[3, 2, 2]: 12, 13, 14, 15, …"],
        );
        let tensor = TensorType { element: DataType::UInt16, shape: vec![9] }.to_field("x");
        let mut metadata = tensor.metadata().clone();
        metadata.insert(DTYPE_KEY.into(), "bfloat16".into());
        let values = list::<UInt16Type>(vec![0x3f80; 9], 9);
        check(&tensor.with_metadata(metadata.clone()), values, &["bfloat16[9]: 1, 1, 1, 1, …"]);
        metadata.insert(DTYPE_KEY.into(), "float8_e5m2".into());
        let tensor = TensorType { element: DataType::UInt8, shape: vec![9] }.to_field("x").with_metadata(metadata);
        check(&tensor, list::<UInt8Type>(vec![0xbc; 9], 9), &["float8_e5m2[9]: -1, -1, -1, -1, …"]);
        let vector = TensorType { element: DataType::UInt8, shape: vec![2] }.to_field("x");
        check(&vector, list::<UInt8Type>(vec![1, 2], 2), &["[1, 2]"]);
    }

    #[test]
    fn lists_bytes_and_nulls() {
        let plain = Field::new("x", DataType::Int64, true);
        let lists = [Some(vec![Some(1), None]), None, Some((0..9).map(Some).collect())];
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
        check(&plain, Arc::new(lists), &["[1, null]", "", "9 values: 0, 1, 2, 3, …"]);
        let bytes = LargeBinaryArray::from_iter([Some(vec![0xff; 3]), None, Some(vec![0xab; 17])]);
        check(&plain, Arc::new(bytes), &["ffffff", "", "17 bytes: abababababababab…"]);
        check(&plain, Arc::new(Int64Array::from(vec![5])), &["5"]);
    }
}
