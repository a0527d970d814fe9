//! Fragments, and new columns of fragments, that are written but not yet committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{FieldRef, Schema as ArrowSchema};
use futures::future::try_join_all;
use lance_core::datatypes::Schema;
use lance_table::format::{DataFile, Fragment};
use object_store::ObjectStoreExt;
use serde::{Deserialize, Serialize};
use stoker_columns::LossyColumn;
use stoker_types::TableName;

use crate::{Error, LakeStore, Result};

/// A fragment whose files are written, and which no version contains yet. It can be serialized to JSON, for journals of
/// long ingests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FragmentDraft {
    fragment: Fragment,
    bytes: u64,
    /// The path of the field that each field id in the files denotes.
    fields: Vec<(i32, String)>,
    /// The largest error of each lossy column in the rows, or in rows before them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    losses: BTreeMap<String, f64>,
}

impl FragmentDraft {
    pub(crate) fn new(fragment: Fragment, bytes: u64, schema: &Schema, losses: &BTreeMap<String, f64>) -> Self {
        Self { fragment, bytes, fields: field_names(schema), losses: losses.clone() }
    }

    /// Returns whether values were changed to fit lossy columns.
    pub(crate) fn has_losses(&self) -> bool {
        !self.losses.is_empty()
    }

    /// The number of rows.
    pub fn num_rows(&self) -> u64 {
        self.fragment.physical_rows.unwrap_or(0) as u64
    }

    /// The size of the fragment's files in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The names of the fragment's data files.
    pub fn files(&self) -> Vec<String> {
        self.fragment.files.iter().map(|file| file.path.clone()).collect()
    }

    /// Returns whether the files use the same field ids as the schema; if not, a commit would confuse columns.
    pub(crate) fn fits(&self, schema: &Schema) -> bool {
        self.fields == field_names(schema)
    }

    pub(crate) fn into_fragment(self) -> Fragment {
        self.fragment
    }
}

/// The data files of new columns of one fragment, which no version names yet. It can be serialized to JSON, for journals of
/// columns that take long to compute. [`NewColumns::end_fragment`](crate::NewColumns::end_fragment) makes it, and
/// [`NewColumns::adopt`](crate::NewColumns::adopt) takes it over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnDraft {
    /// The id of the fragment.
    pub(crate) fragment: u64,
    /// The ids that the files have for the columns and their nested fields, in the order of the columns.
    pub(crate) fields: Vec<i32>,
    /// What the values depend on.
    pub(crate) source: String,
    /// The files; none for a fragment whose rows need no values.
    pub(crate) files: Vec<DataFile>,
}

impl ColumnDraft {
    /// The id of the fragment.
    pub fn fragment(&self) -> u64 {
        self.fragment
    }

    /// The size of the files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().filter_map(|file| file.file_size_bytes.get()).map(|bytes| bytes.get()).sum()
    }
}

/// Returns the columns of a table with the metadata that is to change because the fragments have larger errors: the name of each
/// column, and its metadata.
pub(crate) fn larger_losses(schema: &ArrowSchema, drafts: &[FragmentDraft]) -> BTreeMap<String, LossyColumn> {
    let mut larger = BTreeMap::new();
    for (column, error) in drafts.iter().flat_map(|draft| &draft.losses) {
        let known = larger.get(column).cloned();
        let known = known.or_else(|| schema.field_with_name(column).ok().and_then(LossyColumn::of));
        if let Some(known) = known.filter(|known| known.with_error(*error) != *known) {
            larger.insert(column.clone(), known.with_error(*error));
        }
    }
    larger
}

/// Returns a schema with the errors of the fragments.
pub(crate) fn with_larger_losses(schema: &ArrowSchema, drafts: &[FragmentDraft]) -> ArrowSchema {
    let larger = larger_losses(schema, drafts);
    let field = |field: &FieldRef| match larger.get(field.name()) {
        Some(lossy) => Arc::new(lossy.put(field.as_ref().clone())),
        None => field.clone(),
    };
    let fields: Vec<FieldRef> = schema.fields().iter().map(field).collect();
    ArrowSchema::new_with_metadata(fields, schema.metadata().clone())
}

impl LakeStore {
    /// Returns whether all files of a fragment still exist, with the sizes that were written. One HEAD request per
    /// file.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn draft_exists(&self, name: &TableName, draft: &FragmentDraft) -> Result<bool> {
        self.files_exist(name, &draft.fragment.files).await
    }

    /// Whether all files of a draft still exist, with the sizes that were written. One HEAD request for each file.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn column_draft_exists(&self, name: &TableName, draft: &ColumnDraft) -> Result<bool> {
        self.files_exist(name, &draft.files).await
    }

    /// Returns whether data files exist, with the sizes that were written.
    pub(crate) async fn files_exist(&self, name: &TableName, files: &[DataFile]) -> Result<bool> {
        let data = self.table_path(name).join("data");
        let exists = async |file: &DataFile| {
            let path = data.clone().join(file.path.as_str());
            match self.inner.store.inner.head(&path).await {
                Ok(found) => Ok(file.file_size_bytes.get().is_none_or(|bytes| bytes.get() == found.size)),
                Err(object_store::Error::NotFound { .. }) => Ok(false),
                Err(source) => Err(Error::storage(format!("looking for {path} in {}", self.inner.place), source)),
            }
        };
        let found = try_join_all(files.iter().map(exists)).await?;
        Ok(found.into_iter().all(|there| there))
    }
}

/// Returns the id and the path of each field, sorted by id.
fn field_names(schema: &Schema) -> Vec<(i32, String)> {
    let name = |id: i32| schema.field_path(id).unwrap_or_default();
    let mut fields: Vec<_> = schema.fields_pre_order().map(|field| (field.id, name(field.id))).collect();
    fields.sort_unstable();
    fields
}
