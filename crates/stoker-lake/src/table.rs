//! A table at a pinned snapshot.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use lance::Dataset;
use stoker_types::{Snapshot, TableName};

use crate::{Error, Lake, Result};

/// Rows of a fragment at most: their addresses have 32 bits for the place in it.
const FRAGMENT_ROWS_MAX: u64 = 1 << 32;

/// One immutable snapshot of a table; cheap to clone.
#[derive(Clone)]
pub struct Table {
    lake: Lake,
    name: TableName,
    dataset: Arc<Dataset>,
    schema: SchemaRef,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Table").field(&self.snapshot().to_string()).finish()
    }
}

/// A horizontal part of a table, from the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentInfo {
    /// The fragment's id: the upper half of its row addresses.
    pub id: u32,
    /// Rows in its files.
    pub physical_rows: u64,
    /// Rows that were not deleted.
    pub num_rows: u64,
}

impl Table {
    /// A table with the Arrow schema of its dataset.
    ///
    /// # Errors
    /// `DataCorrupt` when rows or columns could be mistaken for others by the manifest.
    pub(crate) fn try_new(lake: Lake, name: TableName, dataset: Dataset, schema: SchemaRef) -> Result<Self> {
        let table = Self { lake, name, dataset: Arc::new(dataset), schema };
        match table.flaw() {
            None => Ok(table),
            Some(reason) => {
                Err(Error::DataCorrupt { attempted: format!("opening table {}", table.snapshot()), reason })
            }
        }
    }

    /// What is wrong with the manifest.
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

    /// Name and version.
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

    /// The lake that holds it.
    pub fn lake(&self) -> &Lake {
        &self.lake
    }

    /// Whether its files lie on a disk of this machine, or one that is mounted there.
    pub fn is_local(&self) -> bool {
        self.lake.is_local()
    }

    /// Rows that were not deleted, from the manifest.
    pub fn num_rows(&self) -> u64 {
        self.fragments().iter().map(|fragment| fragment.num_rows).sum()
    }

    /// The fragments in order of their ids.
    pub fn fragments(&self) -> Vec<FragmentInfo> {
        let info = |fragment: &lance_table::format::Fragment| {
            let physical = fragment.physical_rows.unwrap_or(0) as u64;
            let deleted = fragment.deletion_file.as_ref().and_then(|file| file.num_deleted_rows).unwrap_or(0) as u64;
            FragmentInfo { id: fragment.id as u32, physical_rows: physical, num_rows: physical.saturating_sub(deleted) }
        };
        self.dataset.fragments().iter().map(info).collect()
    }

    pub(crate) fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Checks that columns exist.
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
