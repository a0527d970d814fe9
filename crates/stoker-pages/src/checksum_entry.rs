//! The entry in a data file's metadata that names the buffers with its checksums.

use std::collections::{BTreeMap, HashMap};

use lance_file::reader::BufferDescriptor;
use serde::Deserialize;

/// The key of the entry in the file's schema metadata.
pub const CHECKSUMS_KEY: &str = "stoker:checksums";

/// The version of the entry that this crate writes.
const VERSION: u32 = 2;

/// The first version of the entry, which lacks the name of the file.
const VERSION_WITHOUT_FILE: u32 = 1;

/// The hash function of both versions, see [`stoker_checksum::checksum`].
const HASH: &str = "xxh3_64_low32";

/// The size of one checksum in bytes.
pub const CHECKSUM_BYTES: u64 = 4;

#[derive(Deserialize)]
struct Directory {
    version: u32,
    hash: String,
    /// The name under which the file was written, by which a swapped file is noticed.
    file: Option<String>,
    /// The index of the global buffer with the checksums, for each column.
    buffers: HashMap<String, u32>,
}

/// A file whose checksums are looked up, as its own metadata and the manifest describe it.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    /// The metadata of the file's schema.
    pub metadata: &'a HashMap<String, String>,
    /// The global buffers of the file.
    pub buffers: &'a [BufferDescriptor],
    /// The name of the file in the manifest.
    pub file: &'a str,
    /// The name that the column has in the file; `None` when the file does not have the column.
    pub column: Option<&'a str>,
    /// Whether checksums of the file's sectors cover all of its bytes, so that only some columns have checksums of their rows.
    pub has_sectors: bool,
    /// The number of rows in the file.
    pub num_rows: u64,
}

/// Why no checksums can be taken from a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The checksums cannot be used: the file counts as one without.
    Unusable(String),
    /// The file is that of another column or of other rows.
    OtherFile(String),
}

/// The value of the entry for a file. `buffers` has the index of the checksum buffer of each column.
pub fn checksums_entry(file: &str, buffers: &BTreeMap<&str, u32>) -> String {
    serde_json::json!({ "version": VERSION, "hash": HASH, "file": file, "buffers": buffers }).to_string()
}

/// The offset at which the checksums of a column begin in its file. `None` when the file was written by another
/// writer, or is a file of light columns without checksums for the rows of this one.
///
/// # Errors
/// [`Misfit::OtherFile`] when the file has checksums but says that it has another name or no such column;
/// [`Misfit::Unusable`] when its entry is unknown, unreadable or does not fit the file.
pub fn checksums_offset(described: &Described<'_>) -> Result<Option<u64>, Misfit> {
    let Some(entry) = described.metadata.get(CHECKSUMS_KEY) else { return Ok(None) };
    let directory: Directory = serde_json::from_str(entry)
        .map_err(|source| Misfit::Unusable(format!("the entry {CHECKSUMS_KEY} cannot be read: {source}")))?;
    let (version, hash) = (directory.version, directory.hash.as_str());
    if hash != HASH || ![VERSION_WITHOUT_FILE, VERSION].contains(&version) {
        return Err(Misfit::Unusable(format!("version {version} with hash {hash:?} is unknown")));
    }
    match &directory.file {
        Some(file) if file != described.file => {
            return Err(Misfit::OtherFile(format!("the file was written under another name: {file}")));
        }
        None if version != VERSION_WITHOUT_FILE => {
            return Err(Misfit::Unusable(format!("version {version} lacks the name of the file")));
        }
        _ => {}
    }
    let index = described.column.and_then(|column| directory.buffers.get(column)).copied();
    let Some(index) = index else {
        // In a file of light columns, only some columns have checksums of their rows. The checksums of its sectors
        // cover all bytes.
        if described.has_sectors {
            return Ok(None);
        }
        let mut columns: Vec<&str> = directory.buffers.keys().map(String::as_str).collect();
        columns.sort_unstable();
        return Err(Misfit::OtherFile(format!("this is the file of column {}", columns.join(", "))));
    };
    // Buffer 0 holds the schema.
    let Some(buffer) = described.buffers.get(index as usize).filter(|_| index > 0) else {
        return Err(Misfit::Unusable(format!("buffer {index} does not exist")));
    };
    let num_rows = described.num_rows;
    if Some(buffer.size) != num_rows.checked_mul(CHECKSUM_BYTES) {
        let reason = format!("buffer {index} has {} bytes for {num_rows} rows", buffer.size);
        return Err(Misfit::Unusable(reason));
    }
    Ok(Some(buffer.position))
}
