//! Checks that columns of encoded images hold image files.

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use stoker_types::is_encoded_image;

/// The maximum number of bytes of a wrong value that an error message shows.
const BYTES_SHOWN: usize = 8;

/// Describes the first value, in a column of encoded images, that is not null and does not begin as a JPEG, PNG or WebP
/// file; returns `None` if there is no such value. `first_row` is the number of the batch's first row.
///
/// Values are not decoded: damage beyond the first bytes of a file shows only when the file is decoded.
pub(crate) fn wrong_image(batch: &RecordBatch, target: &Schema, first_row: u64) -> Option<String> {
    let mut columns = target.fields().iter().zip(batch.columns()).filter(|(field, _)| is_encoded_image(field));
    columns.find_map(|(field, column)| {
        let (row, value) = match column.data_type() {
            DataType::Binary => first_wrong(column.as_binary::<i32>().iter()),
            DataType::LargeBinary => first_wrong(column.as_binary::<i64>().iter()),
            _ => None,
        }?;
        let row = first_row + row as u64;
        Some(format!("column {} row {row}: expected a JPEG, PNG or WebP file, found {}", field.name(), shown(value)))
    })
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
