//! JSON Lines: a text file with one JSON object per line, each of which is a row (<https://jsonlines.org>).
//!
//! ```text
//! TextFile ──Lines──► lines ──sample──► JsonShape, merged over rows ──► TextType of each field
//!                       └──append──► TextColumn ──► TextReader: batches, media
//! ```
//!
//! Types are found from the first rows: numbers are `int64`, `uint64` or `float64`, objects become structs, and arrays
//! lists. Text that looks like a date stays text. A field that has no value in the sample is text. A later value that does
//! not fit is a bad row: no value is changed to fit.

mod append;
mod lines;
mod sample;
mod shape;

use std::io::BufRead as _;
use std::sync::Arc;

use arrow_schema::SchemaRef;

pub(crate) use lines::JsonLinesSource;

use self::lines::is_object;
use self::sample::sample;
use crate::text_file::{TextFile, has_ending, named};
use crate::text_rows::{SAMPLED_ROWS_DEFAULT, TextReader, TextTable};
use crate::{FileFormat, Folder, FormatOptions, Result, RowFiles, RowReader};

/// The number of bytes at the beginning of a `.json` file in which its first lines should be.
const JSON_HEAD_BYTES: usize = 256 << 10;

/// The format of text files with one JSON object per line.
#[derive(Clone, Copy, Debug)]
pub struct JsonLines;

impl FileFormat for JsonLines {
    fn name(&self) -> &'static str {
        "jsonl"
    }

    /// Files that end with `.jsonl` or `.ndjson`. If there are none, those that end with `.json` and whose first two lines
    /// are objects: other files with that ending are settings, or one object over many lines.
    fn recognise(&self, folder: &dyn Folder) -> Option<Vec<String>> {
        named(folder, &[".jsonl", ".ndjson"]).or_else(|| {
            let named = folder.files().iter().filter(|file| has_ending(&file.name, &[".json"]));
            let files = named.filter(|file| begins_with_objects(folder, &file.name));
            let files: Vec<String> = files.map(|file| file.name.clone()).collect();
            (!files.is_empty()).then_some(files)
        })
    }

    fn plan(&self, folder: Arc<dyn Folder>, files: Vec<String>, options: &FormatOptions) -> Result<Box<dyn RowFiles>> {
        let sampled_rows = if options.sampled_rows == 0 { SAMPLED_ROWS_DEFAULT } else { options.sampled_rows };
        let fields = sample(folder.as_ref(), &files, sampled_rows)?;
        let table = Arc::new(TextTable::new(folder, fields, options)?);
        Ok(Box::new(JsonLinesFiles { files, table }))
    }
}

/// Whether the first two lines of a file that are not blank are objects.
fn begins_with_objects(folder: &dyn Folder, name: &str) -> bool {
    let Ok(mut file) = TextFile::open(folder, name) else { return false };
    let head = file.fill_buf().unwrap_or_default();
    let head = head.get(..head.len().min(JSON_HEAD_BYTES)).unwrap_or_default();
    let lines = head.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let mut checked = lines.take(2).map(is_object);
    matches!((checked.next(), checked.next()), (Some(true), Some(true)))
}

/// Files of JSON Lines with the same columns.
#[derive(Debug)]
struct JsonLinesFiles {
    files: Vec<String>,
    table: Arc<TextTable>,
}

impl RowFiles for JsonLinesFiles {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn files(&self) -> &[String] {
        &self.files
    }

    fn read(&self, file: usize) -> Result<Box<dyn RowReader>> {
        let name = self.files.get(file).map_or("", String::as_str);
        let source = JsonLinesSource::new(TextFile::open(self.table.folder(), name)?);
        Ok(Box::new(TextReader::new(source, self.table.clone())))
    }
}

#[cfg(test)]
mod tests;
