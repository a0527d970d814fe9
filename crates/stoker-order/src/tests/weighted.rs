//! Tests of weighted epochs.

use proptest::prelude::*;

use crate::{WEIGHT_GROUP_ROWS, WeightSums};

fn sums(weights: &[f32]) -> WeightSums {
    let mut sums = WeightSums::default();
    weights.chunks(WEIGHT_GROUP_ROWS as usize).for_each(|group| sums.add(group).unwrap());
    sums
}

/// Returns the rows of an epoch in the order of their weighted ordinals.
fn rows(weights: &[f32], seed: u64, epoch: u64) -> Vec<u64> {
    let sums = sums(weights);
    let order = sums.epoch(seed, epoch);
    let groups: Vec<_> = (0..)
        .zip(weights.chunks(WEIGHT_GROUP_ROWS as usize))
        .map(|(group, weights)| order.group(group, weights))
        .collect();
    let row = |ordinal| {
        let group = order.group_of(ordinal);
        group * WEIGHT_GROUP_ROWS + groups[group as usize].row(ordinal).unwrap()
    };
    (0..sums.num_rows()).map(row).collect()
}

fn times(weights: &[f32], seed: u64, epoch: u64) -> Vec<u64> {
    let mut times = vec![0; weights.len()];
    rows(weights, seed, epoch).into_iter().for_each(|row| times[row as usize] += 1);
    times
}

/// Weighted epochs have these golden values; if they change, weights need a new version.
#[test]
fn weighted_epochs_are_frozen() {
    let weights = [0.5, 2.0, 0.0, 0.25, 3.75, 1.0, 0.5, 0.5, 1.25, 0.75];
    assert_eq!(rows(&weights, 7, 0), GOLDEN[0]);
    assert_eq!(rows(&weights, 7, 1), GOLDEN[1]);
}

const GOLDEN: [[u64; 10]; 2] = [[0, 1, 4, 5, 7, 8, 4, 1, 4, 4], [1, 4, 5, 7, 8, 9, 4, 1, 4, 4]];

#[test]
fn whole_weights_are_exact() {
    let weights: Vec<f32> = (0..3_000).map(|row| (row % 4) as f32).collect();
    for epoch in 0..3 {
        let expected: Vec<u64> = (0..3_000).map(|row| row % 4).collect();
        assert_eq!(times(&weights, 5, epoch), expected);
    }
}

/// Over many epochs, each row comes as often as its weight says, whatever its neighbours are.
#[test]
fn rows_come_as_often_as_they_weigh() {
    let weights: Vec<f32> = (0..600).map(|row| [0.1, 0.5, 1.0, 1.7, 2.5][row % 5]).collect();
    let mut total = vec![0; weights.len()];
    let mut pairs = 0;
    for epoch in 0..400 {
        let times = times(&weights, 3, epoch);
        total.iter_mut().zip(&times).for_each(|(total, times)| *total += times);
        // Rows 1 and 6 weigh a half each: one, both or none of them come.
        pairs += u64::from(times[1] + times[6] != 1);
    }
    for (total, weight) in total.iter().zip(&weights) {
        let mean = *total as f32 / 400.0;
        assert!((mean - weight).abs() < 0.13, "{mean} for the weight {weight}");
    }
    assert!((120..=280).contains(&pairs), "{pairs} of 400 epochs have both or none of two rows");
}

#[test]
fn copies_of_a_row_are_apart() {
    let weights = vec![3.0; 1_000];
    let rows = rows(&weights, 1, 0);
    let mut last = vec![None; 1_000];
    for (ordinal, row) in rows.iter().enumerate() {
        if let Some(before) = last[*row as usize].replace(ordinal) {
            assert_eq!(ordinal - before, 1_000);
        }
    }
}

#[test]
fn numbers_that_are_no_weights_are_refused() {
    for (weights, bad) in [
        (vec![1.0, -0.5], 1),
        (vec![f32::NAN], 0),
        (vec![0.0, 1.0, f32::INFINITY], 2),
        (vec![16_777_218.0], 0),
        (vec![16_777_216.0; 70_000], 65_535),
    ] {
        assert_eq!(WeightSums::default().add(&weights), Err(bad));
    }
    assert_eq!(sums(&[]).num_rows(), 0);
    assert_eq!(sums(&[0.25, 0.5]).num_rows(), 0);
    assert_eq!(sums(&[-0.0, 1.0]).num_rows(), 1);
}

proptest! {
    #[test]
    fn each_row_comes_about_as_often_as_it_weighs(
        weights in prop::collection::vec(prop_oneof![Just(0.0f32), 0.0f32..1.0, 0.0f32..40.0, Just(1.0)], 0..3_000),
        seed in any::<u64>(), epoch in 0u64..4,
    ) {
        let (times, total) = (times(&weights, seed, epoch), sums(&weights).total());
        for (times, weight) in times.iter().zip(&weights) {
            let weight = (f64::from(*weight) * 16_777_216.0).round() / 16_777_216.0;
            prop_assert!(*times as f64 == weight.floor() || *times as f64 == weight.ceil(), "{times} of {weight}");
        }
        prop_assert_eq!(times.iter().sum::<u64>() as f64, total.floor());
    }
}
