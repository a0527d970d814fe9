//! The stored form of indexes.

use stoker_libav::{ColorRange, Matrix};

use super::{file, parts, plain};
use crate::{Rotation, VideoIndex};

#[test]
fn indexes_are_the_same_after_writing_and_reading() {
    let mut parts = parts(&[(0, true), (3, false), (-1, false), (2, true)]);
    parts.rotation = Rotation::Clockwise270;
    parts.range = Some(ColorRange::Full);
    parts.matrix = Some(Matrix::Bt2020);
    parts.prefix = vec![9];
    parts.frames[2].is_shown = false;
    let index = VideoIndex::try_new(parts).expect("an index");
    assert_eq!(VideoIndex::from_bytes(&index.to_bytes()), Ok(index));
}

#[test]
fn the_form_is_that_of_the_specification() {
    let bytes = super::index(&[(0, true), (2, false), (1, false)]).to_bytes();
    let header = [b"SVI1".as_slice(), &[0, 0, 0, 0, 48, 64, 1, 0x80, 0x64, 0x80, 0x80, 0x40, 3, 1, 2, 3, 0]].concat();
    let frames = [0x80, 0x04, 3, 20, 5, 0, 20, 8, 4, 20, 12, 1];
    assert_eq!(bytes, [header.as_slice(), &frames].concat());
}

#[test]
fn files_have_small_indexes() {
    for name in ["h264.mp4", "h264.mkv", "hevc.mp4", "vp9.webm", "av1.mp4", "fragmented.mp4", "edited.mp4"] {
        let index = VideoIndex::read(&file(name)).expect("an index");
        let bytes = index.to_bytes();
        assert_eq!(index.frames().len(), 40, "{name}");
        assert!(bytes.len() <= 50 + index.extradata().len() + 40 * 6, "{name}: {} bytes", bytes.len());
        assert_eq!(VideoIndex::from_bytes(&bytes), Ok(index));
    }
}

#[test]
fn damaged_forms_are_refused() {
    let bytes = plain(20).to_bytes();
    for end in 0..bytes.len() {
        VideoIndex::from_bytes(&bytes[..end]).expect_err("an index that ends early");
    }
    let with = |at: usize, value| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        VideoIndex::from_bytes(&bytes).unwrap_err().reason
    };
    assert_eq!(with(3, b'3'), "the index of the video is damaged, or of a newer version");
    assert_eq!(with(4, 7), "the index of the video is damaged");
    assert!(with(8, 0).starts_with("the video has 64 x 0 pixels"));
    assert_eq!(
        VideoIndex::from_bytes(&[&bytes[..], &[0]].concat()).unwrap_err().reason,
        "the index of the video is damaged"
    );
}
