//! Which frames a clip has.

use stoker_decode::Number;

use super::{index, plain};
use crate::{Layout, Position, Start, VideoClip, VideoIndex};

fn check(clip: &VideoClip, index: &VideoIndex, positions: &[usize], num_valid: usize) {
    clip.validate().expect("valid options");
    let frames = clip.frames_of(index, None, 0).expect("frames");
    assert_eq!(frames.positions(), positions);
    assert_eq!(frames.num_valid(), num_valid);
}

fn clip(start: Start, frames: usize, stride: usize) -> VideoClip {
    VideoClip { start, stride, ..VideoClip::new(frames) }
}

#[test]
fn clips_are_successive_and_repeat_their_last_frame() {
    let video = plain(20);
    check(&clip(Start::Frame(3), 4, 1), &video, &[3, 4, 5, 6], 4);
    check(&clip(Start::Frame(3), 4, 5), &video, &[3, 8, 13, 18], 4);
    check(&clip(Start::Frame(12), 4, 5), &video, &[12, 17, 17, 17], 2);
    check(&clip(Start::Frame(19), 3, 1), &video, &[19, 19, 19], 1);
    check(&clip(Start::Seconds(0.2), 2, 1), &video, &[5, 6], 2);
    check(&clip(Start::Seconds(0.21), 2, 1), &video, &[5, 6], 2);
    check(&clip(Start::Seconds(0.79), 2, 1), &video, &[19, 19], 1);
}

#[test]
fn uniform_clips_reach_from_the_first_to_the_last_frame() {
    let video = plain(20);
    check(&clip(Start::Uniform, 1, 1), &video, &[9], 1);
    check(&clip(Start::Uniform, 2, 1), &video, &[0, 19], 2);
    check(&clip(Start::Uniform, 4, 1), &video, &[0, 6, 13, 19], 4);
    check(&clip(Start::Uniform, 3, 1), &plain(1), &[0, 0, 0], 3);
}

#[test]
fn random_clips_fit_and_reach_both_ends() {
    let video = plain(20);
    let start = |clip: &VideoClip, draw| clip.frames_of(&video, None, draw).expect("frames").positions()[0];
    let short = clip(Start::Random, 3, 4);
    assert_eq!((start(&short, 0), start(&short, u64::MAX)), (0, 11));
    assert_eq!(start(&short, u64::MAX / 2), 5);
    let long = clip(Start::Random, 30, 1);
    assert_eq!((start(&long, 0), start(&long, u64::MAX)), (0, 0));
}

#[test]
fn offsets_choose_the_nearest_frames_and_mark_those_outside() {
    let video = plain(20);
    let clip = VideoClip {
        start: Start::Column("frame".to_string()),
        offsets: Some(vec![-0.2, -0.04, 0.0, 0.05, 9.0]),
        ..VideoClip::new(5)
    };
    clip.validate().expect("valid options");
    for column in [Number::Whole(2), Number::Real(0.08)] {
        let frames = clip.frames_of(&video, Some(column.into()), 0).expect("frames");
        assert_eq!(frames.positions(), [0, 1, 2, 3, 19]);
        assert_eq!(frames.valid(), [false, true, true, true, false]);
    }
    let reason = clip.frames_of(&video, None, 0).unwrap_err().reason;
    assert_eq!(reason, "the clip's start is null in the column frame");
}

/// Checks the clips of a part of a video of 20 frames, which are shown every 0.04 s.
fn check_within(clip: &VideoClip, bounds: [Position; 2], start: Option<Position>, expected: &[usize], valid: &[bool]) {
    let within = Some(("from".to_string(), "to".to_string()));
    let clip = VideoClip { within, ..clip.clone() };
    clip.validate().expect("valid options");
    let columns: Vec<_> = start.into_iter().chain(bounds).map(Some).collect();
    assert_eq!(clip.columns().len(), columns.len());
    let frames = clip.frames_of_row(&plain(20), &columns, u64::MAX).expect("frames");
    assert_eq!((frames.positions(), frames.valid()), (expected, valid), "{bounds:?}");
}

