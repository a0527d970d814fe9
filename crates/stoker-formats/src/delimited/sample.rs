//! Finds the names of columns from headers, and their types from the first rows.

use super::delimiter;
use super::records::{DelimitedRecord, DelimitedRecords};
use super::values::ValueKinds;
use crate::text_file::TextFile;
use crate::text_rows::{FIELDS_MAX, TextType};
use crate::{Error, Folder, Result};

/// The number of bytes of records after which no further row is looked at.
const SAMPLED_BYTES_MAX: usize = 256 << 20;

/// Reads the header of a file.
///
/// # Errors
/// `Malformed` for files without a header, `Column` for a name that comes twice.
pub(super) fn header(records: &mut DelimitedRecords) -> Result<Vec<String>> {
    let mut record = DelimitedRecord::default();
    let end = records.next(&mut record, FIELDS_MAX)?;
    let file = records.name();
    let Some(end) = end else {
        return Err(Error::malformed(file, "the file is empty; a header should name the columns"));
    };
    if let Some(reason) = end.problem(record.num_fields()) {
        return Err(Error::malformed(file, format!("line {}, the header: {reason}", end.line)));
    }
    let mut names: Vec<String> = Vec::with_capacity(record.num_fields());
    for index in 0..record.num_fields() {
        let name = std::str::from_utf8(record.field(index));
        let name =
            name.map_err(|_| Error::malformed(file, format!("column {} has a name that is not UTF-8", index + 1)))?;
        if name.is_empty() {
            return Err(Error::malformed(file, format!("column {} has no name in the header", index + 1)));
        }
        names.push(name.to_string());
    }
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort_unstable();
    if let Some([name, ..]) = sorted.windows(2).find(|pair| pair.first() == pair.last()) {
        let reason = "the header has this column twice".into();
        return Err(Error::Column { file: file.into(), column: (*name).clone(), reason });
    }
    Ok(names)
}

/// Returns the columns of the first file that has rows. Rows with another number of fields are left out here, and are bad
/// rows when they are read.
///
/// # Errors
/// `Malformed` if no file has a row, errors of [`header`].
pub(super) fn sample(folder: &dyn Folder, files: &[String], num_rows: usize) -> Result<Vec<(String, TextType)>> {
    for name in files {
        let mut records = DelimitedRecords::new(TextFile::open(folder, name)?, delimiter(name));
        let names = header(&mut records)?;
        let mut kinds = vec![ValueKinds::new(); names.len()];
        let mut record = DelimitedRecord::default();
        let (mut left, mut bytes, mut has_rows) = (num_rows, 0usize, false);
        while left > 0 && bytes < SAMPLED_BYTES_MAX {
            let Some(end) = records.next(&mut record, names.len())? else { break };
            left -= 1;
            bytes = bytes.saturating_add(record.len()).saturating_add(1);
            if end.problem(names.len()).is_none() {
                has_rows |= add(&mut kinds, &record);
            }
        }
        if has_rows {
            return Ok(names.into_iter().zip(kinds.iter().map(ValueKinds::text_type)).collect());
        }
    }
    let first = files.first().map_or("", String::as_str);
    Err(Error::malformed(first, "the file has a header, and no rows with as many fields"))
}

/// Adds the values of a record. Returns whether all are text.
fn add(kinds: &mut [ValueKinds], record: &DelimitedRecord) -> bool {
    let texts: Option<Vec<&str>> =
        (0..kinds.len()).map(|index| std::str::from_utf8(record.field(index)).ok()).collect();
    let Some(texts) = texts else { return false };
    for (kinds, text) in kinds.iter_mut().zip(texts) {
        kinds.add(text);
    }
    true
}
