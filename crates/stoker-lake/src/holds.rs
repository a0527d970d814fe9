//! Tags that keep cleanups from removing the versions that streams read.
//!
//! A *hold* is a tag whose name has its last day: `stoker.until.2026-12-24.v7`. Because holds last until the end of a
//! day, all streams that read a version share one hold per day, whichever process creates it. A stream that still
//! reads on the next day creates a hold with a later last day and deletes the earlier ones. A cleanup deletes holds
//! that have expired.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt as _;
use futures::future::{join, join_all};
use lance::dataset::refs::{TagContents, base_tags_path, tag_path};
use object_store::{ObjectStoreExt as _, PutPayload};
use parking_lot::Mutex;
use stoker_store::again;
use stoker_types::{ErrorKind, Snapshot, SnapshotRef, TableName};

use crate::{Error, LakeStore, Result, Table};

/// The default number of days for which versions are held after the last read.
pub const HOLD_DAYS: u32 = 30;

/// The maximum number of days for which versions can be held.
pub const HOLD_DAYS_MAX: u32 = 3_650;

/// The prefix of the names of holds.
const PREFIX: &str = "stoker.until.";

/// The file extension of tags.
const EXTENSION: &str = ".json";

/// The time after which a hold that could not be created is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(600);

const DAY_SECS: u64 = 24 * 3600;

/// The holds that this process created, and its settings for them.
pub(crate) struct Holds {
    days: AtomicU32,
    /// The last day of the hold of each version.
    last_days: Mutex<HashMap<Snapshot, u64>>,
    /// When the hold of each version could not be created.
    failed: Mutex<HashMap<Snapshot, Instant>>,
    is_told: AtomicBool,
}

impl Default for Holds {
    fn default() -> Self {
        Self {
            days: AtomicU32::new(HOLD_DAYS),
            last_days: Mutex::default(),
            failed: Mutex::default(),
            is_told: AtomicBool::new(false),
        }
    }
}

impl Holds {
    /// Forgets the versions of a table, with those of its branches, or of a branch: another one of its name may have them
    /// again.
    pub fn forget(&self, table: &TableName) {
        let is_other = |name: &TableName| name != table && (table.branch().is_some() || name.root() != *table);
        self.last_days.lock().retain(|snapshot, _| is_other(&snapshot.table));
        self.failed.lock().retain(|snapshot, _| is_other(&snapshot.table));
    }
}

/// What the name of a hold says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The last day on which the version is held, in days since 1970-01-01 UTC.
    last_day: u64,
    /// The branch of the version; `None` for the main branch.
    pub branch: Option<String>,
    pub version: u64,
}

impl Hold {
    /// Parses the name of a tag. `None` for tags that are no holds.
    pub fn of(tag: &str) -> Option<Self> {
        let (place, version) = tag.strip_prefix(PREFIX)?.rsplit_once(".v")?;
        let (date, branch) = place.split_once('.').map_or((place, None), |(date, branch)| (date, Some(branch)));
        let midnight = humantime::parse_rfc3339(&format!("{date}T00:00:00Z")).ok()?;
        let hold = Self {
            last_day: midnight.duration_since(UNIX_EPOCH).ok()?.as_secs() / DAY_SECS,
            branch: branch.map(str::to_string),
            version: version.parse().ok()?,
        };
        // A tag with another spelling was not created by Stoker.
        (hold.to_string() == tag).then_some(hold)
    }

    /// The last day on which the version is held, for example `2026-12-24`.
    pub fn until(&self) -> String {
        let midnight = UNIX_EPOCH + Duration::from_secs(self.last_day.saturating_mul(DAY_SECS));
        let midnight = humantime::format_rfc3339_seconds(midnight).to_string();
        midnight.split('T').next().unwrap_or_default().to_string()
    }

    /// Whether the hold has expired: its last day has passed.
    pub fn is_over(&self, now: SystemTime) -> bool {
        self.last_day < day(now)
    }

