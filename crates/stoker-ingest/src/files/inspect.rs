//! Tells what an ingest of files would write.

use std::path::PathBuf;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use stoker_columns::with_index_columns;
use stoker_formats::{FORMATS, RowBatch};

use super::convert::convert;
use super::decode::numbered;
use super::options::FilesOptions;
use super::plan::{FilePlan, Formats};
use crate::compress::written_schema;
use crate::inspection::{ROWS_MAX, scaled, value_bytes};
use crate::job::{blocking, catch_panic};
use crate::{Error, Inspection, OnError, Result, Skipped};

/// The most files that are read.
const FILES_MAX: usize = 16;
/// The bytes of rows that are asked of a format.
const BATCH_BYTES: usize = 1 << 20;

/// Tells what [`crate::ingest_files`] would write: reads the first rows of the sources, about 1 MiB of them.
///
/// # Errors
/// Those of [`crate::ingest_files`] about sources, options and columns. Rows that do not fit are no errors.
pub async fn inspect_files(sources: &[PathBuf], options: &FilesOptions) -> Result<Inspection> {
    inspect_with(sources, options, &FORMATS).await
}

/// Tells what an ingest of files of one of the given formats would write.
pub(crate) async fn inspect_with(sources: &[PathBuf], options: &FilesOptions, formats: Formats) -> Result<Inspection> {
    let (sources, options) = (sources.to_vec(), options.clone());
    blocking("looking at files", move || {
        let plan = FilePlan::new(&sources, &options, formats)?;
        inspect(&plan, &options)
    })
    .await
}

/// The rows that were read, and the bytes that they took.
#[derive(Default)]
struct FirstRows {
    batches: Vec<RecordBatch>,
    num_rows: usize,
    /// The bytes of the values, and of the files from which they were read. Both also count rows that are not shown.
    value_bytes: u64,
    source_bytes: u64,
    skipped: Vec<Skipped>,
}

fn inspect(plan: &FilePlan, options: &FilesOptions) -> Result<Inspection> {
    let files = plan.files();
    let bytes: u64 = files.iter().map(|file| file.stamp.bytes).sum();
    let schema = written_schema(&plan.schema, &options.compress, None)?;
    let schema = with_index_columns(&schema).map_err(|reason| Error::option("--video", reason))?;
    let mut first = FirstRows { skipped: plan.skipped.clone(), ..FirstRows::default() };
    for file in 0..files.len().min(FILES_MAX) {
        match first.read(plan, file) {
            Err(Error::Unreadable { path, reason }) if options.on_error == OnError::Skip => {
                first.skipped.push(Skipped::file(&path, reason));
            }
            read => read?,
        }
        if first.num_rows >= ROWS_MAX {
            break;
        }
    }
    let rows = concat_batches(&plan.schema, &first.batches);
    Ok(Inspection {
        kind: plan.format.into(),
        files: files.len() as u64,
        bytes,
        schema,
        rows: rows.map_err(|source| Error::internal("gathering rows of files", source))?,
        skipped: first.skipped,
        left_out: plan.left_out(),
        table_bytes: scaled(first.value_bytes, bytes, first.source_bytes),
    })
}

impl FirstRows {
    /// Adds the first rows of a file.
    fn read(&mut self, plan: &FilePlan, file: usize) -> Result<()> {
        let path = plan.path(file);
        let read = || plan.rows.read(file)?.next(BATCH_BYTES);
        let rows = catch_panic(
            || read().map_err(|error| plan.error(error)),
            |reason| Error::Unreadable { path: path.clone(), reason },
        )?;
        let Some(RowBatch { batch, mut bad, source_bytes }) = rows else { return Ok(()) };
        let converted = convert(&plan.columns, &plan.schema, &batch).map_err(|wrong| wrong.of(&path))?;
        if let Some(fault) = plan.folder.fault() {
            return Err(fault);
        }
        bad.extend(numbered(0, &bad, converted.bad));
        bad.sort_by_key(|bad| bad.row);
        self.skipped.extend(bad.into_iter().map(|bad| Skipped::row(&path, bad.row, bad.reason)));
        self.value_bytes += value_bytes(&converted.batch);
        self.source_bytes += source_bytes;
        let rows = converted.batch.num_rows().min(ROWS_MAX - self.num_rows);
        self.num_rows += rows;
        self.batches.push(converted.batch.slice(0, rows));
        Ok(())
    }
}
