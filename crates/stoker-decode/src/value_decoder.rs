//! What decodes the values of a column.

use arrow_schema::{DataType, Field};

use crate::{BadValue, Result};

/// Turns each value of a column of files or texts into arrays: of fixed shapes, or a list of any length.
///
/// Whether a row can be decoded must depend on nothing but the row and its seed, so that every process that decodes it gets
/// the same result.
pub trait ValueDecoder: Send + Sync {
    /// What a value is called in messages, such as `image`.
    fn noun(&self) -> &'static str;

    /// Checks the options, separately and together.
    ///
    /// # Errors
    /// [`Error::InvalidTransform`](crate::Error::InvalidTransform), which names the option, its value and the allowed
    /// values.
    fn validate(&self) -> Result<()>;

    /// The arrays that each row becomes. The first one replaces the column. None if each row becomes a list.
    fn outputs(&self) -> Vec<OutputSpec>;

    /// The field of the array that replaces the column, if it says more than [`OutputSpec`] does. Its type is that of
    /// [`output_array`](crate::output_array), and it is not null.
    fn field(&self, _column: &str) -> Option<Field> {
        None
    }

    /// The number of neighbouring rows that a thread decodes before it looks for others: more than one where a row takes so
    /// little time that the threads would spend theirs on sharing rows.
    fn rows_at_once(&self) -> usize {
        1
    }

    /// The list of any length that each row becomes, in place of the column; `None` for rows of fixed shapes.
    fn list(&self) -> Option<ListSpec> {
        None
    }

    /// What the rows of the column are.
    fn takes(&self) -> Takes {
        Takes::Files
    }

    /// The columns of numbers that each row is decoded with, beside the file.
    fn parameters(&self) -> Vec<&str> {
        Vec::new()
    }

    /// The column whose name the seeds of the rows are made with, if it is not the decoded column itself.
    fn draws_of(&self) -> Option<&str> {
        None
    }

    /// Decodes a row into its outputs, which have the bytes of [`OutputSpec::row_bytes`] and undefined content.
    ///
    /// # Errors
    /// [`BadValue`] for a row that is damaged, too large or in another format.
    fn decode(&self, row: &Row<'_>, outputs: &mut [&mut [u8]]) -> Result<(), BadValue>;

    /// Decodes a row into the elements of its list, row-major, in place of [`ValueDecoder::decode`] if there is a
    /// [`ValueDecoder::list`].
    ///
    /// # Errors
    /// As for [`ValueDecoder::decode`].
    fn decode_list(&self, _row: &Row<'_>) -> Result<Vec<u8>, BadValue> {
        Err(BadValue::fatal("this decoder makes no lists"))
    }
}

/// What a decoder takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Rows that are files: binary values, or structs with the field `bytes`.
    Files,
    /// Rows that are lists of files.
    FileLists,
    /// Rows that are texts.
    Texts,
    /// Rows that are files, or rows that are texts.
    FilesOrTexts,
}

/// A list of any length that each row of a column becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListSpec {
    /// The type of the numbers, of a fixed width.
    pub number: DataType,
    /// The shape of an element of the list; empty for numbers.
    pub shape: Vec<usize>,
    /// How many bytes of a list one byte of a value becomes at most, as a rule: the memory that is reserved for a batch
    /// before its lists are known.
    pub bytes_per_byte: usize,
}

impl ListSpec {
    /// The bytes of an element of the list.
    pub fn element_bytes(&self) -> usize {
        let numbers = self.shape.iter().fold(1, |all: usize, size| all.saturating_mul(*size));
        numbers.saturating_mul(self.number.primitive_width().unwrap_or(1)).max(1)
    }
}

/// An array that each row of a column becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSpec {
    /// What the name of the column is continued with; empty for the array that replaces the column.
    pub suffix: &'static str,
    /// The type of the elements, of a fixed width. Booleans are decoded to one byte each: 0 or 1.
    pub element: DataType,
    /// The sizes of the dimensions; none for one element.
    pub shape: Vec<usize>,
}

impl OutputSpec {
    /// The array that replaces the column.
    pub fn tensor(element: DataType, shape: Vec<usize>) -> Self {
        Self { suffix: "", element, shape }
    }

    /// One int32 per row.
    pub fn number(suffix: &'static str) -> Self {
        Self { suffix, element: DataType::Int32, shape: Vec::new() }
    }

    /// The number of elements of a row.
    pub fn row_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The bytes of a row.
    pub fn row_bytes(&self) -> usize {
        let element_bytes =
            if self.element == DataType::Boolean { 1 } else { self.element.primitive_width().unwrap_or(0) };
        self.row_elements().saturating_mul(element_bytes)
    }

    /// The name of the output's column.
    pub fn name(&self, column: &str) -> String {
        match self.suffix {
            "" => column.to_string(),
            suffix => format!("{column}_{suffix}"),
        }
    }
}

/// What a row is decoded from.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The files, or the text in UTF-8: one, or those of a list. A file is `None` if it is null.
    pub files: &'a [Option<&'a [u8]>],
    /// Whether the row is a text.
    pub is_text: bool,
    /// The values of [`ValueDecoder::parameters`]; a value is `None` if it is null.
    pub parameters: &'a [Option<Number>],
    /// The seed of the row's draws.
    pub seed: u64,
}

impl<'a> Row<'a> {
    /// Returns the value of one of [`ValueDecoder::parameters`]; `None` if there is no such parameter, or if it is null.
    pub fn parameter(&self, index: usize) -> Option<Number> {
        self.parameters.get(index).copied().flatten()
    }

    /// Returns the only file.
    ///
    /// # Errors
    /// [`BadValue`] if it is null.
    pub fn file(&self) -> Result<&'a [u8], BadValue> {
        self.files.first().copied().flatten().ok_or_else(|| BadValue::new("it is null"))
    }

    /// Returns the text.
    ///
    /// # Errors
    /// [`BadValue`] if it is null, or not in UTF-8.
    pub fn text(&self) -> Result<&'a str, BadValue> {
        std::str::from_utf8(self.file()?).map_err(BadValue::new)
    }
}

/// A number of a column, with the meaning that its type has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A number of a column of integers.
    Whole(i64),
    /// A number of a column of floats.
    Real(f64),
}

/// Writes the value of an output of one int32.
pub fn write_number(value: usize, output: &mut [u8]) {
    let value = i32::try_from(value).unwrap_or(i32::MAX);
    output.copy_from_slice(&value.to_ne_bytes());
}
