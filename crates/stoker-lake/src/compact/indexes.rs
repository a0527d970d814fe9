//! Indexes whose rows are written again: whether they can follow, and how they do.

use std::collections::{BTreeSet, HashSet};

use lance::dataset::index::DatasetIndexRemapperOptions;
use lance::dataset::optimize::IndexRemapperOptions as _;
use lance_core::utils::row_addr_remap::{GroupInput, RowAddrRemap};
use lance_table::format::IndexMetadata;
use lance_table::io::manifest::read_manifest_indexes;
use lance_table::system_index::frag_reuse::FRAG_REUSE_INDEX_NAME;
use lance_table::system_index::is_system_index;
use lance_table::transaction::RewrittenIndex;
use uuid::Uuid;

use super::rewrite::RewrittenGroup;
use crate::damage::caught;
use crate::index::is_of_vectors;
use crate::row_id_set::fragment_id;
use crate::{Error, Result, Table};

/// The kinds of indexes that Lance can give the new addresses of their rows, by the ends of the names of their details.
const FOLLOWERS: [&str; 6] = [
    "BTreeIndexDetails",
    "BitmapIndexDetails",
    "LabelListIndexDetails",
    "NGramIndexDetails",
    "InvertedIndexDetails",
    "VectorIndexDetails",
];

/// The indexes of a version, written again for rows with new addresses.
pub(super) struct Followers {
    /// The segments that were written again, as the version has them.
    of: Vec<Uuid>,
    /// What the commit says of them.
    pub rewritten: Vec<RewrittenIndex>,
    /// The names of the indexes.
    pub names: Vec<String>,
}

impl Followers {
    /// Whether these are the indexes of a version that cover the fragments.
    pub fn are_of(&self, indexes: &[IndexMetadata], fragments: &HashSet<u64>) -> bool {
        let covering = indexes.iter().filter(|index| covers(index, fragments)).map(|index| index.uuid);
        covering.eq(self.of.iter().copied())
    }
}

/// Whether an index that users made covers one of these fragments.
pub(super) fn covers(index: &IndexMetadata, fragments: &HashSet<u64>) -> bool {
    let covered = index.fragment_bitmap.as_ref();
    !is_system_index(index) && covered.is_none_or(|ids| ids.iter().any(|id| fragments.contains(&u64::from(id))))
}

/// Checks that all indexes which cover these fragments can follow their rows. Returns their names, sorted.
pub(super) fn check_followers(
    table: &Table,
    indexes: &[IndexMetadata],
    fragments: &HashSet<u64>,
) -> Result<Vec<String>> {
    let refuse = |reason: String| Err(Error::InvalidRequest { attempted: table.compacting(), reason });
    if indexes.iter().any(|index| index.name == FRAG_REUSE_INDEX_NAME) {
        return refuse(
            "another writer compacted it and left the indexes behind, to be written later: have Lance do that first, \
             by dataset.optimize.optimize_indices()"
                .into(),
        );
    }
    let mut names = BTreeSet::new();
    for index in indexes.iter().filter(|index| covers(index, fragments)) {
        if let Some(reason) = obstacle(index) {
            return refuse(format!("index {} cannot follow the rows, because {reason}", index.name));
        }
        names.insert(index.name.clone());
    }
    Ok(names.into_iter().collect())
}

/// Describes why an index cannot follow its rows.
fn obstacle(index: &IndexMetadata) -> Option<String> {
    const REBUILD: &str = "drop it first, and create it again afterwards";
    if index.fragment_bitmap.is_none() {
        return Some(format!("an old version of Lance built it, and it does not say which rows it covers: {REBUILD}"));
    }
    if index.fields.len() != 1 || !index.covering_fields.is_empty() {
        return Some(format!("it has several columns: {REBUILD}"));
    }
    // An index without details was built by an old version of Lance, for one of the kinds above.
    let details = index.index_details.as_ref()?;
    let kind = details.type_url.rsplit(['.', '/']).next().unwrap_or_default();
    match FOLLOWERS.contains(&kind) {
        true => None,
        false => Some(format!(
            "indexes of its kind, {}, cannot be given new addresses: {REBUILD}",
            kind.strip_suffix("IndexDetails").unwrap_or(kind)
        )),
    }
}

impl Table {
    /// Reads all indexes in the manifest, also those of kinds that are not known.
    pub(super) async fn stored_indexes(&self) -> Result<Vec<IndexMetadata>> {
        let fail = |source: lance_core::Error| Error::storage(self.compacting(), source);
        let dataset = self.dataset();
        let store = dataset.object_store(None).await.map_err(fail)?;
        let found = read_manifest_indexes(&store, dataset.manifest_location(), dataset.manifest());
        caught(found).await.map_err(fail)
    }

    /// Writes the indexes of this version again that cover rows of these groups, whose fragments have their ids. What
    /// was measured of an index is kept.
    pub(super) async fn followers(&self, groups: &[RewrittenGroup], indexes: &[IndexMetadata]) -> Result<Followers> {
        let fail = |source: lance_core::Error| Error::storage(self.compacting(), source);
        let fragments: HashSet<u64> = groups.iter().flat_map(|group| &group.old).map(|old| old.id).collect();
        let names = check_followers(self, indexes, &fragments)?;
        let covering: Vec<&IndexMetadata> = indexes.iter().filter(|index| covers(index, &fragments)).collect();
        let of: Vec<Uuid> = covering.iter().map(|index| index.uuid).collect();
        if covering.is_empty() {
            return Ok(Followers { of, rewritten: Vec::new(), names });
        }
        let remap = RowAddrRemap::compact(groups.iter().map(moved_rows)).map_err(fail)?;
        let options = DatasetIndexRemapperOptions::default();
        let writing = async {
            let Some(remapper) = options.create_remapper(self.dataset()).await? else { return Ok(Vec::new()) };
            let affected: Vec<u64> = fragments.iter().copied().collect();
            remapper.remap_indices(remap, &affected).await
        };
        let written = caught(writing).await.map_err(fail)?;
        if let Some(left) = covering.iter().find(|index| !written.iter().any(|new| new.old_id == index.uuid)) {
            let reason = format!(
                "index {} cannot be read, so that it cannot follow the rows: drop it first, and create it again \
                 afterwards",
                left.name
            );
            return Err(Error::InvalidRequest { attempted: self.compacting(), reason });
        }
        for new in &written {
            let is_of_vectors = covering.iter().any(|index| index.uuid == new.old_id && is_of_vectors(index));
            if is_of_vectors && new.new_id != new.old_id {
                self.copy_measured(new.old_id, new.new_id).await?;
            }
        }
        let rewritten = written.into_iter().map(|new| RewrittenIndex {
            old_id: new.old_id,
            new_id: new.new_id,
            new_index_details: new.index_details,
            new_index_version: new.index_version,
            new_index_files: new.files,
        });
        Ok(Followers { of, rewritten: rewritten.collect(), names })
    }
}

/// The addresses of the rows of a group, and the fragments in which they lie now, in the same order.
fn moved_rows(group: &RewrittenGroup) -> GroupInput {
    let rows = |rows: Option<usize>| u32::try_from(rows.unwrap_or(0)).unwrap_or(u32::MAX);
    GroupInput {
        rewritten_old_row_addrs: group.live.clone(),
        old_frag_ids: group.old.iter().map(|old| fragment_id(old.id)).collect(),
        new_frags: group.new.iter().map(|new| (fragment_id(new.id), rows(new.physical_rows))).collect(),
    }
}
