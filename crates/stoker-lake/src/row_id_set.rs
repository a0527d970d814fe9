//! Sets of row ids, and the parts of row addresses.
//!
//! A row address, as Lance defines it, is the id of a fragment in the upper 32 bits, and the row's index in the fragment in
//! the lower 32 bits.

use std::collections::BTreeMap;

use arrow_array::{Array as _, UInt64Array};
use lance::dataset::scanner::{RowAddrMask, RowAddrTreeMap};
use roaring::RoaringBitmap;

/// Returns the index in its fragment of the row at this address.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the index is in the lower bits")]
pub fn row_offset(address: u64) -> u32 {
    address as u32
}

/// Converts the id of a fragment in a manifest to the id in row addresses. Lance gives no fragment an id of more than 32
/// bits; such an id becomes the largest one.
pub(crate) fn fragment_id(id: u64) -> u32 {
    u32::try_from(id).unwrap_or(u32::MAX)
}

/// Neighbouring ids are inserted as ranges where a range has at least this many ids on average.
const RANGE_IDS_MIN: usize = 4;

/// The ids of some rows of a table, as the column [`ROW_ID`](crate::ROW_ID) of a scan has them.
#[derive(Clone, Debug, Default)]
pub struct RowIdSet {
    /// The lower bits of the ids, by their upper bits.
    rows: BTreeMap<u32, RoaringBitmap>,
    len: u64,
}

impl RowIdSet {
    /// Adds ids, which may be in the set already. Nulls are left out.
    pub fn insert_all(&mut self, ids: &UInt64Array) {
        if ids.null_count() > 0 {
            ids.iter().flatten().for_each(|id| self.insert(&[id]));
            return;
        }
        // Scans mostly return ascending ids.
        let is_together = |id: &u64, next: &u64| id < next && id >> 32 == next >> 32;
        ids.values().chunk_by(is_together).for_each(|ids| self.insert(ids));
    }

    /// Adds ascending ids with the same upper bits.
    fn insert(&mut self, ids: &[u64]) {
        let Some(first) = ids.first() else { return };
        let offsets = self.rows.entry(fragment_id(first >> 32)).or_default();
        let ranges = ids.chunk_by(|id, next| id + 1 == *next);
        if ranges.clone().count().saturating_mul(RANGE_IDS_MIN) <= ids.len() {
            let ends = ranges.filter_map(|range| Some(row_offset(*range.first()?)..=row_offset(*range.last()?)));
            self.len += ends.map(|range| offsets.insert_range(range)).sum::<u64>();
            return;
        }
        self.len += match offsets.append(ids.iter().copied().map(row_offset)) {
            Ok(num_ids) => num_ids,
            // Some are not above all that are in the set.
            Err(sorted) => {
                let rest = &ids[usize::try_from(sorted.valid_until()).unwrap_or(usize::MAX).min(ids.len())..];
                sorted.valid_until() + rest.iter().filter(|id| offsets.insert(row_offset(**id))).count() as u64
            }
        };
    }

    /// The number of ids.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether an id is in the set.
    pub fn contains(&self, id: u64) -> bool {
        self.rows.get(&fragment_id(id >> 32)).is_some_and(|offsets| offsets.contains(row_offset(id)))
    }

    /// The ids, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.rows.iter().flat_map(|(fragment, offsets)| {
            let upper = u64::from(*fragment) << 32;
            offsets.iter().map(move |offset| upper | u64::from(offset))
        })
    }

    /// The approximate size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.rows.values().map(RoaringBitmap::serialized_size).sum()
    }

    pub(crate) fn mask(&self) -> RowAddrMask {
        let mut allowed = RowAddrTreeMap::new();
        self.rows.iter().for_each(|(fragment, offsets)| allowed.insert_bitmap(*fragment, offsets.clone()));
        RowAddrMask::from_allowed(allowed)
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::UInt64Array;

    use super::RowIdSet;

    #[test]
    fn every_id_counts_once() {
        let mut set = RowIdSet::default();
        assert!(set.is_empty());
        set.insert_all(&UInt64Array::from(vec![7, 8, 9, 3]));
        set.insert_all(&UInt64Array::from(vec![Some(9), None, Some(10), Some(1 << 40)]));
        assert_eq!(set.len(), 6);
        let mask = set.mask();
        let selected = |id: u64| mask.selected(id);
        assert!([3, 7, 8, 9, 10, 1 << 40].into_iter().all(selected));
        assert!(![0, 4, 11, (1 << 40) + 1].into_iter().any(selected));
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 7, 8, 9, 10, 1 << 40]);
        // Scattered ids, some of them before and among those of the set, and ranges.
        let scattered: Vec<u64> = (0..50).map(|id| id * 3).chain((100..140).map(|id| id * 2)).collect();
        let ranges: Vec<u64> = (5..40).chain(300..320).collect();
        let mut all: std::collections::BTreeSet<u64> = set.iter().collect();
        for ids in [scattered, ranges] {
            all.extend(&ids);
            set.insert_all(&UInt64Array::from(ids));
            assert_eq!((set.iter().collect::<Vec<_>>(), set.len()), (all.iter().copied().collect(), all.len() as u64));
        }
        let mask = set.mask();
        assert!((0..20).chain(1 << 40..(1 << 40) + 3).all(|id| set.contains(id) == mask.selected(id)));
    }
}
