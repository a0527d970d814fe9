//! A cache of chunks of object stores, in a local folder.
//!
//! ```text
//! range of a file ──read──► memory                 one file per chunk, immutable: key as its name, length, hash
//!   ▲ missing     GET ──► memory ──put──► file     written under another name, then renamed
//! ```
//!
//! All processes of a host may use one folder for all their streams: entries are only created and removed as a whole.
//! The page cache is the cache tier above the disk: all processes share it, and it takes nothing from a memory budget.
//!
//! No failure of the cache fails a stream. A damaged entry is removed, and its bytes are read from the store. A chunk
//! that cannot be written is not cached.

pub(crate) mod entry;
pub(crate) mod ledger;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};
use std::{fs, io};

use arrow_buffer::Buffer;
use parking_lot::{Mutex, MutexGuard};
use stoker_batch::BufferPool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::cache::entry::{ChunkKey, Found, HEADER_BYTES, create_folder, read_entry, write_entry};
use crate::cache::ledger::Ledger;
use crate::{Error, IoStats, Result};

/// The subfolder of the configured folder; another layout of entries would get another name.
const LAYOUT: &str = "chunks-v1";

/// The maximum number of bytes of chunks that are written or wait for it. Chunks beyond it are not cached this time.
const WRITING_BYTES_MAX: u64 = 32 << 20;

/// The number of threads that write at the same time.
const WRITERS_MAX: usize = 4;

/// The maximum number of bytes of chunks that streams hold while they copy rows out of them: as much as the GETs of one
/// scan may read at the initial request limit.
const TAKING_BYTES_MAX: u64 = 128 << 20;

/// The folder of a cache and its size limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// The folder, which is created if it does not exist. Whoever can write to it can change what streams without
    /// checksums deliver.
    pub dir: PathBuf,
    /// The maximum size of all chunks in the folder, whichever process wrote them, in bytes. The default is half of
    /// what the file system would have free without them.
    pub bytes_max: Option<u64>,
}

/// A cache of chunks of object stores, in a folder that processes share. Cheap to clone; clones are the same cache.
///
/// Training reads all chunks once in each epoch, each time in another order. Evicting the oldest chunk would often
/// evict one shortly before it is wanted. When the folder is full, a new chunk therefore evicts only chunks that were
/// not used since this process opened the folder, or for a day. All other chunks stay, and serve their share of the
/// reads.
///
/// Each process measures the folder when it opens it, and again after it has requested space for 1/32 of the limit. So
/// several processes together exceed the limit by at most 1/32 each, until one measures again.
#[derive(Clone, Debug)]
pub struct ChunkCache {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    /// When the folder was opened, by the clock of its file system.
    opened: SystemTime,
    /// Locked while the folder is measured. No read of a stream waits for it.
    ledger: Mutex<Ledger>,
    /// The number of bytes that may be written now, as far as the ledger knows.
    room: AtomicU64,
    /// Whether the cache stopped writing after a failed write.
    is_stopped: AtomicBool,
    /// One permit per KiB that is written or waits for it.
    writing: Arc<Semaphore>,
    writers: Arc<Semaphore>,
    /// One permit per KiB of chunks out of which rows are copied.
    taking: Arc<Semaphore>,
}

impl ChunkCache {
    /// Opens a folder and measures it in the background.
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

    /// Waits until the folder was measured and all chunks that were handed over are written.
    pub async fn settled(&self) {
        // The semaphore is never closed; if it were, nothing would be written.
        self.inner.writing.acquire_many(kibibytes(WRITING_BYTES_MAX, WRITING_BYTES_MAX)).await.map(drop).ok();
    }

    /// Reserves memory for a chunk out of which rows are copied; waits until enough is released.
    pub(crate) async fn enter(&self, length: u64) -> Result<OwnedSemaphorePermit> {
        let closed = |_| Error::Internal { reason: "the semaphore for chunks is closed".into() };
        let kibibytes = kibibytes(length, TAKING_BYTES_MAX);
        self.inner.taking.clone().acquire_many_owned(kibibytes).await.map_err(closed)
    }

    /// The number of bytes of chunks that would be cached now.
    pub(crate) fn room(&self) -> u64 {
        if self.inner.is_stopped.load(Ordering::Relaxed) { 0 } else { self.inner.room.load(Ordering::Relaxed) }
    }

    /// Records that there was no space for a chunk. If the folder was measured long ago, it is measured again, because
    /// there may be space now.
    pub(crate) fn refused(&self) {
        let is_due = |ledger: MutexGuard<'_, Ledger>| ledger.is_due(0, Instant::now());
        if self.inner.ledger.try_lock().is_some_and(is_due) {
            self.measure();
        }
    }

    /// Returns whether a chunk is cached. Blocks.
    pub(crate) fn has(&self, key: &ChunkKey) -> bool {
        key.path_in(&self.inner.folder).exists()
    }

    /// Reads a chunk of `length` bytes into memory of a pool. Blocks.
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
            // The entry does not exist, or cannot be read now.
            Err(_) => {}
        }
        stats.add_cache_miss(length as u64);
        None
    }

    /// Removes a chunk. Blocks.
    pub(crate) fn remove(&self, key: &ChunkKey) {
        // Another process may have removed it. If it cannot be removed, the next read finds it damaged again.
        fs::remove_file(key.path_in(&self.inner.folder)).ok();
    }

    /// Caches chunks that were read from their store; together they keep `length` bytes of memory in use. Chunks for
    /// which there is no space are skipped, and all of them while too many bytes wait to be written.
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
            // A runtime that shuts down does not write any more.
            work.await.ok();
            drop(permit);
        });
    }
}

impl Inner {
    fn write(&self, key: &ChunkKey, bytes: &[u8]) {
        let path = key.path_in(&self.folder);
        let size = entry_bytes(bytes.len());
        // Another process may have written it meanwhile.
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
        // A folder that was removed is created again by the next measurement.
        if let Err(error) = written
            && error.kind() != io::ErrorKind::NotFound
            && !self.is_stopped.swap(true, Ordering::Relaxed)
        {
            let folder = self.folder.display();
            tracing::warn!(%folder, %error, "cannot write a chunk to the cache: this process stops adding chunks");
        }
    }

    /// Reserves space for an entry of `size` bytes, and measures the folder first if that is due.
    fn admit(&self, size: u64) -> bool {
        let mut ledger = self.ledger.lock();
        ledger.measure_if_due(&self.folder, size, Instant::now());
        let is_admitted = ledger.admit(&self.folder, size);
        self.room.store(ledger.room(), Ordering::Relaxed);
        is_admitted
    }
}

/// Creates a folder if needed, and checks that it can be written. Returns the time by the clock of its file system.
fn prepare(folder: &Path) -> io::Result<SystemTime> {
    create_folder(folder)?;
    tempfile::tempfile_in(folder)?.metadata()?.modified()
}

/// Returns the size of a chunk's entry.
fn entry_bytes(length: usize) -> u64 {
    (HEADER_BYTES + length) as u64
}

/// Returns the number of permits for `length` bytes: all permits if it exceeds `bytes_max`.
fn kibibytes(length: u64, bytes_max: u64) -> u32 {
    u32::try_from(length.min(bytes_max).div_ceil(1 << 10).max(1)).unwrap_or(u32::MAX)
}
