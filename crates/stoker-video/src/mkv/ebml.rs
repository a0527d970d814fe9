//! The elements of which a Matroska file consists (EBML, RFC 8794).

use crate::BadVideo;

/// An element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    /// The number of its kind, with the bits that tell its length.
    pub id: u32,
    /// The content; up to the end of the parent if the element has an unknown length.
    pub content: &'a [u8],
    /// The offset of the content in the file.
    pub start: usize,
    /// Whether the length is unknown, as in live streams.
    pub is_open: bool,
}

impl<'a> Element<'a> {
    /// Reads an unsigned number.
    pub fn unsigned(&self) -> Result<u64, BadVideo> {
        if self.content.len() > 8 {
            return Err(BadVideo::new(format!(
                "the element {:X} has a number of {} bytes",
                self.id,
                self.content.len()
            )));
        }
        Ok(self.content.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// Reads a floating-point number.
    pub fn float(&self) -> Result<f64, BadVideo> {
        match self.content {
            [] => Ok(0.0),
            [a, b, c, d] => Ok(f64::from(f32::from_be_bytes([*a, *b, *c, *d]))),
            [a, b, c, d, e, f, g, h] => Ok(f64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h])),
            other => Err(BadVideo::new(format!("the element {:X} has a number of {} bytes", self.id, other.len()))),
        }
    }

    /// Iterates over the elements inside.
    pub fn children(&self) -> Elements<'a> {
        Elements { bytes: self.content, at: 0, start: self.start }
    }
}

/// Iterates over elements, and ends after the first error.
pub(crate) struct Elements<'a> {
    bytes: &'a [u8],
    at: usize,
    start: usize,
}

impl<'a> Elements<'a> {
    /// Iterates over the elements of a whole file.
    pub fn of_file(file: &'a [u8]) -> Self {
        Self { bytes: file, at: 0, start: 0 }
    }

    /// Goes on with the elements inside of an element of unknown length, which was returned last.
    pub fn enter(&mut self, element: &Element<'a>) {
        self.at = element.start - self.start;
    }

    fn read(&mut self) -> Result<Element<'a>, BadVideo> {
        let offset = self.start + self.at;
        let early = || BadVideo::new(format!("the element at offset {offset} ends early"));
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (id, id_bytes) = number(rest, 4, false).ok_or_else(early)?;
        let (size, size_bytes) = number(rest.get(id_bytes..).unwrap_or_default(), 8, true).ok_or_else(early)?;
        let header = id_bytes + size_bytes;
        let is_open = size == (1 << (7 * size_bytes)) - 1;
        let content = rest.get(header..).unwrap_or_default();
        let length = if is_open { Some(content.len()) } else { usize::try_from(size).ok() };
        let Some(content) = length.and_then(|length| content.get(..length)) else {
            let left = content.len();
            return Err(BadVideo::new(format!(
                "the element {id:X} at offset {offset} has {size} bytes, but {left} are left"
            )));
        };
        let start = offset + header;
        self.at += header + content.len();
        let id = u32::try_from(id).unwrap_or(0);
        Ok(Element { id, content, start, is_open })
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, BadVideo>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let found = self.read();
        if found.is_err() {
            self.at = self.bytes.len();
        }
        Some(found)
    }
}

/// Reads a number whose first byte tells its length by its leading zero bits. Returns it with its length in bytes. The
/// bits that tell the length are removed from sizes and kept in kinds.
pub(crate) fn number(bytes: &[u8], bytes_max: usize, is_size: bool) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = first.leading_zeros() as usize + 1;
    if length > bytes_max {
        return None;
    }
    let value = bytes.get(..length)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    let marker = 1u64 << (7 * length);
    Some((if is_size { value & (marker - 1) } else { value }, length))
}
