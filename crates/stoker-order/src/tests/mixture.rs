//! Tests of mixtures.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use stoker_types::{
    Digest, MIXTURE_VERSION, MixtureSegment, MixtureSpec, MixtureStop, SPEC_VERSION, ShuffleMode, SourceSpec,
    StreamSpec, slots_for,
};

use super::options;
use crate::{Mixture, StreamOrders};

fn segment(start: u64, drawn: Vec<u64>, weights: &[f64]) -> MixtureSegment {
    MixtureSegment { start, drawn, slots: slots_for(weights).expect("weights") }
}

fn mixture(weights: &[f64]) -> MixtureSpec {
    let segments = vec![segment(0, vec![0; weights.len()], weights)];
    MixtureSpec { version: MIXTURE_VERSION, stop: MixtureStop::First, segments, earlier: None }
}

/// The interleaving has these golden values, which another implementation of `ORDER.md` computed; if they change,
/// mixtures need a new version.
#[test]
fn the_interleaving_is_frozen() {
    let mixture = Mixture::new(&mixture(&[0.5, 0.3, 0.2]), 7);
    let sources: Vec<usize> = (0..32).map(|number| mixture.draw(number).source).collect();
    assert_eq!(sources, GOLDEN_SOURCES);
    assert_eq!(mixture.draw(1_000_000_007), crate::Draw { source: GOLDEN_FAR.0, index: GOLDEN_FAR.1 });
}

const GOLDEN_SOURCES: [usize; 32] =
    [0, 2, 0, 1, 0, 1, 0, 2, 0, 1, 1, 0, 2, 0, 1, 0, 0, 1, 0, 2, 2, 0, 0, 1, 0, 1, 0, 1, 2, 0, 0, 2];
const GOLDEN_FAR: (usize, u64) = (1, 300_000_002);

#[test]
fn no_rank_gets_a_source_alone() {
    // The number of ranks divides the period of these weights. Without variation, some ranks would never get rows of
    // some source.
    for (weights, ranks) in [(&[0.5, 0.5][..], 2), (&[0.7, 0.3], 10), (&[0.9, 0.1], 10), (&[0.25, 0.25, 0.5], 4)] {
        let mixture = Mixture::new(&mixture(weights), 3);
        let draws = 20_000 * ranks as u64;
        let mut counts = vec![vec![0u64; weights.len()]; ranks];
        (0..draws).for_each(|number| counts[(number % ranks as u64) as usize][mixture.draw(number).source] += 1);
        for (rank, counts) in counts.iter().enumerate() {
            for (count, weight) in counts.iter().zip(weights) {
                let share = *count as f64 / 20_000.0 / weight;
                assert!((0.4..1.8).contains(&share), "{weights:?}: rank {rank} has {share} of its share");
            }
        }
    }
}

#[test]
fn an_epoch_ends_with_the_first_or_the_last_source() {
    let mixture = Mixture::new(&mixture(&[0.75, 0.25]), 1);
    let sizes = [300, 300];
    let rows = |stop| mixture.epoch_rows(&sizes, stop, 5).expect("a number");
    let delivered = |rows| mixture.drawn_before(rows);
    let first = rows(MixtureStop::First);
    assert_eq!((delivered(first)[0], delivered(first - 1)[0]), (300, 299));
    let all = rows(MixtureStop::All);
    assert_eq!((delivered(all)[1], delivered(all - 1)[1]), (300, 299));
    assert!(delivered(all)[0] >= 896, "{:?}", delivered(all));
    assert_eq!(rows(MixtureStop::Rows), 5);
    assert_eq!(mixture.epoch_rows(&[u64::MAX, u64::MAX], MixtureStop::All, 0), None, "past 2^64");
}

fn spec(sizes: &[u64], weights: &[f64], mode: ShuffleMode, lanes: u32, num_rows: u64) -> StreamSpec {
    let source = |size: &u64| SourceSpec {
        sql: String::new(),
        params: Vec::new(),
        snapshots: Vec::new(),
        tables: Vec::new(),
        row_set: Digest::of(b""),
        num_rows: *size,
        order: options(mode, lanes, 3, 4),
        weight: None,
        pack: None,
        bucket: None,
    };
    let sources = sizes.iter().map(source).collect();
    StreamSpec { version: SPEC_VERSION, sources, mixture: Some(mixture(weights)), num_rows, seed: 9 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// After any number of draws, each source has its share to within less than one row, and changed weights hold from
    /// their start on.
    #[test]
    fn prefixes_track_the_weights(
        weights in prop::collection::vec(1u32..200, 1..7), later in prop::collection::vec(1u32..200, 6),
        change in 0u64..3_000, seed in any::<u64>(),
    ) {
        let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        let later: Vec<f64> = later.into_iter().take(weights.len()).map(f64::from).collect();
        let mut spec = mixture(&weights);
        let drawn = Mixture::new(&spec, seed).drawn_before(change);
        if change > 0 {
            spec.segments.push(segment(change, drawn, &later));
        }
        spec.validate(weights.len()).expect("valid");
        let mixture = Mixture::new(&spec, seed);
        let mut counts = vec![0u64; weights.len()];
        for number in 0..6_000 {
            let draw = mixture.draw(number);
            prop_assert_eq!(draw.index, counts[draw.source]);
            counts[draw.source] += 1;
            let segment = spec.segments.iter().rev().find(|segment| segment.start <= number).expect("a segment");
            let since = number + 1 - segment.start;
            for (source, weight) in segment.weights().iter().enumerate() {
                let own = (counts[source] - segment.drawn[source]) as f64;
                prop_assert!((own - weight * since as f64).abs() < 1.0 + 1e-6, "{own} of {since} at {weight}");
            }
            if number % 997 == 0 {
                prop_assert_eq!(&mixture.drawn_before(number + 1), &counts);
            }
        }
    }

    /// Over any epochs of the mixture, each source delivers its own epochs one after the other, with each row once per
    /// epoch.
    #[test]
    fn sources_deliver_whole_epochs(
        sizes in prop::collection::vec(1u64..60, 1..5), weights in prop::collection::vec(1u32..20, 5),
        lanes in 1u32..6, epoch_rows in 1u64..300, cut in 0u64..300,
        mode in prop_oneof![Just(ShuffleMode::Block), Just(ShuffleMode::Full), Just(ShuffleMode::Sequential)],
    ) {
        let weights: Vec<f64> = weights.into_iter().take(sizes.len()).map(f64::from).collect();
        let orders = StreamOrders::new(&spec(&sizes, &weights, mode, lanes, epoch_rows));
        let mut seen: BTreeMap<(usize, u64), BTreeSet<u64>> = BTreeMap::new();
        for epoch in 0..4 {
            let order = orders.epoch(epoch);
            let mut visits = Vec::new();
            let cut = cut.min(epoch_rows);
            order.visits(0..cut, &mut visits);
            order.visits(cut..epoch_rows, &mut visits);
            prop_assert_eq!(visits.len() as u64, epoch_rows);
            for visit in visits {
                prop_assert!(visit.ordinal < sizes[visit.source]);
                prop_assert!(order.window_of(&visit).contains(&visit.position));
                prop_assert_eq!(order.visit_beside(&visit, visit.position), visit);
                prop_assert!(seen.entry((visit.source, visit.epoch)).or_default().insert(visit.ordinal), "{visit:?} again");
            }
        }
        // Every epoch of a source is complete except the last one in which it was visited.
        for ((source, epoch), rows) in &seen {
            if seen.contains_key(&(*source, epoch + 1)) {
                prop_assert_eq!(rows.len() as u64, sizes[*source]);
            }
        }
    }
}
