//! Segments of checksums in memory.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

/// What a segment takes in the cache beside its checksums, about.
const SEGMENT_OVERHEAD_BYTES: usize = 256;

/// Keeps the segments that were used last, within a bound in bytes.
pub(crate) struct SegmentCache {
    state: Mutex<State>,
    bytes_max: usize,
}

/// A range of bytes of a data file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SegmentKey {
    pub path: Arc<str>,
    pub bytes: Range<u64>,
}

#[derive(Default)]
struct State {
    segments: HashMap<SegmentKey, Segment>,
    /// When each segment was used, the one used last at the end.
    by_use: BTreeMap<u64, SegmentKey>,
    bytes: usize,
    uses: u64,
    /// Segments that ever came in.
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
    /// An empty cache.
    pub fn new(bytes_max: usize) -> Self {
        Self { state: Mutex::default(), bytes_max }
    }

    /// The checksums of a segment, which thereby was used last.
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

    /// Adds a segment and drops those that were not used for longest. One that is larger than the bound is not kept.
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

    /// Drops a segment, if it is there.
    pub fn remove(&self, key: &SegmentKey) {
        self.state.lock().remove(key);
    }

    /// Bytes of all segments.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Segments that ever came in.
    #[cfg(test)]
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
