//! A test whether later versions descend from a commit.
//!
//! A commit creates the manifest of the next free version number. While storage delays this request, other writers
//! may commit under the same number and go on from there, and a cleanup may remove their manifest. The number is then
//! free again, and the delayed commit succeeds under it, although no later version contains it. Only the later
//! versions can tell.

use std::collections::HashSet;

use lance_table::format::Fragment;
use lance_table::transaction::Operation;
use stoker_types::{ErrorKind, SnapshotRef};

use crate::commit::transaction;
use crate::{LakeStore, Result, Table};

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

impl LakeStore {
    /// Finds out whether `newest`, the newest version of its table, descends from the commit that is stored as
    /// `version` and added these data files. Opens later versions, oldest first, until one tells.
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
                // A version that was cleaned up meanwhile says nothing.
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let Some(next) = transaction(newest, version + 1).await? else {
            // A cleanup removes later versions that have no tag, but not the tagged version itself.
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
            // These operations keep all files of the version that they descend from.
            Operation::Append { .. } | Operation::CreateIndex { .. } | Operation::UpdateConfig { .. } => Lineage::Lost,
            _ => Lineage::Unknown,
        })
    }

    /// The ids of the fragments of a version that name these files; none when the version was cleaned up.
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

    /// Whether this version has fragments with these ids. It must name no file of the commit that created the
    /// fragments: then its fragments with these ids come from another commit of the same version number, because a
    /// fragment id is used once in a table's history.
    fn has_others(&self, fragments: &HashSet<u64>) -> bool {
        self.dataset().fragments().iter().any(|fragment| fragments.contains(&fragment.id))
    }
}

fn names_any(fragment: &Fragment, files: &HashSet<String>) -> bool {
    fragment.files.iter().any(|file| files.contains(&file.path))
}
