//! Values of Lance's blob columns, which lie outside the pages of their columns.
//!
//! The pages hold descriptors: in which file the bytes of a value are, and where. Descriptors are read as other values
//! are. The bytes are read by ranges, those of near values together, and only from files of the lake: a descriptor is
//! input from whoever wrote the table. Lance's own reader would follow any URI, and allocate what a descriptor says.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, LargeBinaryArray, RecordBatch, StringArray, StructArray, UInt8Array, UInt32Array, UInt64Array,
    new_empty_array,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field as ArrowField, Schema as ArrowSchema};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use lance_core::datatypes::{BlobKind, Field};
use lance_core::utils::blob::{blob_path, validate_managed_reference};
use lance_table::format::DataFile;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStoreExt as _};
use stoker_columns::is_blob;
use stoker_store::{is_outage, without_secrets};
use stoker_types::to_usize;

use crate::objects::FOLDER;
use crate::table::without_scheme;
use crate::{Error, Result, Table};

/// The largest gap between two values that one range covers, in bytes.
const GAP_BYTES: u64 = 16 << 10;

/// The most bytes of one range.
const PART_BYTES: u64 = 16 << 20;

/// The most ranges that one read requests at the same time.
const PARTS_IN_FLIGHT: usize = 16;

/// The most bytes of all values of a blob column that one read returns.
const READ_BYTES_MAX: u64 = 4 << 30;

/// The most characters of a URI that an error shows.
const SHOWN_CHARS: usize = 200;

/// The descriptors of some rows.
pub(crate) struct Descriptors<'a> {
    rows: &'a StructArray,
    positions: &'a UInt64Array,
    sizes: &'a UInt64Array,
    /// The kinds, ids and URIs of the files, which only blobs of version 2 have. Others are in the data file.
    files: Option<(&'a UInt8Array, &'a UInt32Array, &'a StringArray)>,
}

/// A blob column of some rows.
struct BlobColumn<'a> {
    field: &'a Field,
    descriptors: Descriptors<'a>,
    /// The data files with the descriptors, by the fragments.
    files: HashMap<u64, &'a DataFile>,
}

/// A file with values.
struct BlobFile {
    path: Path,
    /// The size that the manifest or a descriptor says.
    size: Option<u64>,
}

/// The bytes of a value that is not empty.
struct BlobSpan {
    row_addr: u64,
    /// The index of the file.
    file: usize,
    range: Range<u64>,
}

/// The files and bytes of the values of some rows.
#[derive(Default)]
struct BlobSpans {
    files: Vec<BlobFile>,
    known: HashMap<Path, usize>,
    /// One for each row.
    values: Vec<Location>,
}

/// Where a value is.
enum Location {
    Null,
    Empty,
    In(BlobSpan),
}

impl<'a> Descriptors<'a> {
    /// Returns the descriptors of a column; `None` for other columns.
    pub fn of(column: &'a ArrayRef) -> Option<Self> {
        let rows = column.as_struct_opt()?;
        let numbers = |name| rows.column_by_name(name)?.as_primitive_opt::<UInt64Type>();
        let files = || {
            let kinds = rows.column_by_name("kind")?.as_primitive_opt::<UInt8Type>()?;
            let ids = rows.column_by_name("blob_id")?.as_primitive_opt::<UInt32Type>()?;
            Some((kinds, ids, rows.column_by_name("blob_uri")?.as_string_opt::<i32>()?))
        };
        let (positions, sizes, files) = (numbers("position")?, numbers("size")?, files());
        (files.is_some() || rows.num_columns() == 2).then_some(Self { rows, positions, sizes, files })
    }

    /// Whether the value of a row is null.
    pub fn is_null(&self, row: usize) -> bool {
        let is_empty = self.rows.is_null(row) || self.positions.is_null(row) || self.sizes.is_null(row);
        match self.files {
            Some((kinds, ..)) => is_empty || kinds.is_null(row),
            // Lance notes nulls of version 1 in the positions of values without bytes.
            None => is_empty || self.sizes.value(row) == 0 && self.positions.value(row) != 0,
        }
    }
}

