//! Checks before Lance reads data files: for damage that Lance would not notice or that would crash it, and for columns
//! of Lance's blob types, of which a scan would give descriptors.

use std::collections::HashSet;

use futures::{StreamExt, TryStreamExt, stream};
use lance_core::datatypes::Field;
use lance_table::format::Fragment;
use stoker_columns::{has_nested_blobs, is_blob};
use stoker_types::to_usize;

use crate::dense::FOOTERS_IN_FLIGHT;
use crate::{Error, Result, ScanRequest, Table};

/// The remedy that messages recommend for blob columns.
pub const BLOB_REMEDY: &str =
    "copy the table by CREATE TABLE ... AS SELECT, which stores the values as a plain binary column";

/// The prefix of the types of fixed-size lists in Lance's schemas.
const LISTS: &str = "fixed_size_list:";

/// Which checks are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// The footers of local files, and deletion files.
    Footers,
    /// The same, and the types of fixed-size lists, whose length a damaged manifest could change. This check reads file
    /// metadata, which Lance caches for the read that follows.
    FootersAndTypes,
}

impl Table {
    /// Refuses to scan blob columns, or to write their values. A scan would return descriptors instead of the values.
    ///
    /// # Errors
    /// `InvalidRequest`, which names the first blob column and the remedy.
    pub(crate) fn refuse_blobs<'a>(&self, columns: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let schema = self.schema();
        for column in columns {
            self.refuse_nested_blobs([column])?;
            if schema.field_with_name(column).is_ok_and(is_blob) {
                return Err(Error::InvalidRequest {
                    attempted: format!("scanning or changing column {column} of table {}", self.snapshot()),
                    reason: format!("it has blobs of Lance, which are read by row and not written: {BLOB_REMEDY}"),
                });
            }
        }
        Ok(())
    }

    /// Refuses to read columns whose values contain blobs, as elements of lists or members of structs.
    ///
    /// # Errors
    /// `InvalidRequest`, which names the first such column.
    pub(crate) fn refuse_nested_blobs<'a>(&self, columns: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let schema = self.schema();
        let is_refused = |name: &&str| schema.field_with_name(name).is_ok_and(has_nested_blobs);
        match columns.into_iter().find(is_refused) {
            None => Ok(()),
            Some(column) => Err(Error::InvalidRequest {
                attempted: format!("reading column {column} of table {}", self.snapshot()),
                reason:
                    "its lists or structs hold blobs of Lance, which are read only where they are columns of their \
                         own: leave it out"
                        .into(),
            }),
        }
    }

    /// Refuses to add rows to a table with blobs: their bytes would lie where Lance does not look for them.
    ///
    /// # Errors
    /// [`Error::InvalidData`], which names the first blob column.
    pub(crate) fn refuse_rows_with_blobs(&self) -> Result<()> {
        let schema = self.schema();
        let Some(field) = schema.fields().iter().find(|field| is_blob(field) || has_nested_blobs(field)) else {
            return Ok(());
        };
        Err(Error::InvalidData {
            table: self.name().to_string(),
            reason: format!(
                "column {} has blobs of Lance, which Stoker reads and does not write: append with Lance, or \
                 {BLOB_REMEDY}",
                field.name()
            ),
        })
    }

    /// Refuses a scan that reads or filters by a blob column.
    pub(crate) fn check_blobs(&self, request: &ScanRequest) -> Result<()> {
        self.refuse_blobs(request.columns.iter().map(String::as_str))?;
        let filtered: HashSet<_> = request.filter.as_ref().map(|filter| filter.column_refs()).unwrap_or_default();
        self.refuse_blobs(filtered.iter().map(|column| column.name.as_str()))
    }

    /// Checks the files that a scan will read, see [`Table::check_read`].
    ///
    /// A search with an index reads few rows of few files. Therefore the types of fixed-size lists are not checked for
    /// it.
    ///
    /// # Errors
    /// As for [`Table::check_read`].
    pub(crate) async fn check_scan(&self, request: &ScanRequest) -> Result<()> {
        let mut columns: HashSet<&str> = request.columns.iter().map(String::as_str).collect();
        if let Some(filter) = &request.filter {
            columns.extend(filter.column_refs().into_iter().map(|column| column.name.as_str()));
        }
        columns.extend(request.nearest.as_ref().map(|nearest| nearest.column.as_str()));
        let wanted: Option<HashSet<u64>> =
            request.fragments.as_ref().map(|ids| ids.iter().map(|id| u64::from(*id)).collect());
        let is_whole = request.filter.is_none() && request.nearest.is_none();
        let mut rows_left = request.limit.filter(|_| is_whole).unwrap_or(u64::MAX);
        let mut fragments = Vec::new();
        for (fragment, info) in self.dataset().fragments().iter().zip(self.fragments()) {
            if wanted.as_ref().is_some_and(|wanted| !wanted.contains(&fragment.id)) {
                continue;
            }
            if rows_left == 0 {
                break;
            }
            rows_left = rows_left.saturating_sub(info.num_rows);
            fragments.push(fragment);
        }
        let checked = match &request.nearest {
            Some(nearest) if nearest.use_index => Checked::Footers,
            _ => Checked::FootersAndTypes,
        };
        self.check_read(&columns, fragments, checked).await
    }

    /// Checks the files of some columns and fragments, each file once per lake.
    ///
    /// # Errors
    /// `DataCorrupt` naming the file; storage errors.
    pub(crate) async fn check_read(
        &self,
        columns: &HashSet<&str>,
        fragments: Vec<&Fragment>,
        checked: Checked,
    ) -> Result<()> {
        let fields = self.dataset().schema().fields.iter();
        let fields: Vec<&Field> = fields.filter(|field| columns.contains(field.name.as_str())).collect();
        let mut ids = HashSet::new();
        fields.iter().for_each(|field| add_ids(field, &mut ids));
        let files = fragments.iter().flat_map(|fragment| &fragment.files);
        let files: Vec<_> = files.filter(|file| file.fields.iter().any(|id| ids.contains(id))).collect();
        self.check_footers(files).await?;
        self.check_deletions(&fragments).await?;
        if checked == Checked::Footers {
            return Ok(());
        }
        let lists: Vec<i32> = fields.iter().filter(|field| is_list(field)).map(|field| field.id).collect();
        let mut unchecked = Vec::new();
        for fragment in fragments {
            for file in &fragment.files {
                for id in lists.iter().filter(|id| file.fields.contains(id)) {
                    let key = format!("{}#{id}", self.dataset().data_dir().join(file.path.as_str()));
                    if !self.lake().inner.checked.contains(&key) {
                        unchecked.push((to_usize(fragment.id), *id, key));
                    }
                }
            }
        }
        if unchecked.is_empty() {
            return Ok(());
        }
        let scheduler = self.footer_scheduler();
        let mut checks = stream::iter(unchecked)
            .map(|(fragment, id, key)| {
                let scheduler = scheduler.clone();
                async move {
                    if let Some(fragment) = self.dataset().get_fragment(fragment) {
                        // Obstacles to reading plain bytes do not matter here: Lance decodes the column.
                        let _ = self.field_file(&scheduler, &fragment, id).await?;
                    }
                    Ok::<_, Error>(key)
                }
            })
            .buffer_unordered(FOOTERS_IN_FLIGHT);
        while let Some(key) = checks.try_next().await? {
            self.lake().inner.checked.insert(key);
        }
        Ok(())
    }
}

/// Describes how the type of a fixed-size list in the table's schema differs from the type in the file's schema.
pub(crate) fn type_conflict(table: &Field, file: &Field) -> Option<String> {
    if !is_list(table) && !is_list(file) || table.logical_type == file.logical_type {
        return None;
    }
    Some(format!("the manifest says that {} is {}, the file {}", table.name, table.logical_type, file.logical_type))
}

fn is_list(field: &Field) -> bool {
    field.logical_type.to_string().starts_with(LISTS)
}

fn add_ids(field: &Field, ids: &mut HashSet<i32>) {
    ids.insert(field.id);
    field.children.iter().for_each(|child| add_ids(child, ids));
}
