//! Tensors of clips.

use stoker_decode::Orientation;
use stoker_video::{Layout, Rotation, Start, Video, VideoClip, VideoIndex};

use crate::{Fixture, decoders, file, fixtures};

/// Returns a clip's tensor, and the number of frames that lie in the video.
fn decoded(clip: &VideoClip, index: &VideoIndex, bytes: &[u8]) -> (Vec<u8>, usize) {
    clip.validate().expect("valid options");
    let mut tensor = vec![0xAA; clip.row_bytes_of(index)];
    let num_valid = clip.decode(&mut decoders(), &Video { index, source: bytes }, None, 0, &mut tensor);
    (tensor, num_valid.expect("a clip"))
}

fn clip(start: u64, frames: usize, layout: Layout) -> VideoClip {
    VideoClip { start: Start::Frame(start), layout, ..VideoClip::new(frames) }
}

fn read(name: &str) -> (Vec<u8>, VideoIndex) {
    let bytes = file(name);
    let index = VideoIndex::read(&bytes).expect("an index");
    (bytes, index)
}

#[test]
fn pixels_are_near_those_of_libswscale() {
    for Fixture { bytes, index, expected } in fixtures() {
        let frames = expected.frames.len();
        let clip = VideoClip { orientation: Orientation::Ignore, ..clip(0, frames, Layout::Thwc) };
        let (tensor, num_valid) = decoded(&clip, &index, &bytes);
        assert_eq!(num_valid, frames);
        let (height, width) = (expected.height as usize, expected.width as usize);
        for (number, (frame, wanted)) in tensor.chunks_exact(height * width * 3).zip(&expected.frames).enumerate() {
            let places = [(1, 1), (1, 3), (3, 1), (3, 3)].map(|(y, x)| (y * height / 4 * width + x * width / 4) * 3);
            let found: Vec<u8> = places.iter().flat_map(|place| &frame[*place..place + 3]).copied().collect();
            let distance = found.iter().zip(&wanted.rgb).map(|(one, other)| one.abs_diff(*other)).max();
            // With more than 8 bits, libswscale rounds in other places.
            let allowed = if bits_of(&expected.format) > 8 { 4 } else { 1 };
            assert!(distance <= Some(allowed), "frame {number} of {}: {found:?}, {:?}", expected.name, wanted.rgb);
        }
    }
}

fn bits_of(format: &str) -> u8 {
    stoker_libav::PixelFormat::of_name(format).map_or(0, |format| format.bits)
}

#[test]
fn layouts_hold_the_same_pixels() {
    let (bytes, index) = read("h264.mp4");
    for size in [None, Some((20, 30))] {
        let of = |layout| decoded(&VideoClip { size, ..clip(11, 3, layout) }, &index, &bytes).0;
        let (planes, pixels, by_channel) = (of(Layout::Tchw), of(Layout::Thwc), of(Layout::Cthw));
        let area = planes.len() / 9;
        for (place, value) in planes.iter().enumerate() {
            let (frame, channel, pixel) = (place / area / 3, place / area % 3, place % area);
            assert_eq!(pixels[(frame * area + pixel) * 3 + channel], *value);
            assert_eq!(by_channel[(channel * 3 + frame) * area + pixel], *value);
        }
    }
}

#[test]
fn the_last_frame_is_repeated_in_all_layouts() {
    let (bytes, index) = read("hevc.mp4");
    for layout in [Layout::Tchw, Layout::Thwc, Layout::Cthw] {
        let (last, _) = decoded(&clip(39, 1, layout), &index, &bytes);
        let (tensor, num_valid) = decoded(&clip(39, 3, layout), &index, &bytes);
        assert_eq!(num_valid, 1);
        let parts = if layout == Layout::Cthw { last.chunks(last.len() / 3) } else { last.chunks(last.len()) };
        let expected: Vec<u8> = parts.flat_map(|part| part.repeat(3)).collect();
        assert_eq!(tensor, expected, "{layout:?}");
    }
}

#[test]
fn rotation_is_applied_unless_it_is_ignored() {
    let (bytes, index) = read("rotated.mp4");
    assert_eq!(index.rotation(), Rotation::Clockwise90);
    let turned = clip(4, 1, Layout::Tchw);
    assert_eq!(turned.shape_of(&index), [1, 3, 64, 48]);
    let (turned, _) = decoded(&turned, &index, &bytes);
    let flat = VideoClip { orientation: Orientation::Ignore, ..clip(4, 1, Layout::Tchw) };
    let (flat, _) = decoded(&flat, &index, &bytes);
    for (place, value) in turned.iter().enumerate() {
        let (channel, row, column) = (place / (48 * 64), place % (48 * 64) / 48, place % 48);
        assert_eq!(flat[channel * 48 * 64 + (47 - column) * 64 + row], *value);
    }
}

