//! Compares the speed of the checksum with that of the library that it falls back to on processors without AVX-512.
//!
//! Run it by `cargo run --release -p stoker-checksum --example checksum_rate`. The figure is in `docs/figures.md`, "Reads
//! of one file, with and without checksums".

use std::hint::black_box;
use std::time::Instant;

use stoker_checksum::checksum;
use twox_hash::XxHash3_64;

const REPETITIONS: usize = 5;
const TOTAL_BYTES: usize = 4_000_000_000;

fn main() {
    #[expect(clippy::cast_possible_truncation, reason = "the numbers are below 251")]
    for length in [2_048, 150_528, 8 << 20] {
        let value: Vec<u8> = (0..length).map(|index| (index * 7919 % 251) as u8).collect();
        report(length, "stoker", || u64::from(checksum(black_box(&value))));
        report(length, "library", || XxHash3_64::oneshot(black_box(&value)));
    }
}

/// Prints the median, the lowest and the highest of the rates, in GB/s.
fn report(length: usize, name: &str, hash: impl Fn() -> u64) {
    let mut rates: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            let started = Instant::now();
            let rounds = TOTAL_BYTES / length;
            black_box((0..rounds).fold(0, |sum: u64, _| sum.wrapping_add(hash())));
            (rounds * length) as f64 / 1e9 / started.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[REPETITIONS / 2];
    eprintln!("{length:>9} bytes, {name:<8} {median:.1} ({:.1}–{:.1}) GB/s", rates[0], rates[REPETITIONS - 1]);
}
