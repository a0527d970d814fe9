//! Tensors from lists of numbers, and from little-endian bytes.

use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt16Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, downcast_primitive};
use arrow_buffer::{Buffer, MutableBuffer, ScalarBuffer};
use arrow_cast::cast;
use arrow_schema::{DataType, Field};
use half::bf16;

use super::TensorType;
use super::elements::fixed_size_list;
use super::flatten::flatten;
use super::small_float::SmallFloat;
use crate::ingest::{Conversion, to_plain, to_type};
use crate::numpy::{NUMBERS, number_name};
use crate::{DTYPE_KEY, Ingest, Mismatch};

/// The element type of a declared tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// A number of an Arrow type.
    Number(DataType),
    /// A float that Arrow lacks: its bits are stored, and `stoker.dtype` in the metadata of the field names it.
    Small(SmallFloat),
}

impl Element {
    /// Returns the Arrow type in which elements are stored.
    pub fn storage(&self) -> DataType {
        match self {
            Element::Number(data_type) => data_type.clone(),
            Element::Small(float) => float.storage(),
        }
    }

    fn parse(name: &str) -> Option<Self> {
        if let Some(float) = SmallFloat::named(name) {
            return Some(Element::Small(float));
        }
        NUMBERS.iter().find(|(known, _)| *known == name).map(|(_, data_type)| Element::Number(data_type.clone()))
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Element::Small(float) => Some(float.name()),
            Element::Number(data_type) => number_name(data_type),
        };
        f.write_str(name.unwrap_or("number"))
    }
}

/// What is wrong with the shape of a declared tensor.
pub const WRONG_SIZES: &str = "the sizes should be positive numbers whose product is below 2^31";

/// A declared tensor: the type and shape that a column of lists or bytes is converted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// The type of an element.
    pub element: Element,
    /// The size of each dimension.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// Parses a type such as `uint8[3,224,224]`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(tensor: &str) -> Result<Self, String> {
        let Some((element, shape)) = tensor.trim().strip_suffix(']').and_then(|text| text.split_once('[')) else {
            return Err("expected COLUMN=TYPE[SIZES], such as image=uint8[3,224,224]".into());
        };
        let Some(element) = Element::parse(element.trim()) else {
            let names = NUMBERS.iter().map(|(name, _)| *name);
            let names: Vec<_> = names.chain(SmallFloat::ALL.map(SmallFloat::name)).collect();
            return Err(format!("the type should be one of {}", names.join(", ")));
        };
        let sizes: Option<Vec<usize>> = shape.split(',').map(|size| size.trim().parse().ok()).collect();
        let product = sizes.iter().flatten().try_fold(1usize, |product, size| product.checked_mul(*size));
        match (sizes, product) {
            (Some(shape), Some(1..=0x7fff_ffff)) => Ok(Self { element, shape }),
            _ => Err(WRONG_SIZES.into()),
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

/// How a column of lists or bytes becomes a column of tensors.
pub fn declared(name: &str, spec: &TensorSpec) -> Ingest {
    let mut field = TensorType { element: spec.element.storage(), shape: spec.shape.clone() }.to_field(name);
    if let Element::Small(float) = spec.element {
        let mut metadata = field.metadata().clone();
        metadata.insert(DTYPE_KEY.into(), float.name().into());
        field = field.with_metadata(metadata);
    }
    Ingest::new(field, FromValues(spec.clone()))
}

/// Lists of numbers, or little-endian bytes, become a declared tensor.
#[derive(Clone, Debug)]
struct FromValues(TensorSpec);

impl Conversion for FromValues {
    fn accepts(&self, _field: &Field, _found: &DataType) -> bool {
        true // `flatten` checks each value.
    }

    fn keeps_nulls(&self) -> bool {
        false
    }

    fn convert(&self, field: &Field, array: &ArrayRef) -> Result<ArrayRef, Mismatch> {
        let (array, spec) = (to_plain(array)?, &self.0);
        let expected = spec.to_string();
        let values = match array.data_type() {
            DataType::LargeBinary | DataType::FixedSizeBinary(_) => from_bytes(&array, spec, &expected)?,
            _ => to_element(&flatten(&array, &spec.shape, &expected)?, spec, &expected)?,
        };
        fixed_size_list(field, values)
    }
}

/// Converts little-endian bytes to elements.
fn from_bytes(array: &ArrayRef, spec: &TensorSpec, expected: &str) -> Result<ArrayRef, Mismatch> {
    let array = to_type(array, &DataType::LargeBinary)?;
    let rows = array.as_binary::<i64>();
    let storage = spec.element.storage();
    let row_bytes = spec.length() * storage.primitive_width().unwrap_or(1);
    let mut buffer = MutableBuffer::new(row_bytes * rows.len());
    for (row, bytes) in rows.iter().enumerate() {
        match bytes {
            Some(bytes) if bytes.len() == row_bytes => buffer.extend_from_slice(bytes),
            Some(bytes) => {
                let found = format!("{} bytes instead of {row_bytes}", bytes.len());
                return Err(Mismatch::new(Some(row), expected, found));
            }
            None => return Err(Mismatch::new(Some(row), expected, "null")),
        }
    }
    let buffer = Buffer::from(buffer);
    macro_rules! array {
        ($type:ty, $buffer:expr) => {
            Ok(Arc::new(PrimitiveArray::<$type>::new(ScalarBuffer::from($buffer), None)) as ArrayRef)
        };
    }
    downcast_primitive! {
        storage => (array, buffer),
        other => Err(Mismatch::new(None, expected, other.to_string()))
    }
}

/// Casts elements. A number that the target type cannot represent is an error.
fn to_element(values: &ArrayRef, spec: &TensorSpec, expected: &str) -> Result<ArrayRef, Mismatch> {
    let found = values.data_type();
    let storage = spec.element.storage();
    if *found == storage {
        return Ok(values.clone());
    }
    let is_bf16 = spec.element == Element::Small(SmallFloat::BFloat16);
    if let (Element::Small(_), false) = (&spec.element, is_bf16) {
        let found = format!("elements of type {found}, where the bits as {storage} are needed");
        return Err(Mismatch::new(None, expected, found));
    }
    let loses = is_bf16 && !found.is_floating();
    let is_number = found.is_numeric() && found.primitive_width().is_some_and(|width| width <= 8);
    let loses = loses || (found.is_floating() && storage.is_integer() && !is_bf16);
    if loses || !(is_number || *found == DataType::Boolean) {
        return Err(Mismatch::new(None, expected, format!("elements of type {found}")));
    }
    let target = if is_bf16 { DataType::Float32 } else { storage };
    let cast_values =
        cast(values, &target).map_err(|error| Mismatch::new(None, expected, format!("{found}: {error}")))?;
    if cast_values.null_count() > 0 {
        let index = (0..cast_values.len()).find(|index| cast_values.is_null(*index)).unwrap_or(0);
        let found = format!("an element of type {found} that does not fit {}", spec.element);
        return Err(Mismatch::new(Some(index / spec.length().max(1)), expected, found));
    }
    if !is_bf16 {
        return Ok(cast_values);
    }
    let floats = cast_values.as_primitive::<Float32Type>();
    let bits = floats.values().iter().map(|value| bf16::from_f32(*value).to_bits());
    Ok(Arc::new(PrimitiveArray::<UInt16Type>::from_iter_values(bits)))
}
