//! The entry of a data file's metadata that names its buffers with checksums.

use std::collections::HashMap;

use lance_file::reader::BufferDescriptor;
use serde::Deserialize;

/// The key of the entry in the file's schema metadata.
pub(crate) const CHECKSUMS_KEY: &str = "stoker:checksums";

/// The version of the entry.
const VERSION: u32 = 1;

/// The one hash of this version, see [`checksum`](super::checksum).
const HASH: &str = "xxh3_64_low32";

/// Bytes of one checksum.
pub(super) const CHECKSUM_BYTES: u64 = 4;

#[derive(Deserialize)]
struct Directory {
    version: u32,
    hash: String,
    /// Which global buffer holds the checksums of a column.
    buffers: HashMap<String, u32>,
}

/// The value of the entry for a file with the checksums of one column.
pub(crate) fn checksums_entry(column: &str, buffer: u32) -> String {
    serde_json::json!({ "version": VERSION, "hash": HASH, "buffers": { column: buffer } }).to_string()
}

/// Where the checksums of a column begin in a file with so many rows. `None` when it has none, a reason when they cannot be
/// used.
pub(super) fn offset_of(
    metadata: &HashMap<String, String>,
    buffers: &[BufferDescriptor],
    column: &str,
    num_rows: u64,
) -> Result<Option<u64>, String> {
    let Some(entry) = metadata.get(CHECKSUMS_KEY) else { return Ok(None) };
    let directory: Directory =
        serde_json::from_str(entry).map_err(|source| format!("the entry {CHECKSUMS_KEY} cannot be read: {source}"))?;
    if (directory.version, directory.hash.as_str()) != (VERSION, HASH) {
        return Err(format!("version {} with hash {:?} is unknown", directory.version, directory.hash));
    }
    let Some(index) = directory.buffers.get(column).copied() else { return Ok(None) };
    // Buffer 0 is the schema.
    let Some(buffer) = buffers.get(index as usize).filter(|_| index > 0) else {
        return Err(format!("buffer {index} does not exist"));
    };
    if Some(buffer.size) != num_rows.checked_mul(CHECKSUM_BYTES) {
        return Err(format!("buffer {index} has {} bytes for {num_rows} rows", buffer.size));
    }
    Ok(Some(buffer.position))
}
