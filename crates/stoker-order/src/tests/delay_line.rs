//! Tests of delay lines, order version 2.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use stoker_types::{Mixing, OrderOptions, ShuffleMode, StreamOptions};

use super::mixing;
use crate::{BlockPiece, DelayLine, EpochOrder, SuperStride};

fn options(num_lanes: u32, rows_per_block: u64, super_strides_per_block: u64) -> OrderOptions {
    OrderOptions {
        mode: ShuffleMode::Block,
        num_lanes,
        rows_per_block,
        mixing: Mixing::DelayLine { super_strides_per_block },
    }
}

fn order(num_rows: u64, lanes: u32, block: u64, strides: u64, seed: u64) -> EpochOrder {
    EpochOrder::new(num_rows, &options(lanes, block, strides), seed, 0)
}

fn line(order: &EpochOrder) -> &DelayLine {
    order.delay_line().expect("a delay line")
}

fn all(order: &EpochOrder) -> Vec<u64> {
    let mut ordinals = Vec::new();
    order.ordinals(0..order.num_rows(), &mut ordinals);
    ordinals
}

/// The order has these golden values; if they change, the order needs a new version.
#[test]
fn the_order_is_frozen() {
    // Three lanes of three blocks, two super-strides per block, and a rest of two whole blocks and a short one.
    assert_eq!(all(&order(47, 3, 4, 2, 7)), GOLDEN_CUT);
    // Each row of a block has a super-stride of its own.
    assert_eq!(all(&order(23, 2, 3, 3, 7)), GOLDEN_ROWS);
    // There are fewer blocks than lanes.
    assert_eq!(all(&order(10, 4, 3, 2, 7)), GOLDEN_REST);
}

const GOLDEN_CUT: [u64; 47] = [
    8, 16, 29, 6, 2, 44, 7, 3, 28, 41, 13, 27, 40, 12, 26, 9, 17, 33, 42, 14, 45, 43, 15, 32, 37, 21, 31, 36, 20, 30,
    10, 18, 25, 5, 1, 46, 39, 23, 24, 4, 0, 35, 11, 19, 34, 38, 22,
];
const GOLDEN_ROWS: [u64; 23] = [8, 11, 19, 0, 12, 16, 20, 21, 3, 17, 13, 9, 6, 1, 4, 22, 14, 2, 7, 15, 18, 10, 5];
const GOLDEN_REST: [u64; 10] = [7, 4, 0, 2, 8, 3, 1, 9, 6, 5];

#[test]
fn both_versions_agree_where_no_rows_are_mixed() {
    for mode in [ShuffleMode::Full, ShuffleMode::Sequential] {
        let two = OrderOptions { mode, ..options(4, 3, 2) };
        let one = OrderOptions { mixing: Mixing::Windows { rows_per_window: 5 }, ..two.clone() };
        let [one, two] = [one, two].map(|options| EpochOrder::new(50, &options, 3, 1));
        assert_eq!(all(&one), all(&two));
        assert!(two.delay_line().is_none() && two.window_positions(0).is_none());
    }
}

/// The bars hold with exactly the bytes that the options name, read-ahead included.
#[test]
fn class_sorted_rows_are_mixed_well() {
    let cases = [
        (65_536, 150_528, 1, 256, [0.99, 0.98]),
        (65_536, 150_528, 8, 8 * 96, [0.97, 0.92]),
        (1 << 20, 2_048, 1, 256, [0.97, 0.91]),
        (1 << 20, 2_048, 8, 8 * 256, [0.97, 0.90]),
    ];
    for (num_rows, row_bytes, ranks, mib, bars) in cases {
        let bytes = mib << 20;
        let options = StreamOptions { shuffle_window_bytes: Some(bytes), ..StreamOptions::default() };
        let options = options.delay_line(num_rows, row_bytes);
        assert!(options.resident_rows(num_rows) * row_bytes <= bytes, "{options}");
        for (classes, bar) in [100, 1_000].into_iter().zip(bars) {
            let share = mixing(num_rows, classes, &options, 256, ranks);
            assert!(share >= bar, "{classes} classes, {ranks} ranks: {share} with {options}");
        }
    }
}

