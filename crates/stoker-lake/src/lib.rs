//! Lakes: versioned Lance tables and small immutable objects under one root URI.
//!
//! This is the only crate that names Lance, apart from its tokenizers in [`stoker_text`]. It opens the object stores of
//! lakes, whose requests pass through [`stoker_store`]. It offers to other crates:
//!
//! ```text
//! LakeStore ──table(name, snapshot)──► Table ──scan──► record batches, execution plans (light columns, search)
//!   │                                    ├────search_text──► addresses and scores
//!   │                                    ├────take──► rows by address
//!   │                                    ├────dense_column──► page table + RangeReader (bytes of heavy columns)
//!   │                                    ├────checksums──► by which rows of heavy columns are checked
//!   │                                    └────survey──► what the footers say about a column
//!   ├──writer──► TableWriter ──► fragment drafts ──commit──► a new version, atomically
//!   ├──delete_rows──► a new version without these rows
//!   ├──change──► RowChange: rows deleted, updated and inserted in one version
//!   ├──add_columns, replace_columns, fill_columns──► NewColumns: values of columns, in one version
//!   ├──drop_columns, rename_column──► a new version with other columns
//!   ├──restore──► a new version with the rows of an older one
//!   ├──truncate, drop_table──► a version without rows; no table
//!   ├──compact──► a new version with the same rows in full fragments
//!   ├──hold──► cleanups spare a version that is read
//!   ├──clean_table──► old versions are gone
//!   └──objects──► Objects (specifications, row sets, journals under `_stoker/`)
//! ```

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod allowance;
mod blobs;
mod branches;
mod change;
mod checksums;
mod cleanup;
mod commit;
mod compact;
mod damage;
mod delete_rows;
mod deletions;
mod dense;
mod drop_table;
mod error;
mod exact_commit;
mod footer;
mod history;
mod holds;
mod index;
mod lake;
mod lance_stores;
mod lineage;
mod lists;
mod moves;
mod newest;
mod nulls;
mod objects;
mod precheck;
mod probes;
mod range_reader;
mod recall;
mod rerank;
mod root_contents;
mod row_id_set;
mod row_offsets;
mod scan;
mod survey;
mod table;
mod take;
mod text;
mod versions;
mod write;

pub use allowance::{Expense, WriteAllowance};
pub use change::{ChangeNote, Changed, Isolation, NewColumns, OtherRows, RowChange};
pub use checksums::{Checksums, row_checksums};
pub use cleanup::{CleanedTable, CleanupLock};
pub use commit::{CommitKey, CommitMode, KeyedCommits};
pub use compact::{CompactOptions, Compacted, CompactedGroup, CompactionPlan};
pub use delete_rows::DeletedRows;
pub use dense::{DenseColumn, DenseFile, DenseProbe, RowRun};
pub use drop_table::HeldVersions;
pub use error::{Error, Result};
pub use history::History;
pub use holds::{HOLD_DAYS, HOLD_DAYS_MAX, HeldVersion};
pub use index::{BuiltIndex, IfExists, IndexKind, NewIndex, OptimizedIndexes};
pub use lake::LakeStore;
pub use lance_stores::open_bucket;
pub use objects::{ObjectEntry, Objects, PutOutcome};
pub use precheck::BLOB_REMEDY;
pub use probes::SearchedIndex;
pub use range_reader::{RangeBody, RangeReader};
pub use rerank::{NearRow, ReadVectors};
pub use row_id_set::{RowIdSet, row_offset};
pub use row_offsets::{ValueFile, ValuePage};
pub use scan::{Metric, Nearest, ROW_ADDR, ROW_ID, ScanRequest, ScanStats};
pub use stoker_pages::{Obstacle, is_reserved_name};
pub use stoker_store::{StorageOptions, StoreRequests, UncachedFile, preadv_cached};
pub use survey::{ColumnSurvey, FragmentTally};
pub use table::{FragmentInfo, Table};
pub use take::SoundRows;
pub use text::{TextHits, TextSearch};
pub use write::{ColumnDraft, FragmentDraft, TableWriter, WriteOptions};

#[cfg(test)]
mod tests;
