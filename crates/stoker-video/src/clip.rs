//! The options that define the tensor of a clip.

use serde::{Deserialize, Serialize};
use stoker_decode::{Interpolation, Number, Orientation};
use stoker_types::ColumnClip;

use crate::{Error, Result, Start, VideoIndex};

/// The most pixels of a frame, unless a clip gives another limit: 8,192 x 8,192.
pub const PIXELS_MAX: u64 = 1 << 26;

/// The most frames of a clip.
const FRAMES_MAX: usize = 1 << 16;

/// The most pixels of a tensor's edge.
const EDGE_MAX: u32 = 65_535;

/// Which frames of a video become a tensor, and how. The elements are uint8, the channels red, green and blue.
///
/// The steps are, in this order: choose frames, decode, convert to RGB, rotate, resize, lay out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VideoClip {
    /// The number of frames; at least 1.
    pub frames: usize,
    /// The distance from one frame of the clip to the next, in frames of the video; at least 1.
    pub stride: usize,
    /// Where the clip begins.
    pub start: Start,
    /// The times of the frames relative to the start, in seconds, as LeRobot's `delta_timestamps`: for each of them the
    /// frame with the nearest time is chosen. As many as `frames`; `stride` must be 1.
    pub offsets: Option<Vec<f64>>,
    /// The columns that tell for each row where the part of the video begins and ends in which all frames of the clip lie,
    /// such as an episode: frames in columns of integers, seconds in columns of floats. The end is not part of it. With
    /// `None`, this part is the whole video.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<(String, String)>,
    /// Height and width of the tensor. The frames are resized to it, whatever their aspect ratio is. With `None` they
    /// keep their size.
    pub size: Option<(u32, u32)>,
    /// The filter that resizes frames.
    pub interpolation: Interpolation,
    /// Whether frames are rotated as the file says.
    pub orientation: Orientation,
    /// The order of the tensor's dimensions.
    pub layout: Layout,
    /// The most pixels of a frame of the video. Larger frames are refused.
    pub pixels_max: u64,
}

/// The place in a video that a column gives: a frame in columns of integers, a time in columns of floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Position {
    /// A position in presentation order, counted from 0.
    Frame(i64),
    /// A time in seconds.
    Seconds(f64),
}

impl From<Number> for Position {
    fn from(number: Number) -> Self {
        match number {
            Number::Whole(frame) => Position::Frame(frame),
            Number::Real(seconds) => Position::Seconds(seconds),
        }
    }
}

/// The order of a tensor's dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Frames, channels, height, width.
    #[default]
    Tchw,
    /// Frames, height, width, channels.
    Thwc,
    /// Channels, frames, height, width.
    Cthw,
}

impl VideoClip {
    /// Creates a clip of successive frames from a random start, as uint8[frames, 3, height, width] with the video's
    /// height and width.
    pub fn new(frames: usize) -> Self {
        Self {
            frames,
            stride: 1,
            start: Start::default(),
            offsets: None,
            within: None,
            size: None,
            interpolation: Interpolation::default(),
            orientation: Orientation::Apply,
            layout: Layout::default(),
            pixels_max: PIXELS_MAX,
        }
    }

    /// Returns a clip with the frames that the consumer of a stream decodes.
    ///
    /// # Errors
    /// As [`VideoClip::validate`].
    pub fn choosing(clip: &ColumnClip) -> Result<Self> {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let start = clip.start.clone();
        let clip = Self {
            stride: number(clip.stride),
            start,
            offsets: clip.offsets.clone(),
            within: clip.within.clone(),
            ..Self::new(number(clip.frames))
        };
        clip.validate()?;
        Ok(clip)
    }

    /// Returns what determines the frames of a column's clips.
    pub fn choice(&self, column: &str) -> ColumnClip {
        ColumnClip {
            column: column.into(),
            frames: self.frames as u64,
            stride: self.stride as u64,
            start: self.start.clone(),
            offsets: self.offsets.clone(),
            within: self.within.clone(),
        }
    }

    /// The columns whose values choose the frames of a row: the start, if it is one, then begin and end of
    /// [`VideoClip::within`].
    pub fn columns(&self) -> Vec<&str> {
        let start = match &self.start {
            Start::Column(column) => Some(column.as_str()),
            _ => None,
        };
        let within = self.within.iter().flat_map(|(begin, end)| [begin.as_str(), end.as_str()]);
        start.into_iter().chain(within).collect()
    }

