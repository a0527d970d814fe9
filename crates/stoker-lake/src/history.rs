//! By what the versions of a table were made, each read once however often it is asked for.
//!
//! An ingest asks for each of the ingests before it whether its rows are in the table. Where a compaction rewrote their files, the
//! versions since then tell, which are the same for all of them: without a memory that would be requests by the square of the versions.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use lance_table::transaction::{Operation, Transaction};

use crate::commit::{TRANSACTIONS_IN_FLIGHT, added_files, counts, key_of, transaction};
use crate::{Result, Table};

/// The versions of a table up to one of them.
pub struct History<'a> {
    table: &'a Table,
    /// Versions that were not cleaned up, ascending, once they were listed.
    there: Option<Vec<u64>>,
    /// What was read so far; `None` for versions that were cleaned up.
    made: BTreeMap<u64, Option<Made>>,
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
        History { table: self, there: None, made: BTreeMap::new() }
    }
}

impl History<'_> {
    /// The version that was committed under a key, among those after `since` that were not cleaned up.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) where nothing tells whether it counts; storage errors.
    pub async fn find_commit(&mut self, key: &str, since: u64) -> Result<Option<u64>> {
        // A table older than that is another table of the same name.
        let since = if since <= self.table.version() { since } else { 0 };
        self.read(since + 1).await?;
        let has_key = |made: &Option<Made>| made.as_ref().is_some_and(|made| made.key.as_deref() == Some(key));
        for (version, _) in self.made.range(since + 1..).rev().filter(|(_, made)| has_key(made)) {
            if let Some(transaction) = transaction(self.table, *version).await?
                && counts(self.table, *version, &transaction).await?
            {
                return Ok(Some(*version));
            }
        }
        Ok(None)
    }

    /// Whether the rows committed under a key as `version` belong to this version of the table: the table was not replaced and
    /// nothing overwrote them. Of versions that were cleaned up it is assumed.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn includes_commit(&mut self, key: &str, version: u64) -> Result<bool> {
        if version > self.table.version() {
            return Ok(false);
        }
        if !self.made.contains_key(&version) {
            let found = read(self.table, version).await?;
            self.made.insert(version, found);
        }
        if let Some(Some(made)) = self.made.get(&version) {
            if made.key.as_deref() != Some(key) {
                return Ok(false);
            }
            if made.is_named {
                return Ok(true);
            }
        }
        // Its files are gone: rewritten by a compaction or an update, overwritten, or left behind by a restore.
        self.read(version + 1).await?;
        let there = self.there.as_deref().unwrap_or_default();
        let mut newest = self.table.version();
        while newest > version {
            newest = match self.made.get(&newest).and_then(Option::as_ref).map(|made| made.change) {
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

    /// Reads what is not known yet of the versions from `oldest` on.
    async fn read(&mut self, oldest: u64) -> Result<()> {
        let table = self.table;
        if self.there.is_none() {
            let mut there = table.version_numbers().await?;
            there.retain(|version| *version <= table.version());
            there.sort_unstable();
            self.there = Some(there);
        }
        let there = self.there.iter().flatten().copied();
        let unread = there.filter(|version| *version >= oldest && !self.made.contains_key(version));
        let reads = unread.map(|version| async move { Ok::<_, crate::Error>((version, read(table, version).await?)) });
        let reads: Vec<_> = reads.collect();
        let mut reads = stream::iter(reads).buffer_unordered(TRANSACTIONS_IN_FLIGHT);
        while let Some((version, found)) = reads.try_next().await? {
            self.made.insert(version, found);
        }
        Ok(())
    }
}

/// By what one version was made.
async fn read(table: &Table, version: u64) -> Result<Option<Made>> {
    Ok(transaction(table, version).await?.map(|found| Made::of(&found, table)))
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
