//! The elements of arrays.

use arrow_schema::{DataType, TimeUnit};
use stoker_columns::SmallFloat;

/// The type of the elements of an array in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArrayElement {
    /// A number of an Arrow type of fixed width.
    Number(DataType),
    /// A float that Arrow lacks.
    Small(SmallFloat),
    /// A byte, which is zero or not.
    Flag,
    /// A text of at most this number of code points of 32 bits. Zeros fill the end.
    Utf32(usize),
    /// A text of at most this number of bytes, in UTF-8. Zeros fill the end.
    Utf8(usize),
    /// A time since 1970, of 64 bits. The smallest number is no time.
    Timestamp(TimeUnit),
    /// A time between two others, of 64 bits. The smallest number is none.
    Duration(TimeUnit),
    /// Days since 1970, of 64 bits. The smallest number is no day.
    Date,
}

/// The order of the bytes of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementOrder {
    /// The lowest byte first.
    Little,
    /// The highest byte first.
    Big,
}

/// The type of the elements of an array, and how they lie in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ElementLayout {
    pub element: ArrayElement,
    pub order: ElementOrder,
}

impl ArrayElement {
    /// Returns the number of bytes of an element in a file.
    pub fn num_bytes(&self) -> usize {
        match self {
            ArrayElement::Number(data_type) => data_type.primitive_width().unwrap_or(1),
            ArrayElement::Small(float) => float.storage().primitive_width().unwrap_or(1),
            ArrayElement::Flag => 1,
            ArrayElement::Utf32(chars) => chars.saturating_mul(4),
            ArrayElement::Utf8(bytes) => *bytes,
            ArrayElement::Timestamp(_) | ArrayElement::Duration(_) | ArrayElement::Date => 8,
        }
    }

    /// Returns the number of bytes of the numbers whose bytes have an order.
    pub fn number_bytes(&self) -> usize {
        match self {
            ArrayElement::Utf32(_) => 4,
            ArrayElement::Utf8(_) => 1,
            other => other.num_bytes(),
        }
    }

    /// Whether tensors can have such elements.
    pub fn is_number(&self) -> bool {
        matches!(self, ArrayElement::Number(_) | ArrayElement::Small(_) | ArrayElement::Flag)
    }

    /// Returns the Arrow type of a value of its own.
    pub fn scalar_type(&self) -> DataType {
        match self {
            ArrayElement::Number(data_type) => data_type.clone(),
            ArrayElement::Small(float) => float.storage(),
            ArrayElement::Flag => DataType::Boolean,
            ArrayElement::Utf32(_) | ArrayElement::Utf8(_) => DataType::Utf8,
            ArrayElement::Timestamp(unit) => DataType::Timestamp(*unit, None),
            ArrayElement::Duration(unit) => DataType::Duration(*unit),
            ArrayElement::Date => DataType::Date32,
        }
    }

    /// Returns the Arrow type of the elements of vectors and tensors.
    pub fn tensor_type(&self) -> DataType {
        match self {
            ArrayElement::Flag => DataType::UInt8,
            other => other.scalar_type(),
        }
    }
}
