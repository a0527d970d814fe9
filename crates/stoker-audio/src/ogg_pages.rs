//! Pages and packets of Ogg files (RFC 3533).

use crate::BadSound;

const HEADER_BYTES: usize = 27;

/// The polynomial of the pages' checksums.
const POLYNOMIAL: u32 = 0x04C1_1DB7;

/// One page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    /// Whether the page begins with the rest of a packet.
    pub is_continued: bool,
    /// Whether the page is the first of its stream.
    pub is_first: bool,
    /// The position at the end of the last packet that ends on the page; `None` if no packet does.
    pub granule: Option<i64>,
    /// The stream to which the page belongs.
    pub serial: u32,
    /// The number of the page in its stream.
    pub sequence: u32,
    /// The sizes of the packets' parts.
    pub segments: &'a [u8],
    body: &'a [u8],
    whole: &'a [u8],
}

impl<'a> Page<'a> {
    /// Parses the page at the start of `bytes`. Returns `None` if there is no page, or only a part of one.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [b'O', b'g', b'g', b'S', 0, flags, fields @ .., num_segments] = header else { return None };
        let (granule, fields) = fields.split_first_chunk::<8>()?;
        let (serial, fields) = fields.split_first_chunk::<4>()?;
        let (sequence, _) = fields.split_first_chunk::<4>()?;
        let (segments, rest) = rest.split_at_checked(usize::from(*num_segments))?;
        let body = rest.get(..segments.iter().map(|segment| usize::from(*segment)).sum())?;
        Some(Self {
            is_continued: flags & 1 != 0,
            is_first: flags & 2 != 0,
            granule: Some(i64::from_le_bytes(*granule)).filter(|granule| *granule >= 0),
            serial: u32::from_le_bytes(*serial),
            sequence: u32::from_le_bytes(*sequence),
            segments,
            body,
            whole: bytes.get(..HEADER_BYTES + segments.len() + body.len())?,
        })
    }

    /// The bytes of the page with its header.
    pub fn bytes(&self) -> usize {
        self.whole.len()
    }

    /// Compares the checksum in the header with that of the page.
    ///
    /// # Errors
    /// [`BadSound`] if they differ.
    pub fn check(&self) -> Result<(), BadSound> {
        let (header, rest) = self.whole.split_first_chunk::<HEADER_BYTES>().unwrap_or((&[0; HEADER_BYTES], &[]));
        let mut header = *header;
        let stored = [header[22], header[23], header[24], header[25]];
        header[22..26].fill(0);
        if checksum(checksum(0, &header), rest) == u32::from_le_bytes(stored) {
            Ok(())
        } else {
            Err(BadSound::new(format!("page {} of the Ogg file is damaged", self.sequence)))
        }
    }

    /// The parts of packets on the page, and whether the packet ends with the part.
    pub fn parts(&self) -> impl Iterator<Item = (&'a [u8], bool)> + use<'a> {
        let (mut segments, mut body) = (self.segments, self.body);
        std::iter::from_fn(move || {
            let last = segments.iter().position(|segment| *segment < 255);
            let count = last.map_or(segments.len(), |last| last + 1);
            let (of_part, rest) = segments.split_at_checked(count).filter(|_| count > 0)?;
            let (part, after) = body.split_at_checked(of_part.iter().map(|segment| usize::from(*segment)).sum())?;
            (segments, body) = (rest, after);
            Some((part, last.is_some()))
        })
    }
}

/// Iterates over the pages of a file with their offsets. Bytes between pages are skipped.
pub(crate) fn pages(file: &[u8]) -> impl Iterator<Item = (usize, Page<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = file.get(at..).filter(|rest| rest.len() >= HEADER_BYTES)?;
            match Page::parse(rest) {
                Some(page) => {
                    let offset = at;
                    at += page.bytes();
                    return Some((offset, page));
                }
                None => at += 1 + rest.get(1..)?.iter().position(|byte| *byte == b'O')?,
            }
        }
    })
}

/// Continues a checksum with more bytes (RFC 3533, section 6: no reflection, no inversion).
pub(crate) fn checksum(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, byte| {
        let index = (crc >> 24) ^ u32::from(*byte);
        crc << 8 ^ TABLE.get(index as usize & 0xFF).copied().unwrap_or(0)
    })
}

static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "the index has eight bits")]
        let mut value = (index as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            value = if value >> 31 != 0 { value << 1 ^ POLYNOMIAL } else { value << 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};
