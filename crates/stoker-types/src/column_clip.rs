//! Which frames of a column of videos are decoded.

use serde::{Deserialize, Serialize};

/// Where a clip begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClipStart {
    /// At the frame with this position in presentation order, counted from 0.
    Frame(u64),
    /// At the frame whose time is nearest to this one, in seconds. The time is the file's own, after its edit list.
    Seconds(f64),
    /// At the position that a column of the row gives: a frame for columns of integers, seconds for columns of floats.
    Column(String),
    /// At a random frame; all starts at which the clip fits into the video are equally likely.
    #[default]
    Random,
    /// The clip's frames are spread evenly from the first to the last frame of the video. A clip of one frame has the
    /// middle one.
    Uniform,
}

/// The frames of each video of a column that the consumer of a stream decodes. Where the table has an index of the videos,
/// the stream then delivers the compressed frames that are needed, in place of whole files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnClip {
    /// The column of the stream.
    pub column: String,
    /// The number of frames of a clip.
    pub frames: u64,
    /// The distance from one frame of the clip to the next, in frames of the video.
    pub stride: u64,
    /// Where the clip begins.
    pub start: ClipStart,
    /// The times of the frames relative to the start, in seconds, in place of successive frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offsets: Option<Vec<f64>>,
    /// The columns that tell where the part of the video begins and ends in which all frames lie: frames in columns of
    /// integers, seconds in columns of floats. The end is not part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<(String, String)>,
}