impl Descriptors<'_> {
    /// The bytes of all values together, as far as one read may return them. Whether they are there is not checked.
    pub fn num_bytes(&self) -> u64 {
        let rows = (0..self.rows.len()).filter(|row| !self.is_null(*row));
        rows.fold(0, |sum: u64, row| sum.saturating_add(self.sizes.value(row).min(READ_BYTES_MAX)))
    }
}

impl Table {
    /// Replaces descriptors by values in the blob columns of a batch. The rows are those at `row_addrs`.
    ///
    /// # Errors
    /// [`Error::DamagedRows`] for values that are not where their descriptors say; [`Error::InvalidRequest`] for values
    /// outside the lake, and for more bytes than one read may have; storage errors.
    pub(crate) async fn with_blobs(&self, batch: RecordBatch, row_addrs: &[u64]) -> Result<RecordBatch> {
        let (schema, descriptors) = (self.schema(), batch.schema());
        let is_read = |field: &ArrowField| schema.field_with_name(field.name()).is_ok_and(is_blob);
        if !descriptors.fields().iter().any(|field| is_read(field)) {
            return Ok(batch);
        }
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (field, column) in descriptors.fields().iter().zip(batch.columns()) {
            if !is_read(field) {
                fields.push(field.as_ref().clone());
                columns.push(column.clone());
                continue;
            }
            fields.push(schema.field_with_name(field.name()).map_err(|source| self.blob_failed(source))?.clone());
            columns.push(match column.as_binary_opt::<i64>() {
                Some(_) => column.clone(),
                None => self.blob_values(field.name(), column, row_addrs).await?,
            });
        }
        RecordBatch::try_new(Arc::new(ArrowSchema::new_with_metadata(fields, descriptors.metadata().clone())), columns)
            .map_err(|source| self.blob_failed(source))
    }

    /// Reads the values of a blob column.
    async fn blob_values(&self, column: &str, descriptors: &ArrayRef, row_addrs: &[u64]) -> Result<ArrayRef> {
        if row_addrs.is_empty() {
            return Ok(new_empty_array(&DataType::LargeBinary));
        }
        let field = self.dataset().schema().fields.iter().find(|field| field.name == column);
        let found = Descriptors::of(descriptors).filter(|found| found.rows.len() == row_addrs.len());
        let (Some(field), Some(descriptors)) = (field, found) else {
            return Err(Error::InvalidRequest {
                attempted: format!("reading column {column} of {}", self.snapshot()),
                reason: format!("its blobs have descriptors of an unknown form: {}", descriptors.data_type()),
            });
        };
        let fragments: HashSet<u64> = row_addrs.iter().map(|addr| addr >> 32).collect();
        let fragments = self.dataset().fragments().iter().filter(|fragment| fragments.contains(&fragment.id));
        let files = fragments.filter_map(|fragment| {
            let file = fragment.files.iter().find(|file| file.fields.contains(&field.id))?;
            Some((fragment.id, file))
        });
        let files = files.collect();
        let blobs = BlobColumn { field, descriptors, files };
        let mut spans = BlobSpans::default();
        let mut bytes = 0u64;
        for (row, row_addr) in row_addrs.iter().enumerate() {
            let location = self.locate(&blobs, row, *row_addr, &mut spans).await?;
            if let Location::In(BlobSpan { range, .. }) = &location {
                bytes = bytes.saturating_add(range.end - range.start);
            }
            if bytes > READ_BYTES_MAX {
                let attempted = format!("reading column {column} of {} rows of {}", row_addrs.len(), self.snapshot());
                let reason = format!(
                    "the values of the first {} of them have {bytes} bytes together, and one read returns at most \
                     {READ_BYTES_MAX}: read fewer rows at a time, with a smaller batch",
                    row + 1
                );
                return Err(Error::InvalidRequest { attempted, reason });
            }
            spans.values.push(location);
        }
        let parts = spans.parts();
        let reads = stream::iter(parts.clone()).map(|(file, range)| self.blob_part(column, &spans, file, range));
        let reads: Vec<Bytes> = reads.buffered(PARTS_IN_FLIGHT).try_collect().await?;
        spans.assemble(&parts, &reads, to_usize(bytes)).map_err(|source| self.blob_failed(source))
    }

