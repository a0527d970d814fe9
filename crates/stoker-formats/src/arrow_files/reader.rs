//! Reads the rows of a file.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::compute::{concat, filter_record_batch};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};

use super::array::IpcDecoder;
use super::message::{IpcMessage, IpcMessages};
use super::row_bytes::row_bytes;
use super::schema::IpcField;
use super::{ArrowFile, ArrowTable, SPLIT, with_split};
use crate::media_paths::MediaValues;
use crate::{BadRow, Error, Folder, FolderFile, Result, RowBatch, RowReader};

/// The most bytes of a row, and of the dictionaries of a file.
const ROW_BYTES_MAX: u64 = 1 << 30;

/// The most rows of a batch.
const NUM_ROWS_MAX: usize = 1 << 20;

/// What a bad row counts in a batch.
const BAD_ROW_BYTES: u64 = 1;

/// Returns the schema of a file.
///
/// # Errors
/// `Read` and `Malformed`, as the file is.
pub(super) fn open_schema(folder: &dyn Folder, name: &str) -> Result<Schema> {
    let messages = IpcMessages::open(folder, name)?;
    Ok(messages.schema.schema.as_ref().clone())
}

/// Reads the rows of a file.
pub(super) struct ArrowReader {
    table: Arc<ArrowTable>,
    file: ArrowFile,
    messages: IpcMessages,
    dictionaries: HashMap<i64, ArrayRef>,
    /// The rows that were read and not returned.
    pending: Option<RecordBatch>,
    row: u64,
    /// The bytes that were read and not counted by a batch.
    bytes: u64,
}

/// Some rows of a record batch.
struct BatchSlice {
    rows: RecordBatch,
    numbers: Vec<u64>,
    /// For each column of media, the file of each row; empty if no row names one.
    files: Vec<Vec<Option<FolderFile>>>,
    bad: Vec<BadRow>,
}

impl ArrowReader {
    /// # Errors
    /// `Read` and `Malformed` as the file is, `Column` if it has other columns than the first file.
    pub fn open(table: Arc<ArrowTable>, file: ArrowFile) -> Result<Self> {
        let messages = IpcMessages::open(table.paths.0.as_ref(), &file.name)?;
        let found = messages.schema.schema.as_ref();
        match &file.split {
            Some(_) => table.columns.check(&file.name, &with_split(&file.name, found)?)?,
            None => table.columns.check(&file.name, found)?,
        }
        Ok(Self { table, file, messages, dictionaries: HashMap::new(), pending: None, row: 0, bytes: 0 })
    }

