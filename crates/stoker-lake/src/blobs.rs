//! Columns of Lance's blob types, which only Lance's own blob interface can read.

use std::collections::HashSet;

use stoker_columns::is_blob;

use crate::{Error, Result, ScanRequest, Table};

/// The remedy that error messages recommend for blob columns.
pub const BLOB_REMEDY: &str = "store the values as plain binary: read them with lance.LanceDataset.take_blobs, and write them \
                                 with lake.create_table, JPEG, PNG and WebP files as encoded_images";

impl Table {
    /// Refuses to read blob columns. The bytes of a blob lie outside the column's pages, and a scan would return blob
    /// descriptors instead of the values.
    ///
    /// # Errors
    /// `InvalidRequest`, which names the first blob column and the remedy.
    pub fn refuse_blobs<'a>(&self, columns: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let schema = self.schema();
        for column in columns {
            if schema.field_with_name(column).is_ok_and(is_blob) {
                return Err(Error::InvalidRequest {
                    attempted: format!("reading column {column} of table {}", self.snapshot()),
                    reason: format!(
                        "it is a blob column of Lance, which Stoker does not read; leave it out, or {BLOB_REMEDY}"
                    ),
                });
            }
        }
        Ok(())
    }

    /// Refuses a scan that reads or filters by a blob column.
    pub(crate) fn check_blobs(&self, request: &ScanRequest) -> Result<()> {
        self.refuse_blobs(request.columns.iter().map(String::as_str))?;
        let filtered: HashSet<_> = request.filter.as_ref().map(|filter| filter.column_refs()).unwrap_or_default();
        self.refuse_blobs(filtered.iter().map(|column| column.name.as_str()))
    }
}
