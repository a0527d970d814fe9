//! Checksums of the sectors of data files, by which damaged bytes of light columns are found.
//!
//! Light columns are decoded by Lance, which keeps no checksums and delivers flipped bytes. So Stoker writes behind each file of light
//! columns the checksum of each 4 KiB of it, a *sector*, and all of Lance's reads of such a file pass [`CheckedWrapper`], which widens them
//! to whole sectors and compares them:
//!
//! ```text
//! the file as Lance wrote it | u32 for each sector | directory | its length, a hash | Lance's tables and footer, once more
//! └────── sectors ─────────┘                       └───────────────── covered by the hash ──────────────────────────────┘
//! ```
//!
//! The tables and the footer are copies: other readers find the file's parts by them as ever, and pass over what lies between. The
//! directory has the name of the file, by which swapped files are noticed, and hashes of the checksums. Its form is in
//! [`trailer`](self::trailer).
//!
//! A file tells by its name (`<uuid>-checked.lance`) that it has checksums, so that no damaged byte in it can hide that. Files with other
//! names, which other writers and earlier versions of Stoker wrote, and those of heavy columns, whose rows have checksums of their own
//! ([`checksums`](crate::checksums)), are read as they are. Local ones of both kinds are kept open.
//!
//! Cost: a thousandth of the file's bytes; for each file one part of a request that Lance makes anyhow, and where the file has more than
//! about 60 MiB one more request for each 64 MiB that are read, once; for each read up to 8 KiB more; the hash of what is read.

mod damage;
mod known;
mod local;
mod store;
mod trailer;
mod writer;

use std::ops::Range;

use object_store::path::Path;

pub(crate) use self::damage::Damage;
pub(crate) use self::local::checked_registry;
pub(crate) use self::store::{CheckedWrapper, Place};
pub(crate) use self::writer::CheckedWriter;

/// Bytes of a sector: about the smallest reads that Lance makes, so that widening them costs little beside a request.
const SECTOR_BYTES: u64 = 4 << 10;

/// Bytes of a sector's checksum.
const SUM_BYTES: u64 = 4;

/// How the names of files with checksums end.
const CHECKED_ENDING: &str = "-checked.lance";

/// The folder of a table that has its data files.
const DATA_FOLDER: &str = "data";

/// A new name for a data file with checksums.
pub(crate) fn checked_name() -> String {
    format!("{}{CHECKED_ENDING}", uuid::Uuid::new_v4())
}

/// Whether a data file of this name has checksums.
pub(crate) fn is_checked_name(name: &str) -> bool {
    name.ends_with(CHECKED_ENDING)
}

/// The name of the data file that lies there, if it is one.
fn data_file(path: &Path) -> Option<&str> {
    let mut parts = path.as_ref().rsplit('/');
    let (name, folder) = (parts.next()?, parts.next()?);
    (folder == DATA_FOLDER).then_some(name)
}

/// The name of the data file with checksums that lies there, if it is one.
fn checked_file(path: &Path) -> Option<&str> {
    data_file(path).filter(|name| is_checked_name(name))
}

/// The sectors that have bytes of a range.
fn sectors_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / SECTOR_BYTES..bytes.end.div_ceil(SECTOR_BYTES)
}

#[cfg(test)]
mod tests;
