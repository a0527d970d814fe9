//! The size of a cache's folder, and the entries that may be evicted.

use std::collections::BinaryHeap;
use std::fs::{self, DirEntry, Metadata, ReadDir};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::cache::entry::{ChunkKey, PARTIAL, create_folder};

/// Entries that were not used for this long may be evicted, even if this process opened the folder before their last
/// use.
const IDLE: Duration = Duration::from_secs(86_400);

/// A file that is incomplete after this time was left by a process that was killed.
const PARTIAL_AGE: Duration = Duration::from_secs(3_600);

/// The maximum number of entries that are remembered as the next to be evicted.
const OLDEST_MAX: usize = 64 << 10;

/// The folder is measured again after space was requested for this fraction of its limit (1/32). Measuring 64,000
/// entries takes some tenths of a second.
const MEASURED_DIVISOR: u64 = 32;

/// The folder is measured again after this time if space is needed, because entries are removed and become idle.
const MEASURED_AGE: Duration = Duration::from_secs(600);

/// What a process knows of the folder, which other processes change at the same time.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The configured limit, in bytes.
    limit: Option<u64>,
    /// The limit in force, in bytes.
    bytes_max: u64,
    /// When this process opened the folder, by the clock of its file system.
    opened: SystemTime,
    /// The bytes that the last measurement found and those that this process added since.
    bytes: u64,
    /// The part of `bytes` that is being written.
    unwritten: u64,
    /// Entries that may be evicted, the next one last.
    idle: Vec<Entry>,
    idle_bytes: u64,
    /// When the folder was measured last.
    measured: Option<Instant>,
    /// The bytes for which space was requested since then.
    asked: u64,
}

/// A chunk in the folder. Entries are ordered by their last use.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    used: SystemTime,
    size: u64,
    key: ChunkKey,
}

/// The result of listing the whole folder.
#[derive(Default)]
struct Listing {
    bytes: u64,
    /// The least recently used entries; the most recent of them is on top.
    oldest: BinaryHeap<Entry>,
}

impl Ledger {
    /// Makes the ledger of a folder that was opened at `opened` and not measured yet.
    pub fn new(limit: Option<u64>, opened: SystemTime) -> Self {
        let bytes_max = limit.unwrap_or(u64::MAX);
        Self {
            limit,
            bytes_max,
            opened,
            bytes: 0,
            unwritten: 0,
            idle: Vec::new(),
            idle_bytes: 0,
            measured: None,
            asked: 0,
        }
    }

    /// Returns the number of bytes that are free or could be evicted.
    pub fn room(&self) -> u64 {
        (self.bytes_max.saturating_add(self.idle_bytes)).saturating_sub(self.bytes)
    }

    /// Reserves space for an entry and evicts idle entries for it; returns `false` if there is not enough space.
    pub fn admit(&mut self, folder: &Path, size: u64) -> bool {
        if size > self.bytes_max {
            return false;
        }
        while self.bytes.saturating_add(size) > self.bytes_max {
            let Some(entry) = self.idle.pop() else { return false };
            self.idle_bytes -= entry.size;
            self.evict(folder, &entry);
        }
        self.bytes += size;
        self.unwritten += size;
        true
    }

    /// Records that an entry was written, or could not be written.
    pub fn end_write(&mut self, size: u64, is_written: bool) {
        self.unwritten -= size;
        self.bytes = self.bytes.saturating_sub(if is_written { 0 } else { size });
    }

    /// Returns whether the folder must be measured before space for `size` bytes is requested.
    pub fn is_due(&self, size: u64, now: Instant) -> bool {
        let is_old = self.measured.is_none_or(|measured| now.saturating_duration_since(measured) >= MEASURED_AGE);
        is_old || self.asked.saturating_add(size) > self.bytes_max / MEASURED_DIVISOR
    }

    /// Lists the whole folder if that is due, evicts entries beyond the limit, and removes files that killed processes
    /// left.
    pub fn measure_if_due(&mut self, folder: &Path, size: u64, now: Instant) {
        if !self.is_due(size, now) {
            self.asked += size;
            return;
        }
        (self.measured, self.asked) = (Some(now), size);
        // A removed folder is created again, so that the size of its file system can be read. If that fails, the
        // listing is empty.
        create_folder(folder).ok();
        let now = SystemTime::now();
        let Listing { bytes, oldest } = Listing::of(folder, now);
        self.bytes = bytes.saturating_add(self.unwritten);
        self.bytes_max = self.limit.unwrap_or_else(|| free_bytes(folder).saturating_add(bytes) / 2);
        let mut entries = oldest.into_sorted_vec();
        entries.reverse();
        while self.bytes > self.bytes_max
            && let Some(entry) = entries.pop()
        {
            self.evict(folder, &entry);
        }
        let idle_before = now.checked_sub(IDLE).map_or(self.opened, |day_ago| day_ago.max(self.opened));
        entries.retain(|entry| entry.used < idle_before);
        self.idle_bytes = entries.iter().map(|entry| entry.size).sum();
        self.idle = entries;
    }

    /// Evicts an entry, unless it was used since it was listed.
    fn evict(&mut self, folder: &Path, entry: &Entry) {
        let path = entry.key.path_in(folder);
        let used = fs::symlink_metadata(&path).and_then(|metadata| metadata.modified());
        if used.is_ok_and(|used| used != entry.used) {
            return;
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {}
            // Another process may have removed it first.
            _ => self.bytes = self.bytes.saturating_sub(entry.size),
        }
    }
}

impl Listing {
    /// Lists all entries. Removes files that killed processes left; ignores other files that are no entries.
    fn of(folder: &Path, now: SystemTime) -> Self {
        let mut listing = Self::default();
        for parent in entries(fs::read_dir(folder)) {
            let parent_name = parent.file_name();
            for file in entries(fs::read_dir(parent.path())) {
                let (name, Ok(metadata)) = (file.file_name(), file.metadata()) else { continue };
                let (Some(parent_name), Some(name)) = (parent_name.to_str(), name.to_str()) else { continue };
                if let Some(key) = ChunkKey::of_file(parent_name, name).filter(|_| metadata.is_file()) {
                    listing.add(key, &metadata);
                } else if name.starts_with(PARTIAL) {
                    remove_left(&file, &metadata, now);
                }
            }
        }
        listing
    }

    fn add(&mut self, key: ChunkKey, metadata: &Metadata) {
        let Ok(used) = metadata.modified() else { return };
        self.bytes += metadata.len();
        self.oldest.push(Entry { used, size: metadata.len(), key });
        if self.oldest.len() > OLDEST_MAX {
            self.oldest.pop();
        }
    }
}

/// Removes an incomplete file that no process writes any more.
fn remove_left(file: &DirEntry, metadata: &Metadata, now: SystemTime) {
    let age = metadata.modified().ok().and_then(|written| now.duration_since(written).ok());
    if age.is_some_and(|age| age >= PARTIAL_AGE) {
        // If this fails, the next listing tries again.
        fs::remove_file(file.path()).ok();
    }
}

/// Returns the entries of a folder, as far as it can be read: it may have been removed.
fn entries(folder: io::Result<ReadDir>) -> impl Iterator<Item = DirEntry> {
    folder.into_iter().flatten().flatten()
}

/// Returns the bytes of the file system that are free for this user.
fn free_bytes(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}
