//! Checks that columns of encoded images hold image files.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

use crate::Mismatch;

/// The maximum number of bytes of a wrong value that an error message shows.
const BYTES_SHOWN: usize = 8;

/// Checks that each value that is not null begins as a JPEG, PNG or WebP file.
///
/// Values are not decoded: damage beyond the first bytes of a file shows only when the file is decoded.
///
/// # Errors
/// The first other value.
pub(super) fn check(column: &ArrayRef) -> Result<(), Mismatch> {
    let wrong = match column.data_type() {
        DataType::Binary => first_wrong(column.as_binary::<i32>().iter()),
        DataType::LargeBinary => first_wrong(column.as_binary::<i64>().iter()),
        _ => None,
    };
    match wrong {
        Some((row, value)) => Err(Mismatch::new(Some(row), "a JPEG, PNG or WebP file", shown(value))),
        None => Ok(()),
    }
}

fn first_wrong<'a>(values: impl Iterator<Item = Option<&'a [u8]>>) -> Option<(usize, &'a [u8])> {
    values.enumerate().find_map(|(row, value)| value.filter(|bytes| !is_image(bytes)).map(|bytes| (row, bytes)))
}

/// Whether the first bytes are those of JPEG (ITU-T T.81, annex B: SOI, then a marker), PNG (its specification, 5.2) or
/// WebP (RFC 9649, 2.4).
fn is_image(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xff\xd8\xff")
        || bytes.starts_with(b"\x89PNG\r\n\x1a\n")
        || (bytes.starts_with(b"RIFF") && bytes.get(8..).is_some_and(|form| form.starts_with(b"WEBP")))
}

fn shown(bytes: &[u8]) -> String {
    match bytes.len() {
        0 => "no bytes".to_string(),
        length => format!("{length} bytes that begin with \"{}\"", bytes[..length.min(BYTES_SHOWN)].escape_ascii()),
    }
}
