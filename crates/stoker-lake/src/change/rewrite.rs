//! New values for columns of existing rows, and the data files in which they replace the old ones.
//!
//! ```text
//! old values of a fragment, in batches ──┐
//! new values, in memory, by address ─────┴─► batches of its rows ──► FragmentColumns ──► data files
//! ```
//!
//! All rows of a fragment keep their addresses. So its new files have a value for each of its rows, deleted rows
//! included.

use std::collections::{HashMap, HashSet};
use std::iter::repeat_n;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt64Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, LargeBinaryArray, LargeStringArray, RecordBatch, StringArray, UInt32Array,
    make_array, new_null_array,
};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType, FieldRef, Schema as ArrowSchema, SchemaRef};
use arrow_select::take::take_record_batch;
use futures::TryStreamExt as _;
use lance::dataset::fragment::FileFragment;
use lance_core::datatypes::Schema;
use lance_table::format::DataFile;
use parking_lot::Mutex;
use roaring::RoaringBitmap;
use stoker_columns::{fixed_row_bytes, index_columns, is_heavy, kind_of};
use stoker_pages::{compact, retype};
use stoker_types::{TableName, to_usize};

use crate::damage::{caught, decode_error};
use crate::row_id_set::{fragment_id, row_offset};
use crate::scan::ROW_ADDR;
use crate::write::{FragmentFiles, conform};
use crate::{Checksums, Error, Result, ScanRequest, Table, row_checksums};

/// The size of a batch of rows in bytes, as far as the width of the columns is known.
const BATCH_BYTES: usize = 8 << 20;

/// The most rows of a batch.
const BATCH_ROWS_MAX: usize = 1 << 16;

/// The rows of a batch of light columns of variable width.
const LIGHT_ROWS: usize = 4_096;

/// The rows of a batch with a heavy column of variable width.
const HEAVY_ROWS: usize = 64;

/// A column whose arrays keep more than this many bytes beyond twice those of its rows is copied.
const SPARE_BYTES: usize = 64 << 10;

/// The names of the data files that were written for a change. They are removed unless the change is committed.
#[derive(Default)]
pub(crate) struct WrittenFiles(Mutex<Vec<String>>);

impl WrittenFiles {
    pub fn add(&self, names: impl IntoIterator<Item = String>) {
        self.0.lock().extend(names);
    }

    /// Keeps files with these names.
    pub fn forget<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let names: HashSet<&str> = names.into_iter().collect();
        self.0.lock().retain(|name| !names.contains(name.as_str()));
    }

    /// Returns the names, which are not removed any more.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// New values of some columns, in memory until they are written.
pub(super) struct Updates {
    /// The columns, in the order of the table; none before the first values.
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    rows: Vec<NewRow>,
    bytes: u64,
    /// The most bytes of values in memory.
    pub bytes_max: u64,
}

/// A row with new values.
#[derive(Clone, Copy)]
pub(super) struct NewRow {
    pub row_addr: u64,
    /// The index of the batch with its values.
    batch: u32,
    /// The index of the row in that batch.
    row: u32,
}

impl Updates {
    pub fn new(bytes_max: u64) -> Self {
        Self { schema: Arc::new(ArrowSchema::empty()), batches: Vec::new(), rows: Vec::new(), bytes: 0, bytes_max }
    }

    /// The columns with new values.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows with new values; by address after [`Updates::sort`].
    pub fn rows(&self) -> &[NewRow] {
        &self.rows
    }

    /// Whether a heavy column has new values.
    pub fn has_heavy(&self) -> bool {
        self.schema.fields().iter().any(|field| is_heavy(field))
    }

