//! Which of a column's data files have checksums.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lance_file::reader::CachedFileMetadata;
use lance_table::format::DataFile;
use parking_lot::Mutex;
use stoker_types::is_heavy;

use super::directory::{Described, Misfit, offset_of};
use super::segments::SegmentCache;
use super::{Checksums, FileChecksums};
use crate::dense::{CACHE_ENTRIES_MAX, ColumnKey, FOOTERS_IN_FLIGHT};
use crate::{DenseProbe, Error, RangeReader, Result, Table};

/// Bytes of checksums that a lake keeps in memory.
const CACHE_BYTES: usize = 64 << 20;

/// What is known of the checksums of a lake's tables.
pub(crate) struct ChecksumCache {
    columns: Mutex<HashMap<ColumnKey, Option<Arc<Checksums>>>>,
    /// Of all columns together.
    pub segments: Arc<SegmentCache>,
}

impl Default for ChecksumCache {
    fn default() -> Self {
        Self { columns: Mutex::default(), segments: Arc::new(SegmentCache::new(CACHE_BYTES)) }
    }
}

impl Table {
    /// The checksums of a column's rows; `None` when it is not heavy, and when no data file has any. Reads one footer per
    /// fragment, once.
    ///
    /// Those of a dense column are also in [`DenseColumn::checksums`](crate::DenseColumn::checksums).
    ///
    /// # Errors
    /// As for [`Table::dense_column`].
    pub async fn checksums(&self, column: &str) -> Result<Option<Arc<Checksums>>> {
        let key = self.column_key(column);
        let inner = &self.lake().inner;
        if let Some(DenseProbe::Dense(dense)) = inner.dense.get(&key) {
            return Ok(dense.checksums.clone());
        }
        if let Some(found) = inner.checksums.columns.lock().get(&key) {
            return Ok(found.clone());
        }
        let found = self.find_checksums(column).await?.map(Arc::new);
        let mut columns = inner.checksums.columns.lock();
        if columns.len() >= CACHE_ENTRIES_MAX {
            columns.clear();
        }
        columns.insert(key, found.clone());
        Ok(found)
    }

    /// The checksums of a column, from the footers of its files.
    pub(super) async fn find_checksums(&self, column: &str) -> Result<Option<Checksums>> {
        self.check_columns([&column.to_string()])?;
        if !self.schema().field_with_name(column).is_ok_and(is_heavy) {
            return Ok(None);
        }
        let scheduler = self.footer_scheduler();
        let mut probes = stream::iter(self.dataset().get_fragments())
            .map(|fragment| {
                let scheduler = scheduler.clone();
                async move {
                    let checksums = match self.column_file(&scheduler, &fragment, column).await? {
                        Ok((file, metadata, _)) => {
                            let reader = self.store_reader(&file, metadata.file_size_bytes);
                            self.file_checksums(column, &file, &metadata, reader)?
                        }
                        Err(_) => None,
                    };
                    Ok::<_, Error>((fragment.id() as u32, checksums))
                }
            })
            .buffered(FOOTERS_IN_FLIGHT);
        let mut files = Vec::new();
        while let Some(file) = probes.try_next().await? {
            files.push(file);
        }
        Ok(Checksums::new(files, self.lake().inner.checksums.segments.clone()))
    }

    /// The checksums of a column in one of its data files. A file whose checksums cannot be used counts as one without.
    ///
    /// # Errors
    /// `DataCorrupt` when the file says that it is another one, or that of another column: files or their names were swapped.
    pub(crate) fn file_checksums(
        &self,
        column: &str,
        file: &DataFile,
        metadata: &CachedFileMetadata,
        reader: RangeReader,
    ) -> Result<Option<FileChecksums>> {
        // A file knows a renamed column by its former name.
        let field = self.dataset().schema().fields.iter().find(|field| field.name == column);
        let (schema, num_rows) = (&metadata.file_schema, metadata.num_rows);
        let in_file = field.and_then(|field| schema.field_by_id(field.id));
        let described = Described {
            metadata: &schema.metadata,
            buffers: &metadata.file_buffers,
            file: &file.path,
            column: in_file.map(|field| field.name.as_str()),
            num_rows,
        };
        match offset_of(&described) {
            Ok(offset) => Ok(offset.map(|offset| FileChecksums::new(reader, offset, num_rows))),
            Err(Misfit::Unusable(reason)) => {
                tracing::debug!(column, file = reader.place(), %reason, "its checksums cannot be used");
                Ok(None)
            }
            Err(Misfit::OtherFile(reason)) => {
                Err(Error::DataCorrupt { attempted: format!("reading column {column} of {}", reader.place()), reason })
            }
        }
    }
}
