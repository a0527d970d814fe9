//! Files that are damaged, or whose tables lie.

use super::{file, parts};
use crate::{FrameEntry, Rotation, VideoIndex};

fn refused(bytes: &[u8]) -> String {
    VideoIndex::read(bytes).expect_err("a damaged file").reason
}

/// Returns a file in which the bytes after the first occurrence of a name are replaced.
fn patched(name: &str, after: &[u8; 4], skip: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = file(name);
    let at = file.windows(4).position(|window| window == after).expect("the name") + 4 + skip;
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn other_files_are_refused() {
    assert!(refused(b"").starts_with("it is no MP4, MOV, MKV or WebM file"));
    assert!(refused(b"RIFF....AVI ").contains("it begins with \"RIFF....\""));
    assert_eq!(refused(b"\0\0\0\x08ftyp"), "the file has no box moov, which holds its tables");
    assert_eq!(refused(&[0x1A, 0x45, 0xDF, 0xA3, 0x80]), "the file has no segment");
}

#[test]
fn files_that_end_early_are_refused() {
    for name in ["h264.mp4", "faststart.mp4", "fragmented.mp4", "h264.mkv", "vp9.webm"] {
        let bytes = file(name);
        for end in (0..bytes.len() - 1).step_by(13) {
            // A fragmented file may end between fragments.
            match VideoIndex::read(&bytes[..end]) {
                Ok(index) => assert!(name == "fragmented.mp4" && index.frames().len() % 10 == 0, "{name}, {end}"),
                Err(error) => assert!(!error.reason.contains("its decoder failed"), "{name}, {end}: {error}"),
            }
        }
    }
}

#[test]
fn counts_are_not_trusted() {
    let huge = u32::MAX.to_be_bytes();
    assert_eq!(refused(&patched("h264.mp4", b"stsz", 8, &huge)), "the file lists 4294967295 frames, but places for 40");
    // One size for all frames, and 2^32 of them.
    let sizes = [1u32.to_be_bytes(), huge].concat();
    assert_eq!(
        refused(&patched("h264.mp4", b"stsz", 4, &sizes)),
        format!("the file lists 4294967295 frames, but has {} bytes", file("h264.mp4").len())
    );
    assert!(refused(&patched("h264.mp4", b"stsz", 12, &huge)).contains("beyond the end of the file"));
    assert!(refused(&patched("h264.mp4", b"stco", 8, &huge)).contains("frame 1 has"));
    let many = refused(&patched("h264.mp4", b"stsz", 8, &1_000u32.to_be_bytes()));
    assert!(many.contains("ends early") || many.contains("places for"), "{many}");
}

#[test]
fn false_tables_of_time_and_key_frames_give_an_index_or_an_error() {
    for (table, skip) in [(b"stts", 4), (b"ctts", 4), (b"stss", 4), (b"stsc", 4), (b"elst", 4), (b"mdhd", 12)] {
        for value in [0, 1, 0x7FFF_FFFF, 0xFFFF_FFFF_u32] {
            for at in [skip, skip + 4, skip + 8] {
                if let Err(error) = VideoIndex::read(&patched("h264.mp4", table, at, &value.to_be_bytes())) {
                    assert!(!error.reason.contains("its decoder failed"), "{error}");
                }
            }
        }
    }
}

#[test]
fn an_edit_that_shows_nothing_is_refused() {
    let start = [0x7F, 0xFF, 0xFF, 0xFF];
    assert_eq!(refused(&patched("h264.mp4", b"elst", 12, &start)), "the video has no frames");
}

#[test]
fn indexes_are_checked() {
    let refused = |frames: Vec<FrameEntry>| {
        let parts = crate::index::Parts { frames, ..parts(&[(0, true)]) };
        VideoIndex::try_new(parts).unwrap_err().reason
    };
    let frame = FrameEntry { offset: 5, pts: 0, size: 1, is_key: true, is_shown: true };
    assert_eq!(refused(Vec::new()), "the video has no frames");
    assert_eq!(refused(vec![FrameEntry { is_shown: false, ..frame }]), "the video has no frames");
    assert!(refused(vec![FrameEntry { offset: u64::MAX, ..frame }]).starts_with("frame 0 has 1 bytes at offset"));
    assert!(refused(vec![FrameEntry { size: 0, ..frame }]).starts_with("frame 0 has 0 bytes"));
    assert!(refused(vec![FrameEntry { pts: i64::MIN, ..frame }]).contains("too large"));
    let whole = FrameEntry { offset: 0, size: 1 << 20, ..frame };
    assert_eq!(refused(vec![whole, whole]), "the frames have 2097152 bytes, more than the file");
}

#[test]
fn headers_tell_size_codec_and_rotation() {
    let index = VideoIndex::read(&file("rotated.mp4")).expect("an index");
    assert_eq!((index.size(), index.rotation()), ((48, 64), Rotation::Clockwise90));
    assert_eq!(index.codec().name(), "h264");
    let reason = VideoIndex::read_track(&file("rotated.mp4"), 1).unwrap_err().reason;
    assert_eq!(reason, "the file has 1 video tracks; number 1 was asked for");
    let reason = VideoIndex::read_track(&file("vp9.webm"), 7).unwrap_err().reason;
    assert_eq!(reason, "the file has 1 video tracks; number 7 was asked for");
}