    /// Adds new values of rows. They are copied if they are a small part of larger arrays.
    pub fn add(&mut self, table: &Table, row_addrs: &[u64], values: &RecordBatch) -> Result<()> {
        let fail = |reason: String| Error::InvalidData { table: table.name().to_string(), reason };
        if row_addrs.len() != values.num_rows() {
            let numbers = (row_addrs.len(), values.num_rows());
            return Err(fail(format!("{} rows were named, but {} have new values", numbers.0, numbers.1)));
        }
        let schema = columns_of(table, values)?;
        if self.batches.is_empty() {
            self.schema = schema;
        } else if self.schema != schema {
            return Err(fail("all rows of one change must get new values of the same columns".into()));
        }
        let values = conform(table.name(), &self.schema, values, self.rows.len() as u64)?;
        let columns: Vec<ArrayRef> = values.columns().iter().map(without_spare).collect();
        let values = RecordBatch::try_new(self.schema.clone(), columns).map_err(|source| fail(source.to_string()))?;
        self.bytes += (bytes_of(&values) + row_addrs.len() * size_of::<NewRow>()) as u64;
        let batch = u32::try_from(self.batches.len()).ok().filter(|_| self.bytes <= self.bytes_max);
        let Some(batch) = batch else {
            return Err(Error::ChangeTooLarge { table: table.name().to_string(), bytes_max: self.bytes_max });
        };
        self.rows.extend(row_addrs.iter().zip(0..).map(|(row_addr, row)| NewRow { row_addr: *row_addr, batch, row }));
        self.batches.push(values);
        Ok(())
    }

    /// Sorts the rows by address.
    ///
    /// # Errors
    /// [`Error::InvalidData`] that names a row which has new values twice.
    pub fn sort(&mut self, table: &Table) -> Result<()> {
        self.rows.sort_unstable_by_key(|row| row.row_addr);
        match self.rows.windows(2).find(|pair| pair[0].row_addr == pair[1].row_addr) {
            None => Ok(()),
            Some(pair) => {
                let reason = format!("{} gets values from more than one source row", table.row_name(pair[0].row_addr));
                Err(Error::InvalidData { table: table.name().to_string(), reason })
            }
        }
    }

    /// Returns the new values of rows.
    fn gather(&self, rows: &[NewRow]) -> Result<RecordBatch, ArrowError> {
        let mut parts = Parts::default();
        rows.iter().for_each(|row| parts.add_new(self, row));
        parts.join(&self.schema)
    }

    /// Returns the values of rows with ascending addresses: the new ones where there are some, and otherwise the old
    /// ones.
    fn merge(&self, table: &Table, addrs: &[u64], old: &RecordBatch, new: &[NewRow]) -> Result<RecordBatch> {
        if new.is_empty() {
            return Ok(old.clone());
        }
        let mut parts = Parts::default();
        let number = parts.add_source(old);
        let mut new = new.iter().peekable();
        for (index, addr) in addrs.iter().enumerate() {
            match new.next_if(|row| row.row_addr == *addr) {
                Some(row) => parts.add_new(self, row),
                None => parts.add(number, index),
            }
        }
        if let Some(row) = new.next() {
            return Err(table.no_row(row.row_addr, "; a scan did not return it".into()));
        }
        parts.join(&self.schema).map_err(|source| Error::storage(table.updating(), source))
    }
}

/// Rows of several batches, from which a new batch is made.
#[derive(Default)]
struct Parts<'a> {
    sources: Vec<&'a RecordBatch>,
    /// The index in `sources` of each batch of new values.
    numbers: HashMap<u32, usize>,
    rows: Vec<SourceRows>,
}

/// Consecutive rows of one source.
struct SourceRows {
    source: usize,
    start: usize,
    len: usize,
}

impl<'a> Parts<'a> {
    fn add_source(&mut self, batch: &'a RecordBatch) -> usize {
        self.sources.push(batch);
        self.sources.len() - 1
    }

    fn add_new(&mut self, updates: &'a Updates, row: &NewRow) {
        let source = match self.numbers.get(&row.batch) {
            Some(source) => *source,
            None => {
                let source = self.add_source(&updates.batches[row.batch as usize]);
                self.numbers.insert(row.batch, source);
                source
            }
        };
        self.add(source, row.row as usize);
    }

    fn add(&mut self, source: usize, row: usize) {
        match self.rows.last_mut() {
            Some(last) if last.source == source && last.start + last.len == row => last.len += 1,
            _ => self.rows.push(SourceRows { source, start: row, len: 1 }),
        }
    }

