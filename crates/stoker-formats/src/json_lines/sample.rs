//! Finds the types of fields from the first rows.

use super::lines::{JsonLinesSource, NextLine, syntax, too_long};
use super::shape::{JsonShape, shape};
use crate::text_file::TextFile;
use crate::text_rows::{FIELDS_MAX, TextType};
use crate::{Error, Folder, Result};

/// The number of bytes of lines after which no further row is looked at.
const SAMPLED_BYTES_MAX: usize = 256 << 20;

/// Returns the fields of the first rows of the first file that has some. Rows that do not fit the rows before are left out
/// here, and are bad rows when they are read.
///
/// # Errors
/// `Malformed` if no line is an object, or if there are too many fields.
pub(super) fn sample(folder: &dyn Folder, files: &[String], num_rows: usize) -> Result<Vec<(String, TextType)>> {
    let mut refused = None;
    for name in files {
        let mut source = JsonLinesSource::new(TextFile::open(folder, name)?);
        let mut merged = JsonShape::Null;
        let (mut left, mut bytes) = (num_rows, 0usize);
        while left > 0 && bytes < SAMPLED_BYTES_MAX {
            let reason = match source.next_line()? {
                NextLine::End => break,
                NextLine::TooLong => Some(too_long()),
                NextLine::Line => add(&mut merged, source.line().0).err(),
            };
            left -= 1;
            bytes = bytes.saturating_add(source.line().0.len());
            if let (Some(reason), None) = (reason, &refused) {
                refused = Some((name, source.line().1, reason));
            }
        }
        let JsonShape::Object(fields) = &merged else { continue };
        if merged.num_fields() > FIELDS_MAX {
            return Err(Error::malformed(name, format!("the rows have more than {FIELDS_MAX} fields")));
        }
        if !fields.fields.is_empty() {
            return Ok(fields.text_types());
        }
    }
    let first = files.first().map_or("", String::as_str);
    Err(match refused {
        Some((name, line, reason)) => Error::malformed(
            name,
            format!("none of the first {num_rows} lines is an object with fields; line {line}: {reason}"),
        ),
        None => Error::malformed(first, "the file has no rows"),
    })
}

fn add(merged: &mut JsonShape, line: &[u8]) -> Result<(), String> {
    let shape = shape(line).map_err(|error| syntax(&error))?;
    if !matches!(shape, JsonShape::Object(_)) {
        return Err("no JSON object".into());
    }
    if !merged.fits(&shape) {
        return Err("the types of fields differ from those of the rows before".into());
    }
    if merged.num_fields() <= FIELDS_MAX {
        merged.merge(shape);
    }
    Ok(())
}
