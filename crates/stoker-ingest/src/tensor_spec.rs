//! Declarations of tensor and vector columns: `image=uint8[3,224,224]`, `embedding=768`.

use std::fmt;
use std::str::FromStr;

use arrow_schema::DataType;
use serde::{Serialize, Serializer};

use crate::{Error, Result};

/// The element type of a declared tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// A number of an Arrow type.
    Number(DataType),
    /// bfloat16, which is stored as UInt16 with the field metadata `stoker.dtype` = `bfloat16`.
    BFloat16,
}

/// The names of element types in NumPy and PyTorch, with their Arrow types.
const ELEMENTS: [(&str, DataType); 11] = [
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

impl Element {
    /// Returns the Arrow type in which elements are stored.
    pub fn storage(&self) -> DataType {
        match self {
            Element::Number(data_type) => data_type.clone(),
            Element::BFloat16 => DataType::UInt16,
        }
    }

    fn parse(name: &str) -> Option<Self> {
        if name == "bfloat16" {
            return Some(Element::BFloat16);
        }
        ELEMENTS.iter().find(|(known, _)| *known == name).map(|(_, data_type)| Element::Number(data_type.clone()))
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Element::BFloat16 => Some("bfloat16"),
            Element::Number(data_type) => ELEMENTS.iter().find(|(_, known)| known == data_type).map(|(name, _)| *name),
        };
        f.write_str(name.unwrap_or("number"))
    }
}

/// A column that becomes a fixed-shape tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name of the column.
    pub column: String,
    /// The type of an element.
    pub element: Element,
    /// The size of each dimension.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// Parses a type such as `uint8[3,224,224]` for a column.
    ///
    /// # Errors
    /// [`Error::InvalidOption`], which names what is wrong with the type.
    pub fn try_new(column: &str, tensor: &str) -> Result<Self> {
        let fail = |reason: &str| Err(Error::option("--tensor", format!("{column}={tensor}: {reason}")));
        let Some((element, shape)) = tensor.trim().strip_suffix(']').and_then(|text| text.split_once('[')) else {
            return fail("expected COLUMN=TYPE[SIZES], such as image=uint8[3,224,224]");
        };
        let Some(element) = Element::parse(element.trim()) else {
            let names: Vec<_> = ELEMENTS.iter().map(|(name, _)| *name).collect();
            return fail(&format!("the type should be one of {}, bfloat16", names.join(", ")));
        };
        let sizes: Option<Vec<usize>> = shape.split(',').map(|size| size.trim().parse().ok()).collect();
        let product = sizes.iter().flatten().try_fold(1usize, |product, size| product.checked_mul(*size));
        match (sizes, product) {
            (Some(shape), Some(1..=0x7fff_ffff)) if !column.is_empty() => {
                Ok(Self { column: column.into(), element, shape })
            }
            _ => fail("the sizes should be positive numbers whose product is below 2^31"),
        }
    }

    /// Returns the number of elements per row.
    pub fn length(&self) -> usize {
        self.shape.iter().product()
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<_> = self.shape.iter().map(usize::to_string).collect();
        write!(f, "{}[{}]", self.element, sizes.join(","))
    }
}

impl FromStr for TensorSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.rsplit_once('=') {
            Some((column, tensor)) => Self::try_new(column.trim(), tensor),
            None => Err(Error::option("--tensor", format!("{text:?} should be COLUMN=TYPE[SIZES]"))),
        }
    }
}

impl Serialize for TensorSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{}={self}", self.column))
    }
}

/// A list column that becomes a vector, which is a FixedSizeList of the list's element type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VectorSpec {
    /// The name of the column.
    pub column: String,
    /// The number of elements per row.
    pub length: usize,
}

impl FromStr for VectorSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed =
            text.rsplit_once('=').and_then(|(column, length)| Some((column.trim(), length.trim().parse().ok()?)));
        match parsed {
            Some((column, length @ 1..=0x7fff_ffff)) if !column.is_empty() => {
                Ok(Self { column: column.into(), length })
            }
            _ => Err(Error::option("--vector", format!("{text:?} should be COLUMN=LENGTH, such as embedding=768"))),
        }
    }
}
