//! Compaction: fragments that are small, have deleted rows, or lie in many files are written again as full ones.
//!
//! ```text
//! fragments ──plan──► groups of neighbours ──rewrite──► new fragments ──follow──► indexes with the new addresses
//!                                                            └───────────commit──────────┴─► one version (Rewrite)
//! ```
//!
//! Rows are read in the order of the table and written by the files of the table writer. So new fragments have dense
//! pages, a file for each heavy column, the compression of their columns, and checksums; and old values are compared
//! with their checksums on the way. Values of compressed columns are copied as they are stored.
//!
//! Rows get new addresses. Indexes are committed together with the fragments, with these addresses in them, and
//! [`moves`](crate::moves) tells the new address of a row by an old one. Older versions keep the old fragments, so
//! streams that are pinned to them go on.
//!
//! Commits of others are kept: new rows and new indexes do not matter; a group of which another commit changed a
//! fragment is planned again, a limited number of times.

mod commit;
mod indexes;
mod plan;
mod rewrite;

use std::time::Instant;

use stoker_clock::{Clock, Pace};
use stoker_types::{ProgressSink, SnapshotRef, StatementProgress, TableName};

pub use self::plan::{CompactedGroup, CompactionPlan};

use self::commit::Committed;
use self::rewrite::RewrittenGroup;
use crate::change::WrittenFiles;
use crate::{ChangeNote, Error, LakeStore, Result, Table, WriteOptions};

/// The share of deleted rows, in percent, from which on a fragment is written again by default.
const DELETED_PERCENT: u64 = 10;

/// The most plans of one compaction. A plan is made again for groups of which others changed a fragment meanwhile.
const PLANS_MAX: u32 = 5;

/// Which fragments a compaction writes again, and how.
#[derive(Clone, Debug)]
pub struct CompactOptions {
    /// The sizes of new fragments and pages. Fragments of less than half of these rows and bytes are joined.
    pub write: WriteOptions,
    /// The share of deleted rows, in percent, from which on a fragment is written again. Default: 10.
    pub deleted_percent_min: u64,
    /// Whether fragments are written again that need it for no other reason. Default: no.
    pub rewrites_all: bool,
    /// The most bytes per second that are read and written again. Default: no limit.
    pub bytes_per_sec_max: Option<u64>,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self {
            write: WriteOptions::default(),
            deleted_percent_min: DELETED_PERCENT,
            rewrites_all: false,
            bytes_per_sec_max: None,
        }
    }
}

/// What a compaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// The newest version of the table: that of the compaction, or the one that needed none.
    pub version: u64,
    /// The number of fragments that were written again.
    pub num_fragments: u64,
    /// The number of fragments that took their place.
    pub num_new_fragments: u64,
    /// The number of rows in them.
    pub num_rows: u64,
    /// The number of deleted rows that are in no file of the new version any more.
    pub num_deleted: u64,
    /// The bytes of the new data files.
    pub bytes: u64,
    /// The names of the indexes that follow the rows, sorted.
    pub indexes: Vec<String>,
    /// The number of fragments that should be written again, but that others changed each time.
    pub num_left: u64,
}

impl LakeStore {
    /// Tells what a compaction of the newest version of a table would do.
    ///
    /// # Errors
    /// As for [`LakeStore::compact`], as far as they are known before rows are read.
    pub async fn plan_compaction(&self, name: &TableName, options: &CompactOptions) -> Result<CompactionPlan> {
        let table = self.table(name, &SnapshotRef::Latest).await?;
        table.compaction_plan(options).await
    }

