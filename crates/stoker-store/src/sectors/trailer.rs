//! The trailer that Stoker appends to the bytes that Lance wrote to a data file.
//!
//! ```text
//! checksums   u32 for each sector of the bytes that Lance wrote; the last sector may be short
//! directory   "STKSUMS1", u64: the number of these bytes, u32: bytes of the name, the name,
//!             u64 for each segment: the hash of its checksums
//! closing     u32: bytes of the directory, u64: the hash of directory, this length, tables and footer
//! tables      copies of Lance's column table and buffer table, 16 bytes per entry
//! footer      a copy of Lance's footer, 40 bytes, with the offsets of these copies
//! ```
//!
//! All numbers are little-endian. Checksums are computed by [`stoker_checksum::checksum`], hashes by
//! [`stoker_checksum::hash`]. A segment is 16,384 checksums, which are read together.

use std::ops::Range;

use bytes::Bytes;
use stoker_checksum::hash;
use stoker_types::to_usize;

use super::{SECTOR_BYTES, SUM_BYTES};

/// The number of sectors whose checksums are read together: 64 KiB of checksums, for 64 MiB.
pub(super) const SEGMENT_SECTORS: u64 = 16 << 10;

const MAGIC: &[u8; 8] = b"STKSUMS1";

/// Bytes of Lance's footer.
pub(super) const FOOTER_BYTES: usize = 40;

/// Bytes of an entry of Lance's tables.
pub(super) const ENTRY_BYTES: usize = 16;

/// Bytes of the closing part: the directory's length and the hash.
const END_BYTES: usize = 12;

/// The maximum length of a directory, in bytes, which suffices for a file of terabytes; a longer one is damaged.
const DIRECTORY_BYTES_MAX: u64 = 16 << 20;

/// The parsed trailer of a data file.
#[derive(Debug)]
pub(super) struct Trailer {
    /// The number of bytes that have checksums: the file as Lance wrote it.
    pub covered: u64,
    /// The offset at which the directory begins.
    directory_at: u64,
    /// All bytes of the file from the directory on.
    end: Bytes,
    segment_hashes: Vec<u64>,
}

/// Why the last bytes of a file cannot be parsed as a trailer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// The trailer is longer than the bytes that were given: parsing needs the file from this offset on.
    BeginsAt(u64),
    /// The trailer is damaged, or belongs to another file.
    Damaged(String),
}

/// Lance's tables and footer at the end of a file.
struct Tables<'a> {
    columns: &'a [u8],
    buffers: &'a [u8],
    footer: &'a [u8],
    /// The offset at which the column table begins in the file.
    at: u64,
}

impl<'a> Tables<'a> {
    /// Finds the tables and the footer in `end`, the last bytes of a file of `file_bytes`; `None` if they are
    /// inconsistent.
    fn parse(end: &'a [u8], file_bytes: u64) -> Option<Self> {
        let (rest, footer) = end.split_at_checked(end.len().checked_sub(FOOTER_BYTES)?)?;
        let (columns_at, buffers_at) = (u64_at(footer, 8)?, u64_at(footer, 16)?);
        let (num_buffers, num_columns) = (u32_at(footer, 24)?, u32_at(footer, 28)?);
        let length = |entries: u32| usize::try_from(entries).ok()?.checked_mul(ENTRY_BYTES);
        let (rest, buffers) = rest.split_at_checked(rest.len().checked_sub(length(num_buffers)?)?)?;
        let (_, columns) = rest.split_at_checked(rest.len().checked_sub(length(num_columns)?)?)?;
        let at = file_bytes.checked_sub((columns.len() + buffers.len() + FOOTER_BYTES) as u64)?;
        let fits = columns_at == at && buffers_at == at + columns.len() as u64 && footer.ends_with(b"LANC");
        fits.then_some(Self { columns, buffers, footer, at })
    }
}

/// Returns the trailer of a file of `covered` bytes whose sectors have the checksums `sums`. `end` is the last bytes of
/// the file: at least its tables and its footer. `None` if they do not end like a Lance file.
pub(super) fn trailer(name: &str, covered: u64, sums: &[u32], end: &[u8]) -> Option<Vec<u8>> {
    let tables = Tables::parse(end, covered)?;
    let mut bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    let hashes: Vec<u64> = bytes.chunks(to_usize(SEGMENT_SECTORS * SUM_BYTES)).map(hash).collect();
    let directory_at = bytes.len();
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&covered.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(name.len()).ok()?.to_le_bytes());
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend(hashes.iter().flat_map(|hash| hash.to_le_bytes()));
    bytes.extend_from_slice(&u32::try_from(bytes.len() - directory_at).ok()?.to_le_bytes());
    let columns_at = covered + (bytes.len() + size_of::<u64>()) as u64;
    let buffers_at = columns_at + tables.columns.len() as u64;
    let mut copies = [tables.columns, tables.buffers, tables.footer].concat();
    let footer_at = copies.len() - FOOTER_BYTES;
    copies[footer_at + 8..footer_at + 16].copy_from_slice(&columns_at.to_le_bytes());
    copies[footer_at + 16..footer_at + 24].copy_from_slice(&buffers_at.to_le_bytes());
    let sealed = hash(&[&bytes[directory_at..], &copies].concat());
    bytes.extend_from_slice(&sealed.to_le_bytes());
    bytes.extend_from_slice(&copies);
    Some(bytes)
}