    /// Finds out where the value of a row is.
    async fn locate(
        &self,
        blobs: &BlobColumn<'_>,
        row: usize,
        row_addr: u64,
        spans: &mut BlobSpans,
    ) -> Result<Location> {
        let BlobColumn { field, descriptors, .. } = blobs;
        if descriptors.is_null(row) {
            return Ok(Location::Null);
        }
        let (start, size) = (descriptors.positions.value(row), descriptors.sizes.value(row));
        let found = self.blob_file(blobs, row, row_addr)?;
        let Some((found, is_whole)) = found else { return Ok(Location::Empty) };
        let size = match is_whole {
            true => self.stored_size(&field.name, row_addr, &found.path).await?.saturating_sub(start),
            false => size,
        };
        if size == 0 {
            return Ok(Location::Empty);
        }
        let damaged = |reason: String| self.damaged_blob(&field.name, row_addr, reason);
        let file = spans.file(found);
        let end = start.checked_add(size).filter(|end| spans.files[file].size.is_none_or(|size| *end <= size));
        match end {
            None => Err(damaged(format!(
                "its descriptor says {size} bytes at {start}, beyond the end of {}",
                spans.files[file].describe()
            ))),
            Some(_) if size > READ_BYTES_MAX => Err(damaged(format!(
                "its descriptor says {size} bytes, and values of more than {READ_BYTES_MAX} bytes are not read"
            ))),
            Some(end) => Ok(Location::In(BlobSpan { row_addr, file, range: start..end })),
        }
    }

    /// Returns the file with the value of a row, and whether the value is all of it; `None` for an empty value.
    fn blob_file(&self, blobs: &BlobColumn<'_>, row: usize, row_addr: u64) -> Result<Option<(BlobFile, bool)>> {
        let BlobColumn { field, descriptors, files } = blobs;
        let (position, size) = (descriptors.positions.value(row), descriptors.sizes.value(row));
        let damaged = |reason: String| self.damaged_blob(&field.name, row_addr, reason);
        let (kind, id, uri) = match descriptors.files {
            None => (BlobKind::Inline, 0, ""),
            Some((kinds, ids, uris)) => {
                let kind = BlobKind::try_from(kinds.value(row));
                let kind = kind.map_err(|_| damaged(format!("its descriptor has the kind {}", kinds.value(row))))?;
                (kind, ids.value(row), uris.value(row))
            }
        };
        if size == 0 && kind != BlobKind::External {
            return Ok(None);
        }
        let data_file = || {
            let file = files.get(&(row_addr >> 32)).copied();
            file.ok_or_else(|| damaged("no data file has the column".into()))
        };
        let outside = |place: &str| self.outside(&field.name, row_addr, place);
        let in_table = |path: Option<Path>| path.ok_or_else(|| outside("a file outside the folder of the table"));
        let (path, size) = match kind {
            BlobKind::Inline => {
                let file = data_file()?;
                (in_table(self.data_file(file))?, file.file_size_bytes.get().map(|size| size.get()))
            }
            BlobKind::Packed => (sidecar(&in_table(self.data_file(data_file()?))?, id), None),
            BlobKind::Dedicated => {
                // Such a file has one value and nothing else.
                (sidecar(&in_table(self.data_file(data_file()?))?, id), Some(size))
            }
            BlobKind::Managed | BlobKind::ManagedWithBase => {
                let relative = validate_managed_reference(uri, position, size);
                let relative = relative.map_err(|_| damaged(format!("its descriptor has the path {uri:?}")))?;
                let base = if kind == BlobKind::ManagedWithBase { Some(id) } else { data_file()?.base_id };
                let folder = in_table(self.files_of_base(base))?;
                (relative.parts().fold(folder, |folder, part| folder.join(part)), None)
            }
            BlobKind::External => {
                let uri = self.external_uri(id, uri).ok_or_else(|| damaged(format!("there is no base {id}")))?;
                let shown = || without_secrets(&uri).chars().take(SHOWN_CHARS).collect::<String>();
                (self.path_in_lake(&uri).ok_or_else(|| outside(&shown()))?, None)
            }
        };
        let is_whole = kind == BlobKind::External && descriptors.sizes.value(row) == 0;
        Ok(Some((BlobFile { path, size }, is_whole)))
    }

