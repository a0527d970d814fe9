//! The shapes of NumPy arrays.

use arrow_schema::{DataType, Field};

use crate::SmallFloat;

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
    /// Zero or false, which only the mask of the column tells from a value.
    Zero,
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
            Nulls::Zero => "zero",
            Nulls::NaN => "nan",
            Nulls::NaT => "nat",
            Nulls::Object => "none",
        }
    }
}

/// How the rows of a column differ in shape, and how their dimensions are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// All rows have one shape.
    Fixed {
        /// For each dimension of a row, the number of the stored dimension that it is; `None` if both have one order.
        axes: Option<Vec<usize>>,
    },
    /// Rows are lists, which are nested in each other `levels` times.
    Lists {
        /// At least one.
        levels: usize,
    },
    /// Each row has a shape of its own, with the same number of dimensions.
    Shaped {
        /// As for [`Rows::Fixed`].
        axes: Option<Vec<usize>>,
        /// The sizes that all rows have in common, in the order of the row's dimensions.
        sizes: Vec<Option<usize>>,
    },
}

/// The NumPy array that a column becomes; its first dimension has one entry for each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumpyShape {
    /// NumPy's name of the type of an element; `None` for arrays of Python objects.
    pub dtype: Option<String>,
    /// The sizes of the other dimensions: the shape of one row, and of one element of lists of any length.
    pub shape: Vec<usize>,
    /// What a null becomes.
    pub nulls: Nulls,
    /// The float that NumPy lacks and that numbers are; NumPy holds its bits as unsigned integers.
    pub small_float: Option<SmallFloat>,
    /// How rows differ in shape.
    pub rows: Rows,
    /// The names of the dimensions of a row.
    pub names: Option<Vec<String>>,
}

impl NumpyShape {
    /// The shape of a column with one Python object for each row.
    pub(crate) fn objects(field: &Field) -> Self {
        Self {
            dtype: None,
            shape: Vec::new(),
            nulls: Nulls::Object,
            small_float: SmallFloat::of(field),
            rows: Rows::Fixed { axes: None },
            names: None,
        }
    }

    /// The shape of a column with one value of a type for each row.
    pub(crate) fn values(field: &Field, dtype: impl Into<String>, nulls: Nulls) -> Self {
        Self { dtype: Some(dtype.into()), nulls, ..Self::objects(field) }
    }

    /// The shape of a column with a fixed number of elements for each row. Elements that are no numbers and no booleans are
    /// Python objects.
    pub(crate) fn elements(field: &Field, element: &DataType, shape: Vec<usize>) -> Self {
        match element_name(element) {
            Some(dtype) => Self { shape, ..Self::values(field, dtype, Nulls::Zero) },
            None => Self { shape, ..Self::objects(field) },
        }
    }
}

/// Returns NumPy's name of a type of numbers or of booleans.
pub(crate) fn element_name(data_type: &DataType) -> Option<&'static str> {
    match data_type {
        DataType::Boolean => Some("bool"),
        number => number_name(number),
    }
}

/// Returns NumPy's name of a type of numbers.
pub(crate) fn number_name(data_type: &DataType) -> Option<&'static str> {
    NUMBERS.iter().find(|(_, known)| known == data_type).map(|(name, _)| *name)
}