impl Trailer {
    /// Parses the trailer of the file `name` of `file_bytes` bytes from the file's last bytes, `end`.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn parse(name: &str, file_bytes: u64, end: &Bytes) -> Result<Self, Unread> {
        let damaged = |reason: &str| Unread::Damaged(reason.to_string());
        let cut = || damaged("its end is damaged or missing");
        let end_at = file_bytes.checked_sub(end.len() as u64).ok_or_else(cut)?;
        let footer = end.get(end.len().saturating_sub(FOOTER_BYTES)..).unwrap_or_default();
        let columns_at = u64_at(footer, 8).filter(|at| *at < file_bytes).ok_or_else(cut)?;
        let closing_at = columns_at.checked_sub(END_BYTES as u64).ok_or_else(cut)?;
        if closing_at < end_at {
            let is_near = file_bytes - closing_at <= DIRECTORY_BYTES_MAX;
            return Err(if is_near { Unread::BeginsAt(closing_at) } else { cut() });
        }
        let closing = end.get(to_usize(closing_at - end_at)..).ok_or_else(cut)?;
        let length = u64::from(u32_at(closing, 0).ok_or_else(cut)?);
        let directory_at = closing_at.checked_sub(length).filter(|_| length <= DIRECTORY_BYTES_MAX).ok_or_else(cut)?;
        if directory_at < end_at {
            return Err(Unread::BeginsAt(directory_at));
        }
        let end = end.slice(to_usize(directory_at - end_at)..);
        let (opening, closing) = end.split_at(to_usize(length));
        let sealed = [opening, &closing[..4], &closing[END_BYTES..]].concat();
        if u64_at(closing, 4) != Some(hash(&sealed))
            || Tables::parse(&end, file_bytes).is_none_or(|found| found.at != columns_at)
        {
            return Err(cut());
        }
        let unknown = || damaged("its checksums have a form that this version of Stoker does not know");
        let covered = u64_at(opening, 8).filter(|_| opening.starts_with(MAGIC)).ok_or_else(unknown)?;
        let name_bytes = u32_at(opening, 16).ok_or_else(unknown)? as usize;
        let (written_as, hashes) = opening[20..].split_at_checked(name_bytes).ok_or_else(unknown)?;
        let segment_hashes: Vec<u64> =
            hashes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let trailer = Self { covered, directory_at, segment_hashes, end: end.clone() };
        let num_segments = trailer.num_segments();
        if covered.checked_add(trailer.num_sectors() * SUM_BYTES) != Some(directory_at)
            || trailer.segment_hashes.len() as u64 != num_segments
        {
            return Err(unknown());
        }
        if written_as != name.as_bytes() {
            let written_as = String::from_utf8_lossy(written_as);
            return Err(Unread::Damaged(format!("the file was written under another name: {written_as}")));
        }
        Ok(trailer)
    }

    fn num_sectors(&self) -> u64 {
        self.covered.div_ceil(SECTOR_BYTES)
    }

    /// The number of segments of checksums.
    pub fn num_segments(&self) -> u64 {
        self.num_sectors().div_ceil(SEGMENT_SECTORS)
    }

    /// The size of the file in bytes, with its trailer.
    pub fn file_bytes(&self) -> u64 {
        self.directory_at + self.end.len() as u64
    }

    /// Returns the range of a sector in the file.
    pub fn sector(&self, index: u64) -> Range<u64> {
        let start = index * SECTOR_BYTES;
        start..(start + SECTOR_BYTES).min(self.covered)
    }

    /// Returns the range of a segment's checksums in the file.
    pub fn segment(&self, index: u64) -> Range<u64> {
        let at = |sector: u64| self.covered + sector.min(self.num_sectors()) * SUM_BYTES;
        at(index * SEGMENT_SECTORS)..at((index + 1) * SEGMENT_SECTORS)
    }

    /// Returns whether bytes are the checksums of a segment.
    pub fn is_segment(&self, index: u64, sums: &[u8]) -> bool {
        self.segment_hashes.get(to_usize(index)) == Some(&hash(sums))
    }

    /// Returns whether bytes that were read at offset `at` equal the trailer, as far as they lie in its directory or
    /// behind it.
    pub fn has_end(&self, at: u64, bytes: &[u8]) -> bool {
        let skipped = to_usize(self.directory_at.saturating_sub(at));
        let Some(found) = bytes.get(skipped..).filter(|found| !found.is_empty()) else { return true };
        let from = to_usize(at.max(self.directory_at) - self.directory_at);
        self.end.get(from..from + found.len()) == Some(found)
    }

    /// Widens a range to whole sectors, within the bytes that have checksums.
    pub fn widened(&self, bytes: &Range<u64>) -> Range<u64> {
        let start = bytes.start.min(self.covered) / SECTOR_BYTES * SECTOR_BYTES;
        let end = bytes.end.min(self.file_bytes());
        let end = if end <= self.covered { (end.next_multiple_of(SECTOR_BYTES)).min(self.covered) } else { end };
        start.min(bytes.start)..end
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
