//! A lock that lets one process at a time clean up a lake.

use std::fmt;
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::{Either, select};
use serde::{Deserialize, Serialize};
use stoker_types::ErrorKind;

use crate::{Error, LakeStore, Objects, PutOutcome, Result};

/// The folder of the locks. The number in the name of each lock is one above that of the last.
const FOLDER: &str = "cleanup";

/// The time after which a lock that was not renewed expires.
const LEASE: Duration = Duration::from_secs(600);

/// The maximum difference between the clocks of machines and of the store.
const SKEW_MAX: Duration = Duration::from_secs(300);

/// The content of a lock.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Lease {
    /// The process that took the lock.
    pub holder: String,
    /// When the lock expires if it is not renewed, in seconds since 1970-01-01 UTC.
    pub until_secs: u64,
    /// Whether the cleanup has ended.
    pub is_done: bool,
}

impl Lease {
    /// A lease of this process that begins now.
    fn new(is_done: bool) -> Self {
        let holder = format!("process {}", std::process::id());
        Self { holder, until_secs: now_secs() + LEASE.as_secs(), is_done }
    }

    fn to_json(&self) -> Result<bytes::Bytes> {
        let json = serde_json::to_vec(self);
        json.map(Into::into).map_err(|source| Error::Storage {
            attempted: "writing the lock of a cleanup".into(),
            kind: ErrorKind::Internal,
            source: source.into(),
        })
    }
}

/// The exclusive right to clean up a lake.
///
/// The lock is renewed while [`CleanupLock::while_held`] runs. When its process dies, other processes have to wait
/// for at most 15 minutes.
#[must_use = "a lock that is not released blocks other cleanups for a quarter of an hour"]
pub struct CleanupLock {
    objects: Objects,
    path: String,
    older: Vec<String>,
    renewed: SystemTime,
}

impl LakeStore {
    /// Takes the exclusive right to clean up this lake.
    ///
    /// # Errors
    /// Kind `Unavailable` while another process has the lock; `InvalidRequest` when the clocks of this machine and of
    /// the store differ by more than five minutes, or the last lock cannot be read; `PermissionDenied` for a lake
    /// that cannot be written; storage errors.
    pub async fn lock_cleanup(&self) -> Result<CleanupLock> {
        let objects = self.objects();
        let older = objects.list(FOLDER).await?;
        let number = |path: &String| path.strip_prefix(FOLDER)?.trim_start_matches('/').parse::<u64>().ok();
        let newest = older.iter().filter_map(|path| Some((number(path)?, path))).max();
        if let Some((_, path)) = newest
            && let Some(json) = objects.get(path).await?
        {
            let lease: Lease = serde_json::from_slice(&json).map_err(|source| Error::InvalidRequest {
                attempted: "taking the lock of a cleanup".into(),
                reason: format!("cannot parse _stoker/{path} ({source}): delete it if no cleanup is running"),
            })?;
            let left = (lease.until_secs.saturating_add(SKEW_MAX.as_secs())).saturating_sub(now_secs());
            if !lease.is_done && left > 0 {
                return Err(taken(format!(
                    "another cleanup ({}) runs, or was killed: try again in {} minutes at most, or delete _stoker/{path} if it \
                     was killed",
                    lease.holder,
                    left.div_ceil(60)
                )));
            }
        }
        let path = format!("{FOLDER}/{:020}", newest.map_or(1, |(number, _)| number.saturating_add(1)));
        let renewed = SystemTime::now();
        match objects.claim(&path, Lease::new(false).to_json()?).await? {
            PutOutcome::Exists => return Err(began_too()),
            PutOutcome::Created => {}
        }
        let lock = CleanupLock { objects, path, older, renewed };
        match lock.check().await {
            Ok(()) => Ok(lock),
            Err(error) => {
                lock.release().await?;
                Err(error)
            }
        }
    }
}

