//! How the columns of files become the columns of a table.

use std::sync::Arc;

use arrow::compute::filter_record_batch;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_columns::{Conversion, Ingest, Mismatch, encoded_image, encoded_video, kind_of};

use crate::{BadRow, Error, FormatOptions, Result};

/// A column of a table, and the column of the files from which it is made.
#[derive(Clone, Debug)]
pub struct SourceColumn {
    /// The name of the files' column. Several columns of a table can be made from one.
    pub source: String,
    /// The column of the table, and the conversion of values.
    pub ingest: Ingest,
}

/// The columns of a table.
#[derive(Clone, Debug)]
pub(crate) struct TableColumns {
    pub columns: Vec<SourceColumn>,
    pub schema: SchemaRef,
}

impl TableColumns {
    /// Takes the columns in their order. Columns whose conversions keep nulls are nullable: later files can have some.
    pub fn new(mut columns: Vec<SourceColumn>) -> Self {
        for SourceColumn { ingest, .. } in &mut columns {
            if ingest.conversion.keeps_nulls() {
                ingest.field = ingest.field.clone().with_nullable(true);
            }
        }
        let fields: Vec<Field> = columns.iter().map(|column| column.ingest.field.clone()).collect();
        Self { columns, schema: Arc::new(Schema::new(fields)) }
    }

    /// Checks that a file has the columns, and no others.
    ///
    /// # Errors
    /// `Column` with the first column that differs.
    pub fn check(&self, file: &str, found: &Schema) -> Result<()> {
        let fail =
            |column: &str, reason: String| Err(Error::Column { file: file.into(), column: column.into(), reason });
        for SourceColumn { source, ingest } in &self.columns {
            let Ok(field) = found.field_with_name(source) else {
                return fail(source, "the file does not have this column of the first file".into());
            };
            if !ingest.conversion.accepts(&ingest.field, field.data_type()) {
                let expected = ingest.conversion.expected(&ingest.field);
                return fail(source, format!("expected {expected}, found {}", field.data_type()));
            }
        }
        let is_known = |field: &Field| self.columns.iter().any(|column| column.source == *field.name());
        match found.fields().iter().find(|field| !is_known(field)) {
            Some(other) => fail(other.name(), "the first file does not have this column".into()),
            None => Ok(()),
        }
    }

    /// Converts rows of a file, which have the numbers `rows`. Rows with values that do not fit are added to `bad` and
    /// left out.
    ///
    /// # Errors
    /// `Column` if no value of a column fits.
    pub fn convert(&self, file: &str, batch: &RecordBatch, rows: &[u64], bad: &mut Vec<BadRow>) -> Result<RecordBatch> {
        let first = match self.try_convert(batch) {
            Ok(converted) => return Ok(converted),
            Err(first) => first,
        };
        let mut good = Vec::with_capacity(batch.num_rows());
        let mut has_value_error = false;
        for (index, row) in rows.iter().take(batch.num_rows()).enumerate() {
            let fits = match self.try_convert(&batch.slice(index, 1)) {
                Ok(_) => true,
                Err((column, wrong)) => {
                    has_value_error |= wrong.row.is_some();
                    bad.push(BadRow { row: *row, reason: format!("column {column}: {wrong}") });
                    false
                }
            };
            good.push(fits);
        }
        let fail = |(column, reason): (String, String)| Error::Column { file: file.into(), column, reason };
        if !good.contains(&true) && !has_value_error {
            return Err(fail((first.0, first.1.to_string())));
        }
        let kept = filter_record_batch(batch, &BooleanArray::from(good));
        let kept = kept.map_err(|error| Error::malformed(file, error))?;
        self.try_convert(&kept).map_err(|(column, wrong)| fail((column, wrong.to_string())))
    }

    fn try_convert(&self, batch: &RecordBatch) -> Result<RecordBatch, (String, Mismatch)> {
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for SourceColumn { source, ingest: Ingest { field, conversion } } in &self.columns {
            let converted = match batch.column_by_name(source) {
                Some(array) => converted(field, conversion.as_ref(), array),
                None => Err(mismatch(None, "the column", "no such column")),
            };
            arrays.push(converted.map_err(|wrong| (source.clone(), wrong))?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|error| ("*".into(), mismatch(None, "values of the columns' types", &error.to_string())))
    }
}

fn converted(field: &Field, conversion: &dyn Conversion, array: &ArrayRef) -> Result<ArrayRef, Mismatch> {
    let converted = conversion.convert(field, array)?;
    kind_of(field).check(field, &converted)?;
    if !field.is_nullable() && converted.null_count() > 0 {
        let row = (0..converted.len()).find(|row| converted.is_null(*row));
        return Err(mismatch(row, "a value", "null"));
    }
    Ok(converted)
}

/// Makes the error of a value, or of all values.
pub(crate) fn mismatch(row: Option<usize>, expected: &str, found: &str) -> Mismatch {
    Mismatch { row, expected: expected.into(), found: found.into() }
}

/// How the options say that a column is ingested: as images, videos or sounds, which are the bytes of files.
pub(crate) fn declared_media(field: &Field, options: &FormatOptions) -> Option<Ingest> {
    let is_in = |names: &[String]| names.contains(field.name());
    match () {
        () if is_in(&options.images) => Some(encoded_image::declared(field)),
        () if is_in(&options.videos) => Some(encoded_video::declared(field)),
        () if is_in(&options.audio) => Some(audio(field)),
        () => None,
    }
}

/// How a column of binary values, or of structs with the field `bytes`, becomes a column of plain bytes.
pub(crate) fn audio(field: &Field) -> Ingest {
    let plain = Field::new(field.name(), DataType::LargeBinary, field.is_nullable());
    Ingest { field: plain, conversion: encoded_image::declared(field).conversion }
}

/// Checks that the options name columns that exist, each once.
///
/// # Errors
/// `InvalidOption` with the option that does not fit.
pub(crate) fn check_media_options(schema: &Schema, options: &FormatOptions) -> Result<()> {
    let images = options.images.iter().map(|name| ("--image", name));
    let videos = options.videos.iter().map(|name| ("--video", name));
    let audio = options.audio.iter().map(|name| ("--audio", name));
    let mut seen: Vec<&String> = Vec::new();
    for (option, name) in images.chain(videos).chain(audio) {
        let fail = |reason: String| Err(Error::InvalidOption { option: option.into(), reason });
        if schema.field_with_name(name).is_err() {
            let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            return fail(format!("there is no column {name}; columns: {}", names.join(", ")));
        }
        if seen.contains(&name) {
            return fail(format!("column {name} is declared twice"));
        }
        seen.push(name);
    }
    Ok(())
}
