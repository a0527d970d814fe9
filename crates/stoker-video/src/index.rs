//! The index of a video: where its frames lie in the file, and when they are shown.

use serde::{Deserialize, Serialize};
use stoker_libav::{Codec, ColorRange, Matrix};
use stoker_types::catch_panic;

use crate::{BadVideo, mkv, mp4};

/// One compressed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameEntry {
    /// The offset of the frame in the file, in bytes.
    pub offset: u64,
    /// The time at which the frame is shown, in units of [`VideoIndex::time_base`]. The times of frames that are not
    /// shown order them among the others, no more.
    pub pts: i64,
    /// The length of the frame in the file, in bytes; at least 1.
    pub size: u32,
    /// Whether decoding may begin with this frame.
    pub is_key: bool,
    /// Whether the frame is part of the video. Other frames are only needed to decode it.
    pub is_shown: bool,
}

/// The rotation with which a video is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rotation {
    /// None.
    #[default]
    None,
    /// A quarter turn clockwise.
    Clockwise90,
    /// A half turn.
    Half,
    /// A quarter turn counter-clockwise.
    Clockwise270,
}

impl Rotation {
    /// Returns whether height and width are exchanged.
    pub fn is_quarter(self) -> bool {
        matches!(self, Rotation::Clockwise90 | Rotation::Clockwise270)
    }
}

/// The frames of one video track, and how to decode them. Reading an index decodes nothing.
///
/// [`VideoIndex::to_bytes`] gives a compact form to be stored beside the file; `FORMAT.md` beside this crate's manifest
/// specifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoIndex {
    parts: Parts,
    /// The positions in `parts.frames` of the shown frames, in the order in which they are shown.
    shown: Vec<u32>,
}

/// What a container says about a video track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub codec: Codec,
    pub extradata: Vec<u8>,
    /// Bytes that precede the bytes of each frame in the file.
    pub prefix: Vec<u8>,
    pub height: u32,
    pub width: u32,
    pub rotation: Rotation,
    /// Numerator and denominator of a unit of time, in seconds.
    pub time_base: (u32, u32),
    pub range: Option<ColorRange>,
    pub matrix: Option<Matrix>,
    pub file_bytes: u64,
    pub frames: Vec<FrameEntry>,
}

/// The largest height and width.
const EDGE_MAX: u32 = 65_535;

/// The largest absolute time, which leaves room for sums.
const TIME_MAX: u64 = 1 << 60;

/// The most bytes of a codec's configuration.
pub(crate) const EXTRADATA_BYTES_MAX: usize = 1 << 20;

impl VideoIndex {
    /// Reads the index of the first video track of an MP4, MOV, MKV or WebM file.
    ///
    /// # Errors
    /// [`BadVideo`] for other files, for damaged ones, and for files whose tables point beyond their end.
    pub fn read(file: &[u8]) -> Result<Self, BadVideo> {
        Self::read_track(file, 0)
    }

    /// Reads the index of the video track with a number, which is counted from 0 over the video tracks.
    ///
    /// # Errors
    /// As [`VideoIndex::read`]; also if the file has no such track.
    pub fn read_track(file: &[u8], track: usize) -> Result<Self, BadVideo> {
        let read = || match file {
            [0x1A, 0x45, 0xDF, 0xA3, ..] => mkv::read(file, track),
            [_, _, _, _, b'f', b't', b'y', b'p', ..]
            | [_, _, _, _, b'm', b'o', b'o', b'v', ..]
            | [_, _, _, _, b'm', b'd', b'a', b't', ..]
            | [_, _, _, _, b'w', b'i', b'd', b'e', ..]
            | [_, _, _, _, b'f', b'r', b'e', b'e', ..]
            | [_, _, _, _, b's', b'k', b'i', b'p', ..] => mp4::read(file, track),
            _ => {
                let start = file.get(..file.len().min(8)).unwrap_or_default().escape_ascii();
                Err(BadVideo::new(format!("it is no MP4, MOV, MKV or WebM file: it begins with \"{start}\"")))
            }
        };
        catch_panic(read, BadVideo::new)
    }

