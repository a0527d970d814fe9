//! One cleanup at a time.

use std::fmt;
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::{Either, select};
use serde::{Deserialize, Serialize};
use stoker_types::ErrorKind;

use crate::{Error, Lake, Objects, PutOutcome, Result};

/// The folder of the locks, each with a number one above that of the last.
const FOLDER: &str = "cleanup";

/// A lock that was not renewed for so long is given up.
const LEASE: Duration = Duration::from_secs(600);

/// How far the clocks of machines and of the store may be apart.
const SKEW_MAX: Duration = Duration::from_secs(300);

/// What a lock says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Lease {
    /// Which process took it.
    pub holder: String,
    /// Until when it holds without being renewed, in seconds since 1970.
    pub until_secs: u64,
    /// Whether its cleanup ended.
    pub is_done: bool,
}

impl Lease {
    /// Of this process, from now on.
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

/// The right to clean up a lake.
///
/// It is renewed while [`CleanupLock::while_held`] works. When its process dies, others wait for at most a quarter of an hour.
#[must_use = "a lock that is not released holds others up for a quarter of an hour"]
pub struct CleanupLock {
    objects: Objects,
    path: String,
    older: Vec<String>,
    renewed: SystemTime,
}

impl Lake {
    /// Takes the right to clean up this lake, which one process has at a time.
    ///
    /// # Errors
    /// Kind `Unavailable` while another has it; `InvalidRequest` where this machine's clock and the store's are more than five minutes apart;
    /// `PermissionDenied` for a lake that cannot be written; storage errors.
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
                reason: format!("_stoker/{path} cannot be understood ({source}): delete it if no cleanup is running"),
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

impl Lake {
    /// Who is cleaning up this lake now, or was killed at it.
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
    /// Works while the lock holds.
    ///
    /// # Errors
    /// Those of the work; kind `Unavailable` when the lock could not be renewed in time, where the work is left in the middle.
    pub async fn while_held<T, E: From<Error>>(&mut self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        match select(pin!(work), pin!(self.renew())).await {
            Either::Left((done, _)) => done,
            Either::Right((lost, _)) => Err(lost.into()),
        }
    }

    /// Lets others clean up.
    ///
    /// # Errors
    /// Storage errors: then others wait until it runs out.
    pub async fn release(self) -> Result<()> {
        self.objects.put(&self.path, Lease::new(true).to_json()?).await?;
        for path in &self.older {
            self.objects.delete(path).await?;
        }
        Ok(())
    }

    /// Renews the lock until that fails for too long.
    async fn renew(&mut self) -> Error {
        loop {
            tokio::time::sleep(LEASE / 10).await;
            // Time in which the machine sleeps counts: others do not wait for it.
            let began = SystemTime::now();
            let renewed = match Lease::new(false).to_json() {
                Ok(json) => tokio::time::timeout(LEASE / 10, self.objects.put(&self.path, json)).await,
                Err(error) => return error,
            };
            if self.renewed.elapsed().map_or(true, |since| since >= LEASE) {
                return taken("its lock could not be renewed in time".into());
            }
            match renewed {
                Ok(Ok(())) => self.renewed = began,
                Ok(Err(error)) => tracing::warn!(%error, "the lock of the cleanup was not renewed, trying again"),
                Err(_) => tracing::warn!("the lock of the cleanup was not renewed in a minute, trying again"),
            }
        }
    }

    /// Checks that no other took a later one meanwhile, and the clocks by which ages are told: this machine's and the store's.
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
                "the clock of this machine is {} s {which} that of the store: set it first",
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
