//! Indexes with checksums, and clips as values.

use super::{file, plain};
use crate::{ByteSource, CheckedIndex, ClipBytes, ClipFrames, Pieces, Start, VideoClip, VideoIndex};

fn frames(index: &VideoIndex, start: u64) -> ClipFrames {
    let clip = VideoClip { start: Start::Frame(start), ..VideoClip::new(2) };
    clip.frames_of(index, None, 0).expect("frames")
}

/// Returns the clip of two frames of a file as a value.
pub(super) fn clip_of(file: &[u8], start: u64) -> Vec<u8> {
    let index = VideoIndex::read(file).expect("an index");
    let ranges = frames(&index, start).packets(&index).byte_ranges(&index, 0);
    let mut value = ClipBytes::head(&index, &ranges);
    ranges.iter().for_each(|range| value.extend_from_slice(&file[range.start as usize..range.end as usize]));
    value
}

#[test]
fn indexes_with_checksums_are_the_same_after_writing_and_reading() {
    for name in ["h264.mp4", "fragmented.mp4", "vp9.webm"] {
        let file = file(name);
        let checked = CheckedIndex::read(&file).expect("an index");
        let (plain, bytes) = (checked.index().to_bytes(), checked.to_bytes());
        assert_eq!(bytes[..4], *b"SVI2");
        assert_eq!(bytes.len(), plain.len() + 4 * checked.index().frames().len(), "{name}");
        assert_eq!(bytes[4..plain.len()], plain[4..]);
        assert_eq!(CheckedIndex::from_bytes(&bytes).as_ref(), Ok(&checked));
        assert_eq!(VideoIndex::from_bytes(&bytes).as_ref(), Ok(checked.index()));
        for end in 0..bytes.len() {
            CheckedIndex::from_bytes(&bytes[..end]).expect_err("an index that ends early");
        }
        let old = CheckedIndex::from_bytes(&plain).expect("an index of version 1");
        assert!(checked.has_checksums() && !old.has_checksums());
        assert_eq!(old.to_bytes(), plain);
    }
}

#[test]
fn a_changed_byte_of_a_frame_is_found() {
    let mut file = file("h264.mp4");
    let checked = CheckedIndex::read(&file).expect("an index");
    let packets = frames(checked.index(), 13).packets(checked.index());
    assert_eq!(checked.first_damaged(&packets, file.as_slice()), None);
    let wanted: Vec<usize> = packets.numbers().collect();
    let number = *wanted.last().expect("frames");
    let frame = checked.index().frames()[number];
    file[(frame.offset + u64::from(frame.size) / 2) as usize] ^= 4;
    assert_eq!(checked.first_damaged(&packets, file.as_slice()), Some(number));
    let other = (0..checked.index().frames().len()).find(|frame| !wanted.contains(frame)).expect("another frame");
    let elsewhere = checked.index().frames()[other].offset;
    file[(frame.offset + u64::from(frame.size) / 2) as usize] ^= 4;
    file[elsewhere as usize] ^= 4;
    assert_eq!(checked.first_damaged(&packets, file.as_slice()), None, "frames of other clips do not matter");
    let none = Pieces::<&[u8]>::default();
    assert_eq!(checked.first_damaged(&packets, &none), wanted.first().copied());
}

#[test]
fn clips_have_the_bytes_of_their_frames() {
    for name in ["h264.mp4", "hevc_open_gop.mp4", "vp9.webm"] {
        let file = file(name);
        let value = clip_of(&file, 13);
        let clip = ClipBytes::read(&value).expect("a clip").expect("a clip");
        assert_eq!(clip.index, VideoIndex::read(&file).expect("an index"));
        for number in frames(&clip.index, 13).packets(&clip.index).numbers() {
            let frame = clip.index.frames()[number];
            let bytes = file.bytes(frame.offset, frame.size as usize);
            assert_eq!(clip.pieces.bytes(frame.offset, frame.size as usize), bytes, "{name}, frame {number}");
        }
        for end in 8..value.len() {
            ClipBytes::read(&value[..end]).expect_err("a clip that ends early");
        }
        ClipBytes::read(&[value.as_slice(), &[0]].concat()).expect_err("a clip that ends late");
        assert!(ClipBytes::read(&file).expect("a file").is_none());
        VideoIndex::read(&value).expect_err("no file begins as a clip does");
    }
}

#[test]
fn pieces_beyond_the_file_are_refused() {
    let index = plain(3);
    let end = index.file_bytes();
    let inside = std::iter::once(end - 2..end).collect::<Vec<_>>();
    let beyond = std::iter::once(end - 2..end + 1).collect::<Vec<_>>();
    ClipBytes::read(&[&ClipBytes::head(&index, &inside)[..], &[1, 2]].concat()).expect("a clip");
    let value = [&ClipBytes::head(&index, &beyond)[..], &[1, 2, 3]].concat();
    let refused = ClipBytes::read(&value);
    assert_eq!(refused.unwrap_err().reason, "the clip of the video is damaged");
    // The list claims more pieces than it can have.
    let mut value = ClipBytes::head(&index, &[]);
    value.pop();
    value.extend([0xFF, 0xFF, 0x03, 0, 0]);
    ClipBytes::read(&value).expect_err("too many pieces");
}

#[test]
fn choices_of_frames_travel_without_the_options_of_tensors() {
    let clip = VideoClip { start: Start::Column("at".into()), size: Some((8, 8)), ..VideoClip::new(3) };
    let choice = clip.choice("video");
    let chosen = VideoClip::choosing(&choice).expect("a clip");
    assert_eq!((chosen.frames, chosen.stride, &chosen.start), (3, 1, &clip.start));
    assert_eq!(chosen.choice("video"), choice);
    let wrong = stoker_types::ColumnClip { frames: 0, ..choice };
    assert!(VideoClip::choosing(&wrong).unwrap_err().to_string().contains("frames is 0"));
}