#[test]
fn clips_stay_within_the_bounds_of_their_row() {
    let seconds = |first: f64, end: f64| [Position::Seconds(first * 0.04), Position::Seconds(end * 0.04)];
    let frames = |first, end| [Position::Frame(first), Position::Frame(end)];
    let around = VideoClip {
        start: Start::Column("at".to_string()),
        offsets: Some(vec![-0.08, 0.0, 0.08]),
        ..VideoClip::new(3)
    };
    // Two episodes that follow each other share no frame, whatever is rounded.
    for bounds in [frames(3, 8), seconds(3.0, 8.0), seconds(3.01, 8.01), seconds(2.99, 7.99)] {
        let at = |frame: f64| Some(Position::Seconds(frame * 0.04));
        check_within(&around, bounds, at(3.0), &[3, 3, 5], &[false, true, true]);
        check_within(&around, bounds, at(5.0), &[3, 5, 7], &[true; 3]);
        check_within(&around, bounds, at(7.0), &[5, 7, 7], &[true, true, false]);
        check_within(&around, bounds, Some(Position::Frame(7)), &[5, 7, 7], &[true, true, false]);
        check_within(&clip(Start::Frame(6), 4, 1), bounds, None, &[6, 7, 7, 7], &[true, true, false, false]);
        check_within(&clip(Start::Random, 3, 1), bounds, None, &[5, 6, 7], &[true; 3]);
        check_within(&clip(Start::Uniform, 3, 1), bounds, None, &[3, 5, 7], &[true; 3]);
    }
    // The last episode ends with the video, or a little after it.
    for bounds in [frames(18, 20), frames(18, 99), seconds(18.0, 20.0), seconds(18.0, 1e9)] {
        check_within(&clip(Start::Frame(18), 3, 1), bounds, None, &[18, 19, 19], &[true, true, false]);
    }
    check_within(&clip(Start::Uniform, 2, 1), seconds(4.0, 5.0), None, &[4, 4], &[true; 2]);
}

#[test]
fn bounds_without_frames_and_starts_outside_of_them_are_refused() {
    let within = Some(("from".to_string(), "to".to_string()));
    let refused = |start: Start, bounds: [Option<Position>; 2]| {
        let clip = VideoClip { within: within.clone(), ..clip(start, 2, 1) };
        clip.frames_of_row(&plain(20), &bounds, 0).unwrap_err().reason
    };
    let (frame, seconds) = (|frame| Some(Position::Frame(frame)), |seconds| Some(Position::Seconds(seconds)));
    assert_eq!(refused(Start::Random, [frame(3), None]), "a bound of the clip is null in the column to");
    assert_eq!(refused(Start::Random, [None, frame(3)]), "a bound of the clip is null in the column from");
    for bounds in [
        [frame(3), frame(3)],
        [frame(-1), frame(3)],
        [frame(20), frame(30)],
        [frame(i64::MIN), frame(i64::MAX)],
        [seconds(0.4), seconds(0.1)],
        [seconds(f64::NAN), seconds(1.0)],
        [seconds(0.0), seconds(f64::INFINITY)],
        [seconds(9.0), seconds(10.0)],
        [seconds(-3.0), seconds(0.5)],
    ] {
        let reason = refused(Start::Random, bounds);
        assert!(
            reason.starts_with("the bounds of the clip, ") && reason.ends_with("no frames of the video"),
            "{reason}"
        );
    }
    let bounds = [frame(3), frame(8)];
    assert_eq!(refused(Start::Frame(8), bounds), "the clip starts at frame 8, outside of frames 3 to 7");
    assert_eq!(refused(Start::Frame(2), bounds), "the clip starts at frame 2, outside of frames 3 to 7");
    let reason = refused(Start::Seconds(0.04), bounds);
    assert_eq!(reason, "the clip starts at 0.04 s, but the frames within its bounds are shown from 0.12 s to 0.28 s");
    let nameless = VideoClip { within: Some(("from".into(), String::new())), ..VideoClip::new(1) };
    assert_eq!(nameless.validate().unwrap_err().to_string(), "video clip: within has a column without a name");
}

