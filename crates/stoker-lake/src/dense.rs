//! Dense columns: columns whose pages are plain row-major bytes, which can be read without a decoder.
//!
//! Lance 2.1 and 2.2 store a page of a non-null FixedSizeList of numbers as `num_rows × row_bytes` bytes, without
//! control words or compression. [`Table::dense_column`] verifies this for every page of every fragment and returns
//! the page table. A column with any other page is reported as not dense, with the reason, and is read through
//! Lance's decoder.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_schema::{DataType, Field};
use futures::{StreamExt, TryStreamExt, stream};
use lance::dataset::fragment::FileFragment;
use lance_encoding::decoder::{PageEncoding, PageInfo};
use lance_encoding::format::metadata::{CompressiveEncoding, compressive_encoding::Compression, page_layout::Layout};
use lance_file::reader::CachedFileMetadata;
use lance_io::scheduler::{ScanScheduler, SchedulerConfig};
use lance_table::format::DataFile;
use parking_lot::Mutex;
use stoker_columns::kind_of;
use stoker_pages::{have_rows, misplaced};
use stoker_store::sectors::is_checked_name;
use stoker_types::to_usize;

use crate::checksums::{Checksums, FileChecksums};
use crate::damage::{caught, decode_error};
use crate::precheck::type_conflict;
use crate::row_id_set::fragment_id;
use crate::{Error, Obstacle, RangeReader, Result, Table};

/// The maximum number of columns of which a cache keeps what is known.
const CACHE_ENTRIES_MAX: usize = 256;

/// The maximum number of footers that are read at the same time.
pub(crate) const FOOTERS_IN_FLIGHT: usize = 16;

/// Whether a column is dense.
#[derive(Clone, Debug)]
pub enum DenseProbe {
    /// Every page of every fragment is plain bytes.
    Dense(Arc<DenseColumn>),
    /// Some page is not plain bytes; read the column through [`Table::take`] or a scan.
    NotDense {
        /// The fragment, and the obstacle in it.
        reason: String,
    },
}

/// The page table of a dense column.
#[derive(Debug)]
pub struct DenseColumn {
    /// Bytes per row.
    pub row_bytes: usize,
    /// The type of the column: FixedSizeList of a primitive type.
    pub data_type: DataType,
    /// The checksums of the rows; `None` when no data file has any.
    pub checksums: Option<Arc<Checksums>>,
    files: BTreeMap<u32, DenseFile>,
}

/// The part of a dense column in one fragment.
#[derive(Debug)]
pub struct DenseFile {
    /// The reader of the data file.
    pub reader: RangeReader,
    /// The runs of contiguous rows, one for each page, ascending.
    pub runs: Box<[RowRun]>,
    /// The number of rows in the fragment, deleted rows included.
    pub num_rows: u64,
    row_bytes: u64,
}

/// A page: rows whose bytes are contiguous in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRun {
    /// The first row, counted from the start of the fragment.
    pub first_row: u64,
    /// The byte offset of that row in the file.
    pub offset: u64,
}

impl DenseColumn {
    /// The part of the column in a fragment.
    pub fn file(&self, fragment_id: u32) -> Option<&DenseFile> {
        self.files.get(&fragment_id)
    }
}

impl DenseFile {
    /// Returns the byte offset of a row, and the number of rows from this one on that are contiguous in the file (up
    /// to the end of the page). `None` beyond the last row.
    pub fn locate(&self, row: u64) -> Option<(u64, u64)> {
        if row >= self.num_rows {
            return None;
        }
        let index = self.runs.partition_point(|run| run.first_row <= row).checked_sub(1)?;
        let run = self.runs.get(index)?;
        let end = self.runs.get(index + 1).map_or(self.num_rows, |next| next.first_row);
        let offset = (row - run.first_row).checked_mul(self.row_bytes)?.checked_add(run.offset)?;
        Some((offset, end - row))
    }
}

/// A data file, its metadata, and the index of a column in it; or the obstacle to reading the column there.
pub(crate) type FoundFile = Result<(DataFile, Arc<CachedFileMetadata>, usize), Obstacle>;