    /// Reads a part of a file.
    async fn blob_part(&self, column: &str, spans: &BlobSpans, file: usize, range: Range<u64>) -> Result<Bytes> {
        let store = &self.lake().inner.store.inner;
        let BlobFile { path, size } = &spans.files[file];
        let row_addr = spans.row_in(file, &range);
        let damaged = |reason: String| self.damaged_blob(column, row_addr, reason);
        let attempted = || format!("reading column {column} of {} from {path}", self.row_name(row_addr));
        let too_short = |found: u64| match size {
            Some(size) if *size != found => Some(damaged(format!("{path} has {found} bytes, not {size}"))),
            _ if found < range.end => {
                Some(damaged(format!("bytes {}..{} are beyond the {found} bytes of {path}", range.start, range.end)))
            }
            _ => None,
        };
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        let got = match store.get_opts(path, options).await {
            Ok(got) => got,
            Err(object_store::Error::NotFound { .. }) => return Err(damaged(format!("{path} is missing"))),
            // Stores report a range beyond the end of a file differently.
            Err(source) if !is_outage(&source) => {
                let found = store.head(path).await.ok().and_then(|meta| too_short(meta.size));
                return Err(found.unwrap_or_else(|| Error::storage(attempted(), source)));
            }
            Err(source) => return Err(Error::storage(attempted(), source)),
        };
        if let Some(error) = too_short(got.meta.size) {
            return Err(error);
        }
        let bytes = got.bytes().await.map_err(|source| Error::storage(attempted(), source))?;
        if bytes.len() as u64 != range.end - range.start {
            return Err(damaged(format!("only {} of bytes {}..{} arrived", bytes.len(), range.start, range.end)));
        }
        Ok(bytes)
    }

    /// The size of a whole object, whose descriptor does not say it.
    async fn stored_size(&self, column: &str, row_addr: u64, path: &Path) -> Result<u64> {
        match self.lake().inner.store.inner.head(path).await {
            Ok(meta) => Ok(meta.size),
            Err(object_store::Error::NotFound { .. }) => {
                Err(self.damaged_blob(column, row_addr, format!("{path} is missing")))
            }
            Err(source) => {
                Err(Error::storage(format!("reading column {column} of {}", self.row_name(row_addr)), source))
            }
        }
    }

    /// The URI of an object that Lance does not own: with a base, its path in it.
    fn external_uri(&self, base: u32, uri: &str) -> Option<String> {
        if base == 0 {
            return Some(uri.to_string());
        }
        let base = self.dataset().manifest().base_paths.get(&base)?;
        Some(format!("{}/{uri}", base.path.trim_end_matches('/')))
    }

    /// The path of the object that a URI names, if it lies in the lake and not among what Stoker itself keeps there.
    fn path_in_lake(&self, uri: &str) -> Option<Path> {
        let inner = &self.lake().inner;
        let rest = without_scheme(uri).strip_prefix(without_scheme(&inner.uri).trim_end_matches('/'))?;
        let parts: Vec<&str> = rest.strip_prefix('/')?.split('/').collect();
        let is_plain = |part: &&str| !matches!(*part, "" | "." | "..") && !part.contains(['\\', '%', '?', '#']);
        let is_own = parts.first().is_none_or(|part| *part == FOLDER);
        (!is_own && parts.iter().all(is_plain))
            .then(|| parts.into_iter().fold(inner.base.clone(), |folder, part| folder.join(part)))
    }

    fn outside(&self, column: &str, row_addr: u64, place: &str) -> Error {
        Error::InvalidRequest {
            attempted: format!("reading column {column} of {}", self.row_name(row_addr)),
            reason: format!(
                "its bytes are in {place}, and blobs are read from inside the lake {} only: leave the column out, or \
                 copy the values into the table",
                self.lake().uri()
            ),
        }
    }