    /// Copies the rows into one batch.
    fn join(&self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let num_rows = self.rows.iter().map(|rows| rows.len).sum();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        for index in 0..schema.fields().len() {
            let sources: Vec<ArrayData> = self.sources.iter().map(|source| source.column(index).to_data()).collect();
            let mut column = MutableArrayData::new(sources.iter().collect(), false, num_rows);
            for rows in &self.rows {
                column.extend(rows.source, rows.start, rows.start + rows.len);
            }
            columns.push(make_array(column.freeze()));
        }
        RecordBatch::try_new(schema.clone(), columns)
    }
}

impl Table {
    /// Writes data files with the updated columns of a fragment, for all of its rows. `rows` are the rows of the
    /// fragment that have new values, by address. Old values are read only if other rows need them.
    pub(super) async fn rewrite(
        &self,
        fragment: &FileFragment,
        updates: &Updates,
        rows: &[NewRow],
        page_bytes: usize,
        written: &WrittenFiles,
    ) -> Result<Vec<DataFile>> {
        let schema = lance_columns(self.dataset().schema(), &updates.schema);
        let mut columns =
            FragmentColumns::create(self, fragment, &updates.schema, &schema, page_bytes, written).await?;
        match self.write_rows(&mut columns, updates, rows).await {
            Ok(()) => columns.finish().await,
            Err(error) => {
                columns.abort().await;
                Err(error)
            }
        }
    }

    async fn write_rows(&self, columns: &mut FragmentColumns, updates: &Updates, rows: &[NewRow]) -> Result<()> {
        let batch_size = batch_rows(&updates.schema);
        if rows.len() as u64 == columns.num_present() {
            for rows in rows.chunks(batch_size) {
                let offsets: Vec<u32> = rows.iter().map(|row| row_offset(row.row_addr)).collect();
                let values = updates.gather(rows).map_err(|source| Error::storage(self.updating(), source))?;
                columns.write(&offsets, &values).await?;
            }
            return Ok(());
        }
        let heavy = self.checksums_of(&updates.schema).await?;
        let request = ScanRequest {
            columns: updates.schema.fields().iter().map(|field| field.name().clone()).collect(),
            with_row_addr: true,
            fragments: Some(vec![fragment_id(columns.fragment)]),
            batch_size,
            ..ScanRequest::default()
        };
        let mut batches = self.scan(&request).await?;
        let mut left = rows;
        while let Some(batch) = batches.try_next().await.map_err(|source| Error::of_scan(self.updating(), source))? {
            let addrs = batch.column_by_name(ROW_ADDR).and_then(|addrs| addrs.as_primitive_opt::<UInt64Type>());
            let Some(addrs) = addrs.map(|addrs| addrs.values()) else {
                let reason = format!("the rows were read without {ROW_ADDR}");
                return Err(Error::InvalidRequest { attempted: self.updating(), reason });
            };
            let old = retype(&updates.schema, &batch).map_err(|source| Error::storage(self.updating(), source))?;
            let last = addrs.last().copied().unwrap_or(0);
            let (new, later) = left.split_at(left.partition_point(|row| row.row_addr <= last));
            let is_kept = |addr: u64| new.binary_search_by_key(&addr, |row| row.row_addr).is_err();
            self.verify(&heavy, addrs, &old, &is_kept, || self.updating()).await?;
            let values = updates.merge(self, addrs, &old, new)?;
            let offsets: Vec<u32> = addrs.iter().map(|addr| row_offset(*addr)).collect();
            columns.write(&offsets, &values).await?;
            left = later;
        }
        match left.first() {
            None => Ok(()),
            Some(row) => Err(self.no_row(row.row_addr, "; a scan did not return it".into())),
        }
    }

    /// Returns the checksums of the heavy ones of these columns, with the index of each column.
    pub(crate) async fn checksums_of(&self, schema: &SchemaRef) -> Result<Vec<(usize, Arc<Checksums>)>> {
        let mut found = Vec::new();
        for (index, field) in schema.fields().iter().enumerate().filter(|(_, field)| is_heavy(field)) {
            found.extend(self.checksums(field.name()).await?.map(|checksums| (index, checksums)));
        }
        Ok(found)
    }

