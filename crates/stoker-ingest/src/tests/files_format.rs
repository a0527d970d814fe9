//! A format of tests. Its files end with `.rows` and are text: a header such as `id:int,name:str`, then a row in each line.
//!
//! A `?` is a value that cannot become one, a line `!` is damage, and an empty value is null. The first file decides the
//! columns; other files may lack some of them.

use std::io::BufRead;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_formats::{
    BadRow, Error, FileFormat, Folder, FormatOptions, Result, RowBatch, RowFiles, RowReader, Sequential,
};

use crate::files::Formats;

/// The formats of tests.
pub(super) static FORMATS_OF_TESTS: [&dyn FileFormat; 1] = [&LineFormat];

pub(super) fn formats() -> Formats {
    &FORMATS_OF_TESTS
}

/// The most rows of a batch.
const BATCH_ROWS: usize = 2;

#[derive(Debug)]
struct LineFormat;

impl FileFormat for LineFormat {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn recognise(&self, folder: &dyn Folder) -> Option<Vec<String>> {
        let names = folder.files().iter().map(|file| &file.name).filter(|name| name.ends_with(".rows"));
        Some(names.cloned().collect())
    }

    fn plan(&self, folder: Arc<dyn Folder>, files: Vec<String>, _options: &FormatOptions) -> Result<Box<dyn RowFiles>> {
        let schema = header(&mut *open(&*folder, &files[0])?, &files[0])?;
        Ok(Box::new(LineFiles { folder, files, schema }))
    }
}

#[derive(Debug)]
struct LineFiles {
    folder: Arc<dyn Folder>,
    files: Vec<String>,
    schema: SchemaRef,
}

impl RowFiles for LineFiles {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn files(&self) -> &[String] {
        &self.files
    }

    fn read(&self, file: usize) -> Result<Box<dyn RowReader>> {
        let name = self.files[file].clone();
        let mut lines = open(&*self.folder, &name)?;
        let own = header(&mut *lines, &name)?;
        for field in own.fields() {
            let wrong = |reason: &str| Error::Column {
                file: name.clone(),
                column: field.name().clone(),
                reason: reason.into(),
            };
            match self.schema.field_with_name(field.name()) {
                Ok(known) if known.data_type() == field.data_type() => {}
                Ok(known) => {
                    return Err(wrong(&format!("{} in the first file, {} here", known.data_type(), field.data_type())));
                }
                Err(_) => return Err(wrong("the first file has no such column")),
            }
        }
        Ok(Box::new(LineReader { name, lines, own, schema: self.schema.clone(), row: 0 }))
    }
}

struct LineReader {
    name: String,
    lines: Box<dyn BufRead + Send>,
    own: SchemaRef,
    schema: SchemaRef,
    row: u64,
}

impl RowReader for LineReader {
    fn next(&mut self, _bytes_max: usize) -> Result<Option<RowBatch>> {
        let (mut rows, mut bad, mut source_bytes) = (Vec::new(), Vec::new(), 0);
        while rows.len() < BATCH_ROWS {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).map_err(|source| Error::read(&self.name, source))?;
            source_bytes += read as u64;
            match line.trim_end() {
                "" if read == 0 && rows.is_empty() && bad.is_empty() => return Ok(None),
                "" if read == 0 => break,
                "panic" => panic!("a line that panics"),
                "!" => return Err(Error::malformed(&self.name, format!("damage after row {}", self.row))),
                line if line.contains('?') => bad.push(BadRow { row: self.row, reason: format!("{line} is odd") }),
                line => rows.push(line.split(',').map(str::to_string).collect::<Vec<_>>()),
            }
            self.row += 1;
        }
        let column = |field: &Arc<Field>| -> ArrayRef {
            let index = self.own.index_of(field.name()).ok();
            let value = |row: &Vec<String>| index.and_then(|index| row.get(index).cloned()).filter(|v| !v.is_empty());
            let values: Vec<Option<String>> = rows.iter().map(value).collect();
            match field.data_type() {
                DataType::Int64 => {
                    Arc::new(Int64Array::from_iter(values.iter().map(|v| v.as_ref()?.parse::<i64>().ok())))
                }
                DataType::Utf8 => Arc::new(StringArray::from_iter(values)),
                _ => Arc::new(BinaryArray::from_iter(values)),
            }
        };
        let columns = self.schema.fields().iter().map(column).collect();
        Ok(Some(RowBatch { batch: RecordBatch::try_new(self.schema.clone(), columns).unwrap(), bad, source_bytes }))
    }
}

fn open(folder: &dyn Folder, name: &str) -> Result<Box<dyn BufRead + Send>> {
    let file = folder.open(name).map_err(|source| Error::read(name, source))?;
    Ok(Box::new(Sequential::new(file)))
}

fn header(lines: &mut dyn BufRead, name: &str) -> Result<SchemaRef> {
    let mut line = String::new();
    lines.read_line(&mut line).map_err(|source| Error::read(name, source))?;
    let field = |text: &str| {
        let (name, data_type) = text.rsplit_once(':')?;
        let data_type = match data_type {
            "int" => DataType::Int64,
            "str" => DataType::Utf8,
            "bin" => DataType::Binary,
            _ => return None,
        };
        Some(Field::new(name, data_type, true))
    };
    let fields: Option<Vec<Field>> = line.trim_end().split(',').map(field).collect();
    let fields = fields.ok_or_else(|| Error::malformed(name, "the header is wrong"))?;
    Ok(Arc::new(Schema::new(fields)))
}
