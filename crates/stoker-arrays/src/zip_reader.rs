//! Reads members of ZIP files.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

use crate::array_rows::RowBytes;
use crate::file_range::FileRange;
use crate::zip_directory::{ZipMember, ZipMethod};
use stoker_files::FileBytes;

/// Reads a member of a ZIP file from its beginning to its end. With the last byte, the number of bytes and their checksum
/// are compared with the directory's.
pub(crate) struct ZipReader {
    bytes: MemberBytes,
    left: u64,
    crc: Crc,
    wanted: u32,
}

enum MemberBytes {
    Stored(FileRange),
    Deflated(DeflateDecoder<FileRange>),
}

impl ZipReader {
    /// Begins to read a member. Small reads read `step` bytes of the file at once, which stay in memory.
    ///
    /// # Errors
    /// A member that does not lie in the file.
    pub fn open(file: &Arc<dyn FileBytes>, member: &ZipMember, step: usize) -> Result<Self, String> {
        let start = member.data_offset(file.as_ref())?;
        let range = FileRange::new(file.clone(), start, start.saturating_add(member.compressed_bytes), step);
        let bytes = match member.method {
            ZipMethod::Stored => MemberBytes::Stored(range),
            ZipMethod::Deflated => MemberBytes::Deflated(DeflateDecoder::new(range)),
        };
        Ok(Self { bytes, left: member.num_bytes, crc: Crc::new(), wanted: member.crc })
    }

    fn range(&self) -> &FileRange {
        match &self.bytes {
            MemberBytes::Stored(range) => range,
            MemberBytes::Deflated(decoder) => decoder.get_ref(),
        }
    }

    fn check_end(&mut self) -> io::Result<()> {
        if self.bytes.read(&mut [0])? != 0 {
            return Err(damaged("the member has more bytes than the directory says"));
        }
        if self.crc.sum() != self.wanted {
            return Err(damaged("the checksum of the member is wrong"));
        }
        Ok(())
    }
}

impl Read for MemberBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            MemberBytes::Stored(range) => range.read(into),
            MemberBytes::Deflated(decoder) => decoder.read(into).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidInput => damaged("the member cannot be inflated"),
                _ => error,
            }),
        }
    }
}

impl Read for ZipReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        let Some(into) = into.get_mut(..length).filter(|into| !into.is_empty()) else { return Ok(0) };
        let read = self.bytes.read(into)?;
        if read == 0 {
            return Err(damaged("the member ends before the size that the directory says"));
        }
        self.crc.update(into.get(..read).unwrap_or_default());
        self.left = self.left.saturating_sub(read as u64);
        if self.left == 0 {
            self.check_end()?;
        }
        Ok(read)
    }
}

impl RowBytes for ZipReader {
    fn fill(&mut self, rows: &mut [u8]) -> io::Result<u64> {
        let before = self.range().num_taken();
        self.read_exact(rows)?;
        Ok(self.range().num_taken().saturating_sub(before))
    }
}

impl fmt::Debug for ZipReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZipReader").field("left", &self.left).finish_non_exhaustive()
    }
}

fn damaged(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
