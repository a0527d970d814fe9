//! A check that a store creates objects atomically. All commits rely on that.
//!
//! Some stores ignore `If-None-Match`. Others first look whether the object exists, and then write it. Such a store
//! tells more than one of several concurrent writers that it created the object, and all but one of their commits are
//! lost. The check lets several writers create one object at the same time, so that this fault shows.

use std::hash::{BuildHasher, RandomState};

use futures::future::join_all;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use stoker_types::ErrorKind;
use tokio::sync::OnceCell;

use crate::{Error, Interpret, Result};

/// The number of writers that race to create one object.
const NUM_CREATORS: usize = 8;

/// The number of races that must end with one winner.
const NUM_RACES: usize = 2;

/// The maximum number of races. A store may refuse all writers of a race because they come at the same time.
const NUM_RACES_MAX: usize = 6;

/// The result of the check for the store of one lake.
pub struct AtomicCreate {
    /// Why the store is not atomic, or `None` when it is. The cell is empty until the check has run.
    reason: OnceCell<Option<String>>,
    interpret: Interpret,
}

/// The store that is checked.
struct Trial<'a> {
    store: &'a dyn ObjectStore,
    folder: &'a Path,
    lake: &'a str,
    interpret: Interpret,
}

/// The outcome of a race.
enum Race {
    /// One writer won, and the object holds what that writer wrote.
    Won,
    /// The store refused all writers.
    Undecided,
    /// The store is not atomic.
    Broken(String),
}

impl AtomicCreate {
    /// A check that has not run yet. `interpret` knows errors of other libraries that the store may return.
    pub fn new(interpret: Interpret) -> Self {
        Self { reason: OnceCell::new(), interpret }
    }

    /// Checks that a store creates objects atomically, with objects in a folder that is used for nothing else. The
    /// check runs once, and takes 20 requests on an atomic store. `lake` names the lake and its endpoint in messages.
    ///
    /// # Errors
    /// [`Error::UnsafeStore`] when the store is not atomic; `PermissionDenied` when objects in the folder cannot be
    /// written; storage errors.
    pub async fn check(&self, store: &dyn ObjectStore, folder: &Path, lake: &str) -> Result<()> {
        let trial = Trial { store, folder, lake, interpret: self.interpret };
        match self.reason.get_or_try_init(|| trial.run()).await? {
            None => Ok(()),
            Some(reason) => Err(Error::UnsafeStore { lake: lake.to_string(), reason: reason.clone() }),
        }
    }
}

impl Trial<'_> {
    /// Runs races until one shows that the store is not atomic, or enough of them had one winner. Returns why the store
    /// is not atomic.
    async fn run(&self) -> Result<Option<String>> {
        let mut num_won = 0;
        for _ in 0..NUM_RACES_MAX {
            match self.race().await? {
                Race::Won => num_won += 1,
                Race::Undecided => {}
                Race::Broken(reason) => return Ok(Some(reason)),
            }
            if num_won == NUM_RACES {
                tracing::debug!(lake = %self.lake, "the store creates objects atomically");
                return Ok(None);
            }
        }
        let attempted = format!("testing whether {} creates objects atomically", self.lake);
        let source = format!("it refused all of {NUM_CREATORS} writers, {NUM_RACES_MAX} times").into();
        Err(Error::Storage { attempted, kind: ErrorKind::Unavailable, source })
    }

    async fn race(&self) -> Result<Race> {
        let name = format!("{:016x}", RandomState::new().hash_one(NUM_CREATORS));
        let path: Path = self.folder.clone().join(name.as_str());
        let content = |creator: usize| format!("writer {creator} of {NUM_CREATORS}");
        let outcomes = join_all((0..NUM_CREATORS).map(async |creator| {
            let payload = PutPayload::from(content(creator).into_bytes());
            self.store.put_opts(&path, payload, PutMode::Create.into()).await.map(|_| ())
        }));
        let ended = self.ended(&path, outcomes.await, content).await;
        if let Err(error) = self.store.delete(&path).await {
            tracing::debug!(%path, %error, "the object that writers raced for stays");
        }
        ended
    }

    /// Determines the outcome of a race from the responses that its writers got.
    async fn ended(
        &self,
        path: &Path,
        outcomes: Vec<object_store::Result<()>>,
        content: impl Fn(usize) -> String,
    ) -> Result<Race> {
        let attempted = || format!("testing whether {} creates objects atomically, with {path}", self.lake);
        let failed = |source| Error::storage(attempted(), source, self.interpret);
        let mut winners = Vec::new();
        for (creator, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(()) => winners.push(creator),
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {}
                Err(source) => return Err(failed(source)),
            }
        }
        let winner = match winners[..] {
            [] => return Ok(Race::Undecided),
            [winner] => winner,
            _ => {
                let reason = format!(
                    "of {NUM_CREATORS} writers that created one object at the same time (If-None-Match: *), {} were told \
                     that they succeeded",
                    winners.len()
                );
                return Ok(Race::Broken(reason));
            }
        };
        let read = async { self.store.get(path).await?.bytes().await };
        let found = read.await.map_err(failed)?;
        Ok(match found == content(winner) {
            true => Race::Won,
            false => {
                Race::Broken("the store refused a writer of an object, and stored its content all the same".into())
            }
        })
    }
}
