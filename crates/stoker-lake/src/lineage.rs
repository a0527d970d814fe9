//! Whether later versions came from a commit.
//!
//! A commit takes the slot of a version that is free. While storage holds it back, others may take the slot, go on from there, and a
//! cleanup may free it again: the commit then succeeds in a slot that nobody will look at. Only the versions after it tell.

use std::collections::HashSet;

use lance_table::format::Fragment;
use lance_table::transaction::Operation;
use stoker_types::{ErrorKind, SnapshotRef};

use crate::commit::transaction;
use crate::{Lake, Result, Table};

/// What later versions say of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lineage {
    /// They came from it, or replaced all rows, which comes to the same.
    Kept,
    /// They came from another commit of the same version: it is lost.
    Lost,
    /// Those that would tell were cleaned up.
    Unknown,
}

impl Lake {
    /// Whether `newest`, the newest version of its table, came from the commit that is stored as `version` and added these data files.
    pub(crate) async fn lineage(&self, newest: &Table, version: u64, files: &HashSet<String>) -> Result<Lineage> {
        if files.is_empty() || newest.version() == version || newest.names_any(files) {
            return Ok(Lineage::Kept);
        }
        let fragments = self.fragments_of(newest, version, files).await?;
        if newest.has_others(&fragments) {
            return Ok(Lineage::Lost);
        }
        let mut later = newest.version_numbers().await?;
        later.retain(|number| *number > version && *number < newest.version());
        later.sort_unstable();
        for number in later {
            match self.at_version(newest, number, &SnapshotRef::Version(number)).await {
                Ok(table) if table.names_any(files) => return Ok(Lineage::Kept),
                Ok(table) if table.has_others(&fragments) => return Ok(Lineage::Lost),
                // One that is cleaned up meanwhile tells nothing.
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let Some(next) = transaction(newest, version + 1).await? else {
            // A cleanup spares versions with a tag, and those after it only where they have one, too.
            let has_tag = newest.tags().await?.values().any(|tagged| *tagged == version);
            return Ok(if has_tag { Lineage::Kept } else { Lineage::Unknown });
        };
        Ok(match next.operation {
            Operation::Overwrite { .. } | Operation::Restore { .. } => Lineage::Kept,
            Operation::Rewrite { groups, .. } => {
                let rewritten =
                    groups.iter().flat_map(|group| &group.old_fragments).flat_map(|fragment| &fragment.files);
                match rewritten.into_iter().any(|file| files.contains(&file.path)) {
                    true => Lineage::Kept,
                    false => Lineage::Lost,
                }
            }
            // These keep all files of the version that they came from.
            Operation::Append { .. } | Operation::CreateIndex { .. } | Operation::UpdateConfig { .. } => Lineage::Lost,
            _ => Lineage::Unknown,
        })
    }

    /// The fragments of a version that name these files; none where it was cleaned up.
    async fn fragments_of(&self, newest: &Table, version: u64, files: &HashSet<String>) -> Result<HashSet<u64>> {
        match self.at_version(newest, version, &SnapshotRef::Version(version)).await {
            Ok(table) => {
                let fragments = table.dataset().fragments().iter();
                Ok(fragments.filter(|fragment| names_any(fragment, files)).map(|fragment| fragment.id).collect())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(HashSet::new()),
            Err(error) => Err(error),
        }
    }
}

impl Table {
    /// Whether this version names any of these data files.
    pub(crate) fn names_any(&self, files: &HashSet<String>) -> bool {
        self.dataset().fragments().iter().any(|fragment| names_any(fragment, files))
    }

    /// Whether this version, which names no file of the commit that made these fragments, has fragments of the same numbers: those of
    /// another commit of the same version, as numbers are given once in the history of a table.
    fn has_others(&self, fragments: &HashSet<u64>) -> bool {
        self.dataset().fragments().iter().any(|fragment| fragments.contains(&fragment.id))
    }
}

fn names_any(fragment: &Fragment, files: &HashSet<String>) -> bool {
    fragment.files.iter().any(|file| files.contains(&file.path))
}
