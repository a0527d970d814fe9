//! Which compressed frames a clip needs.

use super::{index, plain};
use crate::{PacketRun, Start, VideoClip, VideoIndex};

fn runs(index: &VideoIndex, start: u64, frames: usize, stride: usize) -> Vec<PacketRun> {
    let clip = VideoClip { start: Start::Frame(start), stride, ..VideoClip::new(frames) };
    clip.frames_of(index, None, 0).expect("frames").packets(index).runs().to_vec()
}

fn run(start: usize, end: usize, wanted: &[usize]) -> PacketRun {
    PacketRun { range: start..end, leading: start + 1..start + 1, tail: end..end, wanted: wanted.to_vec() }
}

#[test]
fn decoding_begins_at_the_key_frame_before() {
    let video = plain(40);
    assert_eq!(runs(&video, 13, 3, 1), [run(10, 16, &[13, 14, 15])]);
    assert_eq!(runs(&video, 10, 1, 1), [run(10, 11, &[10])]);
    assert_eq!(runs(&video, 38, 4, 1), [run(30, 40, &[38, 39])]);
}

#[test]
fn groups_between_wanted_frames_are_left_out() {
    let video = plain(40);
    assert_eq!(runs(&video, 8, 3, 2), [run(0, 9, &[8]), run(10, 13, &[10, 12])]);
    assert_eq!(runs(&video, 1, 2, 30), [run(0, 2, &[1]), run(30, 32, &[31])]);
    assert_eq!(runs(&video, 9, 2, 1), [run(0, 11, &[9, 10])]);
}

/// Frames 2 to 3 are shown before the key frame 4 and follow it in decoding order.
fn open_group() -> VideoIndex {
    index(&[(0, true), (1, false), (4, true), (2, false), (3, false), (5, false), (8, true), (6, false), (7, false)])
}

#[test]
fn frames_shown_before_their_key_frame_need_the_one_before() {
    let video = open_group();
    assert_eq!(runs(&video, 2, 1, 1), [run(0, 4, &[3])]);
    assert_eq!(runs(&video, 3, 2, 1), [run(0, 5, &[2, 4])]);
    let open = PacketRun { range: 2..6, leading: 3..5, tail: 6..9, wanted: vec![5] };
    assert_eq!(runs(&video, 5, 1, 1), [open]);
    assert_eq!(video.frames().len(), 9);
}

#[test]
fn a_file_without_key_frames_is_decoded_from_its_start() {
    let video = index(&[(0, false), (1, false), (2, false)]);
    assert_eq!(runs(&video, 2, 1, 1), [run(0, 3, &[2])]);
    // The first key frame is shown late, and nothing lies before it.
    let video = index(&[(2, true), (0, false), (1, false)]);
    assert_eq!(runs(&video, 0, 1, 1), [run(0, 2, &[1])]);
}

#[test]
fn byte_ranges_join_over_small_gaps() {
    let video = plain(40);
    let clip = VideoClip { start: Start::Frame(1), stride: 30, ..VideoClip::new(2) };
    let packets = clip.frames_of(&video, None, 0).expect("frames").packets(&video);
    assert_eq!(packets.num_packets(), 4);
    let ranges = packets.byte_ranges(&video, 9);
    assert_eq!(ranges.len(), 4);
    assert_eq!(ranges[..2], [10..11, 21..23]);
    assert_eq!(packets.byte_ranges(&video, 10)[0], 10..23);
    assert_eq!(packets.byte_ranges(&video, 1 << 30).len(), 1);
}