    /// The version that is held; `None` if no branch can have the name.
    fn snapshot(&self, table: &TableName) -> Option<Snapshot> {
        let table = match &self.branch {
            None => table.root(),
            Some(branch) => table.root().with_branch(branch).ok()?,
        };
        Some(Snapshot { table, version: self.version })
    }

    /// The branch and the version.
    pub fn place(&self) -> (Option<&str>, u64) {
        (self.branch.as_deref(), self.version)
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.until())?;
        if let Some(branch) = &self.branch {
            write!(f, ".{branch}")?;
        }
        write!(f, ".v{}", self.version)
    }
}

/// The day of a time, in days since 1970-01-01 UTC.
fn day(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / DAY_SECS)
}

/// A version that streams hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldVersion {
    /// The version.
    pub snapshot: Snapshot,
    /// When a stream that reads it last renewed a hold, by the store's clock. Streams renew holds every day.
    pub last_renewed: SystemTime,
}

impl LakeStore {
    /// Lists the versions of a table and of its branches that streams hold, with expired holds. One listing.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn held_versions(&self, table: &TableName) -> Result<Vec<HeldVersion>> {
        let folder = base_tags_path(&self.root_path(table));
        let list = async || {
            let listed = self.inner.store.inner.list(Some(&folder)).try_collect::<Vec<_>>().await;
            listed.map_err(|source| Error::storage(format!("listing the tags of table {table}"), source))
        };
        let mut held: HashMap<Snapshot, SystemTime> = HashMap::new();
        for found in again(list).await? {
            let tag = found.location.filename().and_then(|name| name.strip_suffix(EXTENSION));
            let Some(hold) = tag.and_then(Hold::of) else { continue };
            let Some(snapshot) = hold.snapshot(table) else { continue };
            let renewed = SystemTime::from(found.last_modified);
            let last = held.entry(snapshot).or_insert(renewed);
            *last = renewed.max(*last);
        }
        Ok(held.into_iter().map(|(snapshot, last_renewed)| HeldVersion { snapshot, last_renewed }).collect())
    }

    /// Ends all holds of a version. Cleanups then remove it, unless it has a tag or is the newest one.
    ///
    /// # Errors
    /// Storage errors. The call may be repeated.
    pub async fn end_holds(&self, snapshot: &Snapshot) -> Result<()> {
        let mut holds = self.holds_of(&snapshot.table).await?;
        holds.retain(|hold| hold.place() == (snapshot.table.branch(), snapshot.version));
        self.delete_holds_of(&snapshot.table, &holds).await?;
        self.inner.holds.forget(&snapshot.table);
        Ok(())
    }

    /// Sets for how many days versions are held after streams last read them, instead of [`HOLD_DAYS`]. 0 means that
    /// they are not held; more than [`HOLD_DAYS_MAX`] means [`HOLD_DAYS_MAX`].
    pub fn hold_versions_for(&self, days: u32) {
        self.inner.holds.days.store(days.min(HOLD_DAYS_MAX), Ordering::Relaxed);
    }

    /// Keeps cleanups from removing these versions, from now on for the days of [`LakeStore::hold_versions_for`]. A stream
    /// that goes on reading calls this again; calls cost no request until the next day. A version in `open` is not
    /// opened again for its hold.
    ///
    /// Failures, such as a lake that is read-only or does not answer, are logged as one warning, not returned. A
    /// failed hold is tried again after ten minutes.
    pub async fn hold<'a>(&self, snapshots: impl IntoIterator<Item = &'a Snapshot>, open: &[Table]) {
        let holds = &self.inner.holds;
        let hold = |snapshot: &'a Snapshot| async move {
            if holds.failed.lock().get(snapshot).is_some_and(|failed| failed.elapsed() < TRY_AGAIN) {
                return;
            }
            let Err(error) = self.hold_at(snapshot, open, SystemTime::now()).await else { return };
            holds.failed.lock().insert(snapshot.clone(), Instant::now());
            if !holds.is_told.swap(true, Ordering::Relaxed) {
                tracing::warn!(%error, "cannot give {snapshot} a tag: cleanups may remove it while it is read");
            }
        };
        join_all(snapshots.into_iter().map(hold)).await;
    }

    async fn hold_at(&self, snapshot: &Snapshot, open: &[Table], now: SystemTime) -> Result<()> {
        let holds = &self.inner.holds;
        let days = holds.days.load(Ordering::Relaxed);
        let last_day = day(now) + u64::from(days);
        if days == 0 || holds.last_days.lock().get(snapshot).is_some_and(|held| *held >= last_day) {
            return Ok(());
        }
        let branch = snapshot.table.branch().map(str::to_string);
        let hold = Hold { last_day, branch, version: snapshot.version };
        let table = match open.iter().find(|table| table.snapshot() == *snapshot) {
            Some(table) => table.clone(),
            None => self.table(&snapshot.table, &SnapshotRef::Version(snapshot.version)).await?,
        };
        let (is_new, others) = join(table.create_hold(&hold), table.list_holds()).await;
        let is_new = is_new?;
        holds.last_days.lock().insert(snapshot.clone(), last_day);
        holds.failed.lock().remove(snapshot);
        holds.is_told.store(false, Ordering::Relaxed);
        if is_new {
            let lake = self.clone();
            tokio::spawn(async move {
                let replaced = others.map(|mut others| {
                    others.retain(|other| other.version == hold.version && other.last_day < hold.last_day);
                    others
                });
                if let Err(error) = lake.after_hold(&table, replaced).await {
                    tracing::debug!(%error, "holds that another one replaces stay until they run out");
                }
            });
        }
        Ok(())
    }

    /// Lists the holds of all branches of a table.
    pub(crate) async fn holds_of(&self, name: &TableName) -> Result<Vec<Hold>> {
        let folder = base_tags_path(&self.root_path(name));
        let names = self.list(&folder, || format!("listing the tags of table {name}")).await?;
        Ok(names.iter().filter_map(|name| name.strip_suffix(EXTENSION)).filter_map(Hold::of).collect())
    }

    /// Deletes holds of a table. Holds that do not exist are ignored.
    async fn delete_holds_of(&self, table: &TableName, holds: &[Hold]) -> Result<()> {
        let base = self.root_path(table);
        for hold in holds {
            match self.inner.store.inner.delete(&tag_path(&base, &hold.to_string())).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(source) => return Err(Error::storage(format!("removing tag '{hold}' of table {table}"), source)),
            }
        }
        Ok(())
    }

    /// Deletes the holds that a new one replaces. Warns if a cleanup is running that may have begun before the new
    /// hold existed.
    async fn after_hold(&self, table: &Table, replaced: Result<Vec<Hold>>) -> Result<()> {
        if let Some(holder) = self.cleaning_up().await? {
            let snapshot = table.snapshot();
            tracing::warn!(
                "a cleanup is running ({holder}) that may not know of the stream that reads {snapshot}: it may remove \
                 this version if a newer version replaced it long ago"
            );
        }
        table.delete_holds(&replaced?).await
    }
}

