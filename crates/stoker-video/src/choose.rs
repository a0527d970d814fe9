//! Chooses the frames of a clip.

use crate::frame_span::FrameSpan;
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

    /// Whether each frame of the clip lies in the video, or in the part of it that the clip has. The others repeat the nearest frame.
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
    /// random bits for [`Start::Random`]; other starts ignore them. Clips with [`VideoClip::within`] need more columns, see
    /// [`VideoClip::frames_of_row`].
    ///
    /// # Errors
    /// As for [`VideoClip::frames_of_row`].
    pub fn frames_of(&self, index: &VideoIndex, column: Option<Position>, draw: u64) -> Result<ClipFrames, BadVideo> {
        let columns = [column];
        let is_column = matches!(self.start, Start::Column(_));
        self.frames_of_row(index, columns.get(usize::from(!is_column)..).unwrap_or_default(), draw)
    }

    /// Returns the frames of a clip of a video. `columns` are the row's values of [`VideoClip::columns`], and `draw` are 64
    /// random bits for [`Start::Random`], which other starts ignore.
    ///
    /// All frames are those of the video, or of its part that [`VideoClip::within`] tells. Frames past the end repeat the
    /// last frame that the clip has there. Times before the first frame or after the last one, by more than half the mean
    /// distance of frames, repeat the first or the last frame.
    ///
    /// # Errors
    /// [`BadVideo`] for starts outside of the video or its part, and for parts without frames.
    pub fn frames_of_row(
        &self,
        index: &VideoIndex,
        columns: &[Option<Position>],
        draw: u64,
    ) -> Result<ClipFrames, BadVideo> {
        let is_column = matches!(self.start, Start::Column(_));
        let column = |number: usize| columns.get(number).copied().flatten();
        let span = match &self.within {
            None => FrameSpan::whole(index),
            Some((begin, end)) => {
                let bound = |number: usize, name: &str| {
                    let is_null = || BadVideo::new(format!("a bound of the clip is null in the column {name}"));
                    column(usize::from(is_column) + number).ok_or_else(is_null)
                };
                FrameSpan::between(index, bound(0, begin)?, bound(1, end)?)?
            }
        };
        let start = match &self.start {
            Start::Uniform => return Ok(self.spread(span)),
            Start::Frame(frame) => span.frame_at(i128::from(*frame))?,
            Start::Seconds(seconds) => span.time_at(*seconds)?,
            Start::Column(name) => match column(0) {
                Some(Position::Frame(frame)) => span.frame_at(i128::from(frame))?,
                Some(Position::Seconds(seconds)) => span.time_at(seconds)?,
                None => return Err(BadVideo::new(format!("the clip's start is null in the column {name}"))),
            },
            Start::Random => (self.random(span, draw), None),
        };
        Ok(match &self.offsets {
            Some(offsets) => around(index, span, start, offsets),
            None => self.successive(span, start.0),
        })
    }

    fn successive(&self, span: FrameSpan<'_>, start: usize) -> ClipFrames {
        let positions = (0..self.frames).map(|number| start.saturating_add(number.saturating_mul(self.stride)));
        let mut clip = ClipFrames { positions: positions.collect(), valid: Vec::new() };
        clip.valid = clip.positions.iter().map(|position| *position <= span.last).collect();
        let num_valid = clip.num_valid().max(1);
        let last = clip.positions.get(num_valid - 1).copied().unwrap_or(start);
        clip.positions.iter_mut().skip(num_valid).for_each(|position| *position = last);
        clip
    }

    fn spread(&self, span: FrameSpan<'_>) -> ClipFrames {
        let last = span.last - span.first;
        let steps = self.frames.saturating_sub(1);
        let position = |number: usize| match steps {
            0 => last / 2,
            // Rounded to the nearest frame.
            _ => (2 * number * last + steps) / (2 * steps),
        };
        let positions = (0..self.frames).map(|number| span.first + position(number)).collect();
        ClipFrames { positions, valid: vec![true; self.frames] }
    }

    fn random(&self, span: FrameSpan<'_>, draw: u64) -> usize {
        let length = match self.offsets {
            Some(_) => 1,
            None => (self.frames.saturating_sub(1)).saturating_mul(self.stride).saturating_add(1),
        };
        let num_starts = span.len().saturating_sub(length) as u128 + 1;
        // The product's upper half is uniform in 0..num_starts, up to a bias of num_starts / 2^64.
        span.first + usize::try_from((u128::from(draw) * num_starts) >> 64).unwrap_or(0)
    }
}

fn around(
    index: &VideoIndex,
    span: FrameSpan<'_>,
    (frame, seconds): (usize, Option<f64>),
    offsets: &[f64],
) -> ClipFrames {
    let seconds = seconds.or_else(|| index.seconds(frame)).unwrap_or_default();
    let ((first, last), tolerance) = (span.seconds(), span.tolerance());
    let times = offsets.iter().map(|offset| seconds + offset);
    ClipFrames {
        positions: times.clone().map(|time| span.nearest(time)).collect(),
        valid: times.map(|time| time >= first - tolerance && time <= last + tolerance).collect(),
    }
}
