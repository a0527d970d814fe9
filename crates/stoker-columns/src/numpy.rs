//! The shapes of NumPy arrays.

use arrow_schema::{DataType, Field};

use crate::is_bfloat16;

/// NumPy's names of numbers, with their Arrow types. PyTorch has the same names.
pub(crate) const NUMBERS: [(&str, DataType); 11] = [
    ("uint8", DataType::UInt8),
    ("int8", DataType::Int8),
    ("uint16", DataType::UInt16),
    ("int16", DataType::Int16),
    ("uint32", DataType::UInt32),
    ("int32", DataType::Int32),
    ("uint64", DataType::UInt64),
    ("int64", DataType::Int64),
    ("float16", DataType::Float16),
    ("float32", DataType::Float32),
    ("float64", DataType::Float64),
];

/// What the null of a column becomes in a NumPy array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nulls {
    /// The array cannot hold it.
    Refused,
    /// NaN.
    NaN,
    /// NaT, NumPy's time that is none.
    NaT,
    /// The object `None`.
    Object,
}

impl Nulls {
    /// Returns the name of the value, which is a part of Python's interface.
    pub fn name(self) -> &'static str {
        match self {
            Nulls::Refused => "refused",
            Nulls::NaN => "nan",
            Nulls::NaT => "nat",
            Nulls::Object => "none",
        }
    }
}

/// The NumPy array that a column becomes; its first dimension has one entry for each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumpyShape {
    /// NumPy's name of the type of an element; `None` for arrays of Python objects.
    pub dtype: Option<String>,
    /// The sizes of the other dimensions: the shape of one row.
    pub shape: Vec<usize>,
    /// What a null becomes.
    pub nulls: Nulls,
    /// Whether numbers are bfloat16, which NumPy holds as uint16.
    pub bfloat16: bool,
}

impl NumpyShape {
    /// The shape of a column with one Python object for each row.
    pub(crate) fn objects(field: &Field) -> Self {
        Self { dtype: None, shape: Vec::new(), nulls: Nulls::Object, bfloat16: is_bfloat16(field) }
    }

    /// The shape of a column with one value of a type for each row.
    pub(crate) fn values(field: &Field, dtype: impl Into<String>, nulls: Nulls) -> Self {
        Self { dtype: Some(dtype.into()), nulls, ..Self::objects(field) }
    }

    /// The shape of a column with a fixed number of elements for each row. Elements that are no numbers are Python
    /// objects.
    pub(crate) fn elements(field: &Field, element: &DataType, shape: Vec<usize>) -> Self {
        let dtype = number_name(element).map(str::to_string);
        Self { dtype, shape, nulls: Nulls::Refused, bfloat16: is_bfloat16(field) }
    }
}

/// Returns NumPy's name of a type of numbers.
pub(crate) fn number_name(data_type: &DataType) -> Option<&'static str> {
    NUMBERS.iter().find(|(_, known)| known == data_type).map(|(name, _)| *name)
}
