//! Types of the elements of NumPy's arrays, as headers describe them.
//!
//! <https://numpy.org/doc/stable/reference/arrays.interface.html> defines the texts, such as `<f4`.

use arrow_schema::{DataType, TimeUnit};
use stoker_columns::SmallFloat;

use crate::array_rows::{ArrayElement, ElementLayout, ElementOrder};
use crate::npy_header::sizes;
use crate::python_literal::PythonLiteral;

/// The type of the elements of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NpyType {
    /// Values of one type.
    Single(ElementLayout),
    /// Records with named fields.
    Record {
        fields: Vec<NpyField>,
        /// The length of a record.
        num_bytes: usize,
    },
}

/// A field of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NpyField {
    pub name: String,
    pub layout: ElementLayout,
    pub shape: Vec<u64>,
    /// The offset in a record.
    pub offset: usize,
}

impl NpyType {
    /// Parses the entry `descr` of a header.
    ///
    /// # Errors
    /// A type that is wrong, or that columns cannot have, and what to do.
    pub fn parse(descr: &PythonLiteral) -> Result<Self, String> {
        match descr {
            PythonLiteral::Text(text) => Ok(Self::Single(layout(text)?)),
            PythonLiteral::List(fields) => record(fields),
            _ => Err("the type is neither a text nor a list of fields".into()),
        }
    }

    /// Returns the number of bytes of an element.
    pub fn num_bytes(&self) -> usize {
        match self {
            NpyType::Single(layout) => layout.element.num_bytes(),
            NpyType::Record { num_bytes, .. } => *num_bytes,
        }
    }
}

/// Parses the fields of records.
fn record(descr: &[PythonLiteral]) -> Result<NpyType, String> {
    let (mut fields, mut offset) = (Vec::new(), 0usize);
    for field in descr {
        let PythonLiteral::List(parts) = field else { return Err("the type has a field that is no tuple".into()) };
        let (name, layout_text, shape) = match parts.as_slice() {
            [name, descr] => (name, descr, Vec::new()),
            [name, descr, PythonLiteral::Number(size)] => (name, descr, vec![*size]),
            [name, descr, PythonLiteral::List(shape)] => (name, descr, sizes(shape)?),
            _ => return Err("the type has a field that is no tuple of a name, a type and a shape".into()),
        };
        let name = match name {
            PythonLiteral::Text(name) => name,
            // A title, and a name.
            PythonLiteral::List(names) => match names.as_slice() {
                [_, PythonLiteral::Text(name)] => name,
                _ => return Err("the type has a field with a wrong title".into()),
            },
            _ => return Err("the type has a field whose name is no text".into()),
        };
        let shown = name.escape_debug();
        let text = match layout_text {
            PythonLiteral::Text(text) => text,
            _ => return Err(format!("field {shown} is a record itself; save the fields of it as fields of the array")),
        };
        let (layout, item_bytes) = match (name.as_str(), padding(text)) {
            // NumPy writes bytes between fields as fields without a name.
            ("", Some(bytes)) => (None, bytes),
            _ => {
                let layout = layout(text).map_err(|reason| format!("field {shown}: {reason}"))?;
                let bytes = layout.element.num_bytes();
                (Some(layout), bytes)
            }
        };
        let too_long = || format!("field {shown}: the records have more than 2^64 bytes");
        let mut num_bytes = item_bytes as u64;
        for size in &shape {
            num_bytes = num_bytes.checked_mul(*size).ok_or_else(too_long)?;
        }
        let end = usize::try_from(num_bytes).ok().and_then(|bytes| offset.checked_add(bytes));
        fields.extend(layout.map(|layout| NpyField { name: name.clone(), layout, shape, offset }));
        offset = end.ok_or_else(too_long)?;
    }
    if fields.is_empty() {
        return Err("the records have no fields".into());
    }
    Ok(NpyType::Record { fields, num_bytes: offset })
}

