//! Tests of which frames count as a flood.

use super::*;

fn frames(kind: Kind, length: usize, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        bytes.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
        bytes.extend_from_slice(&[kind as u8, 0, 0, 0, 0, 1]);
        bytes.resize(bytes.len() + length, 0xff);
    }
    bytes
}

/// Checks whether frames that come at once after the preface are a flood, in pieces of 1 byte, 7 bytes or all bytes.
#[track_caller]
fn check(kind: Kind, length: usize, count: usize, is_flood: bool) {
    let begun = Moment::START;
    let bytes = [PREFACE.to_vec(), frames(kind, length, count)].concat();
    for piece in [1, 7, bytes.len()] {
        let mut meter = FrameMeter::new(begun);
        let good = bytes.chunks(piece).all(|bytes| meter.received(bytes, begun));
        assert_eq!(good, !is_flood, "{count} frames of kind {kind:?} with {length} bytes");
    }
}

#[test]
fn control_frames_without_end_are_a_flood() {
    let count = TOKENS_MAX as usize;
    for (kind, length) in [
        (Kind::Ping, 8),
        (Kind::Priority, 5),
        (Kind::WindowUpdate, 4),
        (Kind::Settings, 0),
        (Kind::Reset, 4),
        (Kind::Headers, 1),
        (Kind::Continuation, 1),
        (Kind::Unknown, 3),
        (Kind::Data, 0),
        (Kind::Data, DATA_BYTES_MIN - 1),
    ] {
        check(kind, length, count, false);
        check(kind, length, count + 1, true);
    }
    check(Kind::Data, DATA_BYTES_MIN, count + 1, false);
}

#[test]
fn frames_are_earned_by_time_and_by_bytes_that_were_sent() {
    let (begun, count) = (Moment::START, TOKENS_MAX as usize);
    let mut meter = FrameMeter::new(begun);
    assert!(meter.received(PREFACE, begun) && meter.received(&frames(Kind::Ping, 8, count), begun));
    // Frequent calls lose no fraction of the time that earns tokens.
    let second: Vec<Moment> = (1..=1_000).map(|millis| begun + Duration::from_millis(millis)).collect();
    assert!(second.iter().all(|now| meter.received(&[], *now)));
    let (now, earned) = (second[999], (1_000 / MILLIS_PER_TOKEN) as usize);
    assert!(meter.received(&frames(Kind::Ping, 8, earned), now));
    // The client acknowledges each frame of 16 KiB twice: for its stream and for the connection.
    for _ in 0..count {
        meter.sent(16 << 10);
        assert!(meter.received(&frames(Kind::WindowUpdate, 4, 2), now));
    }
    assert!(!meter.received(&frames(Kind::Ping, 8, count + 1), now));
}