    /// Compares old values of heavy columns with their checksums, for the rows that keep these values. Lance compares
    /// light columns with theirs when it reads them.
    ///
    /// # Errors
    /// [`Error::DamagedRows`] that names the first row which differs; storage errors.
    pub(crate) async fn verify(
        &self,
        heavy: &[(usize, Arc<Checksums>)],
        addrs: &[u64],
        old: &RecordBatch,
        is_kept: &(dyn Fn(u64) -> bool + Sync),
        attempted: impl Fn() -> String,
    ) -> Result<()> {
        for (index, checksums) in heavy {
            let Some(found) = row_checksums(old.column(*index)) else { continue };
            let expected = checksums.load(addrs).await?;
            for ((addr, expected), found) in addrs.iter().zip(expected).zip(found) {
                if expected.is_some_and(|expected| expected != found) && is_kept(*addr) {
                    let column = old.schema().field(*index).name().clone();
                    let reason = format!(
                        "column {column} of {} differs from its checksum: give the row a new value, or exclude it",
                        self.row_name(*addr)
                    );
                    return Err(Error::DamagedRows { attempted: attempted(), reason });
                }
            }
        }
        Ok(())
    }

    fn updating(&self) -> String {
        format!("updating table {}", self.snapshot())
    }
}

/// Data files with some columns of an existing fragment, with a value for each of its rows. Deleted rows get any valid
/// value, because nobody reads it. [`FragmentColumns::with_other_rows`] says what other rows get that are left out.
pub(super) struct FragmentColumns {
    table: Table,
    pub fragment: u64,
    num_rows: u64,
    deleted: RoaringBitmap,
    schema: SchemaRef,
    files: FragmentFiles,
    /// The offset of the next row in the fragment.
    next: u64,
    /// One row with the values of rows that are left out; `None` before the first row.
    blank: Option<RecordBatch>,
    /// Whether rows that are not deleted may be left out.
    may_skip: bool,
}

impl FragmentColumns {
    /// Creates the files. The fields of `lance_schema` are the columns of `schema`, with their ids in the table.
    pub async fn create(
        table: &Table,
        fragment: &FileFragment,
        schema: &SchemaRef,
        lance_schema: &Schema,
        page_bytes: usize,
        written: &WrittenFiles,
    ) -> Result<Self> {
        let attempted = || format!("reading the deletions of {}", table.snapshot());
        let deleted = caught(fragment.get_deletion_vector()).await;
        let deleted = deleted.map_err(|source| decode_error(attempted(), source))?;
        let deleted = deleted.map_or_else(RoaringBitmap::new, |deleted| RoaringBitmap::from(deleted.as_ref()));
        let num_rows = fragment.physical_rows().await.map_err(|source| Error::storage(attempted(), source))?;
        let path = table.lake().table_path(table.name());
        let files = FragmentFiles::create(&table.lake().inner, &path, schema, lance_schema, page_bytes).await?;
        written.add(files.names());
        Ok(Self {
            table: table.clone(),
            fragment: fragment.id() as u64,
            num_rows: num_rows as u64,
            deleted,
            schema: schema.clone(),
            files,
            next: 0,
            blank: None,
            may_skip: false,
        })
    }

    /// Gives rows that are left out the values of this row.
    pub fn with_other_rows(self, row: RecordBatch) -> Self {
        Self { blank: Some(row), may_skip: true, ..self }
    }

    /// The number of rows that are not deleted.
    pub fn num_present(&self) -> u64 {
        self.num_rows.saturating_sub(self.deleted.len())
    }

