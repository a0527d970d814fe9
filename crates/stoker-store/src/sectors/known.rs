//! An in-memory cache of what was read of the checksums of a lake's data files.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::path::Path;
use parking_lot::Mutex;

use super::local::OpenFiles;
use super::trailer::Trailer;
use crate::segment_cache::{SegmentCache, SegmentKey};

/// The maximum number of cached trailers, of some hundred bytes each.
const TRAILERS_MAX: usize = 16 << 10;

/// The maximum size of the cached checksums, in bytes.
const SUMS_BYTES: usize = 64 << 20;

/// The maximum number of damaged sectors that are remembered per file, and the maximum number of files with such
/// sectors.
const DAMAGED_MAX: usize = 1 << 10;

/// How long a sector that two reads found damaged is not read again. The search for the rows in it requests it often.
const DAMAGED_FOR: Duration = Duration::from_secs(10);

/// A bounded cache of trailers, checksums and damaged sectors of a lake's data files.
pub(super) struct Known {
    trailers: Mutex<HashMap<Path, Arc<Trailer>>>,
    sums: SegmentCache,
    damaged: Mutex<HashMap<Path, HashMap<u64, Instant>>>,
    /// The local files that are kept open.
    pub files: Arc<OpenFiles>,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").field("sums", &self.sums).finish_non_exhaustive()
    }
}

impl Default for Known {
    fn default() -> Self {
        let sums = SegmentCache::new(SUMS_BYTES);
        Self { trailers: Mutex::default(), sums, damaged: Mutex::default(), files: Arc::default() }
    }
}

impl Known {
    /// Returns a file's trailer, if it was read.
    pub fn trailer(&self, path: &Path) -> Option<Arc<Trailer>> {
        self.trailers.lock().get(path).cloned()
    }

    /// Remembers a file's trailer. A full cache is emptied first.
    pub fn add_trailer(&self, path: &Path, trailer: Arc<Trailer>) {
        let mut trailers = self.trailers.lock();
        if trailers.len() >= TRAILERS_MAX {
            trailers.clear();
        }
        trailers.insert(path.clone(), trailer);
    }

    /// Removes a file's trailer and checksums from the cache, because the file was replaced.
    pub fn forget(&self, path: &Path) {
        let Some(trailer) = self.trailers.lock().remove(path) else { return };
        for segment in 0..trailer.num_segments() {
            self.sums.remove(&key(path, &trailer.segment(segment)));
        }
    }

    /// Returns the checksums of the segment that is stored at these bytes of a file, if they were read.
    pub fn sums(&self, path: &Path, bytes: &Range<u64>) -> Option<Arc<[u32]>> {
        self.sums.get(&key(path, bytes))
    }

    /// Remembers the checksums of a segment.
    pub fn add_sums(&self, path: &Path, bytes: &Range<u64>, sums: Arc<[u32]>) {
        self.sums.insert(key(path, bytes), sums);
    }

    /// Returns the first of these sectors that was found damaged within the last 10 s.
    pub fn damaged(&self, path: &Path, sectors: Range<u64>) -> Option<u64> {
        let damaged = self.damaged.lock();
        let of_file = damaged.get(path)?.iter();
        let is_recent = |since: &Instant| since.elapsed() < DAMAGED_FOR;
        of_file.filter(|(sector, since)| sectors.contains(sector) && is_recent(since)).map(|(sector, _)| *sector).min()
    }

    /// Remembers that two reads found a sector damaged.
    pub fn add_damaged(&self, path: &Path, sector: u64) {
        let mut damaged = self.damaged.lock();
        for of_file in damaged.values_mut() {
            of_file.retain(|_, since| since.elapsed() < DAMAGED_FOR);
        }
        damaged.retain(|_, of_file| !of_file.is_empty());
        if damaged.len() < DAMAGED_MAX || damaged.contains_key(path) {
            let of_file = damaged.entry(path.clone()).or_default();
            if of_file.len() < DAMAGED_MAX {
                of_file.insert(sector, Instant::now());
            }
        }
    }
}

fn key(path: &Path, bytes: &Range<u64>) -> SegmentKey {
    SegmentKey { path: path.as_ref().into(), bytes: bytes.clone() }
}
