//! The transactions that made the versions of a table, with a cache of what they say.
//!
//! An ingest asks for each ingest before it whether its rows are in the table. Where a compaction rewrote the rows'
//! files, only the transactions of the later versions can tell. These are the same for all ingests; without this
//! cache, the number of requests would grow with the square of the number of versions.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use lance_table::transaction::{Operation, Transaction};

use crate::commit::{TRANSACTIONS_IN_FLIGHT, counts, key_of, transaction};
use crate::lineage::Traces;
use crate::{Result, Table};

/// The versions of a table up to the one that is open.
pub struct History<'a> {
    table: &'a Table,
    /// The versions that were not cleaned up, ascending. `None` until they were listed.
    there: Option<Vec<u64>>,
    /// What was read so far, by version; `None` for versions that were cleaned up.
    made: BTreeMap<u64, Option<Made>>,
}

/// What the transaction of a version says.
#[derive(Debug)]
struct Made {
    key: Option<String>,
    change: Change,
    /// Whether the open table names a data file that this transaction added.
    is_named: bool,
}

/// What a version did with the rows of the version before it.
#[derive(Clone, Copy, Debug)]
enum Change {
    Kept,
    Replaced,
    /// The version has the rows of this older version.
    Restored(u64),
}

impl Table {
    /// The history of the table, as far as its versions were not cleaned up. Reads nothing yet.
    pub fn history(&self) -> History<'_> {
        History { table: self, there: None, made: BTreeMap::new() }
    }
}

impl History<'_> {
    /// Finds the version that was committed under a key, among the versions after `since` that were not cleaned up.
    /// Reads the transactions of these versions that were not read before, and that of the version found once more.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) when nothing tells whether the commit took effect;
    /// storage errors.
    pub async fn find_commit(&mut self, key: &str, since: u64) -> Result<Option<u64>> {
        // A newest version below `since` belongs to another table, which was created later under the same name.
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

    /// Whether the rows that were committed under a key as `version` belong to the open version of the table: the
    /// table was not replaced, and nothing overwrote the rows. Versions that were cleaned up count as if they had
    /// kept the rows.
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
        // The open version names none of the commit's files: a compaction or an update rewrote them, or the rows were
        // overwritten, or a restore left them behind.
        self.read(version + 1).await?;
        let there = self.there.as_deref().unwrap_or_default();
        let mut newest = self.table.version();
        while newest > version {
            newest = match self.made.get(&newest).and_then(Option::as_ref).map(|made| made.change) {
                Some(Change::Replaced) => return Ok(false),
                Some(Change::Restored(restored)) if restored < version => return Ok(false),
                Some(Change::Restored(restored)) => restored.min(newest - 1),
                // Continue with the next older version that was not cleaned up.
                Some(Change::Kept) | None => {
                    there[..there.partition_point(|found| *found < newest)].last().copied().unwrap_or(0)
                }
            };
        }
        Ok(true)
    }

    /// Reads the transactions of the versions from `oldest` on that were not read before.
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

/// Reads the transaction of one version. Returns `None` for a version that was cleaned up.
async fn read(table: &Table, version: u64) -> Result<Option<Made>> {
    Ok(transaction(table, version).await?.map(|found| Made::of(&found, table)))
}

impl Made {
    fn of(transaction: &Transaction, table: &Table) -> Self {
        let change = match &transaction.operation {
            // A branch begins with the rows of its table, whose history is another one.
            Operation::Overwrite { .. } | Operation::Clone { .. } => Change::Replaced,
            Operation::Restore { version } => Change::Restored(*version),
            _ => Change::Kept,
        };
        let is_named = table.names_any(&Traces::of(transaction).files);
        Self { key: key_of(transaction).map(str::to_string), change, is_named }
    }
}