impl Table {
    /// Creates a hold of this version. Returns `false` if it exists already.
    async fn create_hold(&self, hold: &Hold) -> Result<bool> {
        let lake = &self.lake().inner;
        let attempted = || format!("holding {}", self.snapshot());
        let location = self.dataset().manifest_location();
        let manifest_size = match location.size {
            Some(bytes) => bytes,
            None => {
                let found = lake.store.inner.head(&location.path).await;
                found.map_err(|source| Error::storage(attempted(), source))?.size
            }
        };
        let contents = TagContents {
            branch: hold.branch.clone(),
            version: hold.version,
            created_at: None,
            updated_at: None,
            manifest_size: usize::try_from(manifest_size).unwrap_or(usize::MAX),
            metadata: HashMap::new(),
        };
        let json = serde_json::to_vec_pretty(&contents).map_err(|source| Error::Storage {
            attempted: attempted(),
            kind: ErrorKind::Internal,
            source: source.into(),
        })?;
        let path = tag_path(&self.lake().root_path(self.name()), &hold.to_string());
        match lake.store.put_if_absent(&path, PutPayload::from(json)).await {
            Ok(()) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(false),
            Err(source) => Err(Error::storage(attempted(), source)),
        }
    }

    /// Lists all holds of this branch.
    pub(crate) async fn list_holds(&self) -> Result<Vec<Hold>> {
        let mut holds = self.lake().holds_of(self.name()).await?;
        holds.retain(|hold| hold.branch.as_deref() == self.name().branch());
        Ok(holds)
    }

