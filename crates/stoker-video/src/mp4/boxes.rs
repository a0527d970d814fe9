//! The boxes of which a file consists (ISO/IEC 14496-12, 4.2).

use crate::BadVideo;
use crate::input::Input;

/// A box.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    pub kind: [u8; 4],
    /// The offset of the box in the bytes that were iterated over.
    pub start: usize,
    pub content: &'a [u8],
}

/// Iterates over the boxes in some bytes, and ends after the first error.
pub(crate) struct Boxes<'a> {
    bytes: &'a [u8],
    at: usize,
    parent: &'static str,
}

impl<'a> Boxes<'a> {
    pub fn new(bytes: &'a [u8], parent: &'static str) -> Self {
        Self { bytes, at: 0, parent }
    }

    fn read(&mut self) -> Result<Found<'a>, BadVideo> {
        let start = self.at;
        let rest = self.bytes.get(start..).unwrap_or_default();
        let mut input = Input::new(rest, self.parent);
        let short = u64::from(input.u32()?);
        let kind = input.u32()?.to_be_bytes();
        let size = match short {
            0 => rest.len() as u64,
            1 => input.u64()?,
            size => size,
        };
        let header = rest.len() - input.rest().len();
        let end = usize::try_from(size).ok().filter(|size| (header..=rest.len()).contains(size));
        let Some(end) = end else {
            let name = kind.escape_ascii();
            let reason = format!("the box {name} at offset {start} of {} has {size} bytes", self.parent);
            return Err(BadVideo::new(format!("{reason}, but {} are left", rest.len())));
        };
        self.at = start + end;
        Ok(Found { kind, start, content: rest.get(header..end).unwrap_or_default() })
    }
}

impl<'a> Iterator for Boxes<'a> {
    type Item = Result<Found<'a>, BadVideo>;

    fn next(&mut self) -> Option<Self::Item> {
        // Some writers end a box with four zero bytes (QuickTime's user data) or pad it.
        if self.bytes.len() - self.at < 8 {
            return None;
        }
        let found = self.read();
        if found.is_err() {
            self.at = self.bytes.len();
        }
        Some(found)
    }
}

/// Reads the version and the flags with which many boxes begin.
pub(crate) fn version_and_flags(input: &mut Input<'_>) -> Result<(u8, u32), BadVideo> {
    let word = input.u32()?;
    Ok(((word >> 24) as u8, word & 0x00FF_FFFF))
}
