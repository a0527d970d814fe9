//! Tests of buckets.

use proptest::prelude::*;

use crate::{BucketRow, BucketSize, Bucketing, Key, Permutation};

fn bucketing(lengths: &[u32], size: BucketSize, seed: Option<u64>) -> Bucketing {
    let mut bucketing = Bucketing::new(size, lengths.len() as u64, seed);
    for group in 0..bucketing.num_groups() {
        let of_group = lengths_of(&bucketing, lengths, group);
        bucketing.add(&of_group);
    }
    bucketing
}

fn lengths_of(bucketing: &Bucketing, lengths: &[u32], group: u64) -> Vec<u32> {
    bucketing.group_rows(group).into_iter().flatten().map(|row| lengths[row as usize]).collect()
}

/// Returns the buckets of an epoch, each from the lengths of its own group.
fn buckets(bucketing: &Bucketing, lengths: &[u32], seed: u64, epoch: u64) -> Vec<Vec<BucketRow>> {
    let mut all: Vec<Vec<BucketRow>> = Vec::new();
    for number in 0..bucketing.num_groups() {
        let group = bucketing.group(number, &lengths_of(bucketing, lengths, number)).in_epoch(seed, epoch);
        for index in 0..group.num_buckets() {
            assert_eq!(bucketing.group_of(all.len() as u64), Some((number, index as u64)));
            all.push(group.bucket(index).expect("a bucket").to_vec());
        }
        assert_eq!(group.bucket(group.num_buckets()), None);
    }
    assert_eq!((all.len() as u64, bucketing.group_of(all.len() as u64)), (bucketing.num_buckets(), None));
    all
}

fn rows(buckets: &[Vec<BucketRow>]) -> Vec<Vec<u64>> {
    buckets.iter().map(|bucket| bucket.iter().map(|row| row.row).collect()).collect()
}

/// Buckets have these golden values; if they change, buckets need a new version.
#[test]
fn buckets_are_frozen() {
    let lengths = [5, 3, 0, 12, 4, 8, 1, 7, 3, 5, 5, 2, 6, 25, 3, 5, 5, 5, 5];
    let few = bucketing(&lengths, BucketSize { max_tokens: 20, max_rows: 4, multiple: 2 }, Some(7));
    for (epoch, golden) in (0..).zip(GOLDEN) {
        assert_eq!(format!("{:?}", rows(&buckets(&few, &lengths, 7, epoch))), golden);
    }
    // Several blocks and groups.
    let lengths: Vec<u32> = (0..5_000).map(|row| row * 37 % 50).collect();
    for (seed, golden) in [(Some(7), GOLDEN_SHUFFLED), (None, GOLDEN_IN_ORDER)] {
        let many = bucketing(&lengths, BucketSize { max_tokens: 400, max_rows: u64::MAX, multiple: 1 }, seed);
        let absorb = |key: Key, bucket: &Vec<u64>| bucket.iter().fold(key, |key, row| key.with(*row)).with(u64::MAX);
        let all = rows(&buckets(&many, &lengths, 7, 1));
        assert_eq!((all.len(), all.iter().fold(Key::new(0), absorb).bits()), golden);
    }
}

const GOLDEN: [&str; 2] = [
    "[[3], [13], [5, 7], [6, 2], [11, 8, 1, 14], [16, 18, 10], [15, 0, 17], [12, 9, 4]]",
    "[[3], [16, 10, 9], [5, 7], [12, 17, 0], [13], [4, 18, 15], [2, 6], [1, 11, 14, 8]]",
];
const GOLDEN_SHUFFLED: (usize, u64) = (322, 5_981_932_289_273_706_147);
const GOLDEN_IN_ORDER: (usize, u64) = (323, 13_472_440_034_399_307_601);

/// Returns lengths whose logarithm has about a normal distribution, as that of texts.
fn texts(num_rows: u64, median: f64) -> Vec<u32> {
    let uniform = |row, number| Key::new(row).with(number).bits() as f64 / u64::MAX as f64;
    let normal = |row| (0..12).map(|number| uniform(row, number)).sum::<f64>() - 6.0;
    (0..num_rows).map(|row| (median * (0.8 * normal(row)).exp()).ceil() as u32).collect()
}

const TEXTS: BucketSize = BucketSize { max_tokens: 16_384, max_rows: u64::MAX, multiple: 8 };

#[test]
fn buckets_of_lengths_like_those_of_text_have_little_padding() {
    for median in [50.0, 200.0, 800.0] {
        let lengths = texts(40_000, median);
        let bucketing = bucketing(&lengths, TEXTS, Some(1));
        let tokens: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
        let (fill, of_budget) = (bucketing.fill(), tokens as f64 / (bucketing.num_buckets() * TEXTS.max_tokens) as f64);
        assert!(fill > 0.85, "{fill} of padded rows of texts of {median} tokens are tokens");
        assert!(of_budget > 0.8, "{of_budget} of the tokens that buckets may have are tokens");
    }
}

