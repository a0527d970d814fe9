//! Edit lists: which part of a track is shown, and when (ISO/IEC 14496-12, 8.6.6), as FFmpeg applies them.

use std::ops::Range;

use super::boxes::{Boxes, version_and_flags};
use super::movie::Video;
use crate::BadVideo;
use crate::index::FrameEntry;
use crate::input::Input;

/// One entry of an edit list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The duration, in units of the movie; 0 for the rest of the track.
    pub duration: u64,
    /// The time of the track at which the entry begins, in units of the track; -1 to show nothing.
    pub start: i64,
}

/// Reads the box edts.
pub(crate) fn read(edts: &[u8]) -> Result<Vec<Edit>, BadVideo> {
    let mut edits = Vec::new();
    for found in Boxes::new(edts, "a box edts") {
        let found = found?;
        if &found.kind != b"elst" {
            continue;
        }
        let mut input = Input::new(found.content, "a box elst");
        let (version, _) = version_and_flags(&mut input)?;
        for _ in 0..input.u32()? {
            let is_wide = version == 1;
            let duration = input.word(is_wide)?;
            let start = if is_wide { input.u64()?.cast_signed() } else { i64::from(input.i32()?) };
            input.skip(4)?;
            edits.push(Edit { duration, start });
        }
    }
    Ok(edits)
}

/// Hides the frames that no edit shows, and moves the times of the others.
///
/// Entries that show nothing delay all later ones. The earliest frame that an entry shows begins where the previous entry
/// ended. In a file with fragments only the times are moved, as FFmpeg does not hide frames of fragments.
pub(crate) fn apply(
    frames: &mut [FrameEntry],
    video: &Video<'_>,
    movie_timescale: u32,
    is_fragmented: bool,
) -> Result<(), BadVideo> {
    let edits = &video.edits;
    let scaled = |duration: u64| rescaled(duration, movie_timescale, video.timescale);
    let Some(first) = edits.iter().position(|edit| edit.start >= 0) else { return Ok(()) };
    let delay = edits.iter().take(first).fold(0, |sum: i64, edit| sum.saturating_add(scaled(edit.duration)));
    let shown = edits.get(first..).unwrap_or_default();
    if is_fragmented {
        let start = shown.first().map_or(0, |edit| edit.start);
        frames.iter_mut().for_each(|frame| frame.pts = frame.pts.saturating_sub(start).saturating_add(delay));
        return Ok(());
    }
    if shown.len() > EDITS_MAX {
        return Err(BadVideo::new(format!("the track has {} edits; at most {EDITS_MAX} are supported", shown.len())));
    }
    let mut parts = Vec::new();
    let mut begin = delay;
    for edit in shown {
        let length = scaled(edit.duration);
        let end = if edit.duration == 0 { i64::MAX } else { edit.start.saturating_add(length) };
        if edit.start >= 0 {
            parts.push(Part { range: edit.start..end, begin, least: i64::MAX });
        }
        begin = begin.saturating_add(length);
    }
    place(frames, &mut parts)
}

/// The most entries of an edit list.
const EDITS_MAX: usize = 64;

/// A shown part of a track.
struct Part {
    /// The times of the track.
    range: Range<i64>,
    /// The time at which the part is shown.
    begin: i64,
    /// The earliest time of a frame in the range.
    least: i64,
}

/// Moves each frame to its part, or hides it.
fn place(frames: &mut [FrameEntry], parts: &mut [Part]) -> Result<(), BadVideo> {
    for frame in &mut *frames {
        let mut num_shown = 0;
        for part in parts.iter_mut().filter(|part| part.range.contains(&frame.pts)) {
            part.least = part.least.min(frame.pts);
            num_shown += 1;
        }
        if num_shown > 1 {
            return Err(BadVideo::new("its edit list shows frames repeatedly, which is not supported"));
        }
        frame.is_shown = num_shown == 1;
    }
    // A hidden frame moves with the part that follows it, for which it is decoded.
    parts.sort_by_key(|part| part.range.end);
    for frame in frames {
        let part = parts.iter().find(|part| frame.pts < part.range.end).or(parts.last());
        let shift = part.filter(|part| part.least != i64::MAX).map_or(0, |part| part.begin.saturating_sub(part.least));
        frame.pts = frame.pts.saturating_add(shift);
    }
    Ok(())
}

/// Converts a duration between time scales, rounded to the nearest unit; the largest number if it does not fit.
fn rescaled(duration: u64, from: u32, to: u32) -> i64 {
    let from = u128::from(from.max(1));
    let scaled = (u128::from(duration) * u128::from(to) + from / 2) / from;
    i64::try_from(scaled).unwrap_or(i64::MAX)
}
