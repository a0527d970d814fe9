//! Decides how each column is converted.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use stoker_columns::{Ingest, Mismatch, encoded_image, encoded_video, ingest, tensor, vector};

use super::source::ParquetFile;
use crate::{Error, ParquetOptions, Result};

/// The columns of the table, in order.
#[derive(Clone, Debug)]
pub(super) struct Columns(pub Vec<Ingest>);

impl Columns {
    /// Plans the columns: those of the first file that the options select, checked against all other files.
    pub fn plan(files: &[ParquetFile], options: &ParquetOptions) -> Result<Self> {
        let Some(first) = files.first() else { return Ok(Self(Vec::new())) };
        let schema = &first.schema;
        check_names(schema, options)?;
        let wanted = |field: &&Arc<Field>| {
            (options.columns.is_empty() || options.columns.contains(field.name()))
                && !options.drop.contains(field.name())
        };
        let columns: Result<Vec<Ingest>> =
            schema.fields().iter().filter(wanted).map(|field| column(first, field, options)).collect();
        let mut columns = columns?;
        if columns.is_empty() {
            return Err(Error::option("--columns", "no column is left"));
        }
        for file in files {
            for column in &mut columns {
                check_file(file, column)?;
            }
        }
        Ok(Self(columns))
    }

    /// Returns the columns with these names, in the order of the table.
    pub fn only(&self, names: &[String]) -> Self {
        Self(self.0.iter().filter(|column| names.contains(column.field.name())).cloned().collect())
    }

    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.0.iter().map(|column| column.field.clone()).collect::<Vec<_>>()))
    }
}

/// Checks that every name in the options is a column, and that at most one declaration concerns each column.
fn check_names(schema: &Schema, options: &ParquetOptions) -> Result<()> {
    let tensors = options.tensors.iter().map(|spec| ("--tensor", &spec.column));
    let vectors = options.vectors.iter().map(|spec| ("--vector", &spec.column));
    let images = options.images.iter().map(|column| ("--image", column));
    let videos = options.videos.iter().map(|column| ("--video", column));
    let as_is = options.as_is.iter().map(|column| ("--as-is", column));
    let declared: Vec<_> = tensors.chain(vectors).chain(images).chain(videos).chain(as_is).collect();
    let columns = options.columns.iter().map(|column| ("--columns", column));
    let drop = options.drop.iter().map(|column| ("--drop", column));
    for (option, column) in declared.iter().copied().chain(columns).chain(drop) {
        if schema.field_with_name(column).is_err() {
            let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(Error::option(option, format!("there is no column {column}; columns: {}", names.join(", "))));
        }
    }
    let mut seen = HashSet::new();
    match declared.iter().find(|(_, column)| !seen.insert(*column)) {
        Some((option, column)) => Err(Error::option(option, format!("column {column} is declared twice"))),
        None => Ok(()),
    }
}

/// Decides how a column is converted: as the options declare it, or as its kind is ingested.
fn column(file: &ParquetFile, field: &Field, options: &ParquetOptions) -> Result<Ingest> {
    let name = field.name();
    if let Some(declared) = options.tensors.iter().find(|tensor| tensor.column == *name) {
        return Ok(tensor::declared(name, &declared.spec));
    }
    if let Some(declared) = options.vectors.iter().find(|vector| vector.column == *name) {
        return vector::declared(field, declared.length).map_err(|wrong| mismatch(file, name, wrong));
    }
    if options.images.contains(name) {
        return Ok(encoded_image::declared(field));
    }
    if options.videos.contains(name) {
        return Ok(encoded_video::declared(field));
    }
    Ok(ingest(&file.schema, field, !options.as_is.contains(name)))
}

/// Checks that a file has the column with its type. Makes the column nullable if it is nullable in this file.
fn check_file(file: &ParquetFile, column: &mut Ingest) -> Result<()> {
    let name = column.field.name().clone();
    let fail = |expected: String, found: String| Err(mismatch(file, &name, Mismatch { row: None, expected, found }));
    let Ok(found) = file.schema.field_with_name(&name) else {
        return fail("the columns of the first file".into(), "no such column".into());
    };
    if !column.conversion.accepts(&column.field, found.data_type()) {
        return fail(column.conversion.expected(&column.field), found.data_type().to_string());
    }
    if column.conversion.keeps_nulls() && found.is_nullable() {
        column.field = column.field.clone().with_nullable(true);
    }
    Ok(())
}

fn mismatch(file: &ParquetFile, column: &str, wrong: Mismatch) -> Error {
    let Mismatch { row: _, expected, found } = wrong;
    Error::Mismatch { path: file.path.clone(), row: None, column: column.into(), expected, found }
}