    /// Checks the parts, and orders the frames by the time at which they are shown.
    pub(crate) fn try_new(parts: Parts) -> Result<Self, BadVideo> {
        let bad = |reason: String| Err(BadVideo::new(reason));
        let Parts { height, width, time_base, ref frames, .. } = parts;
        if !(1..=EDGE_MAX).contains(&height) || !(1..=EDGE_MAX).contains(&width) {
            return bad(format!("the video has {width} x {height} pixels; both must be from 1 to {EDGE_MAX}"));
        }
        if time_base.0 == 0 || time_base.1 == 0 {
            return bad(format!("the video's unit of time is {}/{} s", time_base.0, time_base.1));
        }
        if parts.extradata.len().max(parts.prefix.len()) > EXTRADATA_BYTES_MAX {
            return bad(format!("the configuration of the codec has {} bytes", parts.extradata.len()));
        }
        let mut num_bytes = 0u64;
        for (number, frame) in frames.iter().enumerate() {
            let end = frame.offset.checked_add(u64::from(frame.size));
            if frame.size == 0 || end.is_none_or(|end| end > parts.file_bytes) {
                let FrameEntry { offset, size, .. } = frame;
                let file = parts.file_bytes;
                return bad(format!("frame {number} has {size} bytes at offset {offset} of a file of {file} bytes"));
            }
            if frame.pts.unsigned_abs() > TIME_MAX {
                return bad(format!("frame {number} has the time {}, which is too large", frame.pts));
            }
            num_bytes = num_bytes.saturating_add(u64::from(frame.size));
        }
        if num_bytes > parts.file_bytes {
            return bad(format!("the frames have {num_bytes} bytes, more than the file"));
        }
        let Ok(num_frames) = u32::try_from(frames.len()) else {
            return bad(format!("the video has {} frames", frames.len()));
        };
        let of = |position: u32| frames.get(position as usize);
        let mut shown: Vec<u32> =
            (0..num_frames).filter(|position| of(*position).is_some_and(|frame| frame.is_shown)).collect();
        if shown.is_empty() {
            return bad("the video has no frames".to_string());
        }
        shown.sort_by_key(|position| (of(*position).map_or(0, |frame| frame.pts), *position));
        Ok(Self { parts, shown })
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The codec.
    pub fn codec(&self) -> Codec {
        self.parts.codec
    }

    /// The configuration of the codec, as libavcodec takes it.
    pub fn extradata(&self) -> &[u8] {
        &self.parts.extradata
    }

    /// Bytes to put before those of each frame: the part that a compressed Matroska track left out; mostly none.
    pub fn prefix(&self) -> &[u8] {
        &self.parts.prefix
    }

    /// Height and width of the decoded frames, before rotation.
    pub fn size(&self) -> (u32, u32) {
        (self.parts.height, self.parts.width)
    }

    /// The rotation with which the video is shown.
    pub fn rotation(&self) -> Rotation {
        self.parts.rotation
    }

    /// A unit of time in seconds, as numerator and denominator.
    pub fn time_base(&self) -> (u32, u32) {
        self.parts.time_base
    }

    /// The range of samples that the container states.
    pub fn range(&self) -> Option<ColorRange> {
        self.parts.range
    }

    /// The matrix of colours that the container states.
    pub fn matrix(&self) -> Option<Matrix> {
        self.parts.matrix
    }

    /// The length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.parts.file_bytes
    }

    /// All frames in decoding order.
    pub fn frames(&self) -> &[FrameEntry] {
        &self.parts.frames
    }

    /// The positions in [`VideoIndex::frames`] of the shown frames, in the order in which they are shown. At least one.
    pub fn shown(&self) -> &[u32] {
        &self.shown
    }

    /// The number of shown frames.
    pub fn num_frames(&self) -> usize {
        self.shown.len()
    }

    /// Returns a shown frame by its position in presentation order.
    pub fn shown_frame(&self, position: usize) -> Option<&FrameEntry> {
        self.parts.frames.get(*self.shown.get(position)? as usize)
    }

    /// Returns the time at which a frame is shown, in seconds. `position` counts the shown frames in presentation order.
    pub fn seconds(&self, position: usize) -> Option<f64> {
        let (numerator, denominator) = self.parts.time_base;
        let frame = self.shown_frame(position)?;
        Some(frame.pts as f64 * f64::from(numerator) / f64::from(denominator))
    }
}