    /// Deletes holds of this table. Holds that do not exist are ignored.
    pub(crate) async fn delete_holds(&self, holds: &[Hold]) -> Result<()> {
        self.lake().delete_holds_of(self.name(), holds).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::{DAY_SECS, Hold};
    use crate::tests::data::{append, latest, memory_lake, schema, small, table_name};

    fn at(day: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(day * DAY_SECS + 7)
    }

    #[test]
    fn the_name_of_a_hold_says_until_when() {
        let hold = Hold { last_day: 20_811, branch: None, version: 7 };
        assert_eq!(hold.to_string(), "stoker.until.2026-12-24.v7");
        assert_eq!(Hold::of("stoker.until.2026-12-24.v7").as_ref(), Some(&hold));
        assert!(!hold.is_over(at(20_811)), "it holds on its last day");
        assert!(hold.is_over(at(20_812)));
        let of_branch = Hold { branch: Some("a.v1-b".into()), ..hold };
        assert_eq!(of_branch.to_string(), "stoker.until.2026-12-24.a.v1-b.v7");
        assert_eq!(Hold::of("stoker.until.2026-12-24.a.v1-b.v7"), Some(of_branch));
        for tag in [
            "gold",
            "stoker.until",
            "stoker.until.",
            "stoker.until.2026-12-24",
            "stoker.until.2026-12-24.v",
            "stoker.until.2026-13-24.v7",
            "stoker.until.2026-12-24.v07",
            "stoker.until.2026-12-24.v-7",
            "stoker.until.2026-12-24.v7.json",
            "stoker.until.1969-12-24.v7",
        ] {
            assert_eq!(Hold::of(tag), None, "{tag}");
        }
    }

    #[tokio::test]
    async fn who_reads_on_holds_a_version_for_longer() {
        let (lake, name, schema) = (memory_lake().await, table_name("t"), schema(&[]));
        append(&lake, &name, &schema, 0..5, small(100, 1000)).await.expect("rows");
        let table = latest(&lake, &name).await.expect("a table");
        let snapshot = table.snapshot();
        let tags = async || table.list_holds().await.expect("holds").iter().map(Hold::to_string).collect::<Vec<_>>();
        let hold = async |day| lake.hold_at(&snapshot, &[], at(day)).await.expect("held");
        let tag = |day| Hold { last_day: day, branch: None, version: 1 }.to_string();
        lake.hold_versions_for(10);
        hold(100).await;
        hold(100).await;
        assert_eq!(tags().await, [tag(110)]);
        let of_lance = table.dataset().tags().get_version(&tag(110)).await;
        assert_eq!(of_lance.expect("a tag that Lance knows"), 1);
        assert!(table.tags().await.expect("tags").is_empty(), "users see their own tags");
        hold(101).await;
        until(async || tags().await == [tag(111)]).await;
        hold(90).await;
        assert_eq!(tags().await, [tag(111)], "a clock that is behind shortens nothing");
        lake.hold_versions_for(0);
        hold(200).await;
        assert_eq!(tags().await, [tag(111)]);
    }

    /// Waits until a condition holds that a spawned task brings about.
    async fn until(is_so: impl AsyncFn() -> bool) {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    }
}
