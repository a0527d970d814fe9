//! A cache of checksums in memory, in segments.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

/// The approximate size of a cached segment without its checksums, in bytes.
const SEGMENT_OVERHEAD_BYTES: usize = 256;

/// A cache that keeps the most recently used segments, up to a limit in bytes.
pub struct SegmentCache {
    state: Mutex<State>,
    bytes_max: usize,
}

/// A segment: a range of bytes of a data file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SegmentKey {
    /// The path of the file.
    pub path: Arc<str>,
    /// The bytes of the file in which the segment's checksums are.
    pub bytes: Range<u64>,
}

#[derive(Default)]
struct State {
    segments: HashMap<SegmentKey, Segment>,
    /// The segments by their last use, least recent first.
    by_use: BTreeMap<u64, SegmentKey>,
    bytes: usize,
    uses: u64,
    /// The number of segments ever inserted.
    num_inserted: u64,
}

struct Segment {
    values: Arc<[u32]>,
    last_use: u64,
}

impl std::fmt::Debug for SegmentCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        let mut cache = f.debug_struct("SegmentCache");
        cache.field("bytes", &state.bytes).field("bytes_max", &self.bytes_max);
        cache.field("num_segments", &state.segments.len()).field("num_inserted", &state.num_inserted).finish()
    }
}

impl SegmentCache {
    /// An empty cache of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { state: Mutex::default(), bytes_max }
    }

    /// Returns the checksums of a segment, which becomes the most recently used one.
    pub fn get(&self, key: &SegmentKey) -> Option<Arc<[u32]>> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let segment = state.segments.get_mut(key)?;
        state.uses += 1;
        if let Some(key) = state.by_use.remove(&segment.last_use) {
            state.by_use.insert(state.uses, key);
        }
        segment.last_use = state.uses;
        Some(segment.values.clone())
    }

    /// Inserts a segment and evicts the least recently used ones. A segment larger than the limit is not kept.
    pub fn insert(&self, key: SegmentKey, values: Arc<[u32]>) {
        if bytes_of(&values) > self.bytes_max {
            return;
        }
        let mut state = self.state.lock();
        state.remove(&key);
        state.num_inserted += 1;
        state.uses += 1;
        let last_use = state.uses;
        state.bytes += bytes_of(&values);
        state.by_use.insert(last_use, key.clone());
        state.segments.insert(key, Segment { values, last_use });
        while state.bytes > self.bytes_max
            && let Some((_, oldest)) = state.by_use.pop_first()
        {
            state.remove(&oldest);
        }
    }

    /// Removes a segment, if it is cached.
    pub fn remove(&self, key: &SegmentKey) {
        self.state.lock().remove(key);
    }

    /// The bytes of all cached segments.
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// The number of segments ever inserted.
    pub fn num_inserted(&self) -> u64 {
        self.state.lock().num_inserted
    }
}

impl State {
    fn remove(&mut self, key: &SegmentKey) {
        if let Some(segment) = self.segments.remove(key) {
            self.by_use.remove(&segment.last_use);
            self.bytes -= bytes_of(&segment.values);
        }
    }
}

fn bytes_of(values: &[u32]) -> usize {
    size_of_val(values) + SEGMENT_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{SegmentCache, SegmentKey};

    #[test]
    fn the_cache_keeps_what_was_used_last_within_its_bound() {
        let cache = SegmentCache::new(10_000);
        let key = |number: u64| SegmentKey { path: "a".into(), bytes: number * 4_000..(number + 1) * 4_000 };
        let values = |length: usize| Arc::<[u32]>::from(vec![7; length]);
        for number in 0..50 {
            cache.insert(key(number), values(1_000));
            assert!(cache.bytes() <= 10_000, "{cache:?}");
            assert!(cache.get(&key(0)).is_some(), "it is used all the time");
        }
        assert!(cache.get(&key(49)).is_some() && cache.get(&key(48)).is_none());
        let bytes = cache.bytes();
        cache.insert(key(0), values(1_000));
        cache.insert(key(50), values(3_000));
        assert_eq!(cache.bytes(), bytes, "one was there, the other is larger than the bound");
        cache.remove(&key(0));
        cache.remove(&key(0));
        cache.remove(&key(49));
        assert_eq!(cache.bytes(), 0);
    }
}
