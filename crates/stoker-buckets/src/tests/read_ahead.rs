//! Which parts of a file are requested.

#![expect(clippy::single_range_in_vec_init, reason = "files are read at one range")]

use std::ops::Range;

use crate::read_ahead::{PART_BYTES, ReadAhead};

const MIB: u64 = 1 << 20;

/// A file of which the requests are noted.
struct File {
    ahead: ReadAhead<Range<u64>>,
    begun: Vec<Range<u64>>,
}

impl File {
    fn new(size: u64) -> Self {
        Self { ahead: ReadAhead::new(size, None), begun: Vec::new() }
    }

    /// Reads a range, and checks that the requests have its bytes in order. Returns the new requests.
    fn read(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let begun = &mut self.begun;
        let before = begun.len();
        let mut begin = |part: Range<u64>| {
            begun.push(part.clone());
            part
        };
        let found = self.ahead.read(range.clone(), &mut begin);
        let mut at = range.start;
        for (part, within) in found {
            assert_eq!(part.start + within.start as u64, at, "{range:?}");
            assert!(within.end as u64 <= part.end - part.start && !within.is_empty());
            at = part.start + within.end as u64;
        }
        assert_eq!(at, range.end);
        self.begun[before..].to_vec()
    }

    fn will_read(&mut self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let begun = &mut self.begun;
        let before = begun.len();
        self.ahead.will_read(ranges, &mut |part: Range<u64>| {
            begun.push(part.clone());
            part
        });
        self.begun[before..].to_vec()
    }

    fn sum(parts: &[Range<u64>]) -> u64 {
        parts.iter().map(|part| part.end - part.start).sum()
    }
}

#[test]
fn a_small_file_is_requested_once_whatever_is_read() {
    let mut file = File::new(PART_BYTES);
    let size = PART_BYTES;
    assert_eq!(file.read(100..200), [0..size]);
    for range in [0..10, size - 5..size, 0..size] {
        assert_eq!(file.read(range), []);
    }
    assert_eq!(file.will_read(&[0..size]), []);
}

#[test]
fn of_a_small_file_a_footer_and_a_few_ranges_are_requested_alone() {
    let mut file = File::new(3 * MIB);
    assert_eq!(file.read(3 * MIB - 8..3 * MIB), [3 * MIB - 64 * 1024..3 * MIB]);
    assert_eq!(file.will_read(&[100..MIB, MIB..MIB + 50]), [100..MIB + 50]);
    assert_eq!(file.read(100..MIB + 50), []);
    let mut file = File::new(3 * MIB);
    assert_eq!(file.will_read(&[100..2 * MIB]), [0..3 * MIB], "most of it");
    let mut file = File::new(100_000);
    assert_eq!(file.read(99_992..100_000), [0..100_000]);
}

#[test]
fn known_ranges_of_up_to_32_mib_are_requested_at_once_and_kept() {
    let mut file = File::new(100 * MIB);
    let begun = file.will_read(&[50 * MIB..55 * MIB, 10 * MIB..11 * MIB, 11 * MIB + 1000..12 * MIB]);
    assert_eq!(begun, [10 * MIB..12 * MIB, 50 * MIB..54 * MIB, 54 * MIB..55 * MIB], "near ranges are one request");
    for _ in 0..2 {
        assert_eq!(file.read(10 * MIB..12 * MIB), []);
        assert_eq!(file.read(53 * MIB..55 * MIB), []);
    }
}

#[test]
fn a_large_file_that_is_read_in_order_is_requested_ahead_in_large_parts() {
    let size = 100 * MIB + 5;
    let mut file = File::new(size);
    assert_eq!(File::sum(&file.will_read(&[0..size])), 16 * MIB);
    let mut at = 0;
    while at < size {
        let end = size.min(at + MIB);
        file.read(at..end);
        let requested = file.begun.iter().map(|part| part.end).max().unwrap();
        assert!(requested <= end + 20 * MIB, "at most the window and a part are ahead");
        assert!(requested >= size.min(end + 12 * MIB) - 64 * 1024, "{requested} at {at}");
        at = end;
    }
    assert!(File::sum(&file.begun) <= size + 64 * 1024, "no byte is requested twice, but for the end");
    assert!(file.begun.len() < 30, "{}", file.begun.len());
}

#[test]
fn what_is_read_in_order_without_a_word_is_soon_requested_ahead() {
    let mut file = File::new(100 * MIB);
    let first = file.read(MIB..MIB + 100);
    assert_eq!(first, [MIB..MIB + 64 * 1024], "a single read takes little");
    let mut at = MIB + 100;
    while at < 40 * MIB {
        file.read(at..at + 10_000);
        at += 10_000;
    }
    assert!(file.begun.len() < 60, "{} requests", file.begun.len());
    assert!(file.begun.iter().any(|part| part.end - part.start == PART_BYTES));
}

#[test]
fn several_places_are_read_in_turns_without_requesting_bytes_twice() {
    let mut file = File::new(400 * MIB);
    let places: Vec<u64> = (0..20).map(|place| place * 20 * MIB).collect();
    for step in 0..100 {
        for place in &places {
            let at = place + step * 100_000;
            file.read(at..at + 100_000);
        }
    }
    let read = 20 * 100 * 100_000;
    let (requested, num) = (File::sum(&file.begun), file.begun.len() as u64);
    assert!(requested < read + 20 * 4 * MIB, "{requested} bytes for {read}");
    assert!(num < read / 100_000, "{num} requests");
    let mut sorted = file.begun.clone();
    sorted.sort_by_key(|part| part.start);
    assert!(sorted.windows(2).all(|pair| pair[0].end <= pair[1].start), "bytes are requested twice");
}

#[test]
fn the_ends_of_files_are_requested_together() {
    let mut file = File::new(50 * MIB);
    assert_eq!(file.read(50 * MIB - 8..50 * MIB), [50 * MIB - 64 * 1024..50 * MIB]);
    assert_eq!(file.read(50 * MIB - 2000..50 * MIB - 8), []);
}

#[test]
fn known_ranges_that_are_too_large_to_keep_share_the_window() {
    let mut file = File::new(200 * MIB);
    let ranges: Vec<Range<u64>> = (0..4).map(|range| range * 50 * MIB..range * 50 * MIB + 40 * MIB).collect();
    assert_eq!(File::sum(&file.will_read(&ranges)), 16 * MIB);
    for step in 0..40 {
        for range in &ranges {
            file.read(range.start + step * MIB..range.start + (step + 1) * MIB);
        }
    }
    assert_eq!(File::sum(&file.begun), 160 * MIB, "nothing beyond the ranges is requested");
}
