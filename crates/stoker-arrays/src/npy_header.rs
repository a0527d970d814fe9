//! Headers of NumPy's files of arrays.
//!
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html> defines versions 1 to 3: a magic text, the
//! version, the length of the rest, and a dictionary of Python with the keys `descr`, `fortran_order` and `shape`.

use crate::npy_type::NpyType;
use crate::python_literal::PythonLiteral;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The bytes that say how long a header is. A header has more of them.
pub(crate) const NPY_START_BYTES: usize = 12;

/// The most bytes of a header. NumPy itself reads up to 10,000 unless it is told to trust the file.
const HEADER_BYTES_MAX: usize = 1 << 20;

/// The most dimensions, as in NumPy 2.
const DIMENSIONS_MAX: usize = 64;

/// What the header of a file says of its array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NpyHeader {
    pub dtype: NpyType,
    /// Whether the first index changes first, and not the last one.
    pub is_fortran: bool,
    pub shape: Vec<u64>,
    /// The length of the header: the offset of the array in the file.
    pub data_offset: usize,
}

impl NpyHeader {
    /// Returns the length of a header from the first [`NPY_START_BYTES`] bytes of the file.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn num_bytes(start: &[u8]) -> Result<usize, String> {
        Ok(NpyStart::read(start)?.end)
    }

    /// Parses a header at the beginning of `file`, which may have more bytes.
    ///
    /// # Errors
    /// What is wrong with the header.
    pub fn parse(file: &[u8]) -> Result<Self, String> {
        let NpyStart { major, begin, end } = NpyStart::read(file)?;
        let Some(text) = file.get(begin..end) else {
            return Err(format!("the header should have {end} bytes, and the file has {}", file.len()));
        };
        let text = match major {
            3 => std::str::from_utf8(text).map_err(|error| format!("the header is not UTF-8: {error}"))?.to_string(),
            _ => text.iter().map(|byte| char::from(*byte)).collect(),
        };
        let literal = PythonLiteral::parse(&text).map_err(|reason| format!("the header is wrong: {reason}"))?;
        let PythonLiteral::Map(entries) = literal else { return Err("the header is no dict".into()) };
        let (mut descr, mut is_fortran, mut shape) = (None, None, None);
        for (key, value) in entries {
            let is_new = match (key.as_str(), value) {
                ("descr", value) => descr.replace(value).is_none(),
                ("fortran_order", PythonLiteral::Flag(flag)) => is_fortran.replace(flag).is_none(),
                ("shape", PythonLiteral::List(sizes)) => shape.replace(sizes).is_none(),
                (key, _) => return Err(format!("the header has a wrong entry \"{}\"", key.escape_debug())),
            };
            if !is_new {
                return Err(format!("the header has the entry {key} twice"));
            }
        }
        let (Some(descr), Some(is_fortran), Some(shape)) = (descr, is_fortran, shape) else {
            return Err("the header lacks one of descr, fortran_order and shape".into());
        };
        Ok(Self { dtype: NpyType::parse(&descr)?, is_fortran, shape: sizes(&shape)?, data_offset: end })
    }
}

/// Returns the sizes of a shape.
pub(crate) fn sizes(shape: &[PythonLiteral]) -> Result<Vec<u64>, String> {
    if shape.len() > DIMENSIONS_MAX {
        return Err(format!("the shape has {} dimensions; the most are {DIMENSIONS_MAX}", shape.len()));
    }
    let size = |size: &PythonLiteral| match size {
        PythonLiteral::Number(size) => Ok(*size),
        _ => Err("the shape has a size that is no number".to_string()),
    };
    shape.iter().map(size).collect()
}

/// The beginning of a file.
struct NpyStart {
    major: u8,
    /// The dictionary is between these offsets.
    begin: usize,
    end: usize,
}

impl NpyStart {
    fn read(file: &[u8]) -> Result<Self, String> {
        let Some(start) = file.first_chunk::<NPY_START_BYTES>() else {
            return Err(format!("it is no NumPy file: it has {} bytes only", file.len()));
        };
        if !start.starts_with(MAGIC) {
            return Err(format!("it is no NumPy file: it begins with \"{}\"", start.escape_ascii()));
        }
        let [.., major, minor, a, b, c, d] = *start;
        let (begin, length) = match (major, minor) {
            (1, 0) => (10, usize::from(u16::from_le_bytes([a, b]))),
            (2 | 3, 0) => (12, usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX)),
            _ => return Err(format!("version {major}.{minor} of NumPy's format is not known; versions 1 to 3 are")),
        };
        if length > HEADER_BYTES_MAX {
            return Err(format!("the header should have {length} bytes; the most are {HEADER_BYTES_MAX}"));
        }
        Ok(Self { major, begin, end: begin + length })
    }
}
