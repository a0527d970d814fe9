//! Checksums of the sectors of data files, which detect damaged bytes of light columns.
//!
//! Lance decodes light columns. It stores no checksums, so it would deliver flipped bytes. Therefore Stoker appends to
//! each file of light columns a checksum for each 4 KiB of it, a *sector*. All of Lance's reads of such a file pass
//! through a store of [`CheckedStores`], which widens them to whole sectors and verifies those:
//!
//! ```text
//! the file as Lance wrote it | u32 for each sector | directory | its length, a hash | copies of Lance's tables, footer
//! └────── sectors ─────────┘                       └────────────── covered by the hash ─────────────────────────────┘
//! ```
//!
//! The tables and the footer are copies, by which other readers find the file's parts as usual; they skip the
//! checksums. The directory contains the name of the file, so that swapped files are detected, and hashes of the
//! checksums. `trailer.rs` describes the format.
//!
//! The name of a file (`<uuid>-checked.lance`) says that the file has checksums, so that no damaged byte in the file
//! can hide them. Files with other names are read without a check: files by other writers and earlier versions of
//! Stoker, and files of heavy columns, whose rows have checksums of their own. Local files of both kinds are kept open.
//!
//! Cost: 0.1 % of the file's bytes. The checksums are part of a request that Lance makes anyway; of a file of more than
//! about 60 MiB, each 64 MiB that are read cost one more request, once. Each read is up to 8 KiB longer, and the bytes
//! that are read are hashed.

mod damage;
mod known;
mod local;
mod read_memory;
mod store;
mod trailer;
mod trailer_builder;

use std::ops::Range;

use object_store::path::Path;

pub(crate) use self::damage::Damage;
pub use self::store::{CheckedStores, StoreKind};
pub use self::trailer_builder::TrailerBuilder;

/// Bytes of a sector: about the size of Lance's smallest reads, so that widening a read costs little compared to its
/// request.
const SECTOR_BYTES: u64 = 4 << 10;

/// Bytes of a sector's checksum.
const SUM_BYTES: u64 = 4;

/// The ending of the names of files with checksums.
const CHECKED_ENDING: &str = "-checked.lance";

/// The name of the folder in which a table has its data files.
const DATA_FOLDER: &str = "data";

/// Returns a new name for a data file with checksums.
pub fn checked_name() -> String {
    format!("{}{CHECKED_ENDING}", uuid::Uuid::new_v4())
}

/// Returns whether a data file of this name has checksums.
pub fn is_checked_name(name: &str) -> bool {
    name.ends_with(CHECKED_ENDING)
}

/// Returns the file name in the path of a data file; `None` for other paths.
fn data_file(path: &Path) -> Option<&str> {
    let mut parts = path.as_ref().rsplit('/');
    let (name, folder) = (parts.next()?, parts.next()?);
    (folder == DATA_FOLDER).then_some(name)
}

/// Returns the file name in the path of a data file with checksums; `None` for other paths.
fn checked_file(path: &Path) -> Option<&str> {
    data_file(path).filter(|name| is_checked_name(name))
}

/// Returns the indices of the sectors that contain bytes of a range.
fn sectors_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / SECTOR_BYTES..bytes.end.div_ceil(SECTOR_BYTES)
}

#[cfg(test)]
mod tests;
