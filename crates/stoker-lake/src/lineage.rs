//! A test whether later versions descend from a commit.
//!
//! A commit creates the manifest of the next free version number. While storage delays this request, other writers
//! may commit under the same number and go on from there, and a cleanup may remove their manifest. The number is then
//! free again, and the delayed commit succeeds under it, although no later version contains it. Only the later
//! versions can tell.
//!
//! A later version shows it by the files that the commit added, by the fragments that it dropped, or by the columns
//! that it left. Where an update replaced the files of a commit, or a deletion its deletion files, only the transaction
//! of the next version can tell: Stoker's changes of rows and columns have the name of the transaction file of the
//! version before them.

use std::collections::HashSet;

use lance_core::datatypes::Schema;
use lance_table::format::{DataFile, Fragment};
use lance_table::io::deletion::relative_deletion_file_path;
use lance_table::transaction::{Operation, Transaction, UpdatedFragmentOffsets};
use stoker_types::{ErrorKind, SnapshotRef};

use crate::commit::transaction;
use crate::{LakeStore, Result, Table};

/// The key of the transaction property with the name of the transaction file of the version before.
pub(crate) const PARENT_PROPERTY: &str = "stoker.parent";

/// What the later versions say about a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lineage {
    /// They descend from the commit, or they replaced all rows, after which it makes no difference.
    Kept,
    /// They descend from another commit of the same version number: this one is lost.
    Lost,
    /// The versions that would tell were cleaned up.
    Unknown,
}

/// What a commit left in its table, by which later versions show whether they descend from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces {
    /// The name of the transaction file, which no other commit has.
    pub transaction_file: Option<String>,
    /// The data files and the deletion files that the commit added, by their paths in the manifest.
    pub files: HashSet<String>,
    /// The fragments that the commit changed.
    pub changed: HashSet<u64>,
    /// The fragments that the commit dropped.
    pub dropped: HashSet<u64>,
    /// The columns that the commit left, if it changed them.
    pub schema: Option<Schema>,
    /// Whether the commit restored an older version: all that it left was there before, so that only the transaction of
    /// the next version tells.
    pub is_restored: bool,
}

impl Traces {
    /// Returns the traces of a transaction. Files with new columns are not among them, because the transaction does not
    /// separate them from the others.
    pub fn of(transaction: &Transaction) -> Self {
        let transaction_file = Some(format!("{}-{}.txn", transaction.read_version, transaction.uuid));
        let mut traces = Self { transaction_file, ..Self::default() };
        match &transaction.operation {
            Operation::Append { fragments } | Operation::Overwrite { fragments, .. } => {
                fragments.iter().for_each(|fragment| traces.add_files(fragment, |_| true));
            }
            Operation::Delete { updated_fragments, deleted_fragment_ids, .. } => {
                updated_fragments.iter().for_each(|fragment| traces.add_deletions(fragment));
                traces.dropped.extend(deleted_fragment_ids);
            }
            Operation::Update {
                removed_fragment_ids,
                updated_fragments,
                new_fragments,
                fields_modified,
                updated_fragment_offsets,
                ..
            } => {
                new_fragments.iter().for_each(|fragment| traces.add_files(fragment, |_| true));
                let is_new = |file: &DataFile| {
                    file.fields.iter().any(|id| u32::try_from(*id).is_ok_and(|id| fields_modified.contains(&id)))
                };
                for fragment in updated_fragments {
                    match updated_fragment_offsets {
                        Some(UpdatedFragmentOffsets(rewritten)) if rewritten.contains_key(&fragment.id) => {
                            traces.add_files(fragment, is_new);
                            traces.changed.insert(fragment.id);
                        }
                        _ => traces.add_deletions(fragment),
                    }
                }
                traces.dropped.extend(removed_fragment_ids);
            }
            Operation::Rewrite { groups, .. } => {
                let new = groups.iter().flat_map(|group| &group.new_fragments);
                new.for_each(|fragment| traces.add_files(fragment, |_| true));
                traces.dropped.extend(groups.iter().flat_map(|group| &group.old_fragments).map(|old| old.id));
            }
            Operation::Merge { schema, .. } | Operation::Project { schema, .. } => traces.schema = Some(schema.clone()),
            Operation::Restore { .. } => traces.is_restored = true,
            _ => {}
        }
        traces
    }

    fn add_files(&mut self, fragment: &Fragment, is_new: impl Fn(&DataFile) -> bool) {
        self.files.extend(fragment.files.iter().filter(|file| is_new(file)).map(|file| file.path.clone()));
    }

    fn add_deletions(&mut self, fragment: &Fragment) {
        self.files.extend(deletion_file(fragment));
        self.changed.insert(fragment.id);
    }
}

