//! The header of NPY files, which say the type and the shape of one array.
//!
//! Source of the format: NumPy's `numpy.lib.format`, versions 1.0, 2.0 and 3.0. Objects are pickles, which can run code,
//! and are refused.

use arrow_schema::DataType;

/// The first bytes of a file.
const MAGIC: &[u8] = b"\x93NUMPY";
/// The most bytes of the text of a header.
const TEXT_BYTES_MAX: usize = 1 << 16;
/// The most dimensions of an array, as in NumPy.
const DIMS_MAX: usize = 64;

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NpyType {
    /// A byte that is 0 or 1.
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float16,
    Float32,
    Float64,
}

impl NpyType {
    /// Returns the number of bytes of an element.
    pub fn width(self) -> usize {
        match self {
            Self::Bool | Self::Int8 | Self::UInt8 => 1,
            Self::Int16 | Self::UInt16 | Self::Float16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 => 8,
        }
    }

    /// Returns the Arrow type of the elements of tensors. Tensors have no booleans, which become 0 and 1 as uint8.
    pub fn element(self) -> DataType {
        match self {
            Self::Bool | Self::UInt8 => DataType::UInt8,
            Self::Int8 => DataType::Int8,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::UInt16 => DataType::UInt16,
            Self::UInt32 => DataType::UInt32,
            Self::UInt64 => DataType::UInt64,
            Self::Float16 => DataType::Float16,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
        }
    }

    /// Parses a type such as `<f4` without its byte order.
    fn parse(kind: &str) -> Option<Self> {
        Some(match kind {
            "b1" => Self::Bool,
            "i1" => Self::Int8,
            "i2" => Self::Int16,
            "i4" => Self::Int32,
            "i8" => Self::Int64,
            "u1" => Self::UInt8,
            "u2" => Self::UInt16,
            "u4" => Self::UInt32,
            "u8" => Self::UInt64,
            "f2" => Self::Float16,
            "f4" => Self::Float32,
            "f8" => Self::Float64,
            _ => return None,
        })
    }
}

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NpyHeader {
    /// The type of an element.
    pub element: NpyType,
    /// Whether the most significant byte of an element comes first.
    pub is_big_endian: bool,
    /// The size of each dimension; empty for a single number.
    pub shape: Vec<usize>,
    /// Whether the first dimension varies fastest.
    pub is_fortran: bool,
    /// Where the elements begin in the file.
    pub data_offset: usize,
    /// The number of bytes of all elements.
    pub data_bytes: usize,
}

/// Reads the header with which a file begins. `file` may end after it.
///
/// # Errors
/// What is wrong: another format or version, a header that is cut off or not as NumPy writes it, elements that are no
/// numbers and no booleans.
pub(crate) fn parse(file: &[u8]) -> Result<NpyHeader, String> {
    let rest = file.strip_prefix(MAGIC).ok_or("it does not begin as an NPY file")?;
    let cut_off = "the NPY header is cut off";
    let ([major, minor], rest) = rest.split_first_chunk::<2>().ok_or(cut_off)?;
    let (length, rest) = match (major, minor) {
        (1, 0) => rest.split_first_chunk::<2>().map(|(length, rest)| (u32::from(u16::from_le_bytes(*length)), rest)),
        (2 | 3, 0) => rest.split_first_chunk::<4>().map(|(length, rest)| (u32::from_le_bytes(*length), rest)),
        _ => return Err(format!("version {major}.{minor} of NPY files is unknown")),
    }
    .ok_or(cut_off)?;
    let length = usize::try_from(length).ok().filter(|length| *length <= TEXT_BYTES_MAX);
    let length = length.ok_or_else(|| format!("the NPY header has more than {TEXT_BYTES_MAX} bytes"))?;
    let text = rest.get(..length).ok_or(cut_off)?;
    let text = std::str::from_utf8(text).map_err(|_| "the NPY header is no text")?;
    let (descr, is_fortran, shape) = HeaderText { rest: text }.dictionary()?;
    let (element, is_big_endian) = element(descr)?;
    let num_elements = shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
    let data_bytes = num_elements.and_then(|number| number.checked_mul(element.width()));
    let data_bytes = data_bytes.ok_or_else(|| format!("the shape {shape:?} is too large"))?;
    let data_offset = file.len() - rest.len() + length;
    Ok(NpyHeader { element, is_big_endian, shape, is_fortran, data_offset, data_bytes })
}

