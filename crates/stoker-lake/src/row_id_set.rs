//! Sets of row ids, and the parts of row addresses.
//!
//! A row address, as Lance defines it, is the id of a fragment in the upper 32 bits, and the row's index in the fragment in
//! the lower 32 bits.

use std::ops::RangeInclusive;

use arrow_array::{Array as _, UInt64Array};
use lance::dataset::scanner::{RowAddrMask, RowAddrTreeMap};

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

/// The ids of some rows of a table, as the column [`ROW_ID`](crate::ROW_ID) of a scan has them.
#[derive(Clone, Debug, Default)]
pub struct RowIdSet {
    rows: RowAddrTreeMap,
    len: u64,
}

impl RowIdSet {
    /// Adds ids, which may be in the set already. Nulls are left out.
    pub fn insert_all(&mut self, ids: &UInt64Array) {
        if ids.null_count() > 0 {
            ids.iter().flatten().for_each(|id| self.insert(id..=id));
            return;
        }
        // Scans mostly return neighbouring ids.
        for run in ids.values().chunk_by(|id, next| id.checked_add(1) == Some(*next)) {
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                self.insert(*first..=*last);
            }
        }
    }

    fn insert(&mut self, ids: RangeInclusive<u64>) {
        self.len += self.rows.insert_range(ids);
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
        self.rows.get_fragment_bitmap(fragment_id(id >> 32)).is_some_and(|offsets| offsets.contains(row_offset(id)))
    }

    /// The ids, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.rows
            .iter_runs()
            .flat_map(|(fragment, offsets)| offsets.map(move |offset| (u64::from(fragment) << 32) | u64::from(offset)))
    }

    /// The approximate size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.rows.serialized_size()
    }

    pub(crate) fn mask(&self) -> RowAddrMask {
        RowAddrMask::from_allowed(self.rows.clone())
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
        assert!((0..20).chain(1 << 40..(1 << 40) + 3).all(|id| set.contains(id) == mask.selected(id)));
    }
}
