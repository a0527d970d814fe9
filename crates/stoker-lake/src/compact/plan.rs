//! Which fragments are written again, and into how many new ones.

use lance_table::format::{Fragment, IndexMetadata};
use lance_table::system_index::is_system_index;
use stoker_columns::is_heavy;
use uuid::Uuid;

use super::CompactOptions;
use super::indexes::check_followers;
use crate::{Error, Result, Table, WriteOptions};

/// The most files of a fragment beyond one for each heavy column and one for the light columns. Each file that is added
/// costs a footer when the table is read; to write a fragment again costs all of its bytes.
const EXTRA_FILES_MAX: usize = 2;

/// What a compaction does with a version of a table, or would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionPlan {
    /// The version.
    pub version: u64,
    /// The number of its fragments, including those that stay.
    pub num_fragments: u64,
    /// The groups of fragments that are written again, in the order of the table.
    pub groups: Vec<CompactedGroup>,
    /// The names of the indexes that have to follow the rows, sorted.
    pub indexes: Vec<String>,
}

/// Neighbouring fragments whose rows are written again together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactedGroup {
    /// The ids of the fragments, in the order of the table.
    pub fragments: Vec<u64>,
    /// The number of rows of each new fragment.
    pub new_rows: Vec<u64>,
    /// The number of deleted rows that are left out.
    pub num_deleted: u64,
    /// The bytes of the rows, as far as the manifest tells.
    pub bytes: u64,
}

/// A fragment, and what a plan depends on.
struct Candidate {
    id: u64,
    /// The rows that are not deleted, and their bytes.
    num_rows: u64,
    bytes: u64,
    num_deleted: u64,
    /// The segments of indexes that cover the fragment. Fragments of one group have the same.
    covered_by: Vec<Uuid>,
    /// Whether it is written again even if it is not joined with others.
    is_due: bool,
    /// Whether it is joined with its neighbours.
    is_small: bool,
}

/// Half of the limits of a fragment, rounded up.
fn half(options: &WriteOptions) -> (u64, u64) {
    (options.rows_per_fragment_max.div_ceil(2), options.bytes_per_fragment_max.div_ceil(2))
}

impl Table {
    /// Plans a compaction of this version. Checks that the table can be compacted, unless nothing is to be done.
    pub(super) async fn compaction_plan(&self, options: &CompactOptions) -> Result<CompactionPlan> {
        let indexes = self.stored_indexes().await?;
        let fragments = self.dataset().fragments();
        let candidates = fragments.iter().map(|fragment| self.candidate(fragment, &indexes, options));
        let groups = groups(candidates, options);
        let mut names = Vec::new();
        if !groups.is_empty() {
            self.check_compactable()?;
            let ids = groups.iter().flat_map(|group| &group.fragments).copied().collect();
            names = check_followers(self, &indexes, &ids)?;
        }
        Ok(CompactionPlan { version: self.version(), num_fragments: fragments.len() as u64, groups, indexes: names })
    }

    fn candidate(&self, fragment: &Fragment, indexes: &[IndexMetadata], options: &CompactOptions) -> Candidate {
        let stored = fragment.physical_rows.unwrap_or(0) as u64;
        let num_deleted = fragment.deletion_file.as_ref().and_then(|file| file.num_deleted_rows).unwrap_or(0) as u64;
        let num_rows = stored.saturating_sub(num_deleted);
        let sizes = fragment.files.iter().filter_map(|file| file.file_size_bytes.get());
        let stored_bytes: u64 = sizes.map(|size| size.get()).sum();
        let bytes = u128::from(stored_bytes) * u128::from(num_rows) / u128::from(stored.max(1));
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let covers = |index: &&IndexMetadata| {
            let id = u32::try_from(fragment.id).ok();
            // An index without a list of fragments covers all of them, as far as is known.
            index.fragment_bitmap.as_ref().is_none_or(|ids| id.is_some_and(|id| ids.contains(id)))
        };
        let own = indexes.iter().filter(|index| !is_system_index(index));
        let (rows_half, bytes_half) = half(&options.write);
        let can_be_rewritten = num_rows > 0 && fragment.overlays.is_empty();
        let has_deleted = num_deleted > 0 && num_deleted * 100 >= options.deleted_percent_min * stored;
        let is_scattered = fragment.files.len() > self.num_files_of_a_fragment() + EXTRA_FILES_MAX;
        Candidate {
            id: fragment.id,
            num_rows,
            bytes,
            num_deleted,
            covered_by: own.filter(covers).map(|index| index.uuid).collect(),
            is_due: can_be_rewritten && (has_deleted || is_scattered || options.rewrites_all),
            is_small: can_be_rewritten && num_rows < rows_half && bytes < bytes_half,
        }
    }

    /// The number of data files that the table writer gives a fragment.
    fn num_files_of_a_fragment(&self) -> usize {
        let schema = self.schema();
        let num_heavy = schema.fields().iter().filter(|field| is_heavy(field)).count();
        num_heavy + usize::from(num_heavy < schema.fields().len())
    }

    /// Checks that rows of this table can be written again.
    fn check_compactable(&self) -> Result<()> {
        let refuse = |reason: &str| Err(Error::InvalidRequest { attempted: self.compacting(), reason: reason.into() });
        if !self.row_ids_are_addresses() {
            return refuse(
                "another writer gave the table stable row ids, which Stoker does not write: compact it with Lance, \
                 which drops Stoker's checksums",
            );
        }
        match self.refuse_rows_with_blobs() {
            Ok(()) => Ok(()),
            Err(Error::InvalidData { reason, .. }) => refuse(&reason),
            Err(error) => Err(error),
        }
    }
}