    /// Writes fragments of the newest version of a table again, as full ones, and commits them as one version. If there
    /// is nothing to do, there is no new version.
    ///
    /// Holds in memory at most a page of each heavy column, a batch of rows or two, 256 MiB of bytes that are read
    /// ahead, one bit for each row, and what Lance needs to write an index. Dropping the future before the commit leaves
    /// the table as it was; so does the end of the process. The files of the attempt are then drafts, which a cleanup
    /// removes.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown table; [`Error::InvalidRequest`] for a table with blobs or with stable row
    /// ids, and for one with an index that cannot follow its rows, before rows are read; [`Error::DamagedRows`] that
    /// names a row which differs from its checksum; [`Error::Conflict`] if others changed all of the fragments each of
    /// five times; [`Error::UnsafeStore`]; storage errors: the table stays as it was. [`Error::OutcomeUnknown`] when
    /// nothing tells whether the commit took effect.
    pub async fn compact(
        &self,
        name: &TableName,
        options: &CompactOptions,
        note: &ChangeNote,
        progress: &ProgressSink<'_>,
    ) -> Result<Compacted> {
        self.inner.check_atomic_create().await?;
        let mut done = Compacted::default();
        let mut plans_left = PLANS_MAX;
        loop {
            plans_left -= 1;
            progress(StatementProgress::phase("looking at the fragments"));
            let table = self.table(name, &SnapshotRef::Latest).await?;
            let plan = table.compaction_plan(options).await?;
            done.version = table.version();
            if plan.groups.is_empty() {
                return Ok(done);
            }
            match table.compact_groups(&plan, options, note, progress).await {
                Ok(committed) => {
                    done.add(&committed);
                    done.num_left = committed.num_left;
                    if committed.num_left == 0 || plans_left == 0 {
                        return Ok(done);
                    }
                }
                Err(Error::Conflict { .. }) if plans_left > 0 => {}
                // Some of the groups were committed before.
                Err(Error::Conflict { .. }) if done.num_fragments > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
            progress(StatementProgress::phase("planning again, because others changed some of the fragments"));
        }
    }
}

impl Compacted {
    fn add(&mut self, committed: &Committed) {
        self.version = committed.version;
        for group in &committed.groups {
            self.num_fragments += group.old.len() as u64;
            self.num_new_fragments += group.new.len() as u64;
            self.num_rows += group.live.len();
            self.num_deleted += group.num_deleted();
            self.bytes += group.bytes;
        }
        self.indexes.extend(committed.indexes.iter().cloned());
        self.indexes.sort();
        self.indexes.dedup();
    }
}

impl Table {
    /// Writes the groups of a plan again, and commits those that nobody changed meanwhile.
    async fn compact_groups(
        &self,
        plan: &CompactionPlan,
        options: &CompactOptions,
        note: &ChangeNote,
        progress: &ProgressSink<'_>,
    ) -> Result<Committed> {
        let (written, began) = (WrittenFiles::default(), Instant::now());
        let committed = match self.rewrite_groups(plan, options, &written, progress).await {
            Ok(groups) => self.commit_groups(groups, note, &written, began, progress).await,
            Err(error) => Err(error),
        };
        // The commit took over the files of the groups that it has.
        self.lake().remove_data_files(self.name(), written.take()).await;
        committed
    }

    async fn rewrite_groups(
        &self,
        plan: &CompactionPlan,
        options: &CompactOptions,
        written: &WrittenFiles,
        progress: &ProgressSink<'_>,
    ) -> Result<Vec<RewrittenGroup>> {
        let total: u64 = plan.groups.iter().map(|group| group.bytes).sum();
        let mut pace = Pace::new(Clock::default(), options.bytes_per_sec_max);
        let report = |done: u64| {
            progress(StatementProgress {
                phase: "writing rows".to_string(),
                done: done.min(total) >> 20,
                total: Some(total.div_ceil(1 << 20)),
                unit: "MiB".to_string(),
            });
        };
        report(0);
        let mut groups = Vec::with_capacity(plan.groups.len());
        for group in &plan.groups {
            groups.push(self.rewrite_group(group, options.write.page_bytes, written, &mut pace, &report).await?);
        }
        Ok(groups)
    }

    /// What is being attempted, for errors.
    fn compacting(&self) -> String {
        format!("compacting table {}", self.snapshot())
    }
}