    /// Returns the next record batch that has rows.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(pending) = self.pending.take() {
            return Ok(Some(pending));
        }
        while let Some(message) = self.messages.next()? {
            self.bytes = self.bytes.saturating_add(message.bytes);
            let batch = self.decode(&message)?;
            if let Some(batch) = batch.filter(|batch| batch.num_rows() > 0) {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    fn decode(&mut self, message: &IpcMessage) -> Result<Option<RecordBatch>> {
        let name = &self.file.name;
        let fail = |reason: String| Error::malformed(name, reason);
        let header = message.message(name)?;
        if let Some(batch) = header.header_as_record_batch() {
            let decoder = IpcDecoder::new(batch, &message.body, &self.dictionaries).map_err(fail)?;
            return decoder.record_batch(&self.messages.schema).map(Some).map_err(fail);
        }
        let Some(dictionary) = header.header_as_dictionary_batch() else {
            return Err(fail("a message is neither rows nor a dictionary".into()));
        };
        let id = dictionary.id();
        let field = find(&self.messages.schema.fields, id);
        let (Some(field), Some(batch)) = (field, dictionary.data()) else {
            return Err(fail(format!("no column has the dictionary {id}")));
        };
        let decoder = IpcDecoder::new(batch, &message.body, &self.dictionaries).map_err(fail)?;
        let mut values = decoder.dictionary(field).map_err(fail)?;
        if let (true, Some(before)) = (dictionary.isDelta(), self.dictionaries.get(&id)) {
            values = concat(&[before.as_ref(), values.as_ref()]).map_err(|error| fail(error.to_string()))?;
        }
        self.dictionaries.insert(id, values);
        let held = self.dictionaries.values().map(|values| values.get_array_memory_size() as u64);
        match held.fold(0u64, u64::saturating_add) > ROW_BYTES_MAX {
            true => Err(fail(format!("the dictionaries have more than {ROW_BYTES_MAX} bytes"))),
            false => Ok(None),
        }
    }

    /// Takes the first rows of a batch, about `bytes_max` bytes of them when they are plain, and keeps the others. Only rows
    /// that are taken become plain: a dictionary can have a large value that all rows of a batch name.
    fn slice(&mut self, batch: &RecordBatch, bytes_max: usize) -> Result<BatchSlice> {
        let sizes = plain_sizes(batch, bytes_max as u64);
        let fits: Vec<bool> = sizes.iter().map(|size| *size <= ROW_BYTES_MAX).collect();
        let rows = self.only(batch.slice(0, sizes.len()), &fits)?;
        let structs: Vec<Option<MediaStructs>> =
            self.table.media.iter().map(|column| MediaStructs::of(rows.column_by_name(column)?)).collect();
        let mut files: Vec<Vec<Option<FolderFile>>> = structs.iter().map(|_| Vec::new()).collect();
        let (mut bad, mut numbers, mut kept, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0u64);
        let mut taken = 0;
        for own in sizes {
            if bytes >= bytes_max as u64 {
                break;
            }
            let number = self.row;
            (self.row, taken) = (number.saturating_add(1), taken + 1);
            let is_small = own <= ROW_BYTES_MAX;
            let named = match is_small {
                true => self.files_of(&structs, kept.len()),
                false => Err(format!("the row has {own} bytes; the limit is {ROW_BYTES_MAX}")),
            };
            if is_small {
                kept.push(named.is_ok());
            }
            match named {
                Ok(named) => {
                    let outside = named.iter().flatten().map(|file| file.bytes);
                    bytes = outside.fold(bytes.saturating_add(own), u64::saturating_add);
                    files.iter_mut().zip(named).for_each(|(files, named)| files.push(named));
                    numbers.push(number);
                }
                Err(reason) => {
                    bytes = bytes.saturating_add(BAD_ROW_BYTES);
                    bad.push(BadRow { row: number, reason });
                }
            }
        }
        let rest = batch.num_rows() - taken;
        self.pending = (rest > 0).then(|| batch.slice(taken, rest));
        let rows = self.only(rows.slice(0, kept.len()), &kept)?;
        Ok(BatchSlice { rows, numbers, files, bad })
    }

    /// Returns the rows that are kept.
    fn only(&self, rows: RecordBatch, kept: &[bool]) -> Result<RecordBatch> {
        match kept.contains(&false) {
            true => filter_record_batch(&rows, &kept.to_vec().into())
                .map_err(|error| Error::malformed(&self.file.name, error)),
            false => Ok(rows),
        }
    }

    /// Finds the files that a row names instead of having their bytes.
    fn files_of(&self, structs: &[Option<MediaStructs>], row: usize) -> Result<Vec<Option<FolderFile>>, String> {
        let mut files = Vec::with_capacity(structs.len());
        for (column, structs) in self.table.media.iter().zip(structs) {
            let path = structs.as_ref().and_then(|structs| structs.path_instead_of_bytes(row));
            let file = path.map(|path| self.table.paths.find(&self.file.name, path)).transpose();
            files.push(file.map_err(|reason| format!("column {column}: {reason}"))?.cloned());
        }
        Ok(files)
    }

    /// Reads the files that rows name in place of their structs. Rows whose files cannot be read get a null, and are bad.
    fn with_files(&mut self, slice: &mut BatchSlice) -> Result<RecordBatch> {
        let schema = slice.rows.schema();
        let mut fields: Vec<Arc<Field>> = schema.fields().to_vec();
        let mut arrays = slice.rows.columns().to_vec();
        let mut unread = vec![false; slice.rows.num_rows()];
        let _ahead = self.table.paths.fetch_ahead(&slice.files);
        for (column, files) in self.table.media.iter().zip(&slice.files) {
            let Some((index, _)) = schema.column_with_name(column).filter(|_| files.iter().any(Option::is_some)) else {
                continue;
            };
            let structs = slice.rows.columns().get(index).and_then(MediaStructs::of);
            let mut values = MediaValues::new();
            for (row, (file, number)) in files.iter().zip(&slice.numbers).enumerate() {
                let read = match file {
                    Some(file) => values.push_file(&self.table.paths, file),
                    None => {
                        values.push(structs.as_ref().and_then(|structs| structs.bytes(row)));
                        Ok(())
                    }
                };
                match (read, file) {
                    (Ok(()), file) => {
                        self.bytes = self.bytes.saturating_add(file.as_ref().map_or(0, |file| file.bytes))
                    }
                    (Err(reason), _) => {
                        slice.bad.push(BadRow { row: *number, reason: format!("column {column}: {reason}") });
                        unread.get_mut(row).into_iter().for_each(|unread| *unread = true);
                    }
                }
            }
            if let (Some(array), Some(field)) = (arrays.get_mut(index), fields.get_mut(index)) {
                *array = Arc::new(values.finish());
                *field = Arc::new(Field::new(column, DataType::LargeBinary, true));
            }
        }
        if let Some(split) = &self.file.split {
            arrays.push(Arc::new(StringArray::from_iter_values((0..slice.rows.num_rows()).map(|_| split))));
            fields.push(Arc::new(Field::new(SPLIT, DataType::Utf8, false)));
        }
        let fail = |error| Error::malformed(&self.file.name, error);
        let options = RecordBatchOptions::new().with_row_count(Some(slice.rows.num_rows()));
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options).map_err(fail)?;
        if !unread.contains(&true) {
            return Ok(batch);
        }
        let mut rows = unread.iter();
        slice.numbers.retain(|_| !rows.next().copied().unwrap_or(true));
        let kept: Vec<bool> = unread.iter().map(|unread| !unread).collect();
        filter_record_batch(&batch, &kept.into()).map_err(fail)
    }
}

