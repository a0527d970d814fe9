//! The directories of ZIP files.
//!
//! <https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT> defines the format; the numbers of sections are its own.

use stoker_types::to_usize;

use stoker_files::FileBytes;

/// The most members. Each becomes a column.
const MEMBERS_MAX: u64 = 4096;

/// The most bytes of a directory.
const DIRECTORY_BYTES_MAX: u64 = 16 << 20;

/// The length of the end of a directory without its comment (4.3.16), and of the longest comment.
const END_BYTES: usize = 22;
const COMMENT_BYTES_MAX: usize = 0xffff;

/// The most bytes that deflate makes of one byte: 258 bytes for two codes of one bit each (RFC 1951, section 3.2.5).
const INFLATION_MAX: u64 = 1032;

/// How the bytes of a member are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZipMethod {
    /// Not at all.
    Stored,
    /// By RFC 1951.
    Deflated,
}

/// A member of a ZIP file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ZipMember {
    pub name: String,
    pub method: ZipMethod,
    /// The number of compressed bytes, all of which lie in the file.
    pub compressed_bytes: u64,
    /// The number of bytes that the directory declares.
    pub num_bytes: u64,
    pub crc: u32,
    /// The offset of the local header.
    header: u64,
    /// The offset of what follows in the file: the next member, or the directory.
    end_max: u64,
}

impl ZipMember {
    /// Reads where the bytes of the member begin.
    ///
    /// # Errors
    /// A local header that contradicts the directory.
    pub fn data_offset(&self, file: &dyn FileBytes) -> Result<u64, String> {
        let header = read(file, self.header, 30)?;
        if header.get(..4) != Some(b"PK\x03\x04") {
            return Err(format!("member {} has no header where the directory says", self.name.escape_debug()));
        }
        let lengths = u64::from(short(&header, 26)?) + u64::from(short(&header, 28)?);
        let start = self.header.saturating_add(30).saturating_add(lengths);
        if start.saturating_add(self.compressed_bytes) > self.end_max {
            return Err(format!("member {} reaches into what follows it", self.name.escape_debug()));
        }
        Ok(start)
    }
}

/// Reads the directory of a ZIP file, whose members must not overlap.
///
/// # Errors
/// What is wrong with the file; encryption, and other compressions than deflate.
pub(crate) fn zip_members(file: &dyn FileBytes) -> Result<Vec<ZipMember>, String> {
    let end = DirectoryEnd::find(file)?;
    if end.num_members > MEMBERS_MAX || end.num_bytes > DIRECTORY_BYTES_MAX {
        let (members, bytes) = (end.num_members, end.num_bytes);
        return Err(format!(
            "it has {members} members in a directory of {bytes} bytes; the most are {MEMBERS_MAX} members"
        ));
    }
    if end.offset.checked_add(end.num_bytes).is_none_or(|after| after > end.at) {
        return Err("the directory does not lie in the file".into());
    }
    let directory = read(file, end.offset, to_usize(end.num_bytes))?;
    let mut rest: &[u8] = &directory;
    let mut members = Vec::new();
    for _ in 0..end.num_members {
        let (member, after) = entry(rest)?;
        members.push(member);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(format!("the directory has {} bytes behind its last member", rest.len()));
    }
    check_places(&mut members, end.offset)?;
    Ok(members)
}

/// Checks that no two members share bytes, as those of a ZIP bomb do.
fn check_places(members: &mut [ZipMember], directory: u64) -> Result<(), String> {
    let mut places: Vec<&mut ZipMember> = members.iter_mut().collect();
    places.sort_by_key(|member| std::cmp::Reverse(member.header));
    let mut end_max = directory;
    for member in places {
        if member.header.saturating_add(30).saturating_add(member.compressed_bytes) > end_max {
            return Err(format!("member {} reaches into what follows it", member.name.escape_debug()));
        }
        member.end_max = end_max;
        end_max = member.header;
    }
    Ok(())
}

/// Reads an entry of the directory (4.3.12). Returns it, and the bytes after it.
fn entry(directory: &[u8]) -> Result<(ZipMember, &[u8]), String> {
    if directory.get(..4) != Some(b"PK\x01\x02") {
        return Err("the directory has fewer members than it says".into());
    }
    let (flags, method) = (short(directory, 8)?, short(directory, 10)?);
    let length = |at| short(directory, at).map(usize::from);
    let (name_end, extra, comment) = (46 + length(28)?, length(30)?, length(32)?);
    let cut = || "the directory is cut off".to_string();
    let name = directory.get(46..name_end).ok_or_else(cut)?;
    let extra = directory.get(name_end..name_end + extra).ok_or_else(cut)?;
    let after = directory.get(name_end + extra.len() + comment..).ok_or_else(cut)?;
    let shown = String::from_utf8_lossy(name).escape_debug().to_string();
    let name = String::from_utf8(name.to_vec()).map_err(|_| format!("the name of member {shown} is not UTF-8"))?;
    if flags & 1 != 0 {
        return Err(format!("member {shown} is encrypted"));
    }
    let method = match method {
        0 => ZipMethod::Stored,
        8 => ZipMethod::Deflated,
        other => {
            return Err(format!("member {shown} is compressed by method {other}; save it with np.savez_compressed"));
        }
    };
    let mut sizes = [word(directory, 24)?, word(directory, 20)?, word(directory, 42)?].map(u64::from);
    let mut wide = zip64(extra);
    for size in sizes.iter_mut().filter(|size| **size == u64::from(u32::MAX)) {
        let (found, rest) = wide.split_first_chunk::<8>().ok_or_else(|| format!("member {shown} lacks a size"))?;
        *size = u64::from_le_bytes(*found);
        wide = rest;
    }
    let [num_bytes, compressed_bytes, header] = sizes;
    let bytes_max = match method {
        ZipMethod::Stored => compressed_bytes,
        ZipMethod::Deflated => compressed_bytes.saturating_mul(INFLATION_MAX),
    };
    if num_bytes > bytes_max || method == ZipMethod::Stored && num_bytes != compressed_bytes {
        return Err(format!(
            "member {shown} should have {num_bytes} bytes, which {compressed_bytes} bytes cannot hold"
        ));
    }
    let crc = word(directory, 16)?;
    Ok((ZipMember { name, method, compressed_bytes, num_bytes, crc, header, end_max: 0 }, after))
}

