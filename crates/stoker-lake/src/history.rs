//! By what the versions of a table were made, each read once however often it is asked for.
//!
//! An ingest asks for each of the ingests before it whether its rows are in the table. Where a compaction rewrote their files, the
//! versions since then tell, which are the same for all of them: without a memory that would be requests by the square of the versions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use futures::{StreamExt, TryStreamExt, stream};
use lance_table::transaction::{Operation, Transaction};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard, OnceCell};

use crate::commit::{TRANSACTIONS_IN_FLIGHT, added_files, key_of, transaction, unknown};
use crate::lineage::Lineage;
use crate::{Result, Table};

/// The versions of a table up to one of them.
pub struct History<'a> {
    table: &'a Table,
    /// Versions that were not cleaned up, ascending.
    there: OnceCell<Vec<u64>>,
    /// What was read so far; `None` for versions that were cleaned up.
    made: Mutex<HashMap<u64, Option<Made>>>,
}

/// By what a version was made.
#[derive(Debug)]
struct Made {
    key: Option<String>,
    change: Change,
    /// Whether the table of the history names a data file that came with it.
    is_named: bool,
}

/// What a version did with the rows before it.
#[derive(Clone, Copy, Debug)]
enum Change {
    Kept,
    Replaced,
    /// It has those of this version.
    Restored(u64),
}

impl Table {
    /// By what its versions were made, as far as they were not cleaned up. Nothing is read yet.
    pub fn history(&self) -> History<'_> {
        History { table: self, there: OnceCell::new(), made: Mutex::default() }
    }
}

impl History<'_> {
    /// The version that was committed under a key, among those after `since` that were not cleaned up.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) where nothing tells whether it counts; storage errors.
    pub async fn find_commit(&self, key: &str, since: u64) -> Result<Option<u64>> {
        // A table older than that is another table of the same name.
        let since = if since <= self.table.version() { since } else { 0 };
        self.read(since + 1).await?;
        let found = |(version, made): (&u64, &Option<Made>)| {
            made.as_ref().and_then(|made| made.key.as_deref()).is_some_and(|of| of == key).then_some(*version)
        };
        let mut versions: Vec<u64> = self.made.lock().await.iter().filter_map(found).collect();
        versions.retain(|version| *version > since);
        versions.sort_unstable();
        for version in versions.into_iter().rev() {
            let Some(transaction) = transaction(self.table, version).await? else { continue };
            match self.table.lake().lineage(self.table, version, &added_files(&transaction)).await? {
                Lineage::Kept => return Ok(Some(version)),
                Lineage::Lost => {}
                Lineage::Unknown => return Err(unknown(self.table.name(), version)),
            }
        }
        Ok(None)
    }

    /// Whether the rows committed under a key as `version` belong to this version of the table: the table was not replaced and
    /// nothing overwrote them. Of versions that were cleaned up it is assumed.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn includes_commit(&self, key: &str, version: u64) -> Result<bool> {
        if version > self.table.version() {
            return Ok(false);
        }
        if let Some(made) = &*self.made(version).await? {
            if made.key.as_deref() != Some(key) {
                return Ok(false);
            }
            if made.is_named {
                return Ok(true);
            }
        }
        // Its files are gone: rewritten by a compaction or an update, overwritten, or left behind by a restore.
        let there = self.read(version + 1).await?;
        let made = self.made.lock().await;
        let mut newest = self.table.version();
        while newest > version {
            newest = match made.get(&newest).and_then(Option::as_ref).map(|made| made.change) {
                Some(Change::Replaced) => return Ok(false),
                Some(Change::Restored(restored)) if restored < version => return Ok(false),
                Some(Change::Restored(restored)) => restored.min(newest - 1),
                // Only versions that were not cleaned up can tell more.
                Some(Change::Kept) | None => {
                    there[..there.partition_point(|found| *found < newest)].last().copied().unwrap_or(0)
                }
            };
        }
        Ok(true)
    }

    /// Reads what is not known yet of the versions from `oldest` on. All versions that are there.
    async fn read(&self, oldest: u64) -> Result<&[u64]> {
        let list = async || {
            let mut there = self.table.version_numbers().await?;
            there.retain(|version| *version <= self.table.version());
            there.sort_unstable();
            Ok::<_, crate::Error>(there)
        };
        let there = self.there.get_or_try_init(list).await?;
        let mut made = self.made.lock().await;
        let unread: Vec<u64> =
            there.iter().copied().filter(|version| *version >= oldest && !made.contains_key(version)).collect();
        let read = |version| async move { Ok::<_, crate::Error>((version, self.read_one(version).await?)) };
        let mut read = stream::iter(unread).map(read).buffer_unordered(TRANSACTIONS_IN_FLIGHT);
        while let Some((version, found)) = read.try_next().await? {
            made.insert(version, found);
        }
        Ok(there)
    }

    /// By what one version was made.
    async fn made(&self, version: u64) -> Result<MappedMutexGuard<'_, Option<Made>>> {
        let mut made = self.made.lock().await;
        if let Entry::Vacant(entry) = made.entry(version) {
            entry.insert(self.read_one(version).await?);
        }
        Ok(MutexGuard::map(made, |made| made.entry(version).or_default()))
    }

    async fn read_one(&self, version: u64) -> Result<Option<Made>> {
        let found = transaction(self.table, version).await?;
        Ok(found.map(|found| Made::of(&found, self.table)))
    }
}

impl Made {
    fn of(transaction: &Transaction, table: &Table) -> Self {
        let change = match &transaction.operation {
            Operation::Overwrite { .. } => Change::Replaced,
            Operation::Restore { version } => Change::Restored(*version),
            _ => Change::Kept,
        };
        let is_named = table.names_any(&added_files(transaction));
        Self { key: key_of(transaction).map(str::to_string), change, is_named }
    }
}
