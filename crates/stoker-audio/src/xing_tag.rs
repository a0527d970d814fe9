//! The first frame of many MP3 files, which holds no sound but a tag: Xing or Info with LAME's extension ("Mp3 Info Tag
//! rev 1", gabriel.mp3-tech.org), or VBRI.

use crate::mpeg_frame::Frame;

/// The samples by which every decoder of layer III delays the sound: 528 of the filter bank and one more.
const DECODER_DELAY: u64 = 529;

/// The offset of VBRI's tag in a frame.
const VBRI_OFFSET: usize = 36;

/// The content of a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct XingTag {
    /// The number of frames after the tag.
    pub num_frames: Option<u64>,
    /// The samples to drop at the start.
    pub delay: u64,
    /// The samples to drop at the end.
    pub padding: u64,
}

impl XingTag {
    /// Reads the tag in a frame. Returns `None` for frames of sound.
    pub fn read(frame: Frame, bytes: &[u8]) -> Option<Self> {
        if bytes.get(VBRI_OFFSET..)?.starts_with(b"VBRI") {
            return Some(Self::default());
        }
        let tag = bytes.get(frame.tag_offset()..)?;
        let rest = tag.strip_prefix(b"Xing").or_else(|| tag.strip_prefix(b"Info"))?;
        let (flags, mut rest) = rest.split_first_chunk::<4>()?;
        let flags = u32::from_be_bytes(*flags);
        let mut found = Self::default();
        if flags & 1 != 0
            && let Some((count, after)) = rest.split_first_chunk::<4>()
        {
            found.num_frames = Some(u64::from(u32::from_be_bytes(*count)));
            rest = after;
        }
        let skipped = [(2, 4), (4, 100), (8, 4)].iter().filter(|(flag, _)| flags & flag != 0).map(|(_, bytes)| bytes);
        let extension = rest.get(skipped.sum::<usize>()..).unwrap_or_default();
        let is_known = [b"LAME", b"Lavf", b"Lavc"].iter().any(|encoder| extension.starts_with(*encoder));
        if is_known && let Some(&[a, b, c]) = extension.get(21..24) {
            let trimmed = u64::from(u32::from_be_bytes([0, a, b, c]));
            found.delay = (trimmed >> 12) + DECODER_DELAY;
            found.padding = (trimmed & 0xFFF).saturating_sub(DECODER_DELAY);
        }
        Some(found)
    }
}