impl LakeStore {
    /// Finds out whether `newest`, the newest version of its table, descends from the commit that is stored as
    /// `version` and left these traces. Reads the transaction of the next version, and opens later versions, oldest
    /// first, until one tells.
    pub(crate) async fn lineage(&self, newest: &Table, version: u64, traces: &Traces) -> Result<Lineage> {
        if newest.version() == version || newest.shows(traces) {
            return Ok(Lineage::Kept);
        }
        let next = transaction(newest, version + 1).await?;
        if let (Some(own), Some(parent)) = (&traces.transaction_file, next.as_ref().and_then(parent_of)) {
            return Ok(if parent == own { Lineage::Kept } else { Lineage::Lost });
        }
        let created = self.created_by(newest, version, traces).await?;
        let mut later = newest.version_numbers().await?;
        later.retain(|number| *number > version && *number < newest.version());
        later.sort_unstable();
        for number in later.into_iter().chain([newest.version()]) {
            match self.at_version(newest, number, &SnapshotRef::Version(number)).await {
                Ok(table) if table.shows(traces) => return Ok(Lineage::Kept),
                Ok(table) if table.contradicts(traces, &created) => return Ok(Lineage::Lost),
                // A version that was cleaned up meanwhile says nothing.
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let Some(next) = next else {
            // A cleanup removes later versions that have no tag, but not the tagged version itself.
            let has_tag = newest.tags().await?.values().any(|tagged| *tagged == version);
            return Ok(if has_tag { Lineage::Kept } else { Lineage::Unknown });
        };
        Ok(match next.operation {
            Operation::Overwrite { .. } | Operation::Restore { .. } => Lineage::Kept,
            Operation::Rewrite { groups, .. } => {
                let mut rewritten = groups.iter().flat_map(|group| &group.old_fragments);
                match rewritten.any(|fragment| names_any(fragment, &traces.files)) {
                    true => Lineage::Kept,
                    false => Lineage::Lost,
                }
            }
            // These operations keep all files of the version that they descend from.
            Operation::Append { .. } | Operation::CreateIndex { .. } | Operation::UpdateConfig { .. } => Lineage::Lost,
            _ => Lineage::Unknown,
        })
    }

    /// The ids of the fragments that a commit created; none when its version was cleaned up.
    async fn created_by(&self, newest: &Table, version: u64, traces: &Traces) -> Result<HashSet<u64>> {
        match self.at_version(newest, version, &SnapshotRef::Version(version)).await {
            Ok(table) => {
                let fragments = table.dataset().fragments().iter();
                let named = fragments.filter(|fragment| names_any(fragment, &traces.files)).map(|fragment| fragment.id);
                // New columns are files of fragments that existed before.
                Ok(match traces.schema {
                    Some(_) => HashSet::new(),
                    None => named.filter(|id| !traces.changed.contains(id)).collect(),
                })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(HashSet::new()),
            Err(error) => Err(error),
        }
    }
}

impl Table {
    /// Whether this version names any of these files.
    pub(crate) fn names_any(&self, files: &HashSet<String>) -> bool {
        self.dataset().fragments().iter().any(|fragment| names_any(fragment, files))
    }

    /// Whether this version shows that it descends from the commit, or that it makes no difference.
    fn shows(&self, traces: &Traces) -> bool {
        match &traces.schema {
            _ if traces.is_restored => false,
            _ if !traces.files.is_empty() => self.names_any(&traces.files),
            Some(schema) => self.dataset().schema() == schema,
            None => !self.has_any(&traces.dropped),
        }
    }

    /// Whether this version, which does not show the commit, descends from another commit of the same version number. A
    /// fragment id is used once in a table's history. So a fragment that the commit dropped does not come back, and one
    /// that it created has files of the commit.
    fn contradicts(&self, traces: &Traces, created: &HashSet<u64>) -> bool {
        self.has_any(&traces.dropped) || self.has_any(created)
    }

    fn has_any(&self, fragments: &HashSet<u64>) -> bool {
        self.dataset().fragments().iter().any(|fragment| fragments.contains(&fragment.id))
    }
}

/// The name of the transaction file of the version before, if the transaction has it.
fn parent_of(transaction: &Transaction) -> Option<&String> {
    transaction.transaction_properties.as_ref().and_then(|properties| properties.get(PARENT_PROPERTY))
}

/// The path of a fragment's deletion file in its table.
fn deletion_file(fragment: &Fragment) -> Option<String> {
    fragment.deletion_file.as_ref().map(|file| relative_deletion_file_path(fragment.id, file))
}

fn names_any(fragment: &Fragment, files: &HashSet<String>) -> bool {
    fragment.files.iter().any(|file| files.contains(&file.path))
        || deletion_file(fragment).is_some_and(|file| files.contains(&file))
}
