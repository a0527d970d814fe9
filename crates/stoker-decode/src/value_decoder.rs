//! What decodes the values of a column.

use arrow_schema::{DataType, Field};

use crate::{BadValue, Result};

/// Turns each value of a column of files into arrays of fixed shapes.
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

    /// The arrays that each row becomes. The first one replaces the column.
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

    /// Whether each row is a list of files; otherwise it is one file.
    fn takes_lists(&self) -> bool {
        false
    }

    /// The column whose value each row is decoded with, beside the file.
    fn parameter(&self) -> Option<&str> {
        None
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
    /// The files: one, or those of a list. A file is `None` if it is null.
    pub files: &'a [Option<&'a [u8]>],
    /// The value of [`ValueDecoder::parameter`]; `None` if there is none, or if it is null.
    pub parameter: Option<Number>,
    /// The seed of the row's draws.
    pub seed: u64,
}

impl<'a> Row<'a> {
    /// Returns the only file.
    ///
    /// # Errors
    /// [`BadValue`] if it is null.
    pub fn file(&self) -> Result<&'a [u8], BadValue> {
        self.files.first().copied().flatten().ok_or_else(|| BadValue::new("it is null"))
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