/// A version of a table, by the names of the table and of the transaction file, its number, and the name of a column.
/// A table that was dropped and created again may have the same versions, but it has other transaction files.
pub(crate) type ColumnKey = (String, u64, String);

/// What is known about the columns of versions of tables, in memory.
pub(crate) struct ColumnCache<T>(Mutex<HashMap<ColumnKey, T>>);

impl<T> Default for ColumnCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> ColumnCache<T> {
    pub fn get(&self, key: &ColumnKey) -> Option<T> {
        self.0.lock().get(key).cloned()
    }

    pub fn insert(&self, key: ColumnKey, known: T) {
        let mut cache = self.0.lock();
        if cache.len() >= CACHE_ENTRIES_MAX {
            cache.clear();
        }
        cache.insert(key, known);
    }
}

impl Table {
    /// Finds out whether a column is dense, and at which offsets its bytes lie. Reads one footer per fragment; the
    /// result is cached.
    ///
    /// # Errors
    /// An unknown column. `DataCorrupt` when a file is missing; when its size, rows or type differ from the manifest;
    /// when its pages cannot lie where its page tables say; when it is the file of another column. Storage errors.
    pub async fn dense_column(&self, column: &str) -> Result<DenseProbe> {
        let key = self.column_key(column);
        if let Some(probe) = self.lake().inner.dense.get(&key) {
            return Ok(probe);
        }
        let probe = self.probe(column).await?;
        self.lake().inner.dense.insert(key, probe.clone());
        Ok(probe)
    }

    /// Whether another table is this one at the same version. A table that was dropped and created again is not.
    pub fn is_same_version(&self, other: &Self) -> bool {
        self.column_key("") == other.column_key("")
    }

    /// The key of a column in the lake's caches.
    pub(crate) fn column_key(&self, column: &str) -> ColumnKey {
        let transaction_file = self.dataset().manifest().transaction_file.as_deref().unwrap_or_default();
        (format!("{} {transaction_file}", self.name()), self.version(), column.to_string())
    }

    async fn probe(&self, column: &str) -> Result<DenseProbe> {
        self.check_columns([&column.to_string()])?;
        let schema = self.schema();
        let field = schema.field_with_name(column).map_err(|source| Error::storage("reading a schema", source))?;
        let row_bytes = match dense_row_bytes(field) {
            Ok(row_bytes) => row_bytes,
            Err(obstacle) => return Ok(DenseProbe::NotDense { reason: obstacle.to_string() }),
        };
        let scheduler = self.footer_scheduler();
        let mut probes = stream::iter(self.dataset().get_fragments())
            .map(|fragment| {
                let scheduler = scheduler.clone();
                async move {
                    let id = fragment_id(fragment.id() as u64);
                    Ok::<_, Error>((id, self.dense_file(&scheduler, &fragment, column, row_bytes).await?))
                }
            })
            .buffered(FOOTERS_IN_FLIGHT);
        let (mut files, mut checksums) = (BTreeMap::new(), Vec::new());
        while let Some((id, probe)) = probes.try_next().await? {
            match probe {
                Ok((file, sums)) => {
                    files.insert(id, file);
                    checksums.push((id, sums));
                }
                Err(obstacle) => return Ok(DenseProbe::NotDense { reason: format!("fragment {id}: {obstacle}") }),
            }
        }
        let data_type = field.data_type().clone();
        let segments = self.lake().inner.checksums.segments.clone();
        let checksums = Checksums::new(checksums, segments).map(Arc::new);
        Ok(DenseProbe::Dense(Arc::new(DenseColumn { row_bytes: to_usize(row_bytes), data_type, checksums, files })))
    }

