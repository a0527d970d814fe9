//! Stores unranked rows as one compressed bitmap per fragment, with the number of rows before each fragment.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use stoker_lake::row_offset;
use stoker_types::to_usize;

use crate::{Error, Result};

/// The largest distance to the next row that is iterated over; a greater distance is covered by a search.
const STEPS_MAX: u64 = 64;

/// A set of row addresses, in ascending order.
pub(super) struct Bitmaps {
    fragments: Vec<Fragment>,
    num_rows: u64,
}

struct Fragment {
    id: u32,
    rows: RoaringBitmap,
    /// The number of rows in all fragments before this one.
    first: u64,
}

/// Collects row addresses, which may come in any order.
#[derive(Default)]
pub(super) struct BitmapsBuilder {
    fragments: BTreeMap<u32, RoaringBitmap>,
}

impl BitmapsBuilder {
    pub(super) fn insert(&mut self, addrs: &[u64]) {
        let mut addrs = addrs.iter().copied().peekable();
        while let Some(addr) = addrs.peek() {
            let id = (addr >> 32) as u32;
            let rows = self.fragments.entry(id).or_default();
            while let Some(addr) = addrs.next_if(|addr| (addr >> 32) as u32 == id) {
                rows.insert(row_offset(addr));
            }
        }
    }

    pub(super) fn num_rows(&self) -> u64 {
        self.fragments.values().map(RoaringBitmap::len).sum()
    }

    /// Returns the addresses of both.
    pub(super) fn merge(mut self, other: Self) -> Self {
        for (id, rows) in other.fragments {
            *self.fragments.entry(id).or_default() |= rows;
        }
        self
    }

    pub(super) fn finish(mut self) -> Bitmaps {
        for rows in self.fragments.values_mut() {
            rows.optimize();
        }
        Bitmaps::new(self.fragments)
    }
}

impl Bitmaps {
    fn new(fragments: BTreeMap<u32, RoaringBitmap>) -> Self {
        let mut first = 0;
        let fragments = fragments.into_iter().filter(|(_, rows)| !rows.is_empty()).map(|(id, rows)| {
            let fragment = Fragment { id, first, rows };
            first += fragment.rows.len();
            fragment
        });
        let fragments = fragments.collect();
        Self { fragments, num_rows: first }
    }

    pub(super) fn num_rows(&self) -> u64 {
        self.num_rows
    }

    pub(super) fn fragment_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.fragments.iter().map(|fragment| fragment.id)
    }

    /// Returns all addresses in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.fragments.iter().flat_map(|fragment| {
            let id = u64::from(fragment.id);
            fragment.rows.iter().map(move |row| (id << 32) | u64::from(row))
        })
    }

    pub(super) fn into_builder(self) -> BitmapsBuilder {
        BitmapsBuilder { fragments: self.fragments.into_iter().map(|fragment| (fragment.id, fragment.rows)).collect() }
    }

    /// Serializes the set. Each fragment is its id and length as little-endian `u32`, then its bitmap in the portable
    /// Roaring format.
    ///
    /// Equal sets give equal bytes, because the container that a bitmap uses depends only on its content.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for fragment in &self.fragments {
            let length = u32::try_from(fragment.rows.serialized_size())
                .map_err(|_| Error::internal("the bitmap of a fragment is larger than 4 GiB"))?;
            bytes.extend(fragment.id.to_le_bytes());
            bytes.extend(length.to_le_bytes());
            let written = fragment.rows.serialize_into(&mut bytes);
            written.map_err(|source| Error::internal(format!("a bitmap as bytes: {source}")))?;
        }
        Ok(bytes)
    }

    /// Reads the bytes of [`Bitmaps::to_bytes`], or returns why they are not valid.
    pub(super) fn from_bytes(mut bytes: &[u8]) -> Result<Self, String> {
        let mut fragments = BTreeMap::new();
        while !bytes.is_empty() {
            let (Some(id), Some(length)) = (read_u32(bytes, 0), read_u32(bytes, 4)) else {
                return Err("it ends inside a fragment".to_string());
            };
            let end = 8 + length as usize;
            let content = bytes.get(8..end).ok_or("it ends inside a bitmap")?;
            let rows = RoaringBitmap::deserialize_from(content).map_err(|source| source.to_string())?;
            fragments.insert(id, rows);
            bytes = &bytes[end..];
        }
        Ok(Self::new(fragments))
    }

    /// Returns the addresses at ascending ordinals within range.
    pub(super) fn addresses(&self, ordinals: &[u64]) -> Result<Vec<u64>> {
        let mut addrs = Vec::with_capacity(ordinals.len());
        let mut ordinals = ordinals.iter().copied().peekable();
        while let Some(ordinal) = ordinals.peek() {
            let after = self.fragments.partition_point(|fragment| fragment.first <= *ordinal);
            let fragment = after.checked_sub(1).and_then(|index| self.fragments.get(index));
            let fragment = fragment.ok_or_else(|| Error::internal("a row set without fragments has rows"))?;
            let end = fragment.first + fragment.rows.len();
            let within = std::iter::from_fn(|| ordinals.next_if(|ordinal| *ordinal < end));
            let num_before = addrs.len();
            fragment.addresses(within, &mut addrs)?;
            if addrs.len() == num_before {
                return Err(Error::internal("a position is outside the row set"));
            }
        }
        Ok(addrs)
    }

    pub(super) fn bytes_in_memory(&self) -> usize {
        let bitmaps: usize = self.fragments.iter().map(|fragment| fragment.rows.serialized_size()).sum();
        bitmaps + self.fragments.len() * size_of::<Fragment>()
    }
}

impl Fragment {
    /// Appends the addresses at these ordinals of the row set, which must lie in this fragment.
    fn addresses(&self, ordinals: impl Iterator<Item = u64>, addrs: &mut Vec<u64>) -> Result<()> {
        let missing = || Error::internal("a bitmap has fewer rows than counted");
        let mut rows = self.rows.iter();
        // The index in this fragment of the row that `rows` returns next.
        let mut next: Option<u64> = None;
        for ordinal in ordinals {
            let rank = ordinal - self.first;
            let skip = match next.and_then(|next| rank.checked_sub(next)) {
                Some(skip) if skip <= STEPS_MAX => to_usize(skip),
                _ => {
                    let rank = u32::try_from(rank).map_err(|_| missing())?;
                    let row = self.rows.select(rank).ok_or_else(missing)?;
                    rows.advance_to(row);
                    0
                }
            };
            let row = rows.nth(skip).ok_or_else(missing)?;
            addrs.push((u64::from(self.id) << 32) | u64::from(row));
            next = Some(rank + 1);
        }
        Ok(())
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
