//! What is known of the checksums of a lake's data files.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::path::Path;
use parking_lot::Mutex;

use super::local::OpenFiles;
use super::trailer::Trailer;
use crate::checksums::{SegmentCache, SegmentKey};

/// Files whose ends are kept, of some hundred bytes each.
const TRAILERS_MAX: usize = 16 << 10;

/// Bytes of checksums that are kept.
const SUMS_BYTES: usize = 64 << 20;

/// Damaged sectors that are kept of a file, and files of which some are kept.
const DAMAGED_MAX: usize = 1 << 10;

/// Sectors that two reads found damaged are not read again for so long: who looks for the rows in them asks for them often.
const DAMAGED_FOR: Duration = Duration::from_secs(10);

/// What is known of the checksums of a lake's data files, within bounds.
pub(super) struct Known {
    trailers: Mutex<HashMap<Path, Arc<Trailer>>>,
    sums: SegmentCache,
    damaged: Mutex<HashMap<Path, HashMap<u64, Instant>>>,
    /// Local files that are open.
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
    /// What a file's end says, if it was read.
    pub fn trailer(&self, path: &Path) -> Option<Arc<Trailer>> {
        self.trailers.lock().get(path).cloned()
    }

    /// Notes what a file's end says.
    pub fn add_trailer(&self, path: &Path, trailer: Arc<Trailer>) {
        let mut trailers = self.trailers.lock();
        if trailers.len() >= TRAILERS_MAX {
            trailers.clear();
        }
        trailers.insert(path.clone(), trailer);
    }

    /// Forgets what a file's end said: the file is another one now.
    pub fn forget(&self, path: &Path) {
        let Some(trailer) = self.trailers.lock().remove(path) else { return };
        for segment in 0..trailer.num_segments() {
            self.sums.remove(&key(path, &trailer.segment(segment)));
        }
    }

    /// The checksums of a segment that lies at these bytes, if they were read.
    pub fn sums(&self, path: &Path, bytes: &Range<u64>) -> Option<Arc<[u32]>> {
        self.sums.get(&key(path, bytes))
    }

    /// Notes the checksums of a segment.
    pub fn add_sums(&self, path: &Path, bytes: &Range<u64>, sums: Arc<[u32]>) {
        self.sums.insert(key(path, bytes), sums);
    }

    /// One of these sectors that was found damaged a short time ago.
    pub fn damaged(&self, path: &Path, sectors: Range<u64>) -> Option<u64> {
        let damaged = self.damaged.lock();
        let of_file = damaged.get(path)?.iter();
        let is_recent = |since: &Instant| since.elapsed() < DAMAGED_FOR;
        of_file.filter(|(sector, since)| sectors.contains(sector) && is_recent(since)).map(|(sector, _)| *sector).min()
    }

    /// Notes that two reads found a sector damaged.
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