/// Small tables mix at least as well as in version 1, up to what a few batches of chance make.
#[test]
fn small_tables_are_mixed_as_well_as_by_version_1() {
    let options = StreamOptions::default();
    for (num_rows, batch, ranks) in [(40, 8, 1), (256, 32, 1), (2_560, 32, 1), (2_560, 32, 8), (65_536, 256, 8)] {
        let [one, two] = [options.windows(num_rows, 2_048), options.delay_line(num_rows, 2_048)];
        for classes in [100, 1_000] {
            let [one, two] = [&one, &two].map(|options| mixing(num_rows, classes, options, batch, ranks));
            assert!(two > one - 0.03, "{num_rows} rows, {classes} classes, {ranks} ranks: {two}, version 1 {one}");
        }
    }
}

#[test]
fn epochs_and_seeds_and_lanes_differ() {
    let take = |seed, epoch| all(&EpochOrder::new(5_000, &options(4, 20, 7), seed, epoch));
    let base = take(1, 0);
    for other in [take(1, 1), take(2, 0)] {
        let same = base.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(same < 15, "{same} of 5,000 rows at the same position");
    }
    // Rows of a block of one row are permuted by the permutation of blocks only. With blocks of several rows, the lanes
    // and super-strides permute them differently.
    let rows_in_block: Vec<u64> = base.iter().map(|ordinal| ordinal % 20).collect();
    let of_lane = |lane: usize| rows_in_block.iter().skip(lane).step_by(4).copied().collect::<Vec<_>>();
    let lanes: BTreeSet<Vec<u64>> = (0..4).map(of_lane).collect();
    assert_eq!(lanes.len(), 4);
    let strides: BTreeSet<&[u64]> = rows_in_block.chunks_exact(80).collect();
    assert_eq!(strides.len(), 62);
}

/// Orders of hostile sizes neither overflow nor take long.
#[test]
fn orders_of_any_size_are_closed_form() {
    for num_rows in [1, 1 << 40, u64::MAX] {
        for block in [1, 3, 1 << 40] {
            for (lanes, strides) in [(1, 1), (1, 1 << 32), (65_536, 7), (65_536, 1 << 32)] {
                let options = options(lanes, block, strides);
                options.validate().expect("valid");
                assert!(options.resident_rows(num_rows) <= num_rows);
                let order = EpochOrder::new(num_rows, &options, 1, 0);
                for position in [0, num_rows / 3, num_rows / 2 + 1, num_rows - 1].map(|at| at.min(num_rows - 1)) {
                    let ordinal = order.ordinal(position);
                    assert!(ordinal < num_rows);
                    assert_eq!(order.position(ordinal), position, "{options}");
                    let stride = line(&order).super_stride(position);
                    let positions = line(&order).positions(stride.number);
                    assert!(positions.contains(&position), "{options}: {positions:?}");
                    // There may be as many as there are open blocks.
                    if line(&order).open_blocks() < 1 << 16 {
                        line(&order).pending(stride).for_each(drop);
                    }
                    line(&order).arrivals(stride).take(3).for_each(drop);
                    assert!(line(&order).pieces(stride).take(3).count() > 0);
                    assert!(line(&order).deliveries(ordinal / block).next().is_some());
                }
            }
        }
    }
}