/// Returns the length of a type of bytes without a meaning.
fn padding(text: &str) -> Option<usize> {
    text.strip_prefix("|V")?.parse().ok()
}

/// Parses a type such as `<f4`.
fn layout(text: &str) -> Result<ElementLayout, String> {
    let wrong = || format!("the type \"{}\" is not known", text.chars().take(32).collect::<String>().escape_debug());
    let mut chars = text.chars();
    let order = match chars.next() {
        Some('<' | '|' | '=') => ElementOrder::Little,
        Some('>') => ElementOrder::Big,
        _ => return Err(wrong()),
    };
    let kind = chars.next().ok_or_else(wrong)?;
    let rest = chars.as_str();
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (size, unit) = rest.split_at_checked(digits).ok_or_else(wrong)?;
    if kind == 'O' {
        return Err(OBJECTS.into());
    }
    let size: usize = size.parse().map_err(|_| wrong())?;
    let element = match (kind, unit) {
        ('M' | 'm', _) if size == 8 => time(kind, unit)?,
        (_, "") => element(kind, size)?.ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    Ok(ElementLayout { element, order })
}

const OBJECTS: &str = "the array holds Python objects, as pickles, which can run any program and are never loaded; save arrays \
                       of numbers, of flags, or of texts of a fixed length (dtype 'U' or 'S')";

/// Returns the element of a kind and a size in NumPy's units.
fn element(kind: char, size: usize) -> Result<Option<ArrayElement>, String> {
    let number = match (kind, size) {
        ('i', 1) => DataType::Int8,
        ('i', 2) => DataType::Int16,
        ('i', 4) => DataType::Int32,
        ('i', 8) => DataType::Int64,
        ('u', 1) => DataType::UInt8,
        ('u', 2) => DataType::UInt16,
        ('u', 4) => DataType::UInt32,
        ('u', 8) => DataType::UInt64,
        ('f', 2) => DataType::Float16,
        ('f', 4) => DataType::Float32,
        ('f', 8) => DataType::Float64,
        ('b', 1) => return Ok(Some(ArrayElement::Flag)),
        // ml_dtypes 0.5 writes float8_e5m2 so, and all its other floats of 8 bits as V1.
        ('f', 1) => return Ok(Some(ArrayElement::Small(SmallFloat::Float8E5M2))),
        ('V', 2) => return Ok(Some(ArrayElement::Small(SmallFloat::BFloat16))),
        ('U', chars) => return Ok(Some(ArrayElement::Utf32(chars))),
        ('S' | 'a', bytes) => return Ok(Some(ArrayElement::Utf8(bytes))),
        ('c', _) => return Err("complex numbers cannot be stored; save x.real and x.imag".into()),
        ('f', 10..=16) => return Err("floats of more than 64 bits cannot be stored; save x.astype('float64')".into()),
        ('V', 1) => {
            let which = "which of several types of 8 bits the array has is not said; save x.view('uint8'), or a safetensors \
                         file, which names types";
            return Err(which.into());
        }
        ('V', _) => return Err("bytes without a type cannot be stored; save x.view('uint8')".into()),
        _ => return Ok(None),
    };
    Ok(Some(ArrayElement::Number(number)))
}

/// Returns the element of times with a unit such as `[ns]`.
fn time(kind: char, unit: &str) -> Result<ArrayElement, String> {
    let unit = match unit {
        "[s]" => TimeUnit::Second,
        "[ms]" => TimeUnit::Millisecond,
        "[us]" => TimeUnit::Microsecond,
        "[ns]" => TimeUnit::Nanosecond,
        "[D]" if kind == 'M' => return Ok(ArrayElement::Date),
        _ => {
            let (name, days) = if kind == 'M' { ("datetime64", ", or D") } else { ("timedelta64", "") };
            return Err(format!(
                "{name} should have the unit s, ms, us or ns{days}; save x.astype('{name}[s]'), for example"
            ));
        }
    };
    Ok(if kind == 'M' { ArrayElement::Timestamp(unit) } else { ArrayElement::Duration(unit) })
}