    /// Writes rows. Their offsets in the fragment ascend from call to call; only deleted rows may be left out, unless other
    /// rows have values.
    ///
    /// # Errors
    /// [`Error::InvalidData`] that names a row which is missing or out of order; storage errors.
    pub async fn write(&mut self, offsets: &[u32], values: &RecordBatch) -> Result<()> {
        let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return Ok(()) };
        let blank = match &self.blank {
            Some(blank) => blank.clone(),
            None => blank_row(values).map_err(|source| self.failed(source))?,
        };
        self.blank = Some(blank.clone());
        let is_dense = u64::from(*first) == self.next
            && offsets.is_sorted_by(|one, next| one < next)
            && (last - first) as usize == offsets.len() - 1;
        if is_dense {
            self.next = u64::from(*last) + 1;
            return self.files.write(values).await;
        }
        let (mut parts, mut num_blanks) = (Parts::default(), 0);
        let (of_values, of_blank) = (parts.add_source(values), parts.add_source(&blank));
        for (row, offset) in offsets.iter().enumerate() {
            let gap = self.gap_before(u64::from(*offset))?;
            if num_blanks + gap > values.num_rows() as u64 {
                // A long gap is written in parts of its own.
                self.write_parts(&mut parts).await?;
                self.write_blanks(&blank, gap).await?;
                num_blanks = 0;
            } else {
                repeat_n(of_blank, to_usize(gap)).for_each(|source| parts.add(source, 0));
                num_blanks += gap;
            }
            parts.add(of_values, row);
            self.next = u64::from(*offset) + 1;
        }
        self.write_parts(&mut parts).await
    }

    /// Writes the rows that are left out behind the last one, and closes the files.
    pub async fn finish(mut self) -> Result<Vec<DataFile>> {
        let gap = self.gap_before(self.num_rows)?;
        match self.blank.clone() {
            Some(blank) => self.write_blanks(&blank, gap).await?,
            None => return Err(self.invalid(0, "has no values")),
        }
        Ok(self.files.finish().await?.into_iter().map(|(file, _)| file).collect())
    }

    pub async fn abort(self) {
        self.files.abort().await;
    }

    /// The number of rows from the next one up to this offset. All of them may be left out.
    fn gap_before(&self, offset: u64) -> Result<u64> {
        let Some(gap) = offset.checked_sub(self.next) else { return Err(self.invalid(offset, "came out of order")) };
        if self.may_skip {
            return Ok(gap);
        }
        let is_deleted = |row: u64| u32::try_from(row).is_ok_and(|row| self.deleted.contains(row));
        match (self.next..offset).find(|row| !is_deleted(*row)) {
            None => Ok(gap),
            Some(row) => Err(self.invalid(row, "has no value")),
        }
    }

    async fn write_parts(&mut self, parts: &mut Parts<'_>) -> Result<()> {
        if parts.rows.is_empty() {
            return Ok(());
        }
        let batch = parts.join(&self.schema).map_err(|source| self.failed(source))?;
        parts.rows.clear();
        self.files.write(&batch).await
    }

    async fn write_blanks(&mut self, blank: &RecordBatch, num_rows: u64) -> Result<()> {
        let rows_max = (BATCH_BYTES / bytes_of(blank).max(1)).clamp(1, BATCH_ROWS_MAX) as u64;
        let mut left = num_rows;
        while left > 0 {
            let rows = left.min(rows_max);
            let indices = UInt32Array::from(vec![0; to_usize(rows)]);
            let batch = take_record_batch(blank, &indices).map_err(|source| self.failed(source))?;
            self.files.write(&batch).await?;
            left -= rows;
            self.next += rows;
        }
        Ok(())
    }

    fn invalid(&self, offset: u64, what: &str) -> Error {
        let reason = format!("{} {what}", self.table.row_name(self.fragment << 32 | offset));
        Error::InvalidData { table: self.table.name().to_string(), reason }
    }

    fn failed(&self, source: ArrowError) -> Error {
        Error::storage(format!("writing columns of table {}", self.table.snapshot()), source)
    }
}

/// Returns the fields of a table with the names of these columns.
pub(super) fn lance_columns(schema: &Schema, columns: &ArrowSchema) -> Schema {
    let fields = schema.fields.iter().filter(|field| columns.field_with_name(&field.name).is_ok());
    Schema { fields: fields.cloned().collect(), metadata: HashMap::new() }
}

