//! Changes inputs at random.

use std::ops::Range;

use crate::random::Random;

/// Numbers at which programs tend to fail: the limits of integers, powers of two, and their neighbours.
const BOUNDARIES: [u64; 29] = [
    0,
    1,
    2,
    0x0f,
    0x10,
    0x3f,
    0x40,
    0x7e,
    0x7f,
    0x80,
    0x81,
    0xfe,
    0xff,
    0x100,
    0x3fff,
    0x4000,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0xff_ffff,
    0x100_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Texts that readers of numbers treat differently.
const NUMBERS: [&str; 10] =
    ["-0", "-1", "1e308", "1e400", "5e-324", "0.1", "-9223372036854775808", "18446744073709551616", "1.0", "007"];

/// The most changes of one input.
const CHANGES_MAX: usize = 8;

/// The longest run of random bytes that is inserted at once.
const INSERTED_MAX: usize = 64;

/// Changes inputs, which stay below a length.
pub(crate) struct Mutator<'a> {
    /// Byte strings with a meaning for the target.
    pub tokens: &'a [Vec<u8>],
    /// The largest length of an input.
    pub bytes_max: usize,
}

impl Mutator<'_> {
    /// Changes an input in one or several ways. `other` is another input, parts of which may be copied.
    pub fn mutate(&self, random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
        if random.once_in(256) {
            input.clear();
            let length = random.small(self.bytes_max);
            input.extend((0..length).map(|_| random.byte()));
            return;
        }
        for _ in 0..random.small(CHANGES_MAX) {
            self.change(random, input, other);
        }
        input.truncate(self.bytes_max);
    }

    fn change(&self, random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
        match random.below(12) {
            0 => {
                let bit = 1 << random.below(8);
                if let Some(byte) = at(random, input) {
                    *byte ^= bit;
                }
            }
            1 => {
                let value = random.byte();
                if let Some(byte) = at(random, input) {
                    *byte = value;
                }
            }
            2 => {
                let new: Vec<u8> = (0..random.small(INSERTED_MAX)).map(|_| random.byte()).collect();
                put(random, input, &new);
            }
            3 => drop(input.drain(range(random, input.len()))),
            4 => {
                let copy = input[range(random, input.len())].to_vec();
                let times = if random.once_in(8) { random.small(64) } else { 1 };
                let room = self.bytes_max.saturating_sub(input.len()) / copy.len().max(1);
                put(random, input, &copy.repeat(times.min(room)));
            }
            5 => {
                let part = range(random, other.len());
                put(random, input, &other[part]);
            }
            6 => {
                let number = random.pick(&BOUNDARIES).copied().unwrap_or_default();
                let width = [1, 2, 3, 4, 8][random.below(5)];
                match random.once_in(2) {
                    true => put(random, input, &number.to_be_bytes()[8 - width..]),
                    false => put(random, input, &number.to_le_bytes()[..width]),
                }
            }
            7 => change_number(random, input),
            8 => match random.pick(self.tokens) {
                Some(token) => put(random, input, token),
                None => change_number(random, input),
            },
            9 if random.once_in(4) => input.truncate(random.below(input.len())),
            9 => input.truncate(input.len().saturating_sub(random.small(16))),
            10 => {
                // Moves a part to another offset.
                let part: Vec<u8> = input.drain(range(random, input.len())).collect();
                let offset = random.below(input.len() + 1);
                input.splice(offset..offset, part);
            }
            _ => {
                let (run, value) = (range(random, input.len()), random.byte());
                input[run].fill(value);
            }
        }
    }
}

fn at<'a>(random: &mut Random, input: &'a mut [u8]) -> Option<&'a mut u8> {
    let offset = random.below(input.len());
    input.get_mut(offset)
}

/// Returns a range of an input, which is mostly short.
fn range(random: &mut Random, length: usize) -> Range<usize> {
    let start = random.below(length);
    let end = start + random.small(length);
    start..end.min(length)
}

/// Inserts bytes, or writes them over others.
fn put(random: &mut Random, input: &mut Vec<u8>, bytes: &[u8]) {
    let offset = random.below(input.len() + 1);
    let replaced = if random.once_in(2) { bytes.len() } else { 0 };
    let end = input.len().min(offset + replaced);
    input.splice(offset..end, bytes.iter().copied());
}

/// Replaces decimal digits by another number. Inserts a number where the input has no digits.
fn change_number(random: &mut Random, input: &mut Vec<u8>) {
    let number = match random.pick(&NUMBERS) {
        Some(text) if random.once_in(2) => (*text).to_string(),
        _ => random.pick(&BOUNDARIES).map(ToString::to_string).unwrap_or_default(),
    };
    let from = random.below(input.len());
    let digit = |offset: &usize| input[*offset].is_ascii_digit();
    match (from..input.len()).chain(0..from).find(digit) {
        Some(start) => {
            let end = (start..input.len()).find(|offset| !digit(offset)).unwrap_or(input.len());
            input.splice(start..end, number.bytes());
        }
        None => put(random, input, number.as_bytes()),
    }
}
