//! The encodings of columns.
//!
//! Source: `streaming.base.format.mds.encodings` of the library `mosaicml-streaming`. Numbers have the least significant
//! byte first.

use std::borrow::Cow;

use arrow_schema::{DataType, Field};

use super::ndarray::{self, ArrayType};
use crate::values::{FieldValue, Media, float, integer, json, number_named, ragged, tensor, text};

/// How the values of a column are encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MdsEncoding {
    Text,
    Json,
    /// Decimal digits.
    Integer,
    /// A number as Python prints it.
    Float,
    Bytes,
    Media(Media),
    Number(DataType),
    /// Arrays of one type and shape.
    Tensor(DataType, Vec<usize>),
    /// Arrays with a shape of their own, and with a type of their own if the index has none.
    Array(Option<DataType>),
    /// Arrays of this type with this number of dimensions, as the first sample has them.
    Ragged {
        /// Whether each value says its type.
        has_type: bool,
        array: ArrayType,
    },
}

impl MdsEncoding {
    /// Parses an encoding of an index, such as `ndarray:uint8:3,224,224`.
    ///
    /// # Errors
    /// What is wrong with it, or why it is not read.
    pub fn parse(encoding: &str) -> Result<Self, String> {
        let (name, config) = match encoding.split_once(':') {
            Some((name, config)) => (name, Some(config)),
            None => (encoding, None),
        };
        Ok(match (name, config) {
            ("str" | "str_decimal", None) => Self::Text,
            ("json", None) => Self::Json,
            ("str_int", None) => Self::Integer,
            ("str_float", None) => Self::Float,
            ("bytes", None) => Self::Bytes,
            ("int", None) => Self::Number(DataType::Int64),
            ("png", None) | ("jpeg", _) => Self::Media(Media::Image),
            ("ndarray", None) => Self::Array(None),
            ("ndarray", Some(config)) => array(config).ok_or_else(|| format!("{encoding} is no type of arrays"))?,
            ("pkl", _) => return Err("pkl holds pickles, which are never read, because they can run code".into()),
            ("pil", _) => return Err("pil holds raw pixels of PIL, which are not read; write jpeg or png".into()),
            (name, None) => {
                Self::Number(number_named(name).ok_or_else(|| format!("the encoding {encoding} is unknown"))?)
            }
            _ => return Err(format!("the encoding {encoding} is unknown")),
        })
    }

    /// Returns the number of bytes of each value; `None` if values have their own sizes.
    pub fn size(&self) -> Option<u64> {
        let width = |element: &DataType| element.primitive_width().unwrap_or(1) as u64;
        match self {
            Self::Number(element) => Some(width(element)),
            Self::Tensor(element, shape) => {
                Some(width(element) * shape.iter().map(|size| *size as u64).product::<u64>())
            }
            _ => None,
        }
    }

    /// Returns the column of the table.
    pub fn field(&self, name: &str) -> Field {
        match self {
            Self::Text | Self::Json => Field::new(name, DataType::Utf8, true),
            Self::Integer => Field::new(name, DataType::Int64, true),
            Self::Float => Field::new(name, DataType::Float64, true),
            Self::Bytes | Self::Array(_) => Field::new(name, DataType::LargeBinary, true),
            Self::Media(media) => media.field(name),
            Self::Number(element) => Field::new(name, element.clone(), true),
            Self::Tensor(element, shape) => tensor(name, element.clone(), shape.clone()),
            Self::Ragged { array, .. } => ragged(name, array.element.clone(), array.num_dims),
        }
    }

    /// Reads a value, which has the size of the column if the column has one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read<'a>(&self, bytes: &'a [u8]) -> Result<FieldValue<'a>, String> {
        match self {
            Self::Text => text(bytes),
            Self::Json => json(bytes),
            Self::Integer => integer(bytes),
            Self::Float => float(bytes),
            Self::Bytes | Self::Media(_) | Self::Number(_) | Self::Tensor(..) | Self::Array(_) => {
                Ok(FieldValue::Bytes(Cow::Borrowed(bytes)))
            }
            Self::Ragged { has_type, array } => {
                let declared = (!has_type).then_some(&array.element);
                let (found, shape, data) = ndarray::read(bytes, declared)?;
                match found == *array {
                    true => Ok(FieldValue::Array { shape, data }),
                    false => Err(format!("it is {found}, and the first sample has {array}")),
                }
            }
        }
    }
}

/// Parses the type, and the shape if there is one, of arrays.
fn array(config: &str) -> Option<MdsEncoding> {
    let (element, shape) = match config.split_once(':') {
        Some((element, shape)) => (element, Some(shape)),
        None => (config, None),
    };
    let element = number_named(element)?;
    let Some(shape) = shape else { return Some(MdsEncoding::Array(Some(element))) };
    let sizes: Option<Vec<usize>> = shape.split(',').map(|size| size.trim().parse().ok()).collect();
    let sizes = sizes?;
    let product = sizes.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
    (1..=i32::MAX as usize).contains(&product).then_some(MdsEncoding::Tensor(element, sizes))
}
