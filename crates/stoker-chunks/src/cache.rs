//! Chunks of object stores, kept in a folder of this machine.
//!
//! ```text
//! range of a file ──read──► memory                 a file per chunk: named by its key, with length and hash, never changed
//!   ▲ not there   GET ──► memory ──put──► file     written under another name, then renamed
//! ```
//!
//! All processes of a host may use one folder, whatever they read: entries are only ever created whole and removed whole. The
//! system's memory of files is the tier above the disk: all processes share it, and it takes nothing from a memory budget.
//!
//! Nothing here fails a stream. An entry that is damaged is removed, and its bytes come from the store. What cannot be written is
//! not kept.

pub(crate) mod entry;
pub(crate) mod ledger;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use arrow_buffer::Buffer;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::cache::entry::{ChunkKey, Found, HEADER_BYTES, create_folder, read_entry, write_entry};
use crate::cache::ledger::Ledger;
use crate::{BufferPool, Error, IoStats, Result};

/// The folder in the one that was named; other layouts of entries would get another name.
const LAYOUT: &str = "chunks-v1";

/// Bytes of chunks that wait to be written, or are written, at most: beyond it, chunks are not kept this time.
const WRITING_BYTES_MAX: u64 = 32 << 20;

/// Threads that write at once.
const WRITERS_MAX: usize = 4;

/// Bytes of chunks that streams hold while they take rows out of them, at most: as many as GETs may be under way for.
const TAKING_BYTES_MAX: u64 = 128 << 20;

/// Where chunks are kept, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// The folder; created unless it exists. Whoever can write to it can change what streams deliver without checksums.
    pub dir: PathBuf,
    /// Bytes of all chunks in the folder, whichever process wrote them, at most. By default half of what the file system would
    /// have free without them.
    pub bytes_max: Option<u64>,
}

/// Chunks of object stores in a folder that processes share. Cheap to clone; clones are the same cache.
///
/// Training reads all chunks once in each epoch, in another order each time: to replace the oldest would drop each chunk shortly
/// before it is wanted. When the folder is full, only chunks that nobody used since this process opened it, or for a day, make
/// room for new ones. Otherwise those that are there stay, and serve as many reads as there are of them.
///
/// Each process measures the folder when it opens it and again after it has asked for room for a 32nd of the limit, so that
/// several processes together exceed it by no more than that for each of them, until one measures again.
#[derive(Clone, Debug)]
pub struct ChunkCache {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    /// When it was opened, by the clock of its file system.
    opened: SystemTime,
    /// Held while the folder is measured, and never on the way of a read.
    ledger: Mutex<Ledger>,
    /// Bytes that may be written now, as far as the ledger knows.
    room: AtomicU64,
    /// Whether a write failed.
    is_stopped: AtomicBool,
    /// One permit for each KiB that waits to be written.
    writing: Arc<Semaphore>,
    writers: Arc<Semaphore>,
    /// One permit for each KiB of chunks that rows are taken out of.
    taking: Arc<Semaphore>,
}

impl ChunkCache {
    /// Opens a folder, and measures it in the background.
    ///
    /// # Errors
    /// [`Error::CacheFolder`] for a folder that cannot be created, written or measured.
    pub async fn open(options: &CacheOptions) -> Result<Self> {
        let CacheOptions { dir, bytes_max } = options.clone();
        let failed = move |source| Error::CacheFolder { dir: dir.clone(), source };
        let folder = options.dir.join(LAYOUT);
        let make = move || Ok::<_, io::Error>((prepare(&folder)?, folder));
        let made = tokio::task::spawn_blocking(make).await.map_err(io::Error::other).and_then(|made| made);
        let (opened, folder) = made.map_err(failed)?;
        let inner = Arc::new(Inner {
            folder,
            opened,
            ledger: Mutex::new(Ledger::new(bytes_max, opened)),
            room: AtomicU64::new(bytes_max.unwrap_or(u64::MAX)),
            is_stopped: AtomicBool::new(false),
            writing: Arc::new(Semaphore::new((WRITING_BYTES_MAX >> 10) as usize)),
            writers: Arc::new(Semaphore::new(WRITERS_MAX)),
            taking: Arc::new(Semaphore::new((TAKING_BYTES_MAX >> 10) as usize)),
        });
        let cache = Self { inner };
        cache.measure();
        Ok(cache)
    }

    /// Waits until the folder was measured and everything is written that was handed over.
    pub async fn settled(&self) {
        // Never closed; and if it were, nothing would be written.
        self.inner.writing.acquire_many((WRITING_BYTES_MAX >> 10) as u32).await.map(drop).ok();
    }

    /// Room in memory for a chunk that rows are taken out of; waits until others give theirs back.
    pub(crate) async fn enter(&self, length: u64) -> Result<OwnedSemaphorePermit> {
        let closed = |_| Error::Internal { reason: "the semaphore for chunks is closed".into() };
        let kibibytes = kibibytes(length, TAKING_BYTES_MAX);
        self.inner.taking.clone().acquire_many_owned(kibibytes).await.map_err(closed)
    }

