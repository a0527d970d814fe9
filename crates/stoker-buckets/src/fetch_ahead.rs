//! Fetches small files before they are opened.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::fetch::Fetch;
use crate::read_ahead::PART_BYTES;
use crate::{Bucket, ListedObject};

/// The most files that are fetched and not opened yet.
const FILES_MAX: usize = 256;

/// The most KiB of these files.
const KIB_MAX: usize = 64 << 10;

/// The files of a bucket that will be opened soon.
pub(crate) struct Ahead {
    files: Mutex<HashMap<Arc<str>, AheadFile>>,
    num_files: Arc<Semaphore>,
    kib: Arc<Semaphore>,
}

enum AheadFile {
    /// The number of the call that asked for it, which may be dropped before the request begins.
    Waiting(u64),
    Begun {
        call: u64,
        fetch: Arc<Fetch>,
        _held: [OwnedSemaphorePermit; 2],
    },
}

impl Default for Ahead {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { files: Mutex::default(), num_files: semaphore(FILES_MAX), kib: semaphore(KIB_MAX) }
    }
}

impl Ahead {
    /// Takes the request for a file; begins it if it waits. Returns `None` for files that are not fetched ahead.
    pub fn take(&self, key: &str, begin: impl FnOnce() -> Arc<Fetch>) -> Option<Arc<Fetch>> {
        let taken = self.lock().remove(key)?;
        Some(match taken {
            AheadFile::Waiting(_) => begin(),
            AheadFile::Begun { fetch, .. } => fetch,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, AheadFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the requests of a call in order, as far as there is room.
    async fn run(self: Arc<Self>, bucket: Bucket, call: u64, files: Vec<(Arc<str>, ListedObject)>) {
        for (key, listed) in files {
            let kib = u32::try_from(listed.bytes.div_ceil(1024)).unwrap_or(u32::MAX);
            let (Ok(one), Ok(memory)) =
                (self.num_files.clone().acquire_owned().await, self.kib.clone().acquire_many_owned(kib).await)
            else {
                return;
            };
            let mut files = self.lock();
            if let Some(file @ AheadFile::Waiting(_)) = files.get_mut(&key) {
                let fetch = bucket.begin(key.clone(), 0..listed.bytes, listed);
                *file = AheadFile::Begun { call, fetch, _held: [one, memory] };
            }
        }
    }
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("num_files", &self.lock().len()).finish_non_exhaustive()
    }
}

/// Files that are fetched ahead, until this value is dropped.
#[derive(Debug)]
pub struct FetchAhead {
    ahead: Arc<Ahead>,
    call: u64,
    keys: Vec<Arc<str>>,
    task: AbortHandle,
}

impl FetchAhead {
    pub(crate) fn begin(bucket: &Bucket, files: impl IntoIterator<Item = (String, ListedObject)>) -> Self {
        let ahead = bucket.ahead().clone();
        let call = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut waiting = Vec::new();
        {
            let mut known = ahead.lock();
            for (key, listed) in files.into_iter().filter(|(_, listed)| (1..=PART_BYTES).contains(&listed.bytes)) {
                let key: Arc<str> = key.into();
                known.entry(key.clone()).or_insert_with(|| {
                    waiting.push((key, listed));
                    AheadFile::Waiting(call)
                });
            }
        }
        let keys = waiting.iter().map(|(key, _)| key.clone()).collect();
        let task = bucket.threads().spawn(ahead.clone().run(bucket.clone(), call, waiting)).abort_handle();
        Self { ahead, call, keys, task }
    }
}

/// The number of calls, which tells the files of one call from those of another that asked for the same.
static CALLS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl Drop for FetchAhead {
    fn drop(&mut self) {
        self.task.abort();
        let mut files = self.ahead.lock();
        for key in &self.keys {
            let is_own = files.get(key).is_some_and(|file| match file {
                AheadFile::Waiting(call) | AheadFile::Begun { call, .. } => *call == self.call,
            });
            if is_own {
                files.remove(key);
            }
        }
    }
}
