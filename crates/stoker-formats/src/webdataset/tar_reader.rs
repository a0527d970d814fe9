//! Reads the members of a tar archive, one after the other.
//!
//! Formats: ustar and pax (POSIX.1-2001), GNU with long names, and archives from before POSIX. `tar::Header` reads the
//! fields of a header; its iterator of members is not used, because it takes as much memory for long names and extended
//! headers as they declare.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::pax::{self, PaxRecords};
use crate::decompress::Decompressed;
use crate::{Error, Result};

/// The bytes of a header, of which all sizes are multiples.
const BLOCK_BYTES: u64 = 512;
/// The most bytes of a long name or of an extended header.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;
/// The most bytes that may follow the end marker: writers fill up blocks of tapes, 10 KiB by default.
const END_BYTES_MAX: u64 = 16 << 20;
/// The bytes of a member of a compressed archive for which memory is taken before they are there.
const EXPECTED_BYTES_MAX: u64 = 1 << 20;
/// The most bytes of a name that a message shows.
const NAME_BYTES_SHOWN: usize = 256;

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberContent {
    /// A file, whose bytes can be read.
    File,
    /// A folder.
    Folder,
    /// A link, a device or a pipe, as a message calls it.
    Other(&'static str),
}

/// A member of an archive.
#[derive(Debug)]
pub(super) struct TarMember {
    /// The name, which may be anything.
    pub name: Vec<u8>,
    /// The number of bytes of a file.
    pub size: u64,
    /// What it is.
    pub content: MemberContent,
}

impl TarMember {
    /// Returns the name for messages.
    pub fn shown(&self) -> String {
        shown(&self.name)
    }
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name.get(..NAME_BYTES_SHOWN).unwrap_or(name)).into_owned()
}

/// An archive that is read from its beginning to its end.
#[derive(Debug)]
pub(super) struct TarReader {
    source: Decompressed,
    /// The bytes of the current member that were not read, and those that fill its last block.
    left: u64,
    filling: u64,
    is_ended: bool,
}

/// What headers say before the header of the member that they concern.
#[derive(Default)]
struct Extensions {
    long_name: Option<Vec<u8>>,
    pax: Option<PaxRecords>,
}

impl TarReader {
    pub fn new(source: Decompressed) -> Self {
        Self { source, left: 0, filling: 0, is_ended: false }
    }

    /// Returns the number of bytes of the file, as it is stored, that were read.
    pub fn position(&self) -> u64 {
        self.source.position()
    }

    /// Returns the next member, or `None` after the end marker. What was not read of the member before is skipped.
    ///
    /// # Errors
    /// [`Error::Malformed`] for an archive that is damaged or cut off, and for sparse members; [`Error::Read`].
    pub fn next(&mut self) -> Result<Option<TarMember>> {
        let mut extensions = Extensions::default();
        while !self.is_ended {
            self.skip()?;
            let Some(header) = self.header()? else {
                return match extensions.is_empty() {
                    true => self.end().map(|()| None),
                    false => Err(self.malformed("a long name or an extended header has no member")),
                };
            };
            let name = header.path_bytes().into_owned();
            let kind = header.entry_type();
            let declared = header.entry_size().map_err(|_| self.malformed_member(&name, "its size is no number"))?;
            match kind {
                EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader | EntryType::XGlobalHeader => {
                    let bytes = self.extension(&name, declared)?;
                    self.extend(&mut extensions, kind, &name, bytes)?;
                }
                _ => return self.member(extensions, &name, kind, declared).map(Some),
            }
        }
        Ok(None)
    }

    /// Adds what was not read of the current member to `into`.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the archive ends before the member; [`Error::Read`].
    pub fn read_rest(&mut self, member: &TarMember, into: &mut Vec<u8>) -> Result<()> {
        let expected = if self.source.left().is_some() { self.left } else { self.left.min(EXPECTED_BYTES_MAX) };
        into.reserve(usize::try_from(expected).unwrap_or(0));
        let read = self.source.by_ref().take(self.left).read_to_end(into);
        let read = read.map_err(|error| self.failed(&member.name, error))?;
        self.left = self.left.saturating_sub(read as u64);
        match self.left {
            0 => Ok(()),
            _ => Err(self.cut_off(&member.name)),
        }
    }

    /// Makes the member that a header describes, with what was said before it.
    fn member(&mut self, before: Extensions, name: &[u8], kind: EntryType, declared: u64) -> Result<TarMember> {
        let pax = before.pax.unwrap_or_default();
        let name = match (before.long_name, pax.path) {
            (Some(_), Some(_)) => return Err(self.malformed_member(name, "it has two long names")),
            (Some(long), None) | (None, Some(long)) => long,
            (None, None) => name.to_vec(),
        };
        if pax.is_sparse || kind == EntryType::GNUSparse {
            return Err(self.malformed_member(&name, "it is a sparse file; pack the archive without sparse files"));
        }
        let size = match pax.size {
            Some(size) if declared != 0 && declared != size => {
                return Err(self.malformed_member(&name, format!("it has two sizes, {declared} and {size}")));
            }
            Some(size) => size,
            None => declared,
        };
        // Only files have bytes, whatever the header says.
        let (content, size) = match kind {
            EntryType::Regular | EntryType::Continuous if name.ends_with(b"/") => (MemberContent::Folder, size),
            EntryType::Regular | EntryType::Continuous => (MemberContent::File, size),
            EntryType::Directory => (MemberContent::Folder, 0),
            EntryType::Link => (MemberContent::Other("a hard link"), 0),
            EntryType::Symlink => (MemberContent::Other("a symbolic link"), 0),
            EntryType::Char | EntryType::Block => (MemberContent::Other("a device"), 0),
            EntryType::Fifo => (MemberContent::Other("a pipe"), 0),
            other => {
                let kind = char::from(other.as_byte()).escape_default();
                return Err(self.malformed_member(&name, format!("it is of the unknown type '{kind}'")));
            }
        };
        self.begin(&name, size)?;
        Ok(TarMember { name, size, content })
    }

