//! The size of the folder, and what may go.

use std::collections::BinaryHeap;
use std::fs::{self, DirEntry, Metadata, ReadDir};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::cache::entry::{ChunkKey, PARTIAL, create_folder};

/// Entries that nobody used for so long may go, although this process is older.
const IDLE: Duration = Duration::from_secs(86_400);

/// A file that is not whole after so long is left by a process that was killed.
const PARTIAL_AGE: Duration = Duration::from_secs(3_600);

/// Entries that are remembered as those which go first, at most.
const OLDEST_MAX: usize = 64 << 10;

/// The folder is measured again after room was asked for this part of its limit: to look at 64,000 entries takes some tenths of a
/// second, in which a stream may read as many megabytes.
const MEASURED_DIVISOR: u64 = 32;

/// The folder is measured again after so long, if there is a reason: entries go, and become idle.
const MEASURED_AGE: Duration = Duration::from_secs(600);

/// What a process knows of the folder. Others change it at the same time.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// As configured.
    limit: Option<u64>,
    /// The limit in force.
    bytes_max: u64,
    /// When this process opened the folder, by the clock of its file system.
    opened: SystemTime,
    /// Bytes that were found, and that this process wrote since.
    bytes: u64,
    /// Those of them that are being written.
    unwritten: u64,
    /// Entries that may go, the first one last.
    idle: Vec<Entry>,
    idle_bytes: u64,
    /// When the folder was measured.
    measured: Option<Instant>,
    /// Bytes that room was asked for since.
    asked: u64,
}

/// A chunk in the folder; those that were used earlier come before others.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    used: SystemTime,
    size: u64,
    key: ChunkKey,
}

/// What a look at the whole folder found.
#[derive(Default)]
struct Listing {
    bytes: u64,
    /// The entries that were not used for longest, the newest of them on top.
    oldest: BinaryHeap<Entry>,
}

impl Ledger {
    /// Of a folder that was opened at this time, and never measured.
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

    /// Bytes for which there is room, or can be made.
    pub fn room(&self) -> u64 {
        (self.bytes_max.saturating_add(self.idle_bytes)).saturating_sub(self.bytes)
    }

    /// Makes room for an entry; `false` when nothing may go for it.
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

    /// Notes that an entry was written, or could not be.
    pub fn end_write(&mut self, size: u64, is_written: bool) {
        self.unwritten -= size;
        self.bytes = self.bytes.saturating_sub(if is_written { 0 } else { size });
    }

    /// Whether the folder is to be measured before room is asked for so many bytes.
    pub fn is_due(&self, size: u64, now: Instant) -> bool {
        let is_old = self.measured.is_none_or(|measured| now.saturating_duration_since(measured) >= MEASURED_AGE);
        is_old || self.asked.saturating_add(size) > self.bytes_max / MEASURED_DIVISOR
    }

    /// Looks at the whole folder when it is time, and removes what is beyond the limit, and what killed processes left.
    pub fn measure_if_due(&mut self, folder: &Path, size: u64, now: Instant) {
        if !self.is_due(size, now) {
            self.asked += size;
            return;
        }
        (self.measured, self.asked) = (Some(now), size);
        // One that was removed is made again, so that its file system can be asked; without it, nothing is there to measure.
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

    /// Removes an entry, unless it was used since it was found.
    fn evict(&mut self, folder: &Path, entry: &Entry) {
        let path = entry.key.path_in(folder);
        let used = fs::symlink_metadata(&path).and_then(|metadata| metadata.modified());
        if used.is_ok_and(|used| used != entry.used) {
            return;
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {}
            // Another process may have been faster.
            _ => self.bytes = self.bytes.saturating_sub(entry.size),
        }
    }
}

impl Listing {
    /// Looks at all entries. Removes files that killed processes left; others that are no entries are none of our business.
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

/// Removes a file that is not whole and will not be.
fn remove_left(file: &DirEntry, metadata: &Metadata, now: SystemTime) {
    let age = metadata.modified().ok().and_then(|written| now.duration_since(written).ok());
    if age.is_some_and(|age| age >= PARTIAL_AGE) {
        // Otherwise the next one who looks removes it.
        fs::remove_file(file.path()).ok();
    }
}

/// What lies in a folder, as far as it can be read: it may be gone.
fn entries(folder: io::Result<ReadDir>) -> impl Iterator<Item = DirEntry> {
    folder.into_iter().flatten().flatten()
}

/// Bytes that the file system has free for this user.
fn free_bytes(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}
