//! Frame headers of MPEG audio, layer III (ISO/IEC 11172-3, 2.4.1.3; ISO/IEC 13818-3 for the lower rates; MPEG 2.5 has
//! rates that are half of the latter).

/// The bytes of a header.
const HEADER_BYTES: usize = 4;

/// Bit rates in kbit/s by index. Index 0 means any bit rate, which decoders do not support; 15 is invalid.
const KBITS_MPEG1: [usize; 15] = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
const KBITS_MPEG2: [usize; 15] = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];

/// The header of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Hz.
    pub sample_rate: u32,
    /// 1 or 2.
    pub num_channels: u16,
    /// The samples of a channel.
    pub num_samples: u16,
    /// The bytes of the frame with its header.
    pub bytes: usize,
    /// The bytes between the header and the main data: the checksum and the side information.
    side_bytes: usize,
    has_checksum: bool,
}

impl Frame {
    /// Parses the header at the start of `bytes`. Returns `None` if it is not valid, or of another layer.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let &[0xFF, b1, b2, b3] = bytes.first_chunk::<HEADER_BYTES>()? else { return None };
        if b1 & 0xE6 != 0xE2 {
            return None;
        }
        let (is_mpeg1, rate_divisor) = match b1 >> 3 & 3 {
            3 => (true, 1),
            2 => (false, 2),
            0 => (false, 4),
            _ => return None,
        };
        let sample_rate = [44_100, 48_000, 32_000].get(usize::from(b2 >> 2 & 3))? / rate_divisor;
        let kbits = if is_mpeg1 { KBITS_MPEG1 } else { KBITS_MPEG2 };
        let kbits = *kbits.get(usize::from(b2 >> 4)).filter(|kbits| **kbits > 0)?;
        let num_samples: u16 = if is_mpeg1 { 1152 } else { 576 };
        let padding = usize::from(b2 >> 1 & 1);
        let bytes = usize::from(num_samples) / 8 * kbits * 1000 / usize::try_from(sample_rate).ok()? + padding;
        let is_mono = b3 >> 6 == 3;
        let has_checksum = b1 & 1 == 0;
        let side_bytes = match (is_mpeg1, is_mono) {
            (true, false) => 32,
            (true, true) | (false, false) => 17,
            (false, true) => 9,
        } + if has_checksum { 2 } else { 0 };
        let num_channels = if is_mono { 1 } else { 2 };
        Some(Self { sample_rate, num_channels, num_samples, bytes, side_bytes, has_checksum })
    }

    /// Tells whether two frames can be of the same file. Their channels may differ, which is an error that users see.
    pub fn is_like(&self, other: &Self) -> bool {
        self.sample_rate == other.sample_rate && self.num_samples == other.num_samples
    }

    /// Tells whether bytes begin with a frame and the header of another like it, or with one frame and nothing else.
    pub fn follows(bytes: &[u8]) -> bool {
        let Some(frame) = Self::parse(bytes) else { return false };
        match bytes.get(frame.bytes..) {
            None => false,
            Some([]) => true,
            Some(rest) => Self::parse(rest).is_some_and(|next| next.is_like(&frame)),
        }
    }

    /// The bytes of the frame that hold compressed samples. They may belong to later frames.
    pub fn main_bytes(&self) -> usize {
        self.bytes.saturating_sub(HEADER_BYTES + self.side_bytes)
    }

    /// The offset of a Xing tag, which stands where the main data of a frame without a checksum begins.
    pub fn tag_offset(&self) -> usize {
        HEADER_BYTES + self.side_bytes - if self.has_checksum { 2 } else { 0 }
    }
}
