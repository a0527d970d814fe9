//! The fields of FFmpeg's structures that are accessed by their offset.
//!
//! FFmpeg adds fields at the end of its public structures, and removes or moves fields only with a new major version. The
//! fields below lie before all fields that the major versions 59 to 62 of libavcodec (57 to 60 of libavutil) changed:
//!
//! | structure | fields | why the offset is the same in all four versions |
//! |---|---|---|
//! | `AVFrame` | `data`, `linesize`, `extended_data`, `width`, `height`, `nb_samples`, `format` | nothing before `format` changed |
//! | `AVFrame` | `pts` | libavutil 60 removed the `int` `key_frame` before it; padding, which aligns the 64-bit `pts`, takes its place |
//! | `AVPacket` | `pts`, `data`, `flags` | nothing before `side_data` changed |
//! | `AVCodecParameters` | `codec_type`, `codec_id`, `extradata`, `extradata_size` | version 6.1 inserted `coded_side_data` after them |
//! | `AVCodecContext` | `log_level_offset` | second field |
//! | `AVCodecDescriptor` | `id` | first field |
//! | `AVBufferRef` | `data`, `size` | the structure has three fields; `size` is a `size_t` since libavutil 57 |
//!
//! The sources are `frame.h` and `buffer.h` of libavutil, and `packet.h`, `codec_par.h`, `codec_desc.h` and `avcodec.h`
//! of libavcodec. Pointers have 64 bits. The number of channels of a sound is not read, as its field moved: it is the
//! number of planes, or known from the extradata. `tests/libav` of stoker-video decodes files whose size, format, times and
//! planes are known, which fails for a wrong offset.

/// The oldest and the newest major version of libavcodec with these offsets.
pub(crate) const MAJORS: std::ops::RangeInclusive<u32> = 59..=62;

/// Returns the major version of libavutil that belongs to a major version of libavcodec, if the offsets hold for both.
pub(crate) fn util_major(codec_major: u32) -> Option<u32> {
    match codec_major {
        59 => Some(57),
        60 => Some(58),
        61 => Some(59),
        62 => Some(60),
        _ => None,
    }
}

/// Offsets of `AVFrame`, in bytes.
pub(crate) mod frame {
    pub const DATA: usize = 0;
    pub const LINESIZE: usize = 64;
    pub const EXTENDED_DATA: usize = 96;
    pub const WIDTH: usize = 104;
    pub const HEIGHT: usize = 108;
    pub const NB_SAMPLES: usize = 112;
    pub const FORMAT: usize = 116;
    pub const PTS: usize = 136;
}

/// Offsets of `AVPacket`, in bytes.
pub(crate) mod packet {
    pub const PTS: usize = 8;
    pub const DATA: usize = 24;
    pub const FLAGS: usize = 40;
    /// The flag of packets that begin with a key frame.
    pub const FLAG_KEY: i32 = 1;
}

/// Offsets of `AVCodecParameters`, in bytes.
pub(crate) mod parameters {
    pub const CODEC_TYPE: usize = 0;
    pub const CODEC_ID: usize = 4;
    pub const EXTRADATA: usize = 16;
    pub const EXTRADATA_SIZE: usize = 24;
    /// `AVMEDIA_TYPE_VIDEO`.
    pub const TYPE_VIDEO: i32 = 0;
    /// `AVMEDIA_TYPE_AUDIO`.
    pub const TYPE_AUDIO: i32 = 1;
}

/// The values of `AVSampleFormat` that decoders of sound return.
pub(crate) mod sample_format {
    /// `AV_SAMPLE_FMT_S16`.
    pub const SHORT: i32 = 1;
    /// `AV_SAMPLE_FMT_FLT`.
    pub const FLOAT: i32 = 3;
    /// `AV_SAMPLE_FMT_FLTP`.
    pub const PLANAR_FLOAT: i32 = 8;
}

/// Offsets of `AVCodecContext`, in bytes.
pub(crate) mod context {
    pub const LOG_LEVEL_OFFSET: usize = 8;
}

/// Offsets of `AVCodecDescriptor`, in bytes.
pub(crate) mod descriptor {
    pub const ID: usize = 0;
}

/// Offsets of `AVBufferRef`, in bytes.
pub(crate) mod buffer {
    pub const DATA: usize = 8;
    pub const SIZE: usize = 16;
}

/// The zeroed bytes that libavcodec needs after extradata (`AV_INPUT_BUFFER_PADDING_SIZE`).
pub(crate) const PADDING_BYTES: usize = 64;

/// What functions return at the end of a stream (`AVERROR_EOF`, the negated letters "EOF ").
pub(crate) const END: i32 = -i32::from_le_bytes(*b"EOF ");

/// What functions return when they need the counterpart's call first (`AVERROR(EAGAIN)`).
pub(crate) const AGAIN: i32 = if cfg!(any(target_os = "macos", target_os = "ios")) { -35 } else { -11 };
