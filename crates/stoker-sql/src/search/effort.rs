//! How much a search by an index compares, and when an exact search compares less.
//!
//! An index compares compressed vectors, in the partitions whose centroids are nearest to the query. The nearest of
//! them are the candidates, whose stored vectors are then compared exactly. With too few candidates or partitions, rows
//! that an exact search finds are missing. How many candidates are needed differs: for a recall of 0.95 of 10 rows, 100 of
//! 100,000 clustered vectors and more than 400 of uniform ones. So a search compares more until the errors of the
//! compressed distances say that it is enough ([`stoker_lake::Table::nearest_by_index`]), unless `refine` sets the number.

/// The rows that are requested beyond `k`, to find ties at rank `k`.
pub(super) const NUM_EXTRA: usize = 32;
/// About how many candidates a search compares for 10 rows, and how that grows with `k`.
const CANDIDATES_MIN: usize = 200;
const CANDIDATES_FACTOR: f64 = 40.0;
const CANDIDATES_POWER: f64 = 0.7;
/// The partitions that are searched at least by default: this factor times the square root of their number.
const PROBES_FACTOR: f64 = 4.0;
/// An exact search pays up to this many vectors for each candidate of the search by an index.
const EXACT_PER_CANDIDATE: u64 = 4;
/// Reading and comparing a vector costs about as much as comparing this many compressed vectors.
const CODES_PER_VECTOR: u64 = 16;

/// Returns the number of candidates: `refine × k`, or about as many as a search without `refine` compares. Always a few
/// more than `k`.
#[expect(clippy::cast_possible_truncation, reason = "casts of numbers with fractions saturate")]
pub(super) fn candidates(k: usize, refine: Option<u32>) -> usize {
    let candidates = match refine {
        Some(refine) => k.saturating_mul(refine as usize),
        None => CANDIDATES_MIN.max((CANDIDATES_FACTOR * (k as f64).powf(CANDIDATES_POWER)) as usize),
    };
    candidates.max(k.saturating_add(NUM_EXTRA))
}

/// Returns the number of partitions that a search compares at least: 4 √n of n, which are all of up to 16, 64 of 256,
/// and 400 of 10,000.
#[expect(clippy::cast_possible_truncation, reason = "casts of numbers with fractions saturate")]
pub(super) fn probes(num_partitions: usize) -> usize {
    let probes = (PROBES_FACTOR * (num_partitions as f64).sqrt()).ceil() as usize;
    probes.min(num_partitions).max(1)
}

/// Tells whether an exact search among `num_allowed` of `num_rows` rows costs less than a search by an index: if the
/// rows are at most four for each candidate, or at most a sixteenth of those in the searched partitions.
pub(super) fn exact_costs_less(
    num_allowed: u64,
    num_rows: u64,
    candidates: usize,
    probes: usize,
    num_partitions: usize,
) -> bool {
    let compressed = u128::from(num_rows) * probes as u128 / num_partitions.max(1) as u128;
    let compressed = u64::try_from(compressed).unwrap_or(u64::MAX).min(num_rows);
    num_allowed <= (candidates as u64).saturating_mul(EXACT_PER_CANDIDATE).max(compressed / CODES_PER_VECTOR)
}

#[cfg(test)]
mod tests {
    use super::{NUM_EXTRA, candidates, exact_costs_less, probes};

    #[test]
    fn candidates_taper() {
        for (k, expected) in [(1, 200), (10, 200), (100, 1_005), (1_000, 5_036), (1_000_000, 1_000_032)] {
            let found = candidates(k, None);
            assert!(found.abs_diff(expected) <= expected / 1_000, "{k}: {found}");
        }
        assert_eq!((candidates(10, Some(1)), candidates(10, Some(20))), (10 + NUM_EXTRA, 200));
        assert_eq!(candidates(usize::MAX, Some(1_000)), usize::MAX);
    }

    #[test]
    fn few_partitions_are_all_searched() {
        let found = [1, 2, 16, 17, 256, 10_000].map(probes);
        assert_eq!(found, [1, 2, 16, 17, 64, 400]);
        assert_eq!(probes(0), 1);
    }

    #[test]
    fn few_rows_are_searched_exactly() {
        assert!(exact_costs_less(0, 100, 400, 1, 1));
        assert!(exact_costs_less(1_600, 100_000, 400, 64, 256));
        assert!(!exact_costs_less(1_601, 100_000, 400, 64, 256));
        assert!(exact_costs_less(62_500, 10_000_000, 400, 100, 1_000));
        assert!(!exact_costs_less(62_501, 10_000_000, 400, 100, 1_000));
        assert!(!exact_costs_less(u64::MAX, u64::MAX, 400, usize::MAX, 0));
    }
}
