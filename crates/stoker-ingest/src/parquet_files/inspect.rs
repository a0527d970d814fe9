//! Tells what an ingest of Parquet files would write.

use std::path::PathBuf;

use arrow_array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use stoker_columns::with_index_columns;

use super::column::Columns;
use super::convert::convert;
use super::footer::read_footer;
use super::plan;
use super::source::ParquetFile;
use crate::compress::written_schema;
use crate::inspection::{ROWS_MAX, scaled, value_bytes};
use crate::job::{blocking, catch_panic};
use crate::stamp::StampError;
use crate::{Error, Inspection, ParquetOptions, Result};

/// Tells what [`crate::ingest_parquet`] would write: reads the footers of the files, and the first rows.
///
/// # Errors
/// Those of [`crate::ingest_parquet`] about files, options, columns and the first rows.
pub async fn inspect_parquet(files: &[PathBuf], options: &ParquetOptions) -> Result<Inspection> {
    let (files, options) = (files.to_vec(), options.clone());
    blocking("looking at Parquet files", move || {
        let (sources, columns, options) = plan(&files, options)?;
        let schema = written_schema(&columns.schema(), &options.compress, None)?;
        let schema = with_index_columns(&schema).map_err(|reason| Error::option("--video", reason))?;
        let rows = match sources.files.iter().find(|file| num_rows(file) > 0) {
            Some(file) => first_rows(file, &columns)?,
            None => RecordBatch::new_empty(columns.schema()),
        };
        let all_rows: u64 = sources.files.iter().map(num_rows).sum();
        let sample_rows = rows.num_rows() as u64;
        Ok(Inspection {
            kind: "parquet".into(),
            files: (sources.files.len() + sources.skipped.len()) as u64,
            bytes: sources.files.iter().map(|file| file.stamp.bytes).sum(),
            schema,
            table_bytes: if sample_rows == 0 { 0 } else { scaled(value_bytes(&rows), all_rows, sample_rows) },
            rows,
            skipped: sources.skipped.clone(),
            left_out: sources.left_out.clone(),
        })
    })
    .await
}

fn num_rows(file: &ParquetFile) -> u64 {
    file.row_groups.iter().map(|group| group.rows).sum()
}

/// Reads the first rows of a file.
fn first_rows(file: &ParquetFile, columns: &Columns) -> Result<RecordBatch> {
    let unreadable = |reason: String| Error::Unreadable { path: file.path.clone(), reason };
    let unusable = |error: StampError| match error {
        StampError::Changed(change) => Error::Changed { path: file.path.clone(), change },
        StampError::Io(error) => unreadable(error.to_string()),
        StampError::Unreachable(reason) => Error::Unreachable { path: file.path.clone(), reason },
    };
    let opened = file.place.open(&file.path, &file.stamp).map_err(unusable)?;
    let watched = opened.try_clone().map_err(|error| unreadable(error.to_string()))?;
    let footer = read_footer(&opened).map_err(unreadable)?;
    let schema = columns.schema();
    let fields = footer.schema().fields().iter().enumerate();
    let roots = fields.filter(|(_, field)| schema.field_with_name(field.name()).is_ok()).map(|(index, _)| index);
    let mask = ProjectionMask::roots(footer.parquet_schema(), roots.collect::<Vec<_>>());
    let read = || {
        let mut reader = ParquetRecordBatchReaderBuilder::new_with_metadata(opened, footer)
            .with_projection(mask)
            .with_limit(ROWS_MAX)
            .with_batch_size(ROWS_MAX)
            .build()
            .map_err(|error| error.to_string())?;
        reader.next().transpose().map_err(|error| error.to_string())
    };
    let first = catch_panic(read, |reason| reason);
    watched.check().map_err(unusable)?;
    match first.map_err(unreadable)? {
        Some(batch) => convert(columns, &schema, &batch, &file.path, 0),
        None => Ok(RecordBatch::new_empty(schema)),
    }
}
