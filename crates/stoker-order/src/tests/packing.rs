//! Tests of packs.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::{DocumentPiece, Key, PackSize, Packer, Packing, Permutation};

fn packing(lengths: &[u32], length: u64, group_packs: u64) -> Packing {
    let mut packer = Packer::new(PackSize { length, group_packs });
    lengths.iter().for_each(|length| packer.add(*length));
    packer.finish()
}

/// Returns the packs of an epoch, each from the lengths of its own group.
fn packs(packing: &Packing, lengths: &[u32], seed: u64, epoch: u64) -> Vec<Vec<DocumentPiece>> {
    let num_groups = packing.num_packs().checked_sub(1).map_or(0, |last| packing.group_of(last).0 + 1);
    let mut all = Vec::new();
    for number in 0..num_groups {
        let documents = packing.group_documents(number);
        let lengths = &lengths[documents.start as usize..documents.end as usize];
        let group = packing.group(number, lengths).in_epoch(seed, epoch);
        assert_eq!(packing.group_of(all.len() as u64), (number, 0), "groups have equally many packs");
        all.extend(group.packs().to_vec());
    }
    assert_eq!(all.len() as u64, packing.num_packs());
    all
}

/// Packs have these golden values; if they change, packs need a new version.
#[test]
fn packs_are_frozen() {
    let lengths = [5, 3, 0, 12, 4, 8, 1, 7, 3, 5, 5, 2, 6, 25, 3];
    let packing = packing(&lengths, 10, 3);
    let shown = |epoch| {
        let packs = packs(&packing, &lengths, 7, epoch);
        let piece = |piece: &DocumentPiece| (piece.document, piece.start, piece.length);
        packs.iter().map(|pack| pack.iter().map(piece).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    assert_eq!(format!("{:?}", shown(0)), GOLDEN[0]);
    assert_eq!(format!("{:?}", shown(1)), GOLDEN[1]);
}

const GOLDEN: [&str; 2] = [
    "[[(1, 0, 3), (3, 10, 2), (0, 0, 5)], [(3, 0, 10)], [(11, 0, 2), (4, 0, 4), (6, 0, 1), (8, 0, 3)], [(5, 0, 8)], [(7, 0, 7), (14, 0, 3)], [(10, 0, 5), (9, 0, 5)], [(12, 0, 6)], [(13, 0, 10)], [(13, 10, 10)], [(13, 20, 5)]]",
    "[[(1, 0, 3), (3, 10, 2), (0, 0, 5)], [(3, 0, 10)], [(8, 0, 3), (6, 0, 1), (11, 0, 2), (4, 0, 4)], [(5, 0, 8)], [(7, 0, 7), (14, 0, 3)], [(10, 0, 5), (9, 0, 5)], [(12, 0, 6)], [(13, 0, 10)], [(13, 10, 10)], [(13, 20, 5)]]",
];

/// Returns the lengths of documents in random order, of which the r-th longest has 1/r of the tokens of the longest (Zipf).
fn zipf(num_documents: u64, longest: f64) -> Vec<u32> {
    let rank = Permutation::new(num_documents, Key::new(3));
    (0..num_documents).map(|document| (longest / (1 + rank.apply(document)) as f64).ceil() as u32).collect()
}

/// Returns lengths whose logarithm has about a normal distribution, as that of texts: half of them have up to `median`
/// tokens, one in forty more than ten times as many.
fn texts(num_documents: u64, median: f64) -> Vec<u32> {
    let uniform = |document, number| Key::new(document).with(number).bits() as f64 / u64::MAX as f64;
    let normal = |document| (0..12).map(|number| uniform(document, number)).sum::<f64>() - 6.0;
    (0..num_documents).map(|document| (median * (1.15 * normal(document)).exp()).ceil() as u32).collect()
}

#[test]
fn packs_of_lengths_like_those_of_text_are_full() {
    for (length, group_packs) in [(2_048, 128), (8_192, 32), (32_768, 16)] {
        for (name, lengths) in [
            ("Zipf, 3 million", zipf(200_000, 3_000_000.0)),
            ("Zipf, 300,000", zipf(200_000, 300_000.0)),
            ("texts of 100 tokens", texts(200_000, 100.0)),
            ("texts of 400 tokens", texts(100_000, 400.0)),
        ] {
            let packing = packing(&lengths, length, group_packs);
            let fill = packing.fill();
            assert!(fill > 0.99, "{fill} of packs of {length}: {name}");
        }
    }
}

#[test]
fn documents_change_places_from_epoch_to_epoch() {
    let lengths = zipf(5_000, 30_000.0);
    let packing = packing(&lengths, 2_048, 64);
    let (first, second) = (packs(&packing, &lengths, 1, 0), packs(&packing, &lengths, 1, 1));
    let same = first.iter().zip(&second).filter(|(one, other)| one == other).count();
    assert!(same * 2 < first.len(), "{same} of {} packs are the same in two epochs", first.len());
}

proptest! {
    #[test]
    fn each_token_is_in_one_pack(
        lengths in prop::collection::vec(prop_oneof![4 => 0u32..20, 2 => 0u32..200, 1 => 0u32..5_000], 0..400),
        length in 2u64..300, group_packs in 1u64..20, seed in any::<u64>(), epoch in 0u64..3,
    ) {
        let packing = packing(&lengths, length, group_packs);
        let packs = packs(&packing, &lengths, seed, epoch);
        let mut tokens: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for pack in &packs {
            let used: u64 = pack.iter().map(|piece| piece.length).sum();
            prop_assert!(used > 0 && used <= length, "{used} of {length} tokens");
            for piece in pack {
                let whole = u64::from(lengths[piece.document as usize]);
                prop_assert_eq!(piece.is_whole, whole <= length, "only longer documents are cut");
                tokens.entry(piece.document).or_default().push((piece.start, piece.start + piece.length));
            }
        }
        for (document, whole) in (0..).zip(&lengths) {
            let mut found = tokens.remove(&document).unwrap_or_default();
            found.sort_unstable();
            let mut next = 0;
            for (start, end) in found {
                prop_assert_eq!(start, next, "document {}", document);
                next = end;
            }
            prop_assert_eq!(next, u64::from(*whole), "document {}", document);
        }
    }
}
