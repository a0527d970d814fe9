//! A table at a pinned snapshot.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use lance::Dataset;
use lance_table::format::DataFile;
use object_store::path::Path;
use stoker_types::{Snapshot, TableName};

use crate::lake::BRANCHES_FOLDER;
use crate::row_id_set::fragment_id;
use crate::{Error, LakeStore, Result, ScanStats};

/// The maximum number of rows of a fragment: row addresses have 32 bits for the offset in it.
const FRAGMENT_ROWS_MAX: u64 = 1 << 32;

/// A table at a pinned version; immutable, and cheap to clone.
#[derive(Clone)]
pub struct Table {
    lake: LakeStore,
    name: TableName,
    dataset: Arc<Dataset>,
    schema: SchemaRef,
    /// Counts what this handle reads; `None` if nobody asks.
    stats: Option<ScanStats>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Table").field(&self.snapshot().to_string()).finish()
    }
}

/// A horizontal part of a table, as the manifest describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentInfo {
    /// The fragment's id: the upper 32 bits of its row addresses.
    pub id: u32,
    /// The number of rows in the fragment's files.
    pub physical_rows: u64,
    /// The number of rows that were not deleted.
    pub num_rows: u64,
}

impl Table {
    /// Makes a table with the Arrow schema of its dataset.
    ///
    /// # Errors `DataCorrupt` if the manifest is ambiguous: if by it, rows or columns could be mistaken for others.
    pub(crate) fn try_new(lake: LakeStore, name: TableName, dataset: Dataset, schema: SchemaRef) -> Result<Self> {
        let table = Self { lake, name, dataset: Arc::new(dataset), schema, stats: None };
        match table.flaw() {
            None => Ok(table),
            Some(reason) => {
                Err(Error::DataCorrupt { attempted: format!("opening table {}", table.snapshot()), reason })
            }
        }
    }

    /// Describes what is wrong with the manifest.
    fn flaw(&self) -> Option<String> {
        let mut names = HashSet::new();
        for field in self.schema.fields() {
            if !names.insert(field.name()) {
                return Some(format!("two columns have the name {:?}", field.name()));
            }
        }
        let mut ids = HashSet::new();
        for fragment in self.dataset.fragments().iter() {
            let id = fragment.id;
            if u32::try_from(id).is_err() {
                return Some(format!("the fragment id {id} has more than 32 bits"));
            }
            if !ids.insert(id) {
                return Some(format!("two fragments have the id {id}"));
            }
            let rows = fragment.physical_rows.unwrap_or(0) as u64;
            let deleted = fragment.deletion_file.as_ref().and_then(|file| file.num_deleted_rows).unwrap_or(0) as u64;
            if rows > FRAGMENT_ROWS_MAX {
                return Some(format!("fragment {id} has {rows} rows"));
            }
            if fragment.physical_rows.is_some() && deleted > rows {
                return Some(format!("{deleted} of the {rows} rows of fragment {id} are deleted"));
            }
        }
        None
    }

    /// The table's name.
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// The pinned version.
    pub fn version(&self) -> u64 {
        self.dataset.manifest().version
    }

    /// The table's name and the pinned version.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { table: self.name.clone(), version: self.version() }
    }

    /// The Arrow schema with all field metadata.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// The table's URI, which any Lance reader can open.
    pub fn uri(&self) -> String {
        self.lake.table_uri(&self.name)
    }

    /// The lake that holds the table.
    pub fn lake(&self) -> &LakeStore {
        &self.lake
    }

    /// Returns whether the table's files are on a file system of this machine, which may be a network mount.
    pub fn is_local(&self) -> bool {
        self.lake.is_local()
    }

    /// Whether the row ids of the table are the row addresses, which is so in tables without stable row ids.
    pub fn row_ids_are_addresses(&self) -> bool {
        !self.dataset().manifest().uses_stable_row_ids()
    }

    /// The number of rows that were not deleted, from the manifest.
    pub fn num_rows(&self) -> u64 {
        self.fragments().iter().map(|fragment| fragment.num_rows).sum()
    }

    /// Returns the fragments in the order of the manifest.
    pub fn fragments(&self) -> Vec<FragmentInfo> {
        let info = |fragment: &lance_table::format::Fragment| {
            let physical = fragment.physical_rows.unwrap_or(0) as u64;
            let deleted = fragment.deletion_file.as_ref().and_then(|file| file.num_deleted_rows).unwrap_or(0) as u64;
            FragmentInfo {
                id: fragment_id(fragment.id),
                physical_rows: physical,
                num_rows: physical.saturating_sub(deleted),
            }
        };
        self.dataset.fragments().iter().map(info).collect()
    }

    /// The size of all data files in bytes, from the manifest. Files whose size it does not have count nothing.
    pub fn data_bytes(&self) -> u64 {
        let files = self.dataset.fragments().iter().flat_map(|fragment| fragment.files.iter());
        files.filter_map(|file| file.file_size_bytes.get()).map(|size| size.get()).sum()
    }

    /// The path of a data file; `None` for a file outside the folder of the table.
    pub(crate) fn data_file(&self, file: &DataFile) -> Option<Path> {
        Some(self.files_of_base(file.base_id)?.join("data").join(file.path.as_str()))
    }

    /// The folder in which the files of a base lie: that of this branch, of another branch, or of the main branch. `None`
    /// for a base outside the folder of the table.
    pub(crate) fn files_of_base(&self, base_id: Option<u32>) -> Option<Path> {
        let Some(id) = base_id else { return Some(self.lake.table_path(&self.name)) };
        let base = self.dataset.manifest().base_paths.get(&id).filter(|base| base.is_dataset_root)?;
        let root = self.name.root();
        let rest = without_scheme(&base.path).strip_prefix(without_scheme(&self.lake.table_uri(&root)))?;
        match rest.trim_end_matches('/') {
            "" => Some(self.lake.table_path(&root)),
            rest => {
                let branch = rest.strip_prefix('/')?.strip_prefix(BRANCHES_FOLDER)?.strip_prefix('/')?;
                let folder = self.lake.root_path(&root).join(BRANCHES_FOLDER);
                Some(branch.split('/').fold(folder, |folder, part| folder.join(part)))
            }
        }
    }

    pub(crate) fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Returns a handle of the same table whose scans, searches and reads by address are counted.
    #[must_use]
    pub fn with_stats(&self, stats: ScanStats) -> Self {
        Self { stats: Some(stats), ..self.clone() }
    }

    /// The counts of what this handle reads.
    pub fn stats(&self) -> Option<&ScanStats> {
        self.stats.as_ref()
    }

    /// Checks that all of these columns exist.
    pub(crate) fn check_columns<'a>(&self, columns: impl IntoIterator<Item = &'a String>) -> Result<()> {
        for column in columns {
            if self.schema.column_with_name(column).is_none() {
                let names = self.schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>();
                return Err(Error::InvalidRequest {
                    attempted: format!("reading table {}", self.snapshot()),
                    reason: format!("it has no column {column:?}; columns: {}", names.join(", ")),
                });
            }
        }
        Ok(())
    }
}

/// A URI without `file://`, which the paths of local files may or may not have.
pub(crate) fn without_scheme(uri: &str) -> &str {
    uri.strip_prefix("file://").unwrap_or(uri)
}
