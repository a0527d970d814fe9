//! Clips are slices of the whole sound.

use proptest::prelude::*;

use super::files::ALL;
use super::wave::wave32f;
use super::{clip, decode, decode_with, whole};
use crate::{AudioClip, Scratch, Start, header};

/// Noise, which has no two equal parts.
pub fn noise(samples: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..samples).map(|_| next()).collect()
}

#[test]
fn clips_of_all_formats_are_slices_of_the_whole() {
    let mut scratch = Scratch::default();
    for file in ALL {
        let found = header(file).expect("a sound");
        let full = whole(file);
        let total = full[0].len() as u64;
        // Clips in any order, with buffers that were used for others.
        for (start, samples) in [(0, total), (1, 5), (total - 1, 9), (total / 2, 700), (1_100, 1), (577, 2_000), (0, 1)]
        {
            let wanted = clip(found.sample_rate, found.channels, start, samples);
            let (valid, decoded) = decode_with(&mut scratch, file, &wanted, 0.0).expect("a clip");
            assert_eq!(valid as u64, samples.min(total - start), "{} from {start}", found.codec);
            for (channel, decoded) in full.iter().zip(decoded.chunks(samples as usize)) {
                let start = start as usize;
                assert_eq!(decoded[..valid], channel[start..start + valid], "{} from {start}", found.codec);
            }
        }
        let late = clip(found.sample_rate, 1, total, 100);
        let error = decode(file, &late).expect_err("the sound has ended").to_string();
        let end = total as f64 / f64::from(found.sample_rate);
        assert_eq!(error, format!("the clip starts at {end} s, and the sound ends at {end} s"), "{}", found.codec);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Resampled clips have the bits of the resampled whole, which has the right length.
    #[test]
    fn resampled_clips_are_slices_of_the_whole(
        seed in any::<u64>(),
        frames in 1usize..30_000,
        channels in 1u16..4,
        rate_in in prop_oneof![Just(44_100u32), Just(48_000), Just(22_050), Just(8_000), Just(16_000), 4_000u32..50_000],
        rate_out in prop_oneof![Just(16_000u32), Just(24_000), Just(48_000), Just(8_000), Just(11_025)],
        starts in prop::collection::vec((0.0f64..1.0, 1u64..9_000), 1..4),
        mixed in any::<bool>(),
    ) {
        let file = wave32f(rate_in, channels, &noise(frames * usize::from(channels), seed));
        let out_channels = if mixed { 1 } else { channels };
        let total = (frames as f64 * f64::from(rate_out) / f64::from(rate_in)).round().max(1.0) as u64;
        let mut scratch = Scratch::default();
        let whole_clip = clip(rate_out, out_channels, 0, total + 10);
        let (valid, full) = decode_with(&mut scratch, &file, &whole_clip, 0.0).expect("a sound");
        prop_assert_eq!(valid as u64, total);
        for (start, samples) in starts {
            let start = (start * total as f64) as u64;
            let (valid, part) =
                decode_with(&mut scratch, &file, &clip(rate_out, out_channels, start, samples), 0.0).expect("a clip");
            prop_assert_eq!(valid as u64, samples.min(total - start));
            let channels = full.chunks(total as usize + 10).zip(part.chunks(samples as usize));
            for (full, part) in channels {
                prop_assert_eq!(&part[..valid], &full[start as usize..start as usize + valid]);
            }
        }
    }
}

#[test]
fn random_starts_are_uniform_and_functions_of_the_draw() {
    // The value of a sample is its position.
    let samples: Vec<f32> = (0..100).map(|index| index as f32).collect();
    let file = wave32f(8_000, 1, &samples);
    let mut wanted = clip(8_000, 1, 0, 98);
    wanted.start = Start::Random;
    let mut scratch = Scratch::default();
    let mut first = |draw| decode_with(&mut scratch, &file, &wanted, draw).expect("a clip").1[0];
    // Three positions are possible.
    assert_eq!([0.0, 0.33, 0.34, 0.66, 0.67, 1.0 - f64::EPSILON / 2.0].map(&mut first), [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
    for draw in [-0.1, 1.0, f64::NAN] {
        assert!(decode_with(&mut scratch, &file, &wanted, draw).is_err());
    }
    // Short sounds start at zero, and files that do not tell their length are counted.
    let mut long = clip(8_000, 1, 0, 200);
    long.start = Start::Random;
    assert_eq!(decode_with(&mut scratch, &file, &long, 0.9).expect("a clip").0, 100);
    for file in ALL {
        let found = header(file).expect("a sound");
        let full = &whole(file)[0];
        let mut wanted = clip(found.sample_rate, found.channels, 0, 1_000);
        wanted.start = Start::Random;
        let (valid, decoded) = decode_with(&mut scratch, file, &wanted, 0.5).expect("a clip");
        let middle = (full.len() - 1_000) / 2;
        // A time in Matroska is a number of milliseconds.
        let tolerance = if found.num_frames.is_none() { 50 } else { 1 };
        let mut starts = middle - tolerance..middle + tolerance + 1;
        let is_slice = starts.any(|start| full.get(start..start + valid) == Some(&decoded[..valid]));
        assert!(is_slice, "{} does not start near {middle}", found.codec);
    }
}

#[test]
fn starts_may_come_from_a_column() {
    let file = wave32f(8_000, 1, &noise(8_000, 1));
    let mut wanted = clip(8_000, 1, 0, 100);
    wanted.start = Start::Column("begin".to_string());
    let (mut scratch, mut out) = (Scratch::default(), vec![0; wanted.row_bytes()]);
    let mut decode = |start, out: &mut [u8]| wanted.decode(&mut scratch, &file, start, 0.0, out);
    assert_eq!(decode(Some(0.99), &mut out), Ok(80));
    for (start, expected) in [
        (Some(-0.5), "the clip starts at -0.5 s, which is not in the sound"),
        (Some(f64::NAN), "the clip starts at NaN s, which is not in the sound"),
        (Some(f64::INFINITY), "the clip starts at inf s, which is not in the sound"),
        (Some(1.5), "the clip starts at 1.5 s, and the sound ends at 1 s"),
        (Some(1e300), "the clip starts at 562949953421.312 s, and the sound ends at 1 s"),
        (None, "the row has no start in column begin"),
    ] {
        assert_eq!(decode(start, &mut out).expect_err("a bad start").to_string(), expected);
    }
    let error = decode(Some(0.0), &mut [0; 8]).expect_err("a short buffer").to_string();
    assert_eq!(error, "the clip has 400 bytes, and its place 8");
}

#[test]
fn memory_is_bounded_before_it_is_taken() {
    let file = wave32f(48_000, 1, &noise(48_000, 1));
    let mut wanted = AudioClip::new(48_000, 1.0);
    wanted.bytes_max = 192_000;
    assert_eq!(decode(&file, &wanted).map(|(valid, _)| valid), Ok(48_000));
    // At 8 kHz, the tensor is small, and the samples before resampling are not.
    let mut wanted = AudioClip::new(8_000, 1.0);
    wanted.bytes_max = 100_000;
    let error = decode(&file, &wanted).expect_err("too large").to_string();
    assert!(error.ends_with("more than the limit of 100000"), "{error}");
    // Rates without a common divisor need long filters.
    let odd = wave32f(767_957, 1, &noise(1_000, 1));
    let mut wanted = AudioClip::new(767_951, 0.001);
    wanted.bytes_max = 64 << 20;
    assert!(decode(&odd, &wanted).expect_err("too large").to_string().contains("more than the limit"));
}
