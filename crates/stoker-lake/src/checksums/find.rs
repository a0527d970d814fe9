//! The lookup of checksums in the footers of a column's data files.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lance_file::reader::CachedFileMetadata;
use lance_table::format::DataFile;
use stoker_columns::is_heavy;
use stoker_pages::{Described, Misfit, checksums_offset};
use stoker_store::SegmentCache;
use stoker_store::sectors::is_checked_name;

use super::{Checksums, FileChecksums};
use crate::dense::{ColumnCache, FOOTERS_IN_FLIGHT};
use crate::row_id_set::fragment_id;
use crate::{DenseProbe, Error, RangeReader, Result, Table};

/// The maximum size of all checksums that a lake keeps in memory, in bytes.
const CACHE_BYTES: usize = 64 << 20;

/// The checksums of a lake's tables, as far as they are known.
pub(crate) struct ChecksumCache {
    columns: ColumnCache<Option<Arc<Checksums>>>,
    /// The segments of all columns, in one cache.
    pub segments: Arc<SegmentCache>,
}

impl Default for ChecksumCache {
    fn default() -> Self {
        Self { columns: ColumnCache::default(), segments: Arc::new(SegmentCache::new(CACHE_BYTES)) }
    }
}

impl Table {
    /// Finds the checksums of a column's rows. `None` when no data file has any, and for a light column unless
    /// [`Table::dense_column`] found it dense before. Reads one footer per fragment; the result is cached.
    ///
    /// A dense column has the same checksums in [`DenseColumn::checksums`](crate::DenseColumn::checksums).
    ///
    /// # Errors
    /// As for [`Table::dense_column`].
    pub async fn checksums(&self, column: &str) -> Result<Option<Arc<Checksums>>> {
        let key = self.column_key(column);
        let inner = &self.lake().inner;
        if let Some(DenseProbe::Dense(dense)) = inner.dense.get(&key) {
            return Ok(dense.checksums.clone());
        }
        if let Some(found) = inner.checksums.columns.get(&key) {
            return Ok(found);
        }
        let found = self.find_checksums(column).await?.map(Arc::new);
        inner.checksums.columns.insert(key, found.clone());
        Ok(found)
    }

    /// Finds the checksums of a heavy column in the footers of its files.
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
                    Ok::<_, Error>((fragment_id(fragment.id() as u64), checksums))
                }
            })
            .buffered(FOOTERS_IN_FLIGHT);
        let mut files = Vec::new();
        while let Some(file) = probes.try_next().await? {
            files.push(file);
        }
        Ok(Checksums::new(files, self.lake().inner.checksums.segments.clone()))
    }

    /// Finds the checksums of a column in one of its data files. A file whose checksums cannot be used counts as one
    /// without.
    ///
    /// # Errors
    /// `DataCorrupt` when the file says that it is another file, or the file of another column: files or their names
    /// were swapped.
    pub(crate) fn file_checksums(
        &self,
        column: &str,
        file: &DataFile,
        metadata: &CachedFileMetadata,
        reader: RangeReader,
    ) -> Result<Option<FileChecksums>> {
        // A file still has the former name of a renamed column.
        let field = self.dataset().schema().fields.iter().find(|field| field.name == column);
        let (schema, num_rows) = (&metadata.file_schema, metadata.num_rows);
        let in_file = field.and_then(|field| schema.field_by_id(field.id));
        let described = Described {
            metadata: &schema.metadata,
            buffers: &metadata.file_buffers,
            file: &file.path,
            column: in_file.map(|field| field.name.as_str()),
            has_sectors: is_checked_name(&file.path),
            num_rows,
        };
        match checksums_offset(&described) {
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
