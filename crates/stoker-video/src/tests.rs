//! Tests that need no libavcodec: indexes of the files in `tests/fixtures`, choice of frames, damage.

mod checked;
mod choose;
mod damage;
mod fuzz;
mod packets;
mod stored;

use stoker_libav::Codec;

use crate::index::Parts;
use crate::{FrameEntry, Rotation, VideoIndex};

/// Returns a file of `tests/fixtures`.
fn file(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns an index of 25 frames per second with these frames in decoding order: time in frames, whether it is a key
/// frame. Frame i has i + 1 bytes; 10 bytes lie between frames.
fn index(frames: &[(i64, bool)]) -> VideoIndex {
    VideoIndex::try_new(parts(frames)).expect("an index")
}

fn parts(frames: &[(i64, bool)]) -> Parts {
    let mut offset = 0;
    let mut entry = |(number, (pts, is_key)): (usize, &(i64, bool))| {
        let size = number as u32 + 1;
        offset += 10;
        let entry = FrameEntry { offset, pts: *pts * 512, size, is_key: *is_key, is_shown: true };
        offset += u64::from(size);
        entry
    };
    Parts {
        codec: Codec::H264,
        extradata: vec![1, 2, 3],
        prefix: Vec::new(),
        height: 48,
        width: 64,
        rotation: Rotation::None,
        time_base: (1, 12_800),
        range: None,
        matrix: None,
        file_bytes: 1 << 20,
        frames: frames.iter().enumerate().map(&mut entry).collect(),
    }
}

/// Returns an index of successive frames, of which each tenth is a key frame.
fn plain(num_frames: i64) -> VideoIndex {
    let frames: Vec<(i64, bool)> = (0..num_frames).map(|frame| (frame, frame % 10 == 0)).collect();
    index(&frames)
}
