//! Which rows are in memory, and where.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

use stoker_types::to_usize;

use crate::resident::groups::DueGroup;

/// Groups of rows that are in memory, and where the rows of each block are in them.
#[derive(Default)]
pub(super) struct KeptRows {
    blocks: HashMap<u64, KeptBlock, BuildHasherDefault<BlockHasher>>,
    /// The groups by number, from `first_group` on; `None` for those whose rows were all taken.
    groups: VecDeque<Option<Arc<DueGroup>>>,
    first_group: u32,
}

/// Where the rows of a block are.
struct KeptBlock {
    rows: Box<[KeptRow]>,
    /// The number of groups that have rows of the block.
    num_groups: usize,
}

/// Where a row is.
#[derive(Clone, Copy)]
pub(super) struct KeptRow {
    /// The number of its group. No two groups have the same number.
    pub group: u32,
    /// The index in the group.
    pub row: u32,
}

impl KeptRow {
    /// A row that is not in memory.
    const ABSENT: Self = Self { group: u32::MAX, row: 0 };
}

impl KeptRows {
    /// Adds a group. Returns its number, or `None` if there are no numbers left.
    pub fn add(&mut self, group: Arc<DueGroup>, rows_per_block: u64) -> Option<u32> {
        let number = self.first_group.checked_add(u32::try_from(self.groups.len()).ok()?)?;
        if number == KeptRow::ABSENT.group {
            return None;
        }
        for block in &group.blocks {
            let kept = self.blocks.entry(*block).or_insert_with(|| KeptBlock {
                rows: vec![KeptRow::ABSENT; to_usize(rows_per_block)].into_boxed_slice(),
                num_groups: 0,
            });
            kept.num_groups += 1;
        }
        self.groups.push_back(Some(group));
        Some(number)
    }

    /// Records that some rows of a block, by their indexes in the block, are in a group, from index `at` of the group on.
    pub fn place(&mut self, block: u64, rows: Range<usize>, group: u32, at: usize) {
        let Some(kept) = self.blocks.get_mut(&block).and_then(|block| block.rows.get_mut(rows)) else { return };
        for (row, index) in kept.iter_mut().zip(at..) {
            if let Ok(row_of_group) = u32::try_from(index) {
                *row = KeptRow { group, row: row_of_group };
            }
        }
    }

    /// Returns where a row of a block is, with its group, if it is in memory.
    pub fn find(&self, block: u64, row: usize) -> Option<(KeptRow, &Arc<DueGroup>)> {
        let kept = *self.blocks.get(&block)?.rows.get(row)?;
        let index = kept.group.checked_sub(self.first_group)?;
        Some((kept, self.groups.get(index as usize)?.as_ref()?))
    }

    /// Returns the number of the oldest group, and how many numbers there are from it on.
    pub fn numbers(&self) -> (u32, usize) {
        (self.first_group, self.groups.len())
    }

    /// Removes a group.
    pub fn remove(&mut self, number: u32) {
        let index = number.wrapping_sub(self.first_group) as usize;
        let Some(group) = self.groups.get_mut(index).and_then(Option::take) else { return };
        for block in &group.blocks {
            if let Entry::Occupied(mut kept) = self.blocks.entry(*block) {
                kept.get_mut().num_groups -= 1;
                if kept.get().num_groups == 0 {
                    kept.remove();
                }
            }
        }
        while self.groups.pop_front_if(|group| group.is_none()).is_some() {
            self.first_group += 1;
        }
    }
}

/// A hash of the number of a block, which nobody chooses.
#[derive(Default)]
struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // The factor of Fibonacci hashing: 2^64 over the golden ratio.
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(blocks: &[u64]) -> Arc<DueGroup> {
        Arc::new(DueGroup::without_rows(blocks.to_vec()))
    }

    #[test]
    fn rows_are_found_until_their_group_is_removed() {
        let mut kept = KeptRows::default();
        let first = kept.add(group(&[3, 7]), 4).expect("a number");
        kept.place(3, 1..3, first, 10);
        kept.place(7, 0..1, first, 12);
        let second = kept.add(group(&[7]), 4).expect("a number");
        kept.place(7, 2..4, second, 0);
        let at = |kept: &KeptRows, block, row| kept.find(block, row).map(|(found, _)| (found.group, found.row));
        let all =
            |kept: &KeptRows| [(3, 0), (3, 1), (3, 2), (7, 0), (7, 3), (8, 0), (7, 4)].map(|(b, r)| at(kept, b, r));
        assert_eq!(all(&kept), [None, Some((0, 10)), Some((0, 11)), Some((0, 12)), Some((1, 1)), None, None]);
        kept.remove(first);
        assert_eq!(all(&kept), [None, None, None, None, Some((1, 1)), None, None]);
        assert_eq!(kept.blocks.len(), 1, "block 3 has no rows left");
        // No later group has the number of a removed one, so its rows are not mistaken for those of that one.
        let third = kept.add(group(&[7]), 4).expect("a number");
        assert_eq!((third, kept.numbers()), (2, (1, 2)));
        assert_eq!(at(&kept, 7, 0), None);
        kept.remove(third);
        kept.remove(third);
        kept.remove(second);
        assert_eq!((kept.blocks.len(), kept.numbers().1), (0, 0));
    }

    #[test]
    fn blocks_have_different_hashes() {
        let hash = |block: u64| {
            let mut hasher = BlockHasher::default();
            hasher.write_u64(block);
            hasher.finish()
        };
        let hashes: std::collections::BTreeSet<u64> = (0..10_000).map(|block| hash(block) >> 40).collect();
        assert!(hashes.len() > 9_900, "{} of 10,000", hashes.len());
    }
}
