//! Times, key frames and planes are exactly those of FFmpeg.

use stoker_libav::FrameRef;
use stoker_video::{ByteSource, ClipFrames, Decoders, Pieces, Start, VideoClip, VideoIndex};

use crate::expected::{Expected, crc32};
use crate::{Fixture, decoders, fixtures};

/// Decodes frames, and compares their planes.
fn check<S: ByteSource + ?Sized>(
    decoders: &mut Decoders,
    index: &VideoIndex,
    source: &S,
    frames: &ClipFrames,
    expected: &Expected,
) {
    let mut seen = Vec::new();
    let visit = |position: usize, frame: &FrameRef<'_>| {
        let crc = frame.planes().iter().flat_map(|plane| plane.rows()).fold(0, crc32);
        let wanted = &expected.frames[position];
        assert_eq!(
            (frame.width, frame.height, frame.format.name()),
            (expected.width, expected.height, &*expected.format)
        );
        assert_eq!(crc, wanted.crc, "frame {position} of {}", expected.name);
        seen.push(position);
        Ok(())
    };
    decoders.decode_frames(index, source, frames, visit).unwrap_or_else(|error| {
        panic!("{}, frames {:?}: {error}", expected.name, frames.positions());
    });
    seen.sort_unstable();
    let mut wanted = frames.positions().to_vec();
    wanted.dedup();
    assert_eq!(seen, wanted, "{}", expected.name);
}

fn clip(start: u64, frames: usize, stride: usize) -> VideoClip {
    VideoClip { start: Start::Frame(start), stride, ..VideoClip::new(frames) }
}

#[test]
fn indexes_have_the_times_and_key_frames_of_ffmpeg() {
    for Fixture { index, expected, .. } in fixtures() {
        let name = &expected.name;
        assert_eq!(index.size(), (expected.height, expected.width), "{name}");
        assert_eq!(index.time_base(), expected.time_base, "{name}");
        let found: Vec<(i64, bool)> = (0..index.num_frames())
            .filter_map(|position| index.shown_frame(position))
            .map(|frame| (frame.pts, frame.is_key))
            .collect();
        let wanted: Vec<(i64, bool)> = expected.frames.iter().map(|frame| (frame.pts, frame.is_key)).collect();
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn whole_videos_have_the_planes_of_ffmpeg() {
    for Fixture { bytes, index, expected } in fixtures() {
        let frames = clip(0, expected.frames.len(), 1).frames_of(&index, None, 0).expect("frames");
        check(&mut decoders(), &index, &bytes[..], &frames, &expected);
    }
}

#[test]
fn clips_from_every_start_have_the_planes_of_ffmpeg() {
    let mut decoders = decoders();
    for Fixture { bytes, index, expected } in fixtures() {
        for start in 0..expected.frames.len() {
            for (length, stride) in [(1, 1), (3, 1), (2, 7), (3, 13)] {
                let frames = clip(start as u64, length, stride).frames_of(&index, None, 0).expect("frames");
                check(&mut decoders, &index, &bytes[..], &frames, &expected);
            }
        }
    }
    assert!(decoders.num_open() <= 4);
}

#[test]
fn the_byte_ranges_of_a_clip_suffice() {
    for Fixture { bytes, index, expected } in fixtures() {
        for (start, gap) in [(0, 0), (13, 0), (27, 100), (34, 1 << 20)] {
            let frames = clip(start, 3, 2).frames_of(&index, None, 0).expect("frames");
            let ranges = frames.packets(&index).byte_ranges(&index, gap);
            let pieces = ranges.iter().map(|range| (range.start, &bytes[range.start as usize..range.end as usize]));
            check(&mut decoders(), &index, &Pieces::new(pieces.collect()), &frames, &expected);
        }
    }
}

#[test]
fn stored_indexes_decode_alike() {
    for Fixture { bytes, index, expected } in fixtures() {
        let stored = index.to_bytes();
        let per_frame = (stored.len() - index.extradata().len()) as f64 / index.frames().len() as f64;
        assert!(per_frame <= 6.0, "{}: {per_frame} bytes per frame", expected.name);
        let again = VideoIndex::from_bytes(&stored).expect("an index");
        assert_eq!(again, index);
        let frames = clip(5, 4, 3).frames_of(&again, None, 0).expect("frames");
        check(&mut decoders(), &again, &bytes[..], &frames, &expected);
    }
}
