//! The part of a video in which the frames of a clip lie.

use crate::{BadVideo, Position, VideoIndex};

/// Consecutive frames of a video in presentation order, at least one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameSpan<'a> {
    index: &'a VideoIndex,
    pub first: usize,
    pub last: usize,
    /// Whether these are bounds of a row, and not those of the video.
    is_bounded: bool,
}

impl<'a> FrameSpan<'a> {
    /// All frames of a video.
    pub fn whole(index: &'a VideoIndex) -> Self {
        Self { index, first: 0, last: index.num_frames().saturating_sub(1), is_bounded: false }
    }

    /// The frames from `begin` up to `end`, which is not part of them. A frame belongs to a time if it is shown up to half a
    /// mean distance of frames before it, so that parts that follow each other share no frame. What is after the last frame
    /// of the video is left out.
    ///
    /// # Errors
    /// [`BadVideo`] for bounds without frames, and for a begin outside of the video.
    pub fn between(index: &'a VideoIndex, begin: Position, end: Position) -> Result<Self, BadVideo> {
        let whole = Self::whole(index);
        let mut tolerance = whole.tolerance();
        if let (Position::Seconds(begin), Position::Seconds(end)) = (begin, end) {
            // A part of one frame may be the whole video, which has no distance of frames.
            tolerance = tolerance.min((end - begin).abs() / 2.0);
        }
        let number = |position| match position {
            Position::Frame(frame) => usize::try_from(frame).ok(),
            Position::Seconds(seconds) if seconds.is_finite() => Some(whole.before(seconds - tolerance)),
            Position::Seconds(_) => None,
        };
        let found = number(begin).zip(number(end)).filter(|(first, end)| first < end && *first <= whole.last);
        let too_early = matches!(begin, Position::Seconds(seconds) if seconds < whole.seconds().0.min(0.0) - tolerance);
        let Some((first, end)) = found.filter(|_| !too_early) else {
            let shown = |position| match position {
                Position::Frame(frame) => format!("frame {frame}"),
                Position::Seconds(seconds) => format!("{seconds} s"),
            };
            let (begin, end) = (shown(begin), shown(end));
            return Err(BadVideo::new(format!(
                "the bounds of the clip, {begin} and {end}, have no frames of the video"
            )));
        };
        Ok(Self { index, first, last: whole.last.min(end - 1), is_bounded: true })
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        self.last - self.first + 1
    }

    /// Returns a frame, whose own time counts.
    ///
    /// # Errors
    /// [`BadVideo`] for a frame outside.
    pub fn frame_at(&self, frame: i128) -> Result<(usize, Option<f64>), BadVideo> {
        let position = usize::try_from(frame).ok().filter(|frame| (self.first..=self.last).contains(frame));
        let reason = || match self.is_bounded {
            true => format!("the clip starts at frame {frame}, outside of frames {} to {}", self.first, self.last),
            false => format!("the clip starts at frame {frame}, but the video has {} frames", self.len()),
        };
        position.map(|position| (position, None)).ok_or_else(|| BadVideo::new(reason()))
    }

    /// Returns the frame nearest to a time, and the time.
    ///
    /// # Errors
    /// [`BadVideo`] for a time outside.
    pub fn time_at(&self, seconds: f64) -> Result<(usize, Option<f64>), BadVideo> {
        let ((first, last), tolerance) = (self.seconds(), self.tolerance());
        let begin = if self.is_bounded { first - tolerance } else { first.min(0.0) };
        if !(seconds.is_finite() && seconds >= begin && seconds <= last + 2.0 * tolerance) {
            let frames = if self.is_bounded { "frames within its bounds" } else { "video's frames" };
            let reason =
                format!("the clip starts at {seconds} s, but the {frames} are shown from {first} s to {last} s");
            return Err(BadVideo::new(reason));
        }
        Ok((self.nearest(seconds), Some(seconds)))
    }

    /// The times of the first and of the last frame.
    pub fn seconds(&self) -> (f64, f64) {
        (self.time(self.first), self.time(self.last))
    }

    /// Half the mean distance of the video's frames, or half a second in a video of one frame.
    pub fn tolerance(&self) -> f64 {
        let whole = Self::whole(self.index);
        let (first, last) = whole.seconds();
        match whole.last {
            0 => 0.5,
            gaps => 0.5 * (last - first) / gaps as f64,
        }
    }

    /// Returns the frame with the nearest time, the earlier one of two.
    pub fn nearest(&self, seconds: f64) -> usize {
        let after = self.before(seconds).clamp(self.first, self.last);
        let before = after.saturating_sub(1).max(self.first);
        if (seconds - self.time(before)).abs() <= (self.time(after) - seconds).abs() { before } else { after }
    }

    /// Returns how many frames of the video have an earlier time.
    fn before(&self, seconds: f64) -> usize {
        let (mut low, mut high) = (0, self.index.num_frames());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.time(middle) < seconds {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn time(&self, position: usize) -> f64 {
        self.index.seconds(position).unwrap_or_default()
    }
}
