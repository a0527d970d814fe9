//! The quality of resampling.

use std::f64::consts::TAU;

use super::wave::wave32f;
use super::{clip, decode};

/// Resamples a second of a tone. Returns the largest difference to the tone at the other rate, if it can have the tone, or
/// to silence. The ends are left out, where the tone begins and ends abruptly.
fn error(rate_in: u32, rate_out: u32, frequency: f64) -> f64 {
    let tone = |index: u32, rate: u32| 0.5 * (TAU * frequency * f64::from(index) / f64::from(rate)).sin();
    let samples: Vec<f32> = (0..rate_in).map(|index| tone(index, rate_in) as f32).collect();
    let (valid, decoded) =
        decode(&wave32f(rate_in, 1, &samples), &clip(rate_out, 1, 0, rate_out.into())).expect("a sound");
    assert_eq!(valid, rate_out as usize);
    let is_heard = frequency < f64::from(rate_out) / 2.0;
    let ends = rate_out / 5;
    let difference = |index: u32| {
        let expected = if is_heard { tone(index, rate_out) } else { 0.0 };
        (f64::from(decoded[index as usize]) - expected).abs()
    };
    (ends..rate_out - ends).map(difference).fold(0.0, f64::max)
}

#[test]
fn tones_below_the_limit_stay_and_others_vanish() {
    for (rate_in, rate_out) in [(44_100, 16_000), (48_000, 16_000), (8_000, 16_000), (16_000, 44_100), (44_100, 48_000)]
    {
        let limit = f64::from(rate_in.min(rate_out)) / 2.0;
        for share in [0.01, 0.3, 0.7, 0.95] {
            let error = error(rate_in, rate_out, limit * share);
            assert!(error < 3e-6, "{rate_in} to {rate_out} Hz at {share} of the limit: {error}");
        }
        if rate_out < rate_in {
            for share in [1.02, 1.2] {
                let error = error(rate_in, rate_out, limit * share);
                assert!(error < 5e-7, "{rate_in} to {rate_out} Hz at {share} of the limit: {error}");
            }
        }
    }
}

#[test]
fn a_constant_stays_and_a_click_stays_at_its_place() {
    let (_, constant) = decode(&wave32f(44_100, 1, &[0.25; 44_100]), &clip(16_000, 1, 4_000, 8_000)).expect("a sound");
    assert!(constant.iter().all(|sample| (sample - 0.25).abs() < 1e-6));
    let mut click = vec![0.0; 48_000];
    click[30_000] = 1.0;
    let (_, decoded) = decode(&wave32f(48_000, 1, &click), &clip(16_000, 1, 9_000, 2_000)).expect("a sound");
    let largest = (0..2_000).max_by(|a, b| decoded[*a].total_cmp(&decoded[*b]));
    assert_eq!(largest, Some(1_000));
    assert!((decoded[999] - decoded[1_001]).abs() < 1e-6, "the filter is symmetric");
}
