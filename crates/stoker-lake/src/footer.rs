//! Checks of data file footers, made before Lance trusts the numbers in them.
//!
//! ```text
//! … | column metadata | column table: 16 bytes each | buffer table: 16 bytes each | footer: 40 bytes
//! footer = 3 × u64: where these three begin, u32: buffers, u32: columns, u16: major, u16: minor version, "LANC"
//! ```
//!
//! Lance allocates memory and slices buffers by these numbers (lance-file 14.0.2, `reader.rs`). With damaged numbers
//! it panics, or the allocation aborts the process. Each file on a local disk is checked once, with one read of 40
//! bytes. Files in object stores are not checked, because each check would cost a round trip; there, panics are
//! caught ([`caught`](crate::damage::caught)).

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use lance_table::format::DataFile;
use parking_lot::Mutex;

use crate::{Error, RangeReader, Result, Table};

/// The size of a footer in bytes.
const FOOTER_BYTES: usize = 40;

/// The size of one entry of the two tables before the footer, in bytes.
const ENTRY_BYTES: u64 = 16;

/// The maximum number of keys that a lake remembers. When it is reached, all keys are forgotten.
const CHECKED_MAX: usize = 1 << 20;

/// The keys of what was checked: paths of data files, of columns in them, and of deletion files.
#[derive(Default)]
pub(crate) struct Checked(Mutex<HashSet<String>>);

impl Checked {
    /// Whether the item with this key was checked.
    pub fn contains(&self, key: &str) -> bool {
        self.0.lock().contains(key)
    }

    /// Remembers that the item with this key was checked.
    pub fn insert(&self, key: String) {
        let mut checked = self.0.lock();
        if checked.len() >= CHECKED_MAX {
            checked.clear();
        }
        checked.insert(key);
    }
}

impl Table {
    /// Checks the footers of local data files, each file once per lake.
    ///
    /// # Errors
    /// `DataCorrupt`, which names the first file that is missing, has another size, or has an invalid footer.
    pub(crate) async fn check_footers<'a>(&self, files: impl IntoIterator<Item = &'a DataFile>) -> Result<()> {
        if !self.is_local() {
            return Ok(());
        }
        let checked = &self.lake().inner.checked;
        let mut unchecked = Vec::new();
        for file in files {
            let version = (file.file_major_version, file.file_minor_version);
            let Some(size) = file.file_size_bytes.get().filter(|_| version >= (2, 1)) else { continue };
            let Some(path) = self.data_file(file) else { continue };
            if !checked.contains(path.as_ref()) {
                unchecked.push((self.store_reader(file, size.get()), version));
            }
        }
        if unchecked.is_empty() {
            return Ok(());
        }
        let work = move || {
            for (reader, version) in &unchecked {
                check_file(reader, *version)?;
            }
            Ok::<_, Error>(unchecked)
        };
        let attempted = || format!("reading the footers of table {}", self.snapshot());
        let done = tokio::task::spawn_blocking(work).await;
        for (reader, _) in done.map_err(|source| Error::storage(attempted(), source))?? {
            checked.insert(reader.path().to_string());
        }
        Ok(())
    }
}

/// Checks the footer of one local file.
fn check_file(reader: &RangeReader, version: (u32, u32)) -> Result<()> {
    let reader = reader.open()?;
    let Some(file) = reader.local() else { return Ok(()) };
    let attempted = || format!("reading the footer of {}", reader.place());
    if reader.size() < FOOTER_BYTES as u64 {
        let reason = format!("it has {} bytes, fewer than a footer ({FOOTER_BYTES})", reader.size());
        return Err(Error::DataCorrupt { attempted: attempted(), reason });
    }
    let footer = last_bytes(file).map_err(|source| Error::storage(attempted(), source))?;
    match flaw(&footer, reader.size(), version) {
        None => Ok(()),
        Some(reason) => Err(Error::DataCorrupt { attempted: attempted(), reason }),
    }
}

fn last_bytes(mut file: &File) -> std::io::Result<[u8; FOOTER_BYTES]> {
    let mut bytes = [0; FOOTER_BYTES];
    file.seek(SeekFrom::End(-(FOOTER_BYTES as i64)))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Describes what is wrong with the footer of a file of `file_bytes` bytes, whose version by the manifest is
/// `version`. `None` for a valid footer.
fn flaw(footer: &[u8; FOOTER_BYTES], file_bytes: u64, version: (u32, u32)) -> Option<String> {
    let number = |at: usize, length: usize| {
        let bytes = footer[at..at + length].iter().rev();
        bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    if &footer[36..] != b"LANC" {
        return Some("the file does not end with LANC, the marker of Lance files".into());
    }
    let found = (number(32, 2), number(34, 2));
    if found != (u64::from(version.0), u64::from(version.1)) {
        let (major, minor) = version;
        return Some(format!("the manifest says version {major}.{minor}, the footer {}.{}", found.0, found.1));
    }
    let (metadata, column_table, buffer_table) = (number(0, 8), number(8, 8), number(16, 8));
    let (num_buffers, num_columns) = (number(24, 4), number(28, 4));
    let begins = |table: u64, entries: u64| table.checked_add(entries * ENTRY_BYTES);
    let fits = metadata <= column_table
        && begins(column_table, num_columns) == Some(buffer_table)
        && begins(buffer_table, num_buffers) == file_bytes.checked_sub(FOOTER_BYTES as u64);
    if fits && num_buffers > 0 {
        return None;
    }
    Some(format!(
        "{num_columns} columns with metadata at {metadata} and {column_table} and {num_buffers} buffers at {buffer_table} \
         do not fit a file of {file_bytes} bytes"
    ))
}

#[cfg(test)]
mod tests {
    use super::flaw;

    /// The footer of a file of 1,000 bytes with two columns and one buffer. The last 88 bytes are the tables and the
    /// footer.
    fn footer() -> [u8; 40] {
        let mut footer = [0; 40];
        footer[..8].copy_from_slice(&900u64.to_le_bytes());
        footer[8..16].copy_from_slice(&912u64.to_le_bytes());
        footer[16..24].copy_from_slice(&944u64.to_le_bytes());
        footer[24..28].copy_from_slice(&1u32.to_le_bytes());
        footer[28..32].copy_from_slice(&2u32.to_le_bytes());
        footer[32..34].copy_from_slice(&2u16.to_le_bytes());
        footer[34..36].copy_from_slice(&2u16.to_le_bytes());
        footer[36..].copy_from_slice(b"LANC");
        footer
    }

    #[test]
    fn each_flipped_bit_is_found_but_in_where_metadata_begins() {
        assert_eq!(flaw(&footer(), 1_000, (2, 2)), None);
        assert!(flaw(&footer(), 1_001, (2, 2)).is_some());
        assert!(flaw(&footer(), 10, (2, 2)).is_some());
        assert!(flaw(&footer(), 1_000, (2, 1)).is_some());
        for bit in 64..320 {
            let mut damaged = footer();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(flaw(&damaged, 1_000, (2, 2)).is_some(), "bit {bit}");
        }
        let mut beyond = footer();
        beyond[..8].copy_from_slice(&913u64.to_le_bytes());
        assert!(flaw(&beyond, 1_000, (2, 2)).is_some());
    }
}