/// Parses the type of an element and its byte order.
fn element(descr: &str) -> Result<(NpyType, bool), String> {
    let (order, kind) = descr.split_at_checked(1).unwrap_or_default();
    if kind.starts_with('O') {
        return Err("its elements are Python objects, which are pickles and never read".into());
    }
    let unknown = || format!("elements of type {descr:?} are neither numbers nor booleans");
    let element = NpyType::parse(kind).ok_or_else(unknown)?;
    match (order, element.width()) {
        ("<", _) | ("|", 1) => Ok((element, false)),
        (">", _) => Ok((element, true)),
        _ => Err(unknown()),
    }
}

/// The text of a header: a dictionary as Python prints it.
struct HeaderText<'a> {
    rest: &'a str,
}

impl<'a> HeaderText<'a> {
    /// Reads the whole text: type, order and shape, each exactly once.
    fn dictionary(mut self) -> Result<(&'a str, bool, Vec<usize>), String> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.accept('}') {
            let key = self.string()?;
            self.expect(':')?;
            let twice = match key {
                "descr" => descr.replace(self.string()?).is_some(),
                "fortran_order" => fortran.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.tuple()?).is_some(),
                _ => return Err(format!("the NPY header has the unknown entry {key:?}")),
            };
            if twice {
                return Err(format!("the NPY header has the entry {key:?} twice"));
            }
            if !self.accept(',') {
                self.expect('}')?;
                break;
            }
        }
        if !self.rest.trim().is_empty() {
            return Err("text follows the dictionary of the NPY header".into());
        }
        let missing = "the NPY header lacks one of descr, fortran_order and shape";
        Ok((descr.ok_or(missing)?, fortran.ok_or(missing)?, shape.ok_or(missing)?))
    }

    fn accept(&mut self, wanted: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        match self.accept(wanted) {
            true => Ok(()),
            false => Err(format!("the NPY header is not as NumPy writes it: {wanted:?} is missing")),
        }
    }

    /// Reads a text in quotes. A list, which describes elements with several fields, is none.
    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.accept('"') { '"' } else { '\'' };
        if quote == '\'' && !self.accept('\'') {
            return Err("the NPY header has a value where a text is expected: elements with fields are not read".into());
        }
        let (text, rest) = self.rest.split_once(quote).ok_or("a text of the NPY header does not end")?;
        self.rest = rest;
        match text.contains('\\') {
            true => Err("a text of the NPY header has a backslash".into()),
            false => Ok(text),
        }
    }

    fn boolean(&mut self) -> Result<bool, String> {
        self.rest = self.rest.trim_start();
        for (text, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(text) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err("fortran_order in the NPY header is neither True nor False".into())
    }

    /// Reads `()`, `(3,)` or `(3, 4)`. Python 2 wrote an `L` after a number.
    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        self.expect('(')?;
        let mut sizes = Vec::new();
        while !self.accept(')') {
            self.rest = self.rest.trim_start();
            let digits = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
            let (number, rest) = self.rest.split_at_checked(digits).unwrap_or_default();
            let size = number.parse().map_err(|_| "the shape in the NPY header has a size that is none")?;
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            sizes.push(size);
            if sizes.len() > DIMS_MAX {
                return Err(format!("the shape in the NPY header has more than {DIMS_MAX} dimensions"));
            }
            let has_comma = self.accept(',');
            if !has_comma {
                self.expect(')')?;
                if sizes.len() == 1 {
                    return Err("the shape in the NPY header is no tuple".into());
                }
                break;
            }
        }
        Ok(sizes)
    }
}

#[cfg(test)]
pub(crate) mod tests;