    /// Returns the sizes of the dimensions of each row's tensor, if the clip has a size.
    pub fn shape(&self) -> Option<[usize; 4]> {
        self.size.map(|size| self.shape_at(size))
    }

    /// Returns the sizes of the dimensions of the tensor of a video.
    pub fn shape_of(&self, index: &VideoIndex) -> [usize; 4] {
        self.shape_at(self.size_of(index))
    }

    /// Returns the bytes of each row, if the clip has a size.
    pub fn row_bytes(&self) -> Option<usize> {
        self.shape().map(|shape| shape.iter().product())
    }

    /// Returns the bytes of the tensor of a video.
    pub fn row_bytes_of(&self, index: &VideoIndex) -> usize {
        self.shape_of(index).iter().fold(1, |product, size| product.saturating_mul(*size))
    }

    /// Returns height and width of the tensor of a video.
    pub(crate) fn size_of(&self, index: &VideoIndex) -> (u32, u32) {
        let (height, width) = index.size();
        let is_turned = self.orientation == Orientation::Apply && index.rotation().is_quarter();
        self.size.unwrap_or(if is_turned { (width, height) } else { (height, width) })
    }

    fn shape_at(&self, (height, width): (u32, u32)) -> [usize; 4] {
        let (height, width) = (height as usize, width as usize);
        match self.layout {
            Layout::Tchw => [self.frames, 3, height, width],
            Layout::Thwc => [self.frames, height, width, 3],
            Layout::Cthw => [3, self.frames, height, width],
        }
    }

    /// Checks the options, separately and together.
    ///
    /// # Errors
    /// [`Error::InvalidClip`], which names the option, its value and the allowed values.
    pub fn validate(&self) -> Result<()> {
        let bad = |option, reason: String| Err(Error::clip(option, reason));
        if !(1..=FRAMES_MAX).contains(&self.frames) {
            return bad("frames", format!("is {}; it must be from 1 to {FRAMES_MAX}", self.frames));
        }
        if !(1..=FRAMES_MAX).contains(&self.stride) {
            return bad("stride", format!("is {}; it must be from 1 to {FRAMES_MAX}", self.stride));
        }
        match &self.start {
            Start::Seconds(seconds) if !(seconds.is_finite() && *seconds >= 0.0) => {
                return bad("start", format!("is {seconds} s; it must be finite and not negative"));
            }
            Start::Column(name) if name.is_empty() => return bad("start", "is a column without a name".to_string()),
            Start::Uniform if self.stride != 1 => {
                return bad(
                    "stride",
                    format!("is {}; leave it out, as the start uniform spreads the frames", self.stride),
                );
            }
            _ => {}
        }
        if let Some((begin, end)) = &self.within
            && (begin.is_empty() || end.is_empty())
        {
            return bad("within", "has a column without a name".to_string());
        }
        if let Some((height, width)) = self.size {
            if !(1..=EDGE_MAX).contains(&height) || !(1..=EDGE_MAX).contains(&width) {
                return bad("size", format!("is {height}x{width}; height and width must be from 1 to {EDGE_MAX}"));
            }
            let bytes = self.frames as u64 * 3 * u64::from(height) * u64::from(width);
            if bytes > i32::MAX as u64 {
                return bad("size", format!("gives tensors of {bytes} bytes; the limit is {}", i32::MAX));
            }
        }
        self.validate_offsets()
    }

    fn validate_offsets(&self) -> Result<()> {
        let Some(offsets) = &self.offsets else { return Ok(()) };
        let bad = |reason: String| Err(Error::clip("offsets", reason));
        if offsets.len() != self.frames {
            return bad(format!("has {} times, but the clip has {} frames", offsets.len(), self.frames));
        }
        if let Some(wrong) = offsets.iter().find(|offset| !offset.is_finite()) {
            return bad(format!("has {wrong}; times must be finite"));
        }
        if self.stride != 1 || self.start == Start::Uniform {
            return bad("choose the frames themselves: leave out stride, and another start than uniform".to_string());
        }
        Ok(())
    }
}