    /// Keeps what a header says about the next member.
    fn extend(&self, extensions: &mut Extensions, kind: EntryType, name: &[u8], bytes: Vec<u8>) -> Result<()> {
        let twice = match kind {
            EntryType::GNULongName => {
                let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                extensions.long_name.replace(bytes.get(..end).unwrap_or_default().to_vec()).is_some()
            }
            EntryType::XHeader => {
                let records = pax::parse(&bytes).map_err(|reason| self.malformed_member(name, reason))?;
                extensions.pax.replace(records).is_some()
            }
            EntryType::XGlobalHeader => {
                let records = pax::parse(&bytes).map_err(|reason| self.malformed_member(name, reason))?;
                if records != PaxRecords::default() {
                    return Err(self.malformed_member(name, "it gives all members one name or one size"));
                }
                false
            }
            _ => false,
        };
        match twice {
            true => Err(self.malformed_member(name, "a member has two of these headers")),
            false => Ok(()),
        }
    }

    /// Reads the bytes of a long name or of an extended header.
    fn extension(&mut self, name: &[u8], size: u64) -> Result<Vec<u8>> {
        if size > EXTENSION_BYTES_MAX {
            let reason = format!("it has {size} bytes, and headers may have {EXTENSION_BYTES_MAX}");
            return Err(self.malformed_member(name, reason));
        }
        self.begin(name, size)?;
        let member = TarMember { name: name.to_vec(), size, content: MemberContent::File };
        let mut bytes = Vec::new();
        self.read_rest(&member, &mut bytes)?;
        Ok(bytes)
    }

    /// Begins the bytes of a member.
    fn begin(&mut self, name: &[u8], size: u64) -> Result<()> {
        if let Some(left) = self.source.left().filter(|left| size > *left) {
            let reason =
                format!("its size is {size} bytes, and the file has {left} more: it is cut off, or the size lies");
            return Err(self.malformed_member(name, reason));
        }
        self.left = size;
        self.filling = (BLOCK_BYTES - size % BLOCK_BYTES) % BLOCK_BYTES;
        Ok(())
    }

    /// Skips the rest of the current member.
    fn skip(&mut self) -> Result<()> {
        let wanted = self.left.saturating_add(self.filling);
        let skipped = io::copy(&mut self.source.by_ref().take(wanted), &mut io::sink());
        let skipped = skipped.map_err(|error| self.failed(b"", error))?;
        if skipped < wanted {
            return Err(self.cut_off(b""));
        }
        (self.left, self.filling) = (0, 0);
        Ok(())
    }

    /// Reads a header, or `None` for the block of zeros at the end.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut header = Header::new_old();
        self.source.read_exact(header.as_mut_bytes()).map_err(|error| self.failed(b"", error))?;
        let block = header.as_bytes();
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let byte_sum =
            |bytes: Option<&[u8]>| bytes.unwrap_or_default().iter().map(|byte| u32::from(*byte)).sum::<u32>();
        // The sum is made with spaces in place of its own eight bytes.
        let sum = byte_sum(block.get(..148)) + byte_sum(block.get(156..)) + 8 * u32::from(b' ');
        match header.cksum() {
            Ok(declared) if declared == sum => Ok(Some(header)),
            _ => Err(self.malformed("a header has a wrong checksum: this is no tar archive, or it is damaged")),
        }
    }

    /// Checks that nothing but zeros follows the end marker.
    fn end(&mut self) -> Result<()> {
        self.is_ended = true;
        let (mut block, mut seen) = ([0; 4096], 0);
        loop {
            let read = match self.source.read(&mut block) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failed(b"", error)),
            };
            seen += read as u64;
            if block.iter().take(read).any(|byte| *byte != 0) {
                return Err(self.malformed("bytes follow the end marker of the archive, which would be lost"));
            }
            if seen > END_BYTES_MAX {
                return Err(self.malformed(format!("more than {END_BYTES_MAX} bytes follow the end marker")));
            }
        }
    }

    fn failed(&self, member: &[u8], error: io::Error) -> Error {
        let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
        match self.source.error(error) {
            Error::Malformed { .. } if is_end => self.cut_off(member),
            error => error,
        }
    }

    fn cut_off(&self, member: &[u8]) -> Error {
        let reason = "the archive is cut off: it ends without its end marker";
        match member {
            b"" => self.malformed(reason),
            name => self.malformed_member(name, reason),
        }
    }

    fn malformed_member(&self, name: &[u8], reason: impl ToString) -> Error {
        self.malformed(format!("member {}: {}", shown(name), reason.to_string()))
    }

    /// Makes the error for an archive that is not what the format says.
    pub fn malformed(&self, reason: impl ToString) -> Error {
        Error::malformed(self.source.name(), reason)
    }
}

impl Extensions {
    fn is_empty(&self) -> bool {
        self.long_name.is_none() && self.pax.is_none()
    }
}
