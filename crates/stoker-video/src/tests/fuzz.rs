//! Changed files and stored indexes: they are refused, or give an index whose frames lie in the file.

use stoker_fuzz::Target;

use super::checked::clip_of;
use super::{file, plain};
use crate::{ByteSource, CheckedIndex, ClipBytes, Packets, Position, Start, VideoClip, VideoIndex};

/// Checks what holds for each index.
fn check(index: &VideoIndex, file_bytes: usize) {
    assert_eq!(index.file_bytes(), file_bytes as u64);
    assert!((1..=index.frames().len()).contains(&index.num_frames()));
    assert!(index.frames().iter().all(|frame| frame.offset + u64::from(frame.size) <= file_bytes as u64));
    assert_eq!(VideoIndex::from_bytes(&index.to_bytes()).as_ref(), Ok(index));
    for start in [Start::Uniform, Start::Random, Start::Frame(0)] {
        let clip = VideoClip { start, ..VideoClip::new(3) };
        let frames = clip.frames_of(index, None, 1 << 63).expect("frames of an index");
        let packets = frames.packets(index);
        let runs = packets.runs();
        assert!(runs.iter().all(|run| run.wanted.iter().all(|frame| run.range.contains(frame))));
        let ranges = packets.byte_ranges(index, 0);
        assert!(ranges.iter().all(|range| range.start < range.end && range.end <= file_bytes as u64));
    }
    let clip = VideoClip { start: Start::Seconds(0.5), offsets: Some(vec![-1.0, 0.0]), ..VideoClip::new(2) };
    let _ = clip.frames_of(index, None, 0);
    for (begin, end) in [(0, 1), (1, i64::MAX), (-1, 2)] {
        let within = Some(("from".to_string(), "to".to_string()));
        let clip = VideoClip { within, ..VideoClip::new(2) };
        let seconds = |frame: i64| Some(Position::Seconds(frame as f64 / 10.0));
        for bounds in [[Some(Position::Frame(begin)), Some(Position::Frame(end))], [seconds(begin), seconds(end)]] {
            let frames = clip.frames_of_row(index, &bounds, 7);
            assert!(frames.iter().all(|frames| frames.positions().iter().all(|frame| *frame < index.num_frames())));
        }
    }
}

fn run(name: &str, files: &[&str], tokens: &[&[u8]]) {
    Target::new(name).seeds(files.iter().map(|name| file(name))).tokens(tokens.iter().copied()).run(|input| {
        let read = VideoIndex::read(input);
        if let Err(error) = &read {
            assert!(!error.reason.contains("its decoder failed"), "{error}");
        }
        let Ok(index) = read else { return false };
        check(&index, input.len());
        true
    });
}

#[test]
fn mp4_files() {
    let tokens: [&[u8]; 10] =
        [b"moov", b"moof", b"traf", b"trun", b"elst", b"stsz", b"stz2", b"co64", b"\0\0\0\x01", b"\xFF\xFF\xFF\xFF"];
    run("mp4", &["h264.mp4", "fragmented.mp4", "edited.mp4", "mpeg4.mp4"], &tokens);
}

#[test]
fn mkv_files() {
    let tokens: [&[u8]; 6] =
        [b"\x1F\x43\xB6\x75", b"\xA3", b"\xA0", b"\x01\xFF\xFF\xFF\xFF\xFF\xFF\xFF", b"\x18\x53\x80\x67", b"\x55\xB0"];
    run("mkv", &["h264.mkv", "vp9.webm"], &tokens);
}

#[test]
fn stored_indexes() {
    let checked = CheckedIndex::read(&file("hevc.mp4")).expect("an index").to_bytes();
    let seeds = [plain(30), VideoIndex::read(&file("h264.mkv")).expect("an index")].map(|index| index.to_bytes());
    Target::new("stored indexes of videos").seeds(seeds.into_iter().chain([checked])).run(|input| {
        let Ok(index) = CheckedIndex::from_bytes(input) else { return false };
        assert_eq!(CheckedIndex::from_bytes(&index.to_bytes()).as_ref(), Ok(&index));
        assert_eq!(VideoIndex::from_bytes(input).as_ref(), Ok(index.index()));
        true
    });
}

#[test]
fn clips() {
    let seeds = ["h264.mp4", "vp9.webm"].map(|name| clip_of(&file(name), 13));
    Target::new("clips of videos").seeds(seeds).tokens([b"\0\0\0\0SVC1".as_slice()]).run(|input| {
        let Ok(Some(clip)) = ClipBytes::read(input) else { return false };
        let frames = VideoClip { start: Start::Frame(13), ..VideoClip::new(1) }.frames_of(&clip.index, None, 0);
        let packets = frames.map(|frames| frames.packets(&clip.index));
        for number in packets.iter().flat_map(Packets::numbers) {
            let frame = clip.index.frames()[number];
            clip.pieces.bytes(frame.offset, frame.size as usize);
        }
        true
    });
}