impl LakeStore {
    /// The process that is cleaning up this lake, or that was killed while it did. Takes one listing, and one request
    /// for the last lock.
    ///
    /// # Errors
    /// Storage errors.
    pub(crate) async fn cleaning_up(&self) -> Result<Option<String>> {
        let objects = self.objects();
        let Some(newest) = objects.list(FOLDER).await?.pop() else { return Ok(None) };
        let lease: Option<Lease> = objects.get(&newest).await?.and_then(|json| serde_json::from_slice(&json).ok());
        Ok(lease
            .filter(|lease| !lease.is_done && lease.until_secs.saturating_add(SKEW_MAX.as_secs()) > now_secs())
            .map(|lease| lease.holder))
    }
}

impl fmt::Debug for CleanupLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CleanupLock").field(&self.path).finish()
    }
}

impl CleanupLock {
    /// Runs the work of a cleanup and renews the lock meanwhile.
    ///
    /// # Errors
    /// Those of the work; kind `Unavailable` when the lock could not be renewed in time. The work is then cancelled
    /// in the middle.
    pub async fn while_held<T, E: From<Error>>(&mut self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        match select(pin!(work), pin!(self.renew())).await {
            Either::Left((done, _)) => done,
            Either::Right((lost, _)) => Err(lost.into()),
        }
    }

    /// Ends the lock and deletes the older ones, so that other processes can clean up.
    ///
    /// # Errors
    /// Storage errors. If the lock could not be ended, other processes have to wait until it expires.
    pub async fn release(self) -> Result<()> {
        self.objects.put(&self.path, Lease::new(true).to_json()?).await?;
        for path in &self.older {
            self.objects.delete(path).await?;
        }
        Ok(())
    }

    /// Renews the lock every minute. Returns the error when no renewal has succeeded for [`LEASE`].
    async fn renew(&mut self) -> Error {
        loop {
            tokio::time::sleep(LEASE / 10).await;
            // The time that this machine sleeps counts, too, because other processes do not wait for it to wake up.
            let began = SystemTime::now();
            let renewed = match Lease::new(false).to_json() {
                Ok(json) => tokio::time::timeout(LEASE / 10, self.objects.put(&self.path, json)).await,
                Err(error) => return error,
            };
            if self.renewed.elapsed().map_or(true, |since| since >= LEASE) {
                return taken("the lock of this cleanup could not be renewed in time".into());
            }
            match renewed {
                Ok(Ok(())) => self.renewed = began,
                Ok(Err(error)) => tracing::warn!(%error, "the lock of the cleanup was not renewed, trying again"),
                Err(_) => tracing::warn!("the lock of the cleanup was not renewed in a minute, trying again"),
            }
        }
    }

    /// Checks that no other process took a later lock meanwhile, and that the clocks of this machine and of the store
    /// agree, because the ages of versions depend on both.
    async fn check(&self) -> Result<()> {
        let found = self.objects.entries(FOLDER).await?;
        if found.last().is_some_and(|last| last.path > self.path) {
            return Err(began_too());
        }
        let Some(of_store) = found.iter().find(|entry| entry.path == self.path).map(|entry| entry.last_modified) else {
            return Ok(());
        };
        let now = SystemTime::now();
        let (apart, which) = match now.duration_since(of_store) {
            Ok(ahead) => (ahead, "ahead of"),
            Err(behind) => (behind.duration(), "behind"),
        };
        if apart <= SKEW_MAX {
            return Ok(());
        }
        Err(Error::InvalidRequest {
            attempted: "cleaning up a lake".into(),
            reason: format!(
                "the clock of this machine is {} s {which} that of the store: correct the clock first",
                apart.as_secs()
            ),
        })
    }
}

fn began_too() -> Error {
    taken("another cleanup began at the same time: try again later".into())
}

fn taken(reason: String) -> Error {
    Error::Storage { attempted: "cleaning up a lake".into(), kind: ErrorKind::Unavailable, source: reason.into() }
}

fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
