//! Headers of safetensors files.
//!
//! <https://github.com/huggingface/safetensors#format> defines the format: the length of the header in 8 bytes, the header
//! in JSON, and the bytes of the tensors, without bytes between them that belong to no tensor.

use std::collections::BTreeSet;
use std::fmt;

use arrow_schema::DataType;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use stoker_columns::SmallFloat;

use crate::array_rows::ArrayElement;

/// The most bytes of a header, as in the format.
pub(super) const HEADER_BYTES_MAX: u64 = 100_000_000;

/// The most tensors. Each becomes a column.
const TENSORS_MAX: usize = 4096;

/// The most dimensions of a tensor. PyTorch's tensors have at most 64.
const DIMENSIONS_MAX: usize = 64;

/// The key of what is no tensor.
const METADATA: &str = "__metadata__";

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredTensor {
    pub name: String,
    pub element: ArrayElement,
    pub shape: Vec<u64>,
    /// The offset of its bytes behind the header.
    pub start: u64,
}

/// Returns the tensors that a header describes, in its order. `data_bytes` bytes follow the header.
///
/// # Errors
/// What is wrong with the header: other JSON than the format's, unknown types, shapes that contradict offsets, and bytes that
/// belong to two tensors or to none.
pub(super) fn tensors(header: &[u8], data_bytes: u64) -> Result<Vec<StoredTensor>, String> {
    let header =
        serde_json::from_slice::<TensorsHeader>(header).map_err(|error| format!("the header is wrong: {error}"))?;
    let mut tensors = Vec::with_capacity(header.0.len());
    let mut places = Vec::with_capacity(header.0.len());
    for (name, TensorEntry { dtype, shape, offsets: (start, end) }) in header.0 {
        let shown = name.escape_debug().to_string();
        let element = element(&dtype).ok_or_else(|| {
            format!("tensor {shown} has the type {}, which columns cannot have", dtype.escape_debug())
        })?;
        let num_bytes = shape.iter().try_fold(element.num_bytes() as u64, |a, b| a.checked_mul(*b));
        if end.checked_sub(start).is_none_or(|length| num_bytes != Some(length)) {
            let found = num_bytes.map_or("more than 2^64".to_string(), |bytes| bytes.to_string());
            return Err(format!("tensor {shown} of shape {shape:?} has {found} bytes, and lies at {start}..{end}"));
        }
        places.push((start, end, shown));
        tensors.push(StoredTensor { name, element, shape, start });
    }
    places.sort();
    let mut next = 0;
    for (start, end, shown) in places {
        if start != next {
            let what = if start < next { "overlap those of another tensor" } else { "follow bytes of no tensor" };
            return Err(format!("the bytes of tensor {shown} at {start}..{end} {what}: they should begin at {next}"));
        }
        next = end;
    }
    if next != data_bytes {
        return Err(format!(
            "the tensors have {next} bytes, and {data_bytes} bytes follow the header: the file is cut off, or \
                            the header is wrong"
        ));
    }
    Ok(tensors)
}

/// Returns the element of a type, as the format names it.
fn element(dtype: &str) -> Option<ArrayElement> {
    let number = match dtype {
        "U8" => DataType::UInt8,
        "I8" => DataType::Int8,
        "U16" => DataType::UInt16,
        "I16" => DataType::Int16,
        "U32" => DataType::UInt32,
        "I32" => DataType::Int32,
        "U64" => DataType::UInt64,
        "I64" => DataType::Int64,
        "F16" => DataType::Float16,
        "F32" => DataType::Float32,
        "F64" => DataType::Float64,
        "BOOL" => return Some(ArrayElement::Flag),
        "BF16" => return Some(ArrayElement::Small(SmallFloat::BFloat16)),
        "F8_E4M3" => return Some(ArrayElement::Small(SmallFloat::Float8E4M3FN)),
        "F8_E4M3FNUZ" => return Some(ArrayElement::Small(SmallFloat::Float8E4M3FNUZ)),
        "F8_E5M2" => return Some(ArrayElement::Small(SmallFloat::Float8E5M2)),
        "F8_E5M2FNUZ" => return Some(ArrayElement::Small(SmallFloat::Float8E5M2FNUZ)),
        _ => return None,
    };
    Some(ArrayElement::Number(number))
}

/// The tensors of a header, by their names.
struct TensorsHeader(Vec<(String, TensorEntry)>);

/// What a header says of a tensor.
#[derive(serde::Deserialize)]
struct TensorEntry {
    dtype: String,
    #[serde(deserialize_with = "shape")]
    shape: Vec<u64>,
    #[serde(rename = "data_offsets")]
    offsets: (u64, u64),
}

impl<'de> Deserialize<'de> for TensorsHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TensorsVisitor)
    }
}

struct TensorsVisitor;

impl<'de> Visitor<'de> for TensorsVisitor {
    type Value = TensorsHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TensorsHeader, A::Error> {
        let (mut tensors, mut names) = (Vec::new(), BTreeSet::new());
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("two tensors have the name {}", name.escape_debug())));
            }
            if name == METADATA {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if tensors.len() >= TENSORS_MAX {
                return Err(A::Error::custom(format!("there are more than {TENSORS_MAX} tensors")));
            }
            tensors.push((name, map.next_value()?));
        }
        Ok(TensorsHeader(tensors))
    }
}

/// Reads a shape, without reading more dimensions than a tensor can have.
fn shape<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    deserializer.deserialize_seq(ShapeVisitor)
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Vec<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of sizes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u64>, A::Error> {
        let mut sizes = Vec::new();
        while let Some(size) = seq.next_element()? {
            if sizes.len() >= DIMENSIONS_MAX {
                return Err(A::Error::custom(format!("a tensor has more than {DIMENSIONS_MAX} dimensions")));
            }
            sizes.push(size);
        }
        Ok(sizes)
    }
}
