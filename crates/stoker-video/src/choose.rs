//! Chooses the frames of a clip.

use crate::{BadVideo, Position, Start, VideoClip, VideoIndex};

/// The frames of a clip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClipFrames {
    positions: Vec<usize>,
    valid: Vec<bool>,
}

impl ClipFrames {
    /// The positions of the frames in the video's presentation order, one for each frame of the clip.
    pub fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Whether each frame of the clip lies in the video. The others repeat the nearest frame.
    pub fn valid(&self) -> &[bool] {
        &self.valid
    }

    /// The number of frames of the clip that lie in the video.
    pub fn num_valid(&self) -> usize {
        self.valid.iter().filter(|is_valid| **is_valid).count()
    }
}

impl VideoClip {
    /// Returns the frames of a clip of a video. `column` is the row's value for [`Start::Column`], and `draw` are 64
    /// random bits for [`Start::Random`]; other starts ignore them.
    ///
    /// Frames past the end repeat the last frame that the clip has in the video. Times before the first frame or after
    /// the last one, by more than half the mean distance of frames, repeat the first or the last frame.
    ///
    /// # Errors
    /// [`BadVideo`] for starts outside of the video.
    pub fn frames_of(&self, index: &VideoIndex, column: Option<Position>, draw: u64) -> Result<ClipFrames, BadVideo> {
        let start = match &self.start {
            Start::Uniform => return Ok(self.spread(index)),
            Start::Frame(frame) => frame_at(index, i128::from(*frame))?,
            Start::Seconds(seconds) => time_at(index, *seconds)?,
            Start::Column(name) => match column {
                Some(Position::Frame(frame)) => frame_at(index, i128::from(frame))?,
                Some(Position::Seconds(seconds)) => time_at(index, seconds)?,
                None => return Err(BadVideo::new(format!("the clip's start is null in the column {name}"))),
            },
            Start::Random => (self.random(index, draw), None),
        };
        match &self.offsets {
            Some(offsets) => around(index, start, offsets),
            None => Ok(self.successive(index, start.0)),
        }
    }

    fn successive(&self, index: &VideoIndex, start: usize) -> ClipFrames {
        let num_frames = index.num_frames();
        let positions = (0..self.frames).map(|number| start.saturating_add(number.saturating_mul(self.stride)));
        let mut clip = ClipFrames { positions: positions.collect(), valid: Vec::new() };
        clip.valid = clip.positions.iter().map(|position| *position < num_frames).collect();
        let num_valid = clip.num_valid().max(1);
        let last = clip.positions.get(num_valid - 1).copied().unwrap_or(start);
        clip.positions.iter_mut().skip(num_valid).for_each(|position| *position = last);
        clip
    }

    fn spread(&self, index: &VideoIndex) -> ClipFrames {
        let last = index.num_frames() - 1;
        let steps = self.frames.saturating_sub(1);
        let position = |number: usize| match steps {
            0 => last / 2,
            // Rounded to the nearest frame.
            _ => (2 * number * last + steps) / (2 * steps),
        };
        ClipFrames { positions: (0..self.frames).map(position).collect(), valid: vec![true; self.frames] }
    }

    fn random(&self, index: &VideoIndex, draw: u64) -> usize {
        let span = match self.offsets {
            Some(_) => 1,
            None => (self.frames.saturating_sub(1)).saturating_mul(self.stride).saturating_add(1),
        };
        let num_starts = index.num_frames().saturating_sub(span) as u128 + 1;
        // The product's upper half is uniform in 0..num_starts, up to a bias of num_starts / 2^64.
        usize::try_from((u128::from(draw) * num_starts) >> 64).unwrap_or(0)
    }
}

/// Returns a frame, whose own time counts.
fn frame_at(index: &VideoIndex, frame: i128) -> Result<(usize, Option<f64>), BadVideo> {
    let num_frames = index.num_frames();
    let position = usize::try_from(frame).ok().filter(|frame| *frame < num_frames);
    let reason = || BadVideo::new(format!("the clip starts at frame {frame}, but the video has {num_frames} frames"));
    position.map(|position| (position, None)).ok_or_else(reason)
}

/// Returns the frame nearest to a time, and the time.
fn time_at(index: &VideoIndex, seconds: f64) -> Result<(usize, Option<f64>), BadVideo> {
    let (first, last) = bounds(index);
    if !(seconds.is_finite() && seconds >= first.min(0.0) && seconds <= last + 2.0 * tolerance(index)) {
        let reason =
            format!("the clip starts at {seconds} s, but the video's frames are shown from {first} s to {last} s");
        return Err(BadVideo::new(reason));
    }
    Ok((nearest(index, seconds), Some(seconds)))
}

fn around(index: &VideoIndex, (frame, seconds): (usize, Option<f64>), offsets: &[f64]) -> Result<ClipFrames, BadVideo> {
    let seconds = seconds.or_else(|| index.seconds(frame)).unwrap_or_default();
    let ((first, last), tolerance) = (bounds(index), tolerance(index));
    let times = offsets.iter().map(|offset| seconds + offset);
    Ok(ClipFrames {
        positions: times.clone().map(|time| nearest(index, time)).collect(),
        valid: times.map(|time| time >= first - tolerance && time <= last + tolerance).collect(),
    })
}

/// The times of the first and of the last frame.
fn bounds(index: &VideoIndex) -> (f64, f64) {
    let time = |position| index.seconds(position).unwrap_or_default();
    (time(0), time(index.num_frames() - 1))
}

/// Half the mean distance of frames, or half a second in a video of one frame.
fn tolerance(index: &VideoIndex) -> f64 {
    let (first, last) = bounds(index);
    match index.num_frames() - 1 {
        0 => 0.5,
        gaps => 0.5 * (last - first) / gaps as f64,
    }
}

/// Returns the frame with the nearest time, the earlier one of two.
fn nearest(index: &VideoIndex, seconds: f64) -> usize {
    let time = |position: usize| index.seconds(position).unwrap_or_default();
    let (mut low, mut high) = (0, index.num_frames());
    while low < high {
        let middle = low + (high - low) / 2;
        if time(middle) < seconds {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let after = low.min(index.num_frames() - 1);
    let before = after.saturating_sub(1);
    if (seconds - time(before)).abs() <= (time(after) - seconds).abs() { before } else { after }
}
