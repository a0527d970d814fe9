//! Finds the compressed frames that the frames of a clip need.

use std::ops::Range;

use stoker_libav::Codec;

use crate::{ClipFrames, FrameEntry, VideoIndex};

/// The most frames in the tail of a run.
///
/// Before FFmpeg 7.1, the decoder of H.264 did not return the frames that it held back at the end of a stream, unless the
/// key frame of an open group had come out before. x264 lets decoders hold back at most 4 frames.
const TAIL_FRAMES: usize = 8;

/// The compressed frames that a clip needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packets {
    runs: Vec<PacketRun>,
}

/// Successive compressed frames, from a key frame to the last frame that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketRun {
    /// The positions of the frames in decoding order.
    pub range: Range<usize>,
    /// The positions of the frames that may depend on frames before the run, so that errors of theirs do not matter. The
    /// frames after them do not depend on them, but some decoders need them to count frames. Empty in most runs.
    pub leading: Range<usize>,
    /// The positions of frames after `range`, which are decoded if the wanted frames did not come out before. Empty in
    /// most runs.
    pub tail: Range<usize>,
    /// The positions of the frames that the clip wants, in ascending order.
    pub wanted: Vec<usize>,
}

impl ClipFrames {
    /// Returns the compressed frames from which the clip's frames are decoded.
    ///
    /// Each wanted frame needs all frames in decoding order from the last key frame that neither follows it nor is shown
    /// after it. A frame that is shown before a key frame and decoded after it may depend on the frames before the key
    /// frame (an open group of pictures), so that decoding begins at an earlier key frame. Without an earlier one it
    /// begins at the first frame of the file.
    pub fn packets(&self, index: &VideoIndex) -> Packets {
        let shown = index.shown();
        let wanted = self.positions().iter().filter_map(|position| shown.get(*position)).map(|frame| *frame as usize);
        let mut wanted: Vec<(usize, usize)> = wanted.map(|frame| (key_before(index.frames(), frame), frame)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut runs: Vec<PacketRun> = Vec::new();
        for (start, frame) in wanted {
            match runs.last_mut() {
                // The key frame is decoded anyway, or follows the last frame of the run.
                Some(run) if start <= run.range.end => {
                    run.range.end = run.range.end.max(frame + 1);
                    run.wanted.push(frame);
                }
                _ => {
                    let leading = leading(index.frames(), start, frame);
                    runs.push(PacketRun { range: start..frame + 1, leading, tail: 0..0, wanted: vec![frame] });
                }
            }
        }
        for run in &mut runs {
            run.wanted.sort_unstable();
            let end = run.range.end;
            let is_open = index.codec() == Codec::H264 && !run.leading.is_empty();
            let length = if is_open { TAIL_FRAMES.min(index.frames().len() - end) } else { 0 };
            run.tail = end..end + length;
        }
        Packets { runs }
    }
}

/// Returns the key frame at which decoding must begin for a frame.
fn key_before(frames: &[FrameEntry], wanted: usize) -> usize {
    let Some(FrameEntry { pts, .. }) = frames.get(wanted) else { return 0 };
    let before = frames.get(..=wanted).unwrap_or_default();
    before.iter().rposition(|frame| frame.is_key && frame.pts <= *pts).unwrap_or(0)
}

/// Returns the frames that directly follow a key frame and are shown before it. If one of them is wanted, there was no
/// earlier key frame, and errors of theirs matter; `wanted` is the first frame that is.
fn leading(frames: &[FrameEntry], key: usize, wanted: usize) -> Range<usize> {
    let Some(FrameEntry { pts, .. }) = frames.get(key) else { return 0..0 };
    let start = key + 1;
    let length = frames.get(start..).unwrap_or_default().iter().take_while(|frame| frame.pts < *pts).count();
    if (start..start + length).contains(&wanted) { start..start } else { start..start + length }
}

impl Packets {
    /// The runs of frames, in ascending order.
    pub fn runs(&self) -> &[PacketRun] {
        &self.runs
    }

    /// Returns the number of frames to decode, without those of tails.
    pub fn num_packets(&self) -> usize {
        self.runs.iter().map(|run| run.range.len()).sum()
    }

    /// The numbers in decoding order of all frames, those of tails included, in ascending order of the runs.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.runs.iter().flat_map(|run| run.range.start..run.tail.end)
    }

    /// Returns the ranges of the file that hold the compressed frames, in ascending order. Ranges that are at most `gap`
    /// bytes apart become one.
    pub fn byte_ranges(&self, index: &VideoIndex, gap: u64) -> Vec<Range<u64>> {
        let frames = self.numbers().filter_map(|position| index.frames().get(position));
        let mut ranges: Vec<Range<u64>> =
            frames.map(|frame| frame.offset..frame.offset + u64::from(frame.size)).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end.saturating_add(gap) => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }
}
