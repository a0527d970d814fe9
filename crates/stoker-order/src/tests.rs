//! Tests of permutations and orders.

use proptest::prelude::*;
use stoker_types::{Mixing, OrderOptions, ShuffleMode};

use crate::{EpochOrder, Key, Permutation};

mod bucketing;
mod delay_line;
mod mixture;
mod packing;
mod weighted;

fn options(mode: ShuffleMode, num_lanes: u32, rows_per_block: u64, rows_per_window: u64) -> OrderOptions {
    OrderOptions { mode, num_lanes, rows_per_block, mixing: Mixing::Windows { rows_per_window } }
}

/// The order has these golden values; if they change, the order needs a new version.
#[test]
fn the_order_is_frozen() {
    assert_eq!(Key::new(7).with(0).bits(), GOLDEN_KEY);
    let order = EpochOrder::new(23, &options(ShuffleMode::Block, 4, 3, 5), 7, 0);
    assert_eq!((0..23).map(|p| order.ordinal(p)).collect::<Vec<_>>(), GOLDEN_BLOCK);
    let order = EpochOrder::new(10, &options(ShuffleMode::Full, 4, 3, 5), 7, 2);
    assert_eq!((0..10).map(|p| order.ordinal(p)).collect::<Vec<_>>(), GOLDEN_FULL);
}

const GOLDEN_KEY: u64 = 7976766691810922704;
const GOLDEN_BLOCK: [u64; 23] = [8, 3, 20, 21, 1, 10, 15, 13, 0, 4, 18, 12, 7, 9, 16, 14, 6, 5, 19, 22, 2, 11, 17];
const GOLDEN_FULL: [u64; 10] = [0, 7, 3, 8, 2, 1, 9, 6, 4, 5];

/// Returns how well an order mixes the classes of rows that are stored sorted by class: the mean number of distinct
/// classes in a batch of one of `ranks` ranks, divided by its expectation under a uniform permutation.
fn mixing(num_rows: u64, num_classes: u64, options: &OrderOptions, batch: u64, ranks: usize) -> f64 {
    let order = EpochOrder::new(num_rows, options, 11, 3);
    let mut ordinals = Vec::new();
    order.ordinals(0..num_rows, &mut ordinals);
    let mut distinct = 0;
    let mut batches = 0;
    for rank in 0..ranks {
        let of_rank: Vec<u64> = ordinals.iter().skip(rank).step_by(ranks).copied().collect();
        for rows in of_rank.chunks_exact(batch as usize) {
            let mut seen = vec![false; num_classes as usize];
            rows.iter().for_each(|row| seen[(row * num_classes / num_rows) as usize] = true);
            distinct += seen.iter().filter(|seen| **seen).count();
            batches += 1;
        }
    }
    let expected = num_classes as f64 * (1.0 - (1.0 - 1.0 / num_classes as f64).powi(batch as i32));
    distinct as f64 / f64::from(batches) / expected
}

#[test]
fn class_sorted_rows_are_mixed_well() {
    // The options of 65,536 rows of 150 KB with windows of 512 MiB: 3 rows per block, and 74 rows per window of a lane.
    let options = options(ShuffleMode::Block, 48, 3, 74);
    let hundred = mixing(65_536, 100, &options, 256, 1);
    let thousand = mixing(65_536, 1_000, &options, 256, 1);
    assert!(hundred >= 0.97, "{hundred}");
    assert!(thousand >= 0.90, "{thousand}");
}

#[test]
fn a_block_is_read_by_few_windows() {
    let order = EpochOrder::new(100_000, &options(ShuffleMode::Block, 48, 10, 210), 1, 0);
    let mut blocks = 0;
    let mut position = 0;
    while let Some(range) = order.window_positions(position).filter(|range| !range.is_empty()) {
        let mut touched: Vec<u64> = range.clone().map(|p| order.ordinal(p) / 10).collect();
        touched.sort_unstable();
        touched.dedup();
        blocks += touched.len();
        position = range.end;
        if position == 100_000 {
            break;
        }
    }
    // There are 10,000 blocks. The ends of lanes and windows split a few of them.
    assert!(blocks <= 10_600, "{blocks}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn permutations_are_bijections(n in 1u64..3_000, seed in any::<u64>()) {
        let permutation = Permutation::new(n, Key::new(seed));
        let mut seen = vec![false; n as usize];
        for index in 0..n {
            let value = permutation.apply(index);
            prop_assert!(value < n && !seen[value as usize]);
            seen[value as usize] = true;
            prop_assert_eq!(permutation.invert(value), index);
        }
    }

    #[test]
    fn every_order_visits_every_row_once(
        num_rows in 0u64..4_000, lanes in 1u32..60, block in 1u64..50, window in 1u64..300, seed in any::<u64>(),
        epoch in 0u64..5,
        mode in prop_oneof![Just(ShuffleMode::Block), Just(ShuffleMode::Full), Just(ShuffleMode::Sequential)],
    ) {
        let order = EpochOrder::new(num_rows, &options(mode, lanes, block, window), seed, epoch);
        let mut ordinals = Vec::new();
        order.ordinals(0..num_rows, &mut ordinals);
        let mut seen = vec![false; num_rows as usize];
        for (position, ordinal) in ordinals.iter().enumerate() {
            prop_assert_eq!(order.ordinal(position as u64), *ordinal);
            prop_assert_eq!(order.position(*ordinal), position as u64);
            prop_assert!(!seen[*ordinal as usize]);
            seen[*ordinal as usize] = true;
        }
        prop_assert!(seen.into_iter().all(|seen| seen));
    }

    /// An order of 10^12 rows computes the row at any position directly, without visiting the positions before it.
    #[test]
    fn huge_orders_are_closed_form(position in 0u64..1_000_000_000_000, seed in any::<u64>()) {
        let order = EpochOrder::new(1_000_000_000_000, &options(ShuffleMode::Block, 48, 256, 5_461), seed, 9);
        let ordinal = order.ordinal(position);
        prop_assert!(ordinal < 1_000_000_000_000);
        prop_assert_eq!(order.position(ordinal), position);
    }
}

#[test]
fn epochs_and_seeds_differ() {
    let options = options(ShuffleMode::Block, 48, 2, 20);
    let take = |seed, epoch| {
        let order = EpochOrder::new(5_000, &options, seed, epoch);
        (0..5_000).map(|p| order.ordinal(p)).collect::<Vec<_>>()
    };
    let base = take(1, 0);
    for other in [take(1, 1), take(2, 0)] {
        let same = base.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(same < 15, "{same} of 5,000 rows at the same position");
    }
}
