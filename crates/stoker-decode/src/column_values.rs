//! The values of columns that are decoded: files, lists of files, and texts; and the numbers that they are decoded with.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, OffsetSizeTrait};
use arrow_schema::DataType;

use crate::value_decoder::{Number, Takes};
use crate::{Error, Result};

/// The files or texts of a column, row after row.
pub(crate) struct Values<'a> {
    files: Vec<Option<&'a [u8]>>,
    /// The files of each row; `None` for null rows.
    rows: Vec<Option<Range<usize>>>,
    /// Whether the rows are texts.
    pub are_texts: bool,
}

impl<'a> Values<'a> {
    /// Returns the values of a column.
    ///
    /// # Errors
    /// [`Error::NotFiles`] for a column of another type.
    pub fn of(values: &'a dyn Array, takes: Takes) -> Result<Self> {
        let not_files = || Error::NotFiles { found: values.data_type().to_string(), takes };
        let is_text = is_text(values.data_type());
        match (takes, values.data_type()) {
            (Takes::FileLists, DataType::List(_)) => Self::of_lists(values.as_list::<i32>()).ok_or_else(not_files),
            (Takes::FileLists, DataType::LargeList(_)) => Self::of_lists(values.as_list::<i64>()).ok_or_else(not_files),
            (Takes::Texts | Takes::FilesOrTexts, _) if is_text => {
                texts(values).map(Self::of_values).ok_or_else(not_files)
            }
            (Takes::Files | Takes::FilesOrTexts, _) => {
                let files = files(values).map(Self::of_values).ok_or_else(not_files)?;
                Ok(Self { are_texts: false, ..files })
            }
            (Takes::FileLists | Takes::Texts, _) => Err(not_files()),
        }
    }

    /// The values of texts, or of files.
    fn of_values(files: Vec<Option<&'a [u8]>>) -> Self {
        let rows = files.iter().enumerate().map(|(row, file)| file.map(|_| row..row + 1)).collect();
        Self { files, rows, are_texts: true }
    }

    fn of_lists<O: OffsetSizeTrait>(lists: &'a arrow_array::GenericListArray<O>) -> Option<Self> {
        let files = files(lists.values().as_ref())?;
        let range = |row: usize| lists.value_offsets()[row].as_usize()..lists.value_offsets()[row + 1].as_usize();
        let rows = (0..lists.len()).map(|row| lists.is_valid(row).then(|| range(row))).collect();
        Some(Self { files, rows, are_texts: false })
    }

    /// Returns the files of a row; `None` if it is null.
    pub fn of_row(&self, row: usize) -> Option<&[Option<&'a [u8]>]> {
        self.files.get(self.rows[row].clone()?)
    }
}

/// Returns whether values are files: binary, or structs with the field `bytes`, as `datasets` stores media.
pub fn is_file(data_type: &DataType) -> bool {
    match data_type {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        DataType::Struct(fields) => fields
            .iter()
            .any(|field| field.name() == "bytes" && !field.data_type().is_nested() && is_file(field.data_type())),
        _ => false,
    }
}

/// Returns whether values are texts.
pub fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Returns the bytes of all values of a column of files or texts; 0 for other columns.
pub fn value_bytes(values: &dyn Array) -> usize {
    let found = texts(values).or_else(|| files(values)).unwrap_or_default();
    found.iter().flatten().map(|value| value.len()).sum()
}

/// Returns the texts of a column, with `None` for null rows; `None` if it is no column of texts.
fn texts(values: &dyn Array) -> Option<Vec<Option<&[u8]>>> {
    match values.data_type() {
        DataType::Utf8 => Some(values.as_string::<i32>().iter().map(|text| text.map(str::as_bytes)).collect()),
        DataType::LargeUtf8 => Some(values.as_string::<i64>().iter().map(|text| text.map(str::as_bytes)).collect()),
        DataType::Utf8View => Some(values.as_string_view().iter().map(|text| text.map(str::as_bytes)).collect()),
        _ => None,
    }
}

/// Returns the files of a column, with `None` for null rows; `None` if it is no column of files.
fn files(values: &dyn Array) -> Option<Vec<Option<&[u8]>>> {
    match values.data_type() {
        DataType::Binary => Some(values.as_binary::<i32>().iter().collect()),
        DataType::LargeBinary => Some(values.as_binary::<i64>().iter().collect()),
        DataType::BinaryView => Some(values.as_binary_view().iter().collect()),
        found @ DataType::Struct(_) if is_file(found) => {
            let rows = values.as_struct();
            let mut bytes = files(rows.column_by_name("bytes")?.as_ref())?;
            bytes.iter_mut().enumerate().filter(|(row, _)| rows.is_null(*row)).for_each(|(_, file)| *file = None);
            Some(bytes)
        }
        _ => None,
    }
}

/// Returns the numbers of a column of integers or floats.
///
/// # Errors
/// [`Error::NotNumbers`] for a column of another type.
pub fn numbers(values: &dyn Array) -> Result<Vec<Option<Number>>> {
    let data_type = values.data_type();
    let not_numbers = |_| Error::NotNumbers { found: data_type.to_string() };
    if data_type.is_integer() {
        let whole = arrow_cast::cast(values, &DataType::Int64).map_err(not_numbers)?;
        return Ok(whole.as_primitive::<Int64Type>().iter().map(|number| number.map(Number::Whole)).collect());
    }
    if data_type.is_floating() {
        let real = arrow_cast::cast(values, &DataType::Float64).map_err(not_numbers)?;
        return Ok(real.as_primitive::<Float64Type>().iter().map(|number| number.map(Number::Real)).collect());
    }
    Err(Error::NotNumbers { found: data_type.to_string() })
}