    /// Bytes of chunks that would be kept now.
    pub(crate) fn room(&self) -> u64 {
        if self.inner.is_stopped.load(Ordering::Relaxed) { 0 } else { self.inner.room.load(Ordering::Relaxed) }
    }

    /// Says that there was no room for chunks: there may be some again, if the folder was measured long ago.
    pub(crate) fn refused(&self) {
        let is_due = |ledger: MutexGuard<'_, Ledger>| ledger.is_due(0, Instant::now());
        if self.inner.ledger.try_lock().is_some_and(is_due) {
            self.measure();
        }
    }

    /// Whether a chunk is kept. Blocks.
    pub(crate) fn has(&self, key: &ChunkKey) -> bool {
        key.path_in(&self.inner.folder).exists()
    }

    /// A chunk of `length` bytes, in memory of a pool. Blocks.
    pub(crate) fn read(&self, key: &ChunkKey, length: usize, pool: &BufferPool, stats: &IoStats) -> Option<Buffer> {
        let path = key.path_in(&self.inner.folder);
        match read_entry(&path, key, length, pool, self.inner.opened) {
            Ok(Found::Chunk(memory)) => {
                stats.add_cache_hit(length as u64);
                return Some(memory.freeze());
            }
            Ok(Found::Damaged) => {
                stats.add_cache_damaged();
                self.remove(key);
            }
            // Not there, or not to be read now.
            Err(_) => {}
        }
        stats.add_cache_miss(length as u64);
        None
    }

    /// Removes a chunk. Blocks.
    pub(crate) fn remove(&self, key: &ChunkKey) {
        // Others may have removed it. What cannot be removed is found damaged again.
        fs::remove_file(key.path_in(&self.inner.folder)).ok();
    }

    /// Keeps chunks that came from their store, parts of one memory of `length` bytes: those for which there is room, if there is
    /// time to write them.
    pub(crate) fn put(&self, mut chunks: Vec<(ChunkKey, Buffer)>, length: u64) {
        let mut room = self.room();
        chunks.retain(|(_, bytes)| {
            let left = room.checked_sub(entry_bytes(bytes.len()));
            room = left.unwrap_or(room);
            left.is_some()
        });
        if chunks.is_empty() {
            return;
        }
        if let Some(permit) = self.try_begin(length) {
            self.in_background(permit, move |inner| chunks.iter().for_each(|(key, bytes)| inner.write(key, bytes)));
        }
    }

    fn measure(&self) {
        if let Some(permit) = self.try_begin(0) {
            self.in_background(permit, |inner| {
                inner.admit(0);
            });
        }
    }

    fn try_begin(&self, length: u64) -> Option<OwnedSemaphorePermit> {
        self.inner.writing.clone().try_acquire_many_owned(kibibytes(length, WRITING_BYTES_MAX)).ok()
    }

    fn in_background(&self, permit: OwnedSemaphorePermit, work: impl FnOnce(&Inner) + Send + 'static) {
        let inner = self.inner.clone();
        tokio::spawn(async move {
            let Ok(_writer) = inner.writers.clone().acquire_owned().await else { return };
            let work = tokio::task::spawn_blocking(move || work(&inner));
            // A runtime that ends does not write any more.
            work.await.ok();
            drop(permit);
        });
    }
}

impl Inner {
    fn write(&self, key: &ChunkKey, bytes: &[u8]) {
        let path = key.path_in(&self.folder);
        let size = entry_bytes(bytes.len());
        // Another process may have been faster.
        if path.exists() || !self.admit(size) {
            return;
        }
        let entry = write_entry(&path, key, bytes);
        let written = {
            let mut ledger = self.ledger.lock();
            let written = entry.and_then(|entry| entry.persist(&path).map(drop).map_err(|error| error.error));
            ledger.end_write(size, written.is_ok());
            written
        };
        // A folder that was removed is made again.
        if let Err(error) = written
            && error.kind() != io::ErrorKind::NotFound
            && !self.is_stopped.swap(true, Ordering::Relaxed)
        {
            let folder = self.folder.display();
            tracing::warn!(%folder, %error, "a chunk could not be written: this process keeps no more of them");
        }
    }

    /// Makes room for an entry of so many bytes; measures the folder before, if it is time.
    fn admit(&self, size: u64) -> bool {
        let mut ledger = self.ledger.lock();
        ledger.measure_if_due(&self.folder, size, Instant::now());
        let is_admitted = ledger.admit(&self.folder, size);
        self.room.store(ledger.room(), Ordering::Relaxed);
        is_admitted
    }
}

/// Makes a folder ready to be used. Returns the time, by the clock of its file system.
fn prepare(folder: &Path) -> io::Result<SystemTime> {
    create_folder(folder)?;
    tempfile::tempfile_in(folder)?.metadata()?.modified()
}

/// Bytes of the entry of a chunk.
fn entry_bytes(length: usize) -> u64 {
    (HEADER_BYTES + length) as u64
}

/// The permits for some bytes: all that there are, for more.
fn kibibytes(length: u64, bytes_max: u64) -> u32 {
    length.min(bytes_max).div_ceil(1 << 10).max(1) as u32
}