/// Adds the rows of pieces, each of which must be new, non-empty and inside its block.
fn add(
    rows: &mut BTreeSet<u64>,
    pieces: impl Iterator<Item = BlockPiece>,
    block_rows: u64,
) -> Result<u64, TestCaseError> {
    let before = rows.len();
    for BlockPiece { block, ordinals } in pieces {
        prop_assert!(!ordinals.is_empty());
        prop_assert!(ordinals.start / block_rows == block && (ordinals.end - 1) / block_rows == block);
        for ordinal in ordinals {
            prop_assert!(rows.insert(ordinal), "row {} twice", ordinal);
        }
    }
    Ok((rows.len() - before) as u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_row_is_visited_once(
        num_rows in 0u64..5_000, lanes in 1u32..60, block in 1u64..70, strides in 1u64..90, seed in any::<u64>(),
    ) {
        let order = order(num_rows, lanes, block, strides, seed);
        let mut seen = vec![false; num_rows as usize];
        for (position, ordinal) in all(&order).into_iter().enumerate() {
            prop_assert_eq!(order.ordinal(position as u64), ordinal);
            prop_assert_eq!(order.position(ordinal), position as u64);
            prop_assert!(!seen[ordinal as usize]);
            seen[ordinal as usize] = true;
        }
        prop_assert!(seen.into_iter().all(|seen| seen));
    }

    /// The super-strides have the sizes of the closed form, deliver the pieces that they name, and name each row once.
    #[test]
    fn pieces_are_what_super_strides_deliver(
        num_rows in 0u64..3_000, lanes in 1u32..30, block in 1u64..50, strides in 1u64..70, seed in any::<u64>(),
    ) {
        let order = order(num_rows, lanes, block, strides, seed);
        let line = line(&order);
        let ordinals = all(&order);
        let lanes = u64::from(lanes);
        let lane_blocks = num_rows / block / lanes;
        let window_strides = line.window_strides();
        prop_assert_eq!(window_strides, strides.min(lane_blocks.max(1)).max(1_024u64.div_ceil(block * lanes)));
        prop_assert_eq!(line.num_super_strides(), lane_blocks.max(1));
        let mut delivered: BTreeMap<u64, BTreeSet<(SuperStride, u64, u64)>> = BTreeMap::new();
        let mut end = 0;
        for number in 0..line.num_super_strides() {
            let positions = line.positions(number);
            prop_assert_eq!(positions.start, end);
            prop_assert_eq!(positions.start, lanes * ((num_rows / lanes) * number / lane_blocks.max(1)));
            end = positions.end;
            for lane in 0..lanes {
                let stride = SuperStride { lane, number };
                let mine = positions.clone().filter(|position| position % lanes == lane);
                let wanted: BTreeSet<u64> = mine.map(|position| ordinals[position as usize]).collect();
                let mut named = BTreeSet::new();
                add(&mut named, line.pieces(stride), block)?;
                prop_assert_eq!(&named, &wanted);
                for BlockPiece { block, ordinals } in line.pieces(stride) {
                    delivered.entry(block).or_default().insert((stride, ordinals.start, ordinals.end));
                }
            }
            for position in positions.clone() {
                let stride = line.super_stride(position);
                prop_assert_eq!(stride, SuperStride { lane: position % lanes, number });
                prop_assert_eq!(order.window_positions(position), Some(positions.clone()));
                let window = line.window(position);
                prop_assert!(window.start <= positions.start && positions.end <= window.end);
                let numbers = [window.start, window.end - 1].map(|position| line.super_stride(position).number);
                prop_assert_eq!(numbers[0] % window_strides, 0);
                prop_assert_eq!(numbers[1], (numbers[0] + window_strides).min(line.num_super_strides()) - 1);
                prop_assert_eq!(line.positions(numbers[0]).start, window.start);
                prop_assert_eq!(line.positions(numbers[1]).end, window.end);
            }
        }
        prop_assert_eq!(end, num_rows);
        for number in 0..num_rows.div_ceil(block) {
            let named: Vec<_> = line.deliveries(number).map(|(stride, rows)| (stride, rows.start, rows.end)).collect();
            let wanted = delivered.remove(&number).unwrap_or_default();
            for (stride, start, end) in &named {
                let positions: Vec<u64> = line.positions_of(*start..*end).collect();
                prop_assert!(positions.iter().all(|position| line.super_stride(*position) == *stride));
                prop_assert!((*start..*end).map(|ordinal| order.position(ordinal)).eq(positions));
            }
            prop_assert_eq!(named.len(), wanted.len());
            prop_assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), wanted);
        }
        prop_assert!(delivered.is_empty());
    }

    /// A reader that begins in any super-stride takes up exactly the rows that are still to come, each once, and never
    /// holds more than the options say.
    #[test]
    fn readers_take_up_each_row_once_and_in_time(
        num_rows in 1u64..3_000, lanes in 1u32..20, block in 1u64..50, strides in 1u64..70, seed in any::<u64>(),
        start in any::<prop::sample::Index>(),
    ) {
        let order = order(num_rows, lanes, block, strides, seed);
        let line = line(&order);
        let most = options(lanes, block, strides).resident_rows(u64::MAX) / u64::from(lanes);
        let first = start.index(line.num_super_strides() as usize) as u64;
        let lane = seed % u64::from(lanes);
        for first in [0, first] {
            let mut held = BTreeSet::new();
            let mut taken_up = add(&mut held, line.pending(SuperStride { lane, number: first }), block)?;
            let mut delivered = 0;
            for number in first..line.num_super_strides() {
                let stride = SuperStride { lane, number };
                taken_up += add(&mut held, line.arrivals(stride), block)?;
                let mut ahead = held.clone();
                if number + 1 < line.num_super_strides() {
                    add(&mut ahead, line.arrivals(SuperStride { lane, number: number + 1 }), block)?;
                }
                prop_assert!(ahead.len() as u64 <= most, "{} rows, not {}", ahead.len(), most);
                let blocks: BTreeSet<u64> = held.iter().map(|ordinal| ordinal / block).collect();
                // The rest adds a block that began before, and those that begin.
                prop_assert!(blocks.len() as u64 <= line.open_blocks() + 4, "{:?}", blocks);
                for BlockPiece { ordinals, .. } in line.pieces(stride) {
                    for ordinal in ordinals {
                        prop_assert!(held.remove(&ordinal), "row {} is not there", ordinal);
                        delivered += 1;
                    }
                }
            }
            prop_assert!(held.is_empty());
            prop_assert_eq!(taken_up, delivered);
        }
    }

    #[test]
    fn ranges_of_positions_lie_in_the_super_strides_named(
        num_rows in 1u64..2_000, lanes in 1u32..20, block in 1u64..30, strides in 1u64..40,
        range in (0u64..2_000, 0u64..2_000), lane in any::<prop::sample::Index>(),
    ) {
        let order = order(num_rows, lanes, block, strides, 1);
        let line = line(&order);
        let lane = lane.index(lanes as usize) as u64;
        let positions = range.0.min(range.1)..range.0.max(range.1);
        let mine = |position: &u64| *position < num_rows && position % u64::from(lanes) == lane;
        let wanted: BTreeSet<u64> =
            positions.clone().filter(mine).map(|position| line.super_stride(position).number).collect();
        prop_assert_eq!(line.super_strides(lane, positions).collect::<BTreeSet<_>>(), wanted);
    }

    /// An order of 10^12 rows computes the row at any position directly.
    #[test]
    fn huge_delay_lines_are_closed_form(position in 0u64..1_000_000_000_000, seed in any::<u64>()) {
        let order = order(1_000_000_000_000, 48, 256, 37, seed);
        let ordinal = order.ordinal(position);
        prop_assert!(ordinal < 1_000_000_000_000);
        prop_assert_eq!(order.position(ordinal), position);
    }

    #[test]
    fn planned_options_keep_within_their_bytes(
        num_rows in 0u64..1 << 40, row_bytes in 1u64..1 << 24, lanes in 1u32..2_000, window in 1u64..1 << 40,
        block_bytes in 1u64..1 << 24,
    ) {
        let options = StreamOptions {
            shuffle_window_bytes: Some(window), block_bytes, num_lanes: lanes, ..StreamOptions::default()
        };
        let planned = options.delay_line(num_rows, row_bytes);
        prop_assert!(planned.validate().is_ok(), "{}", planned);
        let held = u128::from(planned.resident_rows(num_rows)) * u128::from(row_bytes);
        prop_assert!(held <= u128::from(window) || planned.rows_per_block == 1, "{} bytes with {}", held, planned);
        prop_assert!(planned.rows_per_block == 1 || planned.rows_per_block * row_bytes <= block_bytes);
    }
}