/// Divides the fragments that are to be written again into groups of neighbours. The rows of a group make one fragment,
/// or a few.
fn groups(candidates: impl Iterator<Item = Candidate>, options: &CompactOptions) -> Vec<CompactedGroup> {
    let (rows_half, bytes_half) = half(&options.write);
    let (rows_max, bytes_max) = (options.write.rows_per_fragment_max, options.write.bytes_per_fragment_max);
    let (mut groups, mut open) = (Vec::new(), Vec::<Candidate>::new());
    let mut close = |open: &mut Vec<Candidate>| groups.extend(group(std::mem::take(open), &options.write));
    for next in candidates {
        if !next.is_due && !next.is_small {
            close(&mut open);
            continue;
        }
        let (rows, bytes) = sums(&open);
        let is_half_full = rows >= rows_half || bytes >= bytes_half;
        let is_over = rows + next.num_rows > rows_max || bytes + next.bytes > bytes_max;
        let is_covered_otherwise = open.last().is_some_and(|last| last.covered_by != next.covered_by);
        if is_covered_otherwise || is_half_full && is_over {
            close(&mut open);
        }
        open.push(next);
    }
    close(&mut open);
    groups
}

fn sums(candidates: &[Candidate]) -> (u64, u64) {
    candidates.iter().fold((0, 0), |(rows, bytes), next| (rows + next.num_rows, bytes + next.bytes))
}

/// Makes a group of fragments. Returns `None` if it would change nothing.
fn group(candidates: Vec<Candidate>, options: &WriteOptions) -> Option<CompactedGroup> {
    let (num_rows, bytes) = sums(&candidates);
    let by_rows = num_rows.div_ceil(options.rows_per_fragment_max.max(1));
    let by_bytes = bytes.div_ceil(options.bytes_per_fragment_max.max(1));
    let num_new = by_rows.max(by_bytes).clamp(1, num_rows.max(1));
    let is_due = candidates.iter().any(|candidate| candidate.is_due);
    if num_rows == 0 || !is_due && num_new >= candidates.len() as u64 {
        return None;
    }
    Some(CompactedGroup {
        fragments: candidates.iter().map(|candidate| candidate.id).collect(),
        new_rows: (0..num_new).map(|number| num_rows / num_new + u64::from(number < num_rows % num_new)).collect(),
        num_deleted: candidates.iter().map(|candidate| candidate.num_deleted).sum(),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(rows_per_fragment_max: u64) -> CompactOptions {
        let write = WriteOptions { rows_per_fragment_max, bytes_per_fragment_max: 1 << 40, ..WriteOptions::default() };
        CompactOptions { write, ..CompactOptions::default() }
    }

    /// Fragments of 10 bytes per row, which need no rewrite unless they are small.
    fn fragments(rows: &[u64], rows_max: u64) -> Vec<Candidate> {
        let candidate = |(id, rows): (u64, &u64)| Candidate {
            id,
            num_rows: *rows,
            bytes: rows * 10,
            num_deleted: 0,
            covered_by: Vec::new(),
            is_due: false,
            is_small: *rows < rows_max.div_ceil(2),
        };
        (0..).zip(rows).map(candidate).collect()
    }

    fn check(rows: &[u64], rows_max: u64, expected: &[(&[u64], &[u64])]) {
        let found = groups(fragments(rows, rows_max).into_iter(), &options(rows_max));
        let found: Vec<_> = found.iter().map(|group| (&group.fragments[..], &group.new_rows[..])).collect();
        assert_eq!(found, expected, "{rows:?}");
    }

    #[test]
    fn small_neighbours_are_joined() {
        check(&[], 100, &[]);
        check(&[10], 100, &[]);
        check(&[100, 100, 50], 100, &[]);
        check(&[10, 20, 30], 100, &[(&[0, 1, 2], &[60])]);
        check(&[10, 100, 20], 100, &[]);
        check(&[10, 20, 100, 30, 5], 100, &[(&[0, 1], &[30]), (&[3, 4], &[35])]);
        // A group ends before it would be more than full, as long as it is half full.
        check(&[40, 40, 40, 40], 100, &[(&[0, 1], &[80]), (&[2, 3], &[80])]);
        check(&[49, 30, 40, 49], 100, &[(&[0, 1], &[79]), (&[2, 3], &[89])]);
        check(&[40, 40, 40], 100, &[(&[0, 1], &[80])]);
    }

    #[test]
    fn groups_that_would_change_nothing_are_left_out() {
        let full = |rows: &[u64]| {
            let mut found = fragments(rows, 100);
            found.iter_mut().for_each(|candidate| candidate.is_due = true);
            groups(found.into_iter(), &options(100))
        };
        let due = full(&[250, 90]);
        assert_eq!(due.iter().map(|group| group.new_rows.clone()).collect::<Vec<_>>(), [vec![84, 83, 83], vec![90]]);
        assert_eq!(full(&[0]).len(), 0);
        let mut bytes = options(1_000);
        bytes.write.bytes_per_fragment_max = 300;
        let mut wide = fragments(&[20, 20, 20], 1_000);
        wide.iter_mut().for_each(|candidate| candidate.is_small = candidate.bytes < 150);
        assert!(groups(wide.into_iter(), &bytes).is_empty());
        let narrow = groups(fragments(&[5, 5, 5, 5, 20, 20], 1_000).into_iter(), &bytes);
        assert_eq!(narrow.iter().map(|group| group.fragments.len()).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn fragments_of_other_indexes_are_not_joined() {
        let mut found = fragments(&[10, 10, 10, 10], 100);
        let index = Uuid::from_u128(1);
        found[0].covered_by = vec![index];
        found[1].covered_by = vec![index];
        let found = groups(found.into_iter(), &options(100));
        assert_eq!(found.iter().map(|group| group.fragments.clone()).collect::<Vec<_>>(), [[0, 1], [2, 3]]);
    }
}
