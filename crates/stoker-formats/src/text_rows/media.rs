//! The columns of a text file, some of which are paths of media.

use std::sync::Arc;

use arrow::compute::filter_record_batch;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_columns::ingest;

use super::column::{TextColumn, TextType};
use crate::media_paths::{MediaPaths, MediaValues};
use crate::table_columns::{SourceColumn, TableColumns, check_media_options, declared_media};
use crate::{BadRow, Error, Folder, FolderFile, FormatOptions, Result};

/// The columns of text files, and the table that they become.
#[derive(Debug)]
pub(crate) struct TextTable {
    text_type: TextType,
    paths: MediaPaths,
    /// The indexes of the columns of media.
    media: Vec<usize>,
    /// The columns with the bytes of media instead of paths.
    read: SchemaRef,
    columns: TableColumns,
}

/// Rows with the bytes of media, and their numbers.
pub(super) struct MediaRows {
    batch: RecordBatch,
    numbers: Vec<u64>,
}

impl TextTable {
    /// Plans the columns of files, the first of which is `file`. Columns that the options call media are paths.
    ///
    /// # Errors
    /// `InvalidOption` for options that do not fit the columns.
    pub fn new(folder: Arc<dyn Folder>, fields: Vec<(String, TextType)>, options: &FormatOptions) -> Result<Self> {
        let plain = fields.iter().map(|(name, inner)| Field::new(name, inner.data_type(), true));
        let plain = Schema::new(plain.collect::<Vec<_>>());
        check_media_options(&plain, options)?;
        let (mut media, mut read, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for (index, field) in plain.fields().iter().enumerate() {
            let declared = declared_media(field, options);
            if declared.is_some() {
                check_paths(field)?;
                media.push(index);
            }
            let data_type = if declared.is_some() { DataType::LargeBinary } else { field.data_type().clone() };
            let field = Field::new(field.name(), data_type, true);
            let ingest = declared.unwrap_or_else(|| ingest(&plain, &field, false));
            columns.push(SourceColumn { source: field.name().clone(), ingest });
            read.push(field);
        }
        let (paths, read) = (MediaPaths(folder), Arc::new(Schema::new(read)));
        Ok(Self { text_type: TextType::Struct(fields), paths, media, read, columns: TableColumns::new(columns) })
    }

    /// The columns of the table.
    pub fn schema(&self) -> SchemaRef {
        self.columns.schema.clone()
    }

    pub fn folder(&self) -> &dyn Folder {
        self.paths.0.as_ref()
    }

    /// The names and types of the columns.
    pub fn fields(&self) -> &[(String, TextType)] {
        match &self.text_type {
            TextType::Struct(fields) => fields,
            _ => &[],
        }
    }

    pub fn empty_columns(&self) -> TextColumn {
        TextColumn::new(self.text_type.clone())
    }

    pub(super) fn empty_files(&self) -> Vec<Vec<Option<FolderFile>>> {
        self.media.iter().map(|_| Vec::new()).collect()
    }

    /// Finds the files that the last row names, and returns their size.
    ///
    /// # Errors
    /// The reason, with the path.
    pub(super) fn find_files(
        &self,
        beside: &str,
        rows: &TextColumn,
        files: &mut [Vec<Option<FolderFile>>],
    ) -> Result<usize, String> {
        let mut bytes = 0u64;
        for (column, files) in self.media.iter().zip(files) {
            let path = rows.fields().get(*column).and_then(TextColumn::last_text);
            let file = path.map(|path| self.paths.find(beside, path)).transpose();
            let file = file.map_err(|reason| format!("column {}: {reason}", self.name(*column)))?;
            bytes = bytes.saturating_add(file.map_or(0, |file| file.bytes));
            files.push(file.cloned());
        }
        Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Reads the files of rows in place of their paths. Rows whose files cannot be read are left out.
    ///
    /// # Errors
    /// `Malformed` if the columns are no record batch, which is a bug.
    pub(super) fn with_media(
        &self,
        rows: ArrayRef,
        numbers: &[u64],
        files: &[Vec<Option<FolderFile>>],
        bad: &mut Vec<BadRow>,
    ) -> Result<MediaRows> {
        let mut arrays: Vec<ArrayRef> = rows.as_struct_opt().map(|rows| rows.columns().to_vec()).unwrap_or_default();
        let mut good = vec![true; rows.len()];
        let _ahead = self.paths.fetch_ahead(files);
        for (column, files) in self.media.iter().zip(files) {
            let mut values = MediaValues::new();
            for ((file, number), good) in files.iter().zip(numbers).zip(&mut good) {
                let read = match file {
                    Some(file) if *good => values.push_file(&self.paths, file),
                    _ => {
                        values.push(None);
                        Ok(())
                    }
                };
                if let Err(reason) = read {
                    *good = false;
                    bad.push(BadRow { row: *number, reason: format!("column {}: {reason}", self.name(*column)) });
                }
            }
            if let Some(array) = arrays.get_mut(*column) {
                *array = Arc::new(values.finish());
            }
        }
        let internal = |error| Error::malformed("the rows", error);
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let mut batch = RecordBatch::try_new_with_options(self.read.clone(), arrays, &options).map_err(internal)?;
        let mut numbers = numbers.to_vec();
        if good.contains(&false) {
            let mut kept = good.iter();
            numbers.retain(|_| kept.next().copied().unwrap_or(false));
            batch = filter_record_batch(&batch, &BooleanArray::from(good)).map_err(internal)?;
        }
        Ok(MediaRows { batch, numbers })
    }

    /// Converts rows to the columns of the table.
    ///
    /// # Errors
    /// `Column` if no value of a column fits.
    pub(super) fn convert(&self, file: &str, rows: MediaRows, bad: &mut Vec<BadRow>) -> Result<RecordBatch> {
        self.columns.convert(file, &rows.batch, &rows.numbers, bad)
    }

    fn name(&self, column: usize) -> &str {
        self.fields().get(column).map_or("", |(name, _)| name)
    }
}

fn check_paths(field: &Field) -> Result<()> {
    if *field.data_type() == DataType::Utf8 {
        return Ok(());
    }
    let reason = format!("column {} should have paths of files, and has {}", field.name(), field.data_type());
    Err(Error::InvalidOption { option: "--image, --video or --audio".into(), reason })
}