    async fn dense_file(
        &self,
        scheduler: &Arc<ScanScheduler>,
        fragment: &FileFragment,
        column: &str,
        row_bytes: u64,
    ) -> Result<Result<(DenseFile, Option<FileChecksums>), Obstacle>> {
        let (data_file, metadata, index) = match self.column_file(scheduler, fragment, column).await? {
            Ok(found) => found,
            Err(obstacle) => return Ok(Err(obstacle)),
        };
        self.check_pages(fragment, &data_file, &metadata, index, column)?;
        let (pages, num_rows) = (&metadata.column_infos[index].page_infos, metadata.num_rows);
        let runs = match runs(pages, num_rows, row_bytes) {
            Ok(runs) => runs,
            Err(obstacle) => return Ok(Err(obstacle)),
        };
        let reader = self.store_reader(&data_file, metadata.file_size_bytes).open()?;
        let checksums = self.file_checksums(column, &data_file, &metadata, reader.clone())?;
        if checksums.is_none() && is_checked_name(&data_file.path) {
            return Ok(Err(Obstacle::Unchecked));
        }
        Ok(Ok((DenseFile { reader, runs, num_rows, row_bytes }, checksums)))
    }

    /// Checks that the pages of a column, which has this index in a file, have the rows of the fragment, and that all pages
    /// of the file can lie where its page tables say.
    ///
    /// # Errors
    /// `DataCorrupt`.
    pub(crate) fn check_pages(
        &self,
        fragment: &FileFragment,
        file: &DataFile,
        metadata: &CachedFileMetadata,
        index: usize,
        column: &str,
    ) -> Result<()> {
        let num_rows = metadata.num_rows;
        let reason = match fragment.metadata().physical_rows {
            Some(rows) if rows as u64 != num_rows => Some(format!("{rows} rows were expected, not {num_rows}")),
            _ if !have_rows(&metadata.column_infos[index].page_infos, num_rows) => {
                Some(format!("the pages of {column} do not have {num_rows} rows"))
            }
            _ => misplaced(metadata),
        };
        reason.map_or(Ok(()), |reason| Err(self.footer_error(file, reason)))
    }

    /// The error for a data file with damaged metadata.
    fn footer_error(&self, file: &DataFile, reason: String) -> Error {
        let attempted = format!("reading the footer of {} in table {}", file.path, self.snapshot());
        Error::DataCorrupt { attempted, reason }
    }

    /// A scheduler that reads footers. One serves many files.
    pub(crate) fn footer_scheduler(&self) -> Arc<ScanScheduler> {
        let store = self.lake().inner.checked_store.clone();
        let config = SchedulerConfig::max_bandwidth(&store);
        ScanScheduler::new(store, config)
    }

    /// Finds the data file that holds a column in a fragment. Returns it with its metadata and the index of the
    /// column in it.
    pub(crate) async fn column_file(
        &self,
        scheduler: &Arc<ScanScheduler>,
        fragment: &FileFragment,
        column: &str,
    ) -> Result<FoundFile> {
        let field = self.dataset().schema().fields.iter().find(|field| field.name == column);
        let Some(field) = field else { return Ok(Err(Obstacle::NotInSchema)) };
        self.field_file(scheduler, fragment, field.id).await
    }