impl RowReader for ArrowReader {
    /// A batch has no rows if all rows that were read are bad.
    fn next(&mut self, bytes_max: usize) -> Result<Option<RowBatch>> {
        let Some(batch) = self.next_batch()? else { return Ok(None) };
        let mut slice = self.slice(&batch, bytes_max.clamp(1, 1 << 30))?;
        let rows = self.with_files(&mut slice)?;
        let mut bad = slice.bad;
        let batch = self.table.columns.convert(&self.file.name, &rows, &slice.numbers, &mut bad)?;
        bad.sort_by_key(|row| row.row);
        let source_bytes = std::mem::take(&mut self.bytes);
        Ok(Some(RowBatch { batch, bad, source_bytes }))
    }
}

/// Structs with the bytes or the path of a file.
struct MediaStructs {
    structs: ArrayRef,
    bytes: ArrayRef,
    path: ArrayRef,
}

impl MediaStructs {
    /// Makes plain structs of the rows of a column, all of which are in memory then.
    fn of(array: &ArrayRef) -> Option<Self> {
        let array = match array.data_type() {
            DataType::Dictionary(_, values) if matches!(**values, DataType::Struct(_)) => cast(array, values).ok()?,
            _ => array.clone(),
        };
        let structs = array.as_struct_opt()?;
        let bytes = cast(structs.column_by_name("bytes")?, &DataType::LargeBinary).ok()?;
        let path = cast(structs.column_by_name("path")?, &DataType::LargeUtf8).ok()?;
        Some(Self { structs: array, bytes, path })
    }

    fn bytes(&self, row: usize) -> Option<&[u8]> {
        let bytes = self.bytes.as_binary_opt::<i64>()?;
        (self.structs.is_valid(row) && bytes.is_valid(row)).then(|| bytes.value(row))
    }

    /// The path of a row that has one, and no bytes.
    fn path_instead_of_bytes(&self, row: usize) -> Option<&str> {
        let path = self.path.as_string_opt::<i64>()?;
        (self.structs.is_valid(row) && self.bytes(row).is_none() && path.is_valid(row)).then(|| path.value(row))
    }
}

/// Returns the sizes of the first rows when they are plain: about `bytes_max` bytes of rows that fit memory, and at least one
/// row.
fn plain_sizes(batch: &RecordBatch, bytes_max: u64) -> Vec<u64> {
    let (mut sizes, mut bytes) = (Vec::new(), 0u64);
    while sizes.len() < batch.num_rows().min(NUM_ROWS_MAX) && bytes < bytes_max {
        let own = row_bytes(batch, sizes.len());
        bytes = bytes.saturating_add(if own <= ROW_BYTES_MAX { own } else { BAD_ROW_BYTES });
        sizes.push(own);
    }
    sizes
}

/// Returns the column with a dictionary.
fn find(fields: &[IpcField], dictionary: i64) -> Option<&IpcField> {
    fields.iter().find_map(|field| match field.dictionary == Some(dictionary) {
        true => Some(field),
        false => find(&field.children, dictionary),
    })
}