#[test]
fn frames_are_chosen_in_presentation_order() {
    let video = index(&[(0, true), (3, false), (1, false), (2, false)]);
    assert_eq!(video.shown(), [0, 2, 3, 1]);
    assert_eq!(video.seconds(3), Some(0.12));
}

#[test]
fn starts_outside_of_the_video_are_refused() {
    let video = plain(20);
    let refused = |column| {
        let clip = clip(Start::Column("start".to_string()), 2, 1);
        clip.frames_of(&video, Some(column), 0).unwrap_err().reason
    };
    assert_eq!(refused(Position::Frame(20)), "the clip starts at frame 20, but the video has 20 frames");
    assert_eq!(refused(Position::Frame(-1)), "the clip starts at frame -1, but the video has 20 frames");
    for seconds in [-0.1, 0.9, f64::NAN, f64::INFINITY, 1e300] {
        assert!(refused(Position::Seconds(seconds)).ends_with("frames are shown from 0 s to 0.76 s"), "{seconds}");
    }
}

#[test]
fn options_are_checked() {
    let refused = |clip: VideoClip, expected: &str| assert_eq!(clip.validate().unwrap_err().to_string(), expected);
    let new = || VideoClip::new(8);
    refused(VideoClip::new(0), "video clip: frames is 0; it must be from 1 to 65536");
    refused(VideoClip { stride: 0, ..new() }, "video clip: stride is 0; it must be from 1 to 65536");
    let start = Start::Seconds(f64::NAN);
    refused(VideoClip { start, ..new() }, "video clip: start is NaN s; it must be finite and not negative");
    let start = Start::Column(String::new());
    refused(VideoClip { start, ..new() }, "video clip: start is a column without a name");
    refused(
        VideoClip { start: Start::Uniform, stride: 2, ..new() },
        "video clip: stride is 2; leave it out, as the start uniform spreads the frames",
    );
    refused(
        VideoClip { size: Some((0, 4)), ..new() },
        "video clip: size is 0x4; height and width must be from 1 to 65535",
    );
    refused(
        VideoClip { size: Some((60_000, 60_000)), ..new() },
        "video clip: size gives tensors of 86400000000 bytes; the limit is 2147483647",
    );
    refused(
        VideoClip { offsets: Some(vec![0.0]), ..new() },
        "video clip: offsets has 1 times, but the clip has 8 frames",
    );
    refused(
        VideoClip { offsets: Some(vec![f64::INFINITY]), ..VideoClip::new(1) },
        "video clip: offsets has inf; times must be finite",
    );
}

#[test]
fn shapes_follow_layout_and_size() {
    let shape = |layout| VideoClip { layout, size: Some((5, 7)), ..VideoClip::new(2) };
    assert_eq!(shape(Layout::Tchw).shape(), Some([2, 3, 5, 7]));
    assert_eq!(shape(Layout::Thwc).shape(), Some([2, 5, 7, 3]));
    assert_eq!(shape(Layout::Cthw).shape(), Some([3, 2, 5, 7]));
    assert_eq!(shape(Layout::Cthw).row_bytes(), Some(210));
    assert_eq!(VideoClip::new(2).shape_of(&plain(3)), [2, 3, 48, 64]);
    assert_eq!(VideoClip::new(2).shape(), None);
}

#[test]
fn options_are_plain_data() {
    let clip = VideoClip { start: Start::Seconds(1.5), offsets: Some(vec![0.0; 8]), ..VideoClip::new(8) };
    let text = serde_json::to_string(&clip).expect("JSON");
    assert!(text.contains(r#""start":{"seconds":1.5}"#), "{text}");
    assert_eq!(serde_json::from_str::<VideoClip>(&text).expect("a clip"), clip);
    let text = serde_json::to_string(&VideoClip::new(1)).expect("JSON");
    assert!(text.contains(r#""start":"random""#) && !text.contains("within"), "{text}");
}
