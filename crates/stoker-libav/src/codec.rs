//! The codecs that videos of training data use.

use std::ffi::CStr;

/// A format of compressed video.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Codec {
    /// H.264, ITU-T H.264.
    H264,
    /// H.265, ITU-T H.265.
    Hevc,
    /// VP8, RFC 6386.
    Vp8,
    /// VP9.
    Vp9,
    /// AV1.
    Av1,
    /// MPEG-4 part 2, ISO/IEC 14496-2.
    Mpeg4,
    /// One JPEG image per frame.
    Mjpeg,
}

impl Codec {
    /// All codecs in the order of their declaration. New ones are added at the end, as stored indexes count them.
    pub const ALL: [Codec; 7] =
        [Codec::H264, Codec::Hevc, Codec::Vp8, Codec::Vp9, Codec::Av1, Codec::Mpeg4, Codec::Mjpeg];

    /// The name of the codec in FFmpeg.
    pub fn name(self) -> &'static str {
        self.c_name().to_str().unwrap_or_default()
    }

    pub(crate) fn c_name(self) -> &'static CStr {
        match self {
            Codec::H264 => c"h264",
            Codec::Hevc => c"hevc",
            Codec::Vp8 => c"vp8",
            Codec::Vp9 => c"vp9",
            Codec::Av1 => c"av1",
            Codec::Mpeg4 => c"mpeg4",
            Codec::Mjpeg => c"mjpeg",
        }
    }

    /// The names of the decoders, the preferred one first. FFmpeg's own decoder of AV1 needs a graphics processor.
    pub(crate) fn decoders(self) -> &'static [&'static CStr] {
        match self {
            Codec::H264 => &[c"h264"],
            Codec::Hevc => &[c"hevc"],
            Codec::Vp8 => &[c"vp8"],
            Codec::Vp9 => &[c"vp9"],
            Codec::Av1 => &[c"libdav1d", c"libaom-av1"],
            Codec::Mpeg4 => &[c"mpeg4"],
            Codec::Mjpeg => &[c"mjpeg"],
        }
    }
}
