//! Delimited text: CSV (RFC 4180), and the same with tabs (TSV). The first record names the columns.
//!
//! ```text
//! TextFile ──DelimitedRecords──► records ──sample──► ValueKinds of each column ──► TextType
//!                          └──values──► TextColumn ──► TextReader: batches, media
//! ```
//!
//! The type of a column is the first of boolean, `int64`, `float64`, date, timestamp and text that holds all values of the
//! sample without a change: numbers with leading zeros are text. A field without characters is null, but one with quotes in
//! a column of text is empty text. Later values that are not of the type are bad rows.

mod records;
mod sample;
mod values;

use std::sync::Arc;

use arrow_schema::SchemaRef;

use self::records::{DelimitedRecord, DelimitedRecords, RecordEnd};
use self::sample::{header, sample};
use self::values::push;
use crate::text_file::{TextFile, has_ending, named};
use crate::text_rows::{SAMPLED_ROWS_DEFAULT, TextColumn, TextReader, TextRow, TextSource, TextTable, TextValues};
use crate::{Error, FileFormat, Folder, FormatOptions, Result, RowFiles, RowReader};

/// The memory of a value of a fixed width, with its validity.
const VALUE_BYTES: usize = 9;

/// The format of text files whose records have fields between commas or tabs.
#[derive(Clone, Copy, Debug)]
pub struct DelimitedText;

impl FileFormat for DelimitedText {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn recognise(&self, folder: &dyn Folder) -> Option<Vec<String>> {
        named(folder, &[".csv", ".tsv"])
    }

    fn plan(&self, folder: Arc<dyn Folder>, files: Vec<String>, options: &FormatOptions) -> Result<Box<dyn RowFiles>> {
        let sampled_rows = if options.sampled_rows == 0 { SAMPLED_ROWS_DEFAULT } else { options.sampled_rows };
        let fields = sample(folder.as_ref(), &files, sampled_rows)?;
        let table = Arc::new(TextTable::new(folder, fields, options)?);
        Ok(Box::new(DelimitedFiles { files, table }))
    }
}

/// The byte between the fields of a file: a tab if its name ends with `.tsv`, else a comma.
fn delimiter(name: &str) -> u8 {
    if has_ending(name, &[".tsv"]) { b'\t' } else { b',' }
}

/// Delimited text files with the same columns.
#[derive(Debug)]
struct DelimitedFiles {
    files: Vec<String>,
    table: Arc<TextTable>,
}

impl RowFiles for DelimitedFiles {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn files(&self) -> &[String] {
        &self.files
    }

    fn read(&self, file: usize) -> Result<Box<dyn RowReader>> {
        let name = self.files.get(file).map_or("", String::as_str);
        let mut records = DelimitedRecords::new(TextFile::open(self.table.folder(), name)?, delimiter(name));
        let columns = self.columns(name, &header(&mut records)?)?;
        let source = DelimitedSource { records, record: DelimitedRecord::default(), columns };
        Ok(Box::new(TextReader::new(source, self.table.clone())))
    }
}

impl DelimitedFiles {
    /// Returns the column of each field of a file.
    fn columns(&self, file: &str, header: &[String]) -> Result<Vec<usize>> {
        let fields = self.table.fields();
        let fail = |column: &str, reason: &str| {
            Err(Error::Column { file: file.into(), column: column.into(), reason: reason.into() })
        };
        if let Some((missing, _)) = fields.iter().find(|(name, _)| !header.contains(name)) {
            return fail(missing, "the header does not have this column of the first file");
        }
        let mut columns = Vec::with_capacity(header.len());
        for name in header {
            let Some(column) = fields.iter().position(|(field, _)| field == name) else {
                return fail(name, "the header of the first file does not have this column");
            };
            columns.push(column);
        }
        Ok(columns)
    }
}

/// The records of a file as rows.
#[derive(Debug)]
struct DelimitedSource {
    records: DelimitedRecords,
    record: DelimitedRecord,
    /// The column of each field.
    columns: Vec<usize>,
}

impl DelimitedSource {
    fn add(&self, end: &RecordEnd, columns: &mut TextColumn) -> Result<usize, String> {
        if let Some(reason) = end.problem(self.columns.len()) {
            return Err(reason);
        }
        let TextValues::Struct { fields, .. } = &mut columns.values else {
            return Err("the table has no columns".into());
        };
        for (field, column) in self.columns.iter().enumerate() {
            let Some(column) = fields.get_mut(*column) else { continue };
            let name = || format!("field {}", field.saturating_add(1));
            let text = std::str::from_utf8(self.record.field(field)).map_err(|_| format!("{} is not UTF-8", name()))?;
            push(column, text, self.record.is_quoted(field)).map_err(|reason| format!("{}: {reason}", name()))?;
        }
        columns.valid.push(true);
        Ok(self.record.len().saturating_add(self.columns.len().saturating_mul(VALUE_BYTES)))
    }
}

impl TextSource for DelimitedSource {
    fn name(&self) -> &str {
        self.records.name()
    }

    fn position(&self) -> u64 {
        self.records.position()
    }

    fn next_row(&mut self, columns: &mut TextColumn) -> Result<TextRow> {
        let num_fields = self.columns.len();
        let Some(end) = self.records.next(&mut self.record, num_fields)? else { return Ok(TextRow::End) };
        Ok(match self.add(&end, columns) {
            Ok(bytes) => TextRow::Added(bytes),
            Err(reason) => TextRow::Bad(format!("line {}: {reason}", end.line)),
        })
    }
}

#[cfg(test)]
mod tests;
