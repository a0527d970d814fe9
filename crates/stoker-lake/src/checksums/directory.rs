//! The entry of a data file's metadata that names its buffers with checksums.

use std::collections::{BTreeMap, HashMap};

use lance_file::reader::BufferDescriptor;
use serde::Deserialize;

use crate::sectors::is_checked_name;

/// The key of the entry in the file's schema metadata.
pub(crate) const CHECKSUMS_KEY: &str = "stoker:checksums";

/// The version of the entry that is written.
const VERSION: u32 = 2;

/// The first version, without the name of the file.
const VERSION_WITHOUT_FILE: u32 = 1;

/// The one hash of both versions, see [`stoker_checksum::checksum`].
const HASH: &str = "xxh3_64_low32";

/// Bytes of one checksum.
pub(super) const CHECKSUM_BYTES: u64 = 4;

#[derive(Deserialize)]
struct Directory {
    version: u32,
    hash: String,
    /// The name of the file, by which it is known wherever its bytes are found.
    file: Option<String>,
    /// Which global buffer holds the checksums of a column.
    buffers: HashMap<String, u32>,
}

/// A file whose checksums are looked for, as its own metadata and the manifest have it.
pub(super) struct Described<'a> {
    /// The metadata of its schema.
    pub metadata: &'a HashMap<String, String>,
    /// Its global buffers.
    pub buffers: &'a [BufferDescriptor],
    /// Its name by the manifest.
    pub file: &'a str,
    /// The column by the name that it has in the file; `None` when the file does not have the column.
    pub column: Option<&'a str>,
    /// Its rows.
    pub num_rows: u64,
}

/// Why a file gives no checksums.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// They cannot be used: the file counts as one without.
    Unusable(String),
    /// It is the file of another column, or of other rows.
    OtherFile(String),
}

/// The value of the entry for a file with the checksums of these columns, each in a buffer.
pub(crate) fn checksums_entry(file: &str, buffers: &BTreeMap<&str, u32>) -> String {
    serde_json::json!({ "version": VERSION, "hash": HASH, "file": file, "buffers": buffers }).to_string()
}

/// Where the checksums of a column begin in its file. `None` when another writer wrote it.
///
/// # Errors
/// [`Misfit::OtherFile`] when the file has checksums, and says that it has another name or no such column.
pub(super) fn offset_of(described: &Described<'_>) -> Result<Option<u64>, Misfit> {
    let Some(entry) = described.metadata.get(CHECKSUMS_KEY) else { return Ok(None) };
    let directory: Directory = serde_json::from_str(entry)
        .map_err(|source| Misfit::Unusable(format!("the entry {CHECKSUMS_KEY} cannot be read: {source}")))?;
    let (version, hash) = (directory.version, directory.hash.as_str());
    if hash != HASH || ![VERSION_WITHOUT_FILE, VERSION].contains(&version) {
        return Err(Misfit::Unusable(format!("version {version} with hash {hash:?} is unknown")));
    }
    match &directory.file {
        Some(file) if file != described.file => {
            return Err(Misfit::OtherFile(format!("what lies there was written as {file}")));
        }
        None if version != VERSION_WITHOUT_FILE => {
            return Err(Misfit::Unusable(format!("version {version} lacks the name of the file")));
        }
        _ => {}
    }
    let index = described.column.and_then(|column| directory.buffers.get(column)).copied();
    let Some(index) = index else {
        // Some columns of a file of light ones have checksums for their rows; all of its bytes have others.
        if is_checked_name(described.file) {
            return Ok(None);
        }
        let mut columns: Vec<&str> = directory.buffers.keys().map(String::as_str).collect();
        columns.sort_unstable();
        return Err(Misfit::OtherFile(format!("what lies there is the file of column {}", columns.join(", "))));
    };
    // Buffer 0 is the schema.
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