#[test]
fn a_size_of_one_pixel_is_the_mean_of_a_frame() {
    let (bytes, index) = read("vp9.webm");
    let (whole, _) = decoded(&clip(3, 1, Layout::Tchw), &index, &bytes);
    let (small, _) = decoded(
        &VideoClip { size: Some((1, 1)), interpolation: stoker_decode::Interpolation::Box, ..clip(3, 1, Layout::Tchw) },
        &index,
        &bytes,
    );
    for (plane, mean) in whole.chunks_exact(48 * 64).zip(small) {
        let sum: usize = plane.iter().map(|value| usize::from(*value)).sum();
        assert!((sum / plane.len()).abs_diff(usize::from(mean)) <= 2);
    }
}

#[test]
fn large_frames_and_wrong_lengths_are_refused() {
    let (bytes, index) = read("h264.mp4");
    let video = Video { index: &index, source: &bytes[..] };
    let small = VideoClip { pixels_max: 1_000, ..clip(0, 1, Layout::Tchw) };
    let mut tensor = vec![0; small.row_bytes_of(&index)];
    small.decode(&mut decoders(), &video, None, 0, &mut tensor).expect_err("a frame above the limit");
    let reason =
        clip(0, 1, Layout::Tchw).decode(&mut decoders(), &video, None, 0, &mut tensor[1..]).unwrap_err().reason;
    assert_eq!(reason, "decoding 1 frames into 9215 bytes, but the clip has 9216 bytes");
    let nothing = Video { index: &index, source: &bytes[..100] };
    let reason = clip(0, 1, Layout::Tchw).decode(&mut decoders(), &nothing, None, 0, &mut tensor).unwrap_err().reason;
    assert!(reason.ends_with("were not read"), "{reason}");
}

#[test]
fn damage_gives_an_error_or_a_clip_and_leaves_decoders_usable() {
    let mut decoders = decoders();
    for Fixture { bytes, index, expected } in fixtures() {
        let clip = clip(0, expected.frames.len(), Layout::Tchw);
        let mut tensor = vec![0; clip.row_bytes_of(&index)];
        for at in (0..bytes.len()).step_by(211) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x5A;
            let video = Video { index: &index, source: &damaged[..] };
            if let Err(error) = clip.decode(&mut decoders, &video, None, 0, &mut tensor) {
                assert!(!error.reason.contains("its decoder failed"), "byte {at} of {}: {error}", expected.name);
            }
        }
        let mut again = tensor.clone();
        let video = Video { index: &index, source: &bytes[..] };
        clip.decode(&mut decoders, &video, None, 0, &mut again).expect("a clip");
        assert_eq!(again, decoded(&clip, &index, &bytes).0, "{}", expected.name);
    }
}

#[test]
fn damaged_configurations_are_refused_or_decode() {
    for name in ["h264.mp4", "hevc.mp4", "av1.mp4", "mpeg4.mp4"] {
        let (bytes, index) = read(name);
        let stored = index.to_bytes();
        let start = stored.windows(4).position(|window| window == &index.extradata()[..4]).expect("the configuration");
        for at in start..start + index.extradata().len() {
            let mut damaged = stored.clone();
            damaged[at] ^= 0xFF;
            let index = VideoIndex::from_bytes(&damaged).expect("an index");
            let clip = clip(0, 2, Layout::Tchw);
            let mut tensor = vec![0; clip.row_bytes_of(&index)];
            let video = Video { index: &index, source: &bytes[..] };
            if let Err(error) = clip.decode(&mut decoders(), &video, None, 0, &mut tensor) {
                assert!(!error.reason.contains("its decoder failed"), "byte {at} of {name}: {error}");
            }
        }
    }
}

#[test]
fn false_key_frames_do_not_give_other_frames() {
    // Each frame pretends to be a key frame.
    let (bytes, index) = read("h264.mp4");
    let stored = index.to_bytes();
    let (mut false_keys, mut other) = (0, 0);
    let all = VideoClip { ..clip(0, 40, Layout::Tchw) };
    let (right, _) = decoded(&all, &index, &bytes);
    let mut bytes_of_table = bytes.clone();
    let at = bytes_of_table.windows(4).position(|window| window == b"stss").expect("the table");
    bytes_of_table[at..at + 4].copy_from_slice(b"free");
    let false_index = VideoIndex::read(&bytes_of_table).expect("an index");
    assert!(false_index.frames().iter().all(|frame| frame.is_key) && stored != false_index.to_bytes());
    for start in 0..40 {
        let clip = clip(start, 1, Layout::Tchw);
        let mut tensor = vec![0; clip.row_bytes_of(&index)];
        let video = Video { index: &false_index, source: &bytes[..] };
        match clip.decode(&mut decoders(), &video, None, 0, &mut tensor) {
            Ok(_) if tensor == right[start as usize * tensor.len()..][..tensor.len()] => {}
            Ok(_) => other += 1,
            Err(_) => false_keys += 1,
        }
    }
    assert_eq!((false_keys, other), (36, 0));
}
