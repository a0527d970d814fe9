//! Arrow IPC: files with a footer, also named Feather version 2, and streams
//! (<https://arrow.apache.org/docs/format/Columnar.html>).
//!
//! ```text
//! FileBytes ──IpcMessages──► metadata, body ──IpcSchema──► fields
//!                                 └──IpcDecoder──► record batch ──BatchSlice──► ≤ bytes_max, plain ──► TableColumns
//! ```
//!
//! Lengths that metadata declares are compared with the size of the file before memory is taken, and decompressed buffers
//! grow as their bytes come. Arrays are validated. Dictionaries, views and other encodings become plain values in parts of
//! the wanted size, as a small file can name a large value often.

mod array;
mod compression;
mod message;
mod reader;
mod row_bytes;
mod schema;

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use stoker_columns::ingest;

use self::reader::{ArrowReader, open_schema};
use crate::hugging_face::{HUGGING_FACE_KEY, feature_columns};
use crate::media_paths::MediaPaths;
use crate::table_columns::{SourceColumn, TableColumns, check_media_options, declared_media};
use crate::text_file::named;
use crate::{Error, FileFormat, Folder, FormatOptions, Result, RowFiles, RowReader};

/// The format of Arrow IPC files and streams.
#[derive(Clone, Copy, Debug)]
pub struct ArrowIpc;

impl FileFormat for ArrowIpc {
    fn name(&self) -> &'static str {
        "arrow"
    }

    fn recognise(&self, folder: &dyn Folder) -> Option<Vec<String>> {
        let names = named(folder, &[".arrow", ".feather", ".ipc", ".arrows"])?;
        let plain = names.into_iter().filter(|name| !name.ends_with(".gz") && !name.ends_with(".zst"));
        let plain: Vec<String> = plain.collect();
        (!plain.is_empty()).then_some(plain)
    }

    /// If the schema of the first file has features of Hugging Face's `datasets`, they decide the columns.
    fn plan(&self, folder: Arc<dyn Folder>, files: Vec<String>, options: &FormatOptions) -> Result<Box<dyn RowFiles>> {
        let files = files.into_iter().map(|name| ArrowFile { name, split: None }).collect();
        Ok(Box::new(ArrowFiles::plan(folder, files, None, options)?))
    }
}

/// A file with rows.
#[derive(Clone, Debug)]
pub(crate) struct ArrowFile {
    /// The name in the folder.
    pub name: String,
    /// The value of the column `split` in all rows.
    pub split: Option<String>,
}

/// Arrow IPC files with the same columns.
#[derive(Debug)]
pub(crate) struct ArrowFiles {
    table: Arc<ArrowTable>,
    names: Vec<String>,
    files: Vec<ArrowFile>,
}

/// The columns of Arrow IPC files, and the table that they become.
#[derive(Debug)]
pub(crate) struct ArrowTable {
    pub paths: MediaPaths,
    pub columns: TableColumns,
    /// The columns of structs with the bytes or the path of a file.
    pub media: Vec<String>,
}

/// The name of the column with the names of splits.
pub(crate) const SPLIT: &str = "split";

impl ArrowFiles {
    /// Plans the columns from the schema of the first file, and from features: those given, or those in the schema.
    ///
    /// # Errors
    /// `Malformed` and `Read` of the first file, `Column` for types that tables cannot have.
    pub fn plan(
        folder: Arc<dyn Folder>,
        files: Vec<ArrowFile>,
        features: Option<&str>,
        options: &FormatOptions,
    ) -> Result<Self> {
        let Some(first) = files.first() else { return Err(Error::malformed("", "no files are given")) };
        let mut schema = open_schema(folder.as_ref(), &first.name)?;
        let features = features.map(str::to_string).or_else(|| schema.metadata().get(HUGGING_FACE_KEY).cloned());
        if first.split.is_some() {
            schema = with_split(&first.name, &schema)?;
        }
        check_media_options(&schema, options)?;
        let mut columns = match features {
            Some(features) => feature_columns(&features, &schema).map_err(|wrong| wrong.in_file(&first.name))?,
            None => plain_columns(&schema),
        };
        if columns.is_empty() {
            return Err(Error::malformed(&first.name, "the schema has no columns"));
        }
        for column in &mut columns {
            let field = schema.field_with_name(column.ingest.field.name()).ok();
            if let Some(declared) = field.and_then(|field| declared_media(field, options)) {
                column.ingest = declared;
            }
        }
        let media = columns.iter().filter(|column| column.may_name_files()).map(|column| column.source.clone());
        let (media, columns) = (media.collect(), TableColumns::new(columns));
        columns.check(&first.name, &schema)?;
        let names = files.iter().map(|file| file.name.clone()).collect();
        let table = Arc::new(ArrowTable { paths: MediaPaths(folder), columns, media });
        Ok(Self { table, names, files })
    }
}

fn plain_columns(schema: &Schema) -> Vec<SourceColumn> {
    let column =
        |field: &Arc<Field>| SourceColumn { source: field.name().clone(), ingest: ingest(schema, field, true) };
    schema.fields().iter().map(column).collect()
}

/// Adds the column of splits.
///
/// # Errors
/// `Column` if the file has one.
pub(crate) fn with_split(file: &str, schema: &Schema) -> Result<Schema> {
    if schema.field_with_name(SPLIT).is_ok() {
        let reason = "the name is that of the column with the names of splits".into();
        return Err(Error::Column { file: file.into(), column: SPLIT.into(), reason });
    }
    let split = Arc::new(Field::new(SPLIT, arrow_schema::DataType::Utf8, false));
    let fields: Vec<Arc<Field>> = schema.fields().iter().cloned().chain([split]).collect();
    Ok(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

impl RowFiles for ArrowFiles {
    fn schema(&self) -> SchemaRef {
        self.table.columns.schema.clone()
    }

    fn files(&self) -> &[String] {
        &self.names
    }

    fn read(&self, file: usize) -> Result<Box<dyn RowReader>> {
        let Some(file) = self.files.get(file) else { return Err(Error::malformed("", "there is no such file")) };
        Ok(Box::new(ArrowReader::open(self.table.clone(), file.clone())?))
    }
}

#[cfg(test)]
mod tests;