/// Returns the sizes of 64 bits among the extra fields of a member (4.5.3).
fn zip64(mut extra: &[u8]) -> &[u8] {
    while let Some(([a, b, c, d], rest)) = extra.split_first_chunk::<4>() {
        let length = usize::from(u16::from_le_bytes([*c, *d]));
        let Some((field, rest)) = rest.split_at_checked(length) else { break };
        if u16::from_le_bytes([*a, *b]) == 1 {
            return field;
        }
        extra = rest;
    }
    &[]
}

/// The end of a directory (4.3.16).
struct DirectoryEnd {
    /// The offset of the end.
    at: u64,
    num_members: u64,
    num_bytes: u64,
    offset: u64,
}

impl DirectoryEnd {
    /// Finds the last end in the file, behind which there is only its comment.
    fn find(file: &dyn FileBytes) -> Result<Self, String> {
        let length = to_usize(file.size()).min(END_BYTES + COMMENT_BYTES_MAX);
        let start = file.size().saturating_sub(length as u64);
        let bytes = read(file, start, length)?;
        let is_end = |at: &usize| {
            let comment = bytes.get(*at..).and_then(|end| short(end, 20).ok());
            bytes.get(*at..).is_some_and(|end| end.starts_with(b"PK\x05\x06"))
                && comment.is_some_and(|comment| at + END_BYTES + usize::from(comment) == length)
        };
        let found = (0..length.saturating_sub(END_BYTES - 1)).rev().find(is_end);
        let Some(at) = found else { return Err("it is no ZIP file, or it is cut off: it has no directory".into()) };
        let end = bytes.get(at..).unwrap_or_default();
        let place = start.saturating_add(at as u64);
        let fields = (short(end, 4)?, short(end, 6)?, short(end, 8)?, short(end, 10)?, word(end, 12)?, word(end, 16)?);
        match fields {
            (.., u16::MAX, _, _) | (.., u32::MAX, _) | (.., u32::MAX) => Self::wide(file, place),
            (0, 0, here, all, num_bytes, offset) if here == all => Ok(Self {
                at: place,
                num_members: u64::from(all),
                num_bytes: u64::from(num_bytes),
                offset: u64::from(offset),
            }),
            _ => Err("it is one of several files of a ZIP archive".into()),
        }
    }

    /// Reads the end with sizes of 64 bits (4.3.14), which a locator (4.3.15) before the other end names.
    fn wide(file: &dyn FileBytes, end: u64) -> Result<Self, String> {
        let locator = read(file, end.checked_sub(20).ok_or("the directory is cut off")?, 20)?;
        if !locator.starts_with(b"PK\x06\x07") {
            return Err("the directory lacks its sizes".into());
        }
        let at = long(&locator, 8)?;
        let wide = read(file, at, 56)?;
        if !wide.starts_with(b"PK\x06\x06") || long(&wide, 24)? != long(&wide, 32)? {
            return Err("the directory lacks its sizes".into());
        }
        Ok(Self { at, num_members: long(&wide, 32)?, num_bytes: long(&wide, 40)?, offset: long(&wide, 48)? })
    }
}

/// Reads a part of a file, if the file has it.
fn read(file: &dyn FileBytes, offset: u64, length: usize) -> Result<Vec<u8>, String> {
    if offset.checked_add(length as u64).is_none_or(|end| end > file.size()) {
        return Err(format!("it is cut off: it has no {length} bytes at {offset}"));
    }
    let mut bytes = vec![0; length];
    file.read_at(offset, &mut bytes)
        .map_err(|error| format!("{length} bytes at {offset} could not be read: {error}"))?;
    Ok(bytes)
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], String> {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().ok_or_else(|| "the directory is cut off".into())
}

fn short(bytes: &[u8], at: usize) -> Result<u16, String> {
    chunk(bytes, at).map(u16::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> Result<u32, String> {
    chunk(bytes, at).map(u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> Result<u64, String> {
    chunk(bytes, at).map(u64::from_le_bytes)
}