    fn damaged_blob(&self, column: &str, row_addr: u64, reason: String) -> Error {
        Error::DamagedRows { attempted: format!("reading column {column} of {}", self.row_name(row_addr)), reason }
    }

    fn blob_failed(&self, source: ArrowError) -> Error {
        Error::storage(format!("reading blobs of {}", self.snapshot()), source)
    }
}

impl BlobFile {
    fn describe(&self) -> String {
        match self.size {
            Some(size) => format!("{}, which has {size} bytes", self.path),
            None => self.path.to_string(),
        }
    }
}

impl BlobSpans {
    /// Returns the index of a file.
    fn file(&mut self, file: BlobFile) -> usize {
        if let Some(index) = self.known.get(&file.path) {
            return *index;
        }
        self.known.insert(file.path.clone(), self.files.len());
        self.files.push(file);
        self.files.len() - 1
    }

    fn spans(&self) -> impl Iterator<Item = &BlobSpan> {
        self.values.iter().filter_map(|value| match value {
            Location::In(span) => Some(span),
            Location::Null | Location::Empty => None,
        })
    }

    /// The address of the first row with bytes in a part of a file.
    fn row_in(&self, file: usize, range: &Range<u64>) -> u64 {
        let is_in =
            |span: &&BlobSpan| span.file == file && span.range.start < range.end && range.start < span.range.end;
        self.spans().find(is_in).map_or(0, |span| span.row_addr)
    }

    /// Returns the ranges to read, by file and position: together they have the bytes of all values.
    fn parts(&self) -> Vec<(usize, Range<u64>)> {
        let mut spans: Vec<(usize, Range<u64>)> = self.spans().map(|span| (span.file, span.range.clone())).collect();
        spans.sort_unstable_by_key(|(file, range)| (*file, range.start));
        let mut joined: Vec<(usize, Range<u64>)> = Vec::new();
        for (file, range) in spans {
            match joined.last_mut() {
                Some((last, before)) if *last == file && range.start <= before.end.saturating_add(GAP_BYTES) => {
                    before.end = before.end.max(range.end);
                }
                _ => joined.push((file, range)),
            }
        }
        let cut = |(file, range): (usize, Range<u64>)| {
            let starts = range.clone().step_by(to_usize(PART_BYTES));
            starts.map(move |start| (file, start..range.end.min(start.saturating_add(PART_BYTES))))
        };
        joined.into_iter().flat_map(cut).collect()
    }

    /// Copies the values from the parts that were read. They have `num_bytes` together.
    fn assemble(
        &self,
        parts: &[(usize, Range<u64>)],
        reads: &[Bytes],
        num_bytes: usize,
    ) -> Result<ArrayRef, ArrowError> {
        let mut bytes: Vec<u8> = Vec::with_capacity(num_bytes);
        let mut offsets = vec![0i64];
        for value in &self.values {
            if let Location::In(BlobSpan { file, range, .. }) = value {
                let first = parts.partition_point(|(other, part)| (*other, part.end) <= (*file, range.start));
                for ((_, part), read) in parts.iter().zip(reads).skip(first) {
                    let (start, end) = (range.start.max(part.start), range.end.min(part.end));
                    let slice = to_usize(start - part.start)..to_usize(end.saturating_sub(part.start));
                    bytes.extend_from_slice(read.get(slice).unwrap_or_default());
                    if end == range.end {
                        break;
                    }
                }
            }
            offsets.push(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        }
        let is_valid = |value: &Location| !matches!(value, Location::Null);
        let nulls: NullBuffer = self.values.iter().map(is_valid).collect::<Vec<bool>>().into();
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        Ok(Arc::new(LargeBinaryArray::try_new(offsets, Buffer::from_vec(bytes), nulls)?))
    }
}

/// The file beside a data file with the values of an id.
fn sidecar(data_file: &Path, id: u32) -> Path {
    let name = data_file.filename().unwrap_or_default();
    let folder = data_file.parent().unwrap_or_default();
    blob_path(&folder, name.strip_suffix(".lance").unwrap_or(name), id)
}