    /// Like [`Table::column_file`], for a column or a nested field, by its id in the table's schema.
    pub(crate) async fn field_file(
        &self,
        scheduler: &Arc<ScanScheduler>,
        fragment: &FileFragment,
        field_id: i32,
    ) -> Result<FoundFile> {
        if !fragment.metadata().overlays.is_empty() {
            return Ok(Err(Obstacle::Overlays));
        }
        let Some(file) = fragment.data_file_for_field(field_id as u32) else {
            return Ok(Err(Obstacle::NoFile));
        };
        let Some(path) = self.data_file(file) else { return Ok(Err(Obstacle::OtherBase)) };
        if (file.file_major_version, file.file_minor_version) < (2, 1) {
            return Ok(Err(Obstacle::OldFile));
        }
        let place = file.fields.iter().position(|id| *id == field_id);
        let index =
            place.and_then(|place| file.column_indices.get(place)).and_then(|index| usize::try_from(*index).ok());
        let Some(index) = index else { return Ok(Err(Obstacle::NoPageTable)) };
        let attempted = || format!("reading the footer of {} in table {}", file.path, self.snapshot());
        self.check_footers([file]).await?;
        let opened = scheduler.open_file(&path, &file.file_size_bytes).await;
        let opened = opened.map_err(|source| decode_error(attempted(), source))?;
        let metadata = caught(fragment.get_file_metadata(&opened)).await;
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(source) => {
                // Truncated files cause many different errors; the size gives a clear one.
                let size = file.file_size_bytes.get().map_or(0, |size| size.get());
                self.store_reader(file, size).open()?.check_stored_size().await?;
                return Err(decode_error(attempted(), source));
            }
        };
        if index >= metadata.column_infos.len() {
            return Ok(Err(Obstacle::FewerColumns));
        }
        let fields = (self.dataset().schema().field_by_id(field_id), metadata.file_schema.field_by_id(field_id));
        if let (Some(field), Some(in_file)) = fields
            && let Some(reason) = type_conflict(field, in_file)
        {
            return Err(self.footer_error(file, reason));
        }
        Ok(Ok((file.clone(), metadata, index)))
    }

    /// A reader of a data file through the lake's store. `actual_size` is used when the manifest does not have the
    /// size.
    pub(crate) fn store_reader(&self, file: &DataFile, actual_size: u64) -> RangeReader {
        let path = self.data_file(file).unwrap_or_else(|| self.dataset().data_dir().join(file.path.as_str()));
        let size = file.file_size_bytes.get().map_or(actual_size, |size| size.get());
        let place = format!("data file {} of table {}", file.path, self.snapshot());
        let lake = &self.lake().inner;
        RangeReader::new(lake.store.clone(), lake.direct.clone(), lake.place.clone(), path, place, size)
    }
}

/// The bytes per row of a column whose pages may be plain bytes, or the obstacle.
pub(crate) fn dense_row_bytes(field: &Field) -> Result<u64, Obstacle> {
    let obstacle = match field.data_type() {
        DataType::FixedSizeList(..) => Obstacle::NotNumbers,
        _ => Obstacle::NotFixedSizeLists,
    };
    kind_of(field).storage(field).dense_row_bytes.map(|bytes| bytes as u64).ok_or(obstacle)
}

/// The runs of a column's pages, or the obstacle to reading the pages as plain bytes.
pub(crate) fn runs(pages: &[PageInfo], num_rows: u64, row_bytes: u64) -> Result<Box<[RowRun]>, Obstacle> {
    let mut runs = Vec::with_capacity(pages.len());
    let mut row = 0u64;
    for page in pages {
        let offset = dense_page(page, row_bytes)?;
        runs.push(RowRun { first_row: row, offset });
        row = row.checked_add(page.num_rows).ok_or(Obstacle::RowsWithoutPages)?;
    }
    if row != num_rows {
        return Err(Obstacle::RowsWithoutPages);
    }
    Ok(runs.into())
}

/// The offset of a page that is plain bytes, or the obstacle.
fn dense_page(page: &PageInfo, row_bytes: u64) -> Result<u64, Obstacle> {
    let PageEncoding::Structural(layout) = &page.encoding else { return Err(Obstacle::OtherEncoding) };
    let zip = match &layout.layout {
        Some(Layout::FullZipLayout(zip)) => zip,
        Some(Layout::ConstantLayout(_)) => return Err(Obstacle::OnlyNulls),
        _ => return Err(Obstacle::NotRowByRow),
    };
    if zip.bits_rep != 0 || zip.bits_def != 0 {
        return Err(Obstacle::Nulls);
    }
    check_plain(zip.value_compression.as_ref())?;
    let Some((offset, length)) = page.buffer_offsets_and_sizes.first().copied() else {
        return Err(Obstacle::NoBuffer);
    };
    if Some(length) != page.num_rows.checked_mul(row_bytes) {
        return Err(Obstacle::PageSize);
    }
    Ok(offset)
}

fn check_plain(encoding: Option<&CompressiveEncoding>) -> Result<(), Obstacle> {
    match encoding.and_then(|encoding| encoding.compression.as_ref()) {
        Some(Compression::Flat(flat)) if flat.data.is_none() => Ok(()),
        Some(Compression::FixedSizeList(list)) if list.has_validity => Err(Obstacle::NullItems),
        Some(Compression::FixedSizeList(list)) => check_plain(list.values.as_deref()),
        _ => Err(Obstacle::Compressed),
    }
}