/// Returns the columns of a table that have values in a batch, in the order of the table. New videos have new indexes.
fn columns_of(table: &Table, values: &RecordBatch) -> Result<SchemaRef> {
    let schema = table.schema();
    let has = |column: &str| values.column_by_name(column).is_some();
    let indexes: Vec<&str> = index_columns(&schema).filter(|(_, video)| has(video)).map(|(index, _)| index).collect();
    let fields = schema.fields().iter().filter(|field| has(field.name()) || indexes.contains(&field.name().as_str()));
    let fields: Vec<_> = fields.cloned().collect();
    table.refuse_blobs(fields.iter().map(|field| field.name().as_str()))?;
    if fields.is_empty() {
        let reason = "the new values are of no column of the table".to_string();
        return Err(Error::InvalidData { table: table.name().to_string(), reason });
    }
    Ok(Arc::new(ArrowSchema::new(fields)))
}

/// The number of rows of a batch, so that it takes about as many bytes as other batches.
pub(crate) fn batch_rows(schema: &ArrowSchema) -> usize {
    let widths = schema.fields().iter().map(|field| fixed_row_bytes(field.data_type()));
    match widths.sum::<Option<usize>>() {
        Some(width) => (BATCH_BYTES / width.max(1)).clamp(1, BATCH_ROWS_MAX),
        None if schema.fields().iter().any(|field| is_heavy(field)) => HEAVY_ROWS,
        None => LIGHT_ROWS,
    }
}

/// Returns one row for deleted rows. Its values are empty where values vary in size. Other values are those of the
/// first row: nulls that no other row has would keep a column from being read as plain bytes.
fn blank_row(values: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let blank = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            DataType::Binary => Arc::new(BinaryArray::from_iter_values([b""])),
            DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter_values([b""])),
            DataType::Utf8 => Arc::new(StringArray::from_iter_values([""])),
            DataType::LargeUtf8 => Arc::new(LargeStringArray::from_iter_values([""])),
            _ => compact(&column.slice(0, 1)),
        }
    };
    RecordBatch::try_new(values.schema(), values.columns().iter().map(blank).collect())
}

/// Returns one row for rows without values: NULL, and zero or FALSE in columns that have no NULL.
///
/// # Errors
/// [`Error::InvalidData`] for a column without NULL whose values are not of a fixed size.
pub(super) fn row_without_values(table: &TableName, schema: &SchemaRef) -> Result<RecordBatch> {
    let value = |field: &FieldRef| {
        if field.is_nullable() && !kind_of(field).storage(field).refuses_nulls {
            return Ok(new_null_array(field.data_type(), 1));
        }
        zeros(field.data_type(), 1).map(make_array).ok_or_else(|| Error::InvalidData {
            table: table.to_string(),
            reason: format!("column {} has no NULL, so that all rows need a value", field.name()),
        })
    };
    let columns = schema.fields().iter().map(value).collect::<Result<Vec<ArrayRef>>>()?;
    RecordBatch::try_new(schema.clone(), columns)
        .map_err(|source| Error::storage("making a row without values", source))
}

/// Returns zeros; `None` for types of variable size.
fn zeros(data_type: &DataType, len: usize) -> Option<ArrayData> {
    let builder = ArrayData::builder(data_type.clone()).len(len);
    let builder = match data_type {
        DataType::Boolean => builder.add_buffer(Buffer::from(vec![0_u8; len.div_ceil(8)])),
        DataType::FixedSizeList(item, size) => {
            builder.add_child_data(zeros(item.data_type(), len * usize::try_from(*size).ok()?)?)
        }
        other => {
            // Aligned for all types, which a vector of bytes is not.
            let bytes = len * other.primitive_width()?;
            builder.add_buffer(Buffer::from_vec(vec![0_i128; bytes.div_ceil(16)]).slice_with_length(0, bytes))
        }
    };
    builder.build().ok()
}

/// Copies a column whose arrays keep much more memory than its rows need.
fn without_spare(column: &ArrayRef) -> ArrayRef {
    let needed = column.to_data().get_slice_memory_size().unwrap_or(0);
    match column.get_buffer_memory_size() > 2 * needed + SPARE_BYTES {
        true => compact(column),
        false => column.clone(),
    }
}

/// The bytes of the values of a batch.
pub(crate) fn bytes_of(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0)).sum()
}
