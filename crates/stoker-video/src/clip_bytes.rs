//! An index and parts of a file as one value, as streams deliver the clips of a column. `FORMAT.md` beside this crate's
//! manifest specifies it.

use std::ops::Range;

use crate::input::{Input, put_varint};
use crate::{BadVideo, Pieces, VideoIndex};

/// The bytes with which the value begins; the last one is the version. No file of a video that [`VideoIndex::read`] takes
/// begins with them: as a box of an MP4 file, it would be one of an unknown type.
const MAGIC: [u8; 8] = *b"\0\0\0\0SVC1";

/// The least bytes of a piece in the list of pieces: gap and length.
const PIECE_BYTES_MIN: usize = 2;

/// The index of a video, with the parts of its file that a clip needs.
#[derive(Clone, Debug)]
pub struct ClipBytes<'a> {
    /// The index.
    pub index: VideoIndex,
    /// The parts of the file.
    pub pieces: Pieces<&'a [u8]>,
}

impl<'a> ClipBytes<'a> {
    /// Returns the beginning of a value: everything but the bytes of the parts, which follow it in the same order. `ranges`
    /// are those of the parts in the file, ascending and apart from each other, as [`crate::Packets::byte_ranges`] returns
    /// them.
    pub fn head(index: &VideoIndex, ranges: &[Range<u64>]) -> Vec<u8> {
        let index = index.to_bytes();
        let mut bytes = MAGIC.to_vec();
        put_varint(&mut bytes, index.len() as u64);
        bytes.extend_from_slice(&index);
        put_varint(&mut bytes, ranges.len() as u64);
        let mut end = 0;
        for range in ranges {
            put_varint(&mut bytes, range.start.saturating_sub(end));
            put_varint(&mut bytes, range.end.saturating_sub(range.start));
            end = range.end;
        }
        bytes
    }

    /// Reads a value; `None` for bytes of another form, such as a whole file. Memory is bounded by the length of `bytes`.
    ///
    /// # Errors
    /// [`BadVideo`] for a value that is damaged.
    pub fn read(bytes: &'a [u8]) -> Result<Option<Self>, BadVideo> {
        if !bytes.starts_with(&MAGIC) {
            return Ok(None);
        }
        let damaged = || BadVideo::new("the clip of the video is damaged");
        let mut input = Input::new(bytes, "the clip of the video");
        input.skip(MAGIC.len())?;
        let length = usize::try_from(input.varint()?).map_err(|_| damaged())?;
        let index = VideoIndex::from_bytes(input.take(length)?)?;
        let count =
            usize::try_from(input.varint()?).ok().filter(|count| *count <= input.rest().len() / PIECE_BYTES_MIN);
        let count = count.ok_or_else(damaged)?;
        let mut places = Vec::with_capacity(count);
        let mut end = 0u64;
        for _ in 0..count {
            let start = end.checked_add(input.varint()?).ok_or_else(damaged)?;
            let length = input.varint()?;
            end = start.checked_add(length).filter(|end| *end <= index.file_bytes()).ok_or_else(damaged)?;
            places.push((start, usize::try_from(length).map_err(|_| damaged())?));
        }
        let mut pieces = Vec::with_capacity(count);
        for (start, length) in places {
            pieces.push((start, input.take(length)?));
        }
        if !input.is_empty() {
            return Err(damaged());
        }
        Ok(Some(Self { index, pieces: Pieces::new(pieces) }))
    }
}