#[test]
fn rows_change_places_from_epoch_to_epoch_and_lengths_do_not_trend() {
    let lengths = texts(4_000, 300.0);
    let bucketing = bucketing(&lengths, TEXTS, Some(1));
    let sorted = |epoch| {
        let mut all = rows(&buckets(&bucketing, &lengths, 1, epoch));
        all.iter_mut().for_each(|bucket| bucket.sort_unstable());
        all
    };
    let (first, second) = (sorted(0), sorted(1));
    let same = first.iter().filter(|bucket| second.contains(bucket)).count();
    assert!(same * 4 < first.len() * 3, "{same} of {} buckets are the same in two epochs", first.len());
    let all = buckets(&bucketing, &lengths, 1, 0);
    let rising = all.windows(2).filter(|pair| pair[0][0].length < pair[1][0].length).count();
    assert!((rising * 3 > all.len()) && (rising * 3 < all.len() * 2), "{rising} of {} buckets are longer", all.len());
}

/// Rows that are sorted by class come together with rows of other classes, unless the order is not shuffled.
#[test]
fn groups_have_blocks_from_anywhere() {
    let lengths = vec![10; 64 * 256];
    let size = BucketSize { max_tokens: 640, max_rows: 64, multiple: 1 };
    let spread = |seed| {
        let all = buckets(&bucketing(&lengths, size, seed), &lengths, 1, 0);
        let spread = |bucket: &Vec<BucketRow>| {
            let rows = bucket.iter().map(|row| row.row);
            rows.clone().max().unwrap_or(0) - rows.min().unwrap_or(0)
        };
        all.iter().map(spread).sum::<u64>() / all.len() as u64
    };
    assert!(spread(Some(1)) > lengths.len() as u64 / 2, "{} rows", spread(Some(1)));
    assert!(spread(None) < 4_096, "{} rows", spread(None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn each_row_is_in_one_bucket_within_the_budget(
        lengths in prop_oneof![
            prop::collection::vec(prop_oneof![4 => 0u32..20, 2 => 0u32..200, 1 => 0u32..5_000], 0..400),
            (0u64..10_000, 1u32..300).prop_map(|(num_rows, longest)| {
                (0..num_rows).map(|row| (Key::new(row).bits() % u64::from(longest)) as u32).collect::<Vec<u32>>()
            }),
        ],
        max_tokens in 1u64..3_000, max_rows in prop_oneof![Just(u64::MAX), 1u64..50], multiple in 1u64..70,
        is_shuffled in any::<bool>(), seed in any::<u64>(), epoch in 0u64..3,
    ) {
        let size = BucketSize { max_tokens, max_rows, multiple: multiple.min(max_tokens) };
        let bucketing = bucketing(&lengths, size, is_shuffled.then_some(seed));
        let buckets = buckets(&bucketing, &lengths, seed, epoch);
        let mut found = vec![0; lengths.len()];
        for bucket in &buckets {
            prop_assert!(!bucket.is_empty() && bucket.len() as u64 <= max_rows);
            let longest = bucket.iter().map(|row| u64::from(row.length)).max().unwrap_or(0);
            let padded = longest.next_multiple_of(size.multiple) * bucket.len() as u64;
            prop_assert!(padded <= max_tokens || bucket.len() == 1, "{padded} of {max_tokens} tokens");
            for row in bucket {
                prop_assert_eq!(row.length, lengths[row.row as usize]);
                found[row.row as usize] += 1;
            }
        }
        prop_assert!(found.iter().all(|times| *times == 1), "rows come {found:?} times");
        let sizes = |buckets: &[Vec<BucketRow>]| {
            let mut sizes: Vec<usize> = buckets.iter().map(Vec::len).collect();
            sizes.sort_unstable();
            sizes
        };
        let next = self::buckets(&bucketing, &lengths, seed, epoch + 1);
        prop_assert_eq!(sizes(&buckets), sizes(&next), "another epoch has other buckets");
    }
}

/// A permutation of no blocks is not asked for any.
#[test]
fn no_rows_have_no_buckets() {
    let bucketing = bucketing(&[], TEXTS, Some(3));
    assert_eq!((bucketing.num_groups(), bucketing.num_buckets(), bucketing.group_of(0)), (0, 0, None));
    assert!(bucketing.group_rows(0).is_empty());
    assert!(Permutation::new(0, Key::new(3)).is_empty());
}
