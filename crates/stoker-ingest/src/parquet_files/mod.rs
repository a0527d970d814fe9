//! Ingests Parquet files.

mod batch_size;
mod column;
mod convert;
mod decode;
mod footer;
mod inspect;
mod piece;
mod read;
mod schema_file;
mod source;

use std::path::PathBuf;

use stoker_columns::with_index_columns;
use stoker_lake::LakeStore;
use stoker_types::{DigestBuilder, TableName};

use crate::compress::{DICTIONARY_ROWS_BYTES, small_columns, with_dictionaries_of, written_schema};
use crate::job::{Job, blocking, existing};
use crate::place::shown;
use crate::{Error, IngestReport, Mode, ParquetOptions, Progress, Result};
use column::Columns;
pub use inspect::inspect_parquet;
use read::ParquetSource;
pub(crate) use source::EXTENSIONS as PARQUET_ENDINGS;
use source::Sources;

/// Writes Parquet files into a table, in the given order. A folder stands for all `.parquet`, `.parq` and `.pq` files
/// in it at any depth, sorted by path.
///
/// The first file determines the columns. The other files must have them too, with the same types. Types change as
/// little as possible:
///
/// - dictionaries, run-end encodings and views become the plain types that they represent, and binary becomes
///   LargeBinary
/// - FixedSizeList columns and `arrow.fixed_shape_tensor` extensions stay; they become non-null if they are tensors or
///   take more than 1,024 bytes per row
/// - `tensors` and `vectors` become non-null FixedSizeLists; every row is checked for nulls and for its length.
///   bfloat16 is stored as UInt16 with the field metadata `stoker.dtype` = `bfloat16`
/// - `images`, and structs of Hugging Face images unless they are in `as_is`, become LargeBinary with the field
///   metadata `stoker.kind` = `encoded_image`; they are not decoded
/// - `videos` become LargeBinary, and each gets an index of its frames in a column beside it; they are not decoded. A table
///   to which rows are appended decides whether its videos have indexes
///
/// Dropping the future ends the ingest like a kill: the same call continues after the last finished unit.
///
/// # Errors
/// [`Error::AlreadyExists`] in [`crate::Mode::Create`]; [`Error::InvalidOption`] for columns that do not exist;
/// [`Error::Mismatch`], which names file, row and column of a value that does not fit; [`Error::Unreadable`] unless
/// unreadable files are skipped; [`Error::Changed`] when a file is changed, replaced or removed meanwhile;
/// [`Error::Stopped`]; errors of the lake. The table does not change, except when storage failed after the commit.
pub async fn ingest_parquet(
    lake: &LakeStore,
    files: &[PathBuf],
    table: &TableName,
    options: &ParquetOptions,
    progress: &dyn Progress,
) -> Result<IngestReport> {
    let (sources, columns, options) = {
        let (files, options) = (files.to_vec(), options.clone());
        blocking("listing Parquet files", move || plan(&files, options)).await?
    };
    let mut digest = DigestBuilder::new("stoker ingest parquet 1").part(table.as_str().as_bytes());
    let json = serde_json::to_vec(&options).map_err(|source| Error::internal("describing the ingest", source))?;
    digest.update(&json);
    sources.add_to(&mut digest);
    let appended_to = match options.mode {
        Mode::Append => existing(lake, table).await?.map(|table| table.schema()),
        Mode::Create | Mode::Overwrite => None,
    };
    let schema = written_schema(&columns.schema(), &options.compress, appended_to.as_deref())?;
    let schema = match appended_to {
        Some(_) => schema,
        None => with_index_columns(&schema).map_err(|reason| Error::option("--video", reason))?,
    };
    let skipped = sources.skipped.clone();
    let left_out = sources.left_out.clone();
    let source = ParquetSource { sources, columns, unit_bytes: options.unit_bytes };
    let small = small_columns(&schema);
    let schema = match appended_to.is_none() && !small.is_empty() {
        true => with_dictionaries_of(&schema, &source.first_rows(&small, DICTIONARY_ROWS_BYTES).await?),
        false => schema,
    };
    let root = files.first().map(|file| shown(file)).unwrap_or_default();
    let job = Job {
        lake,
        table,
        schema,
        sizes: options.sizes,
        mode: options.mode,
        on_error: options.on_error,
        again: options.again,
        digest,
        left_out,
        root: &root,
        progress,
    };
    job.run(&source, skipped).await
}

fn plan(files: &[PathBuf], options: ParquetOptions) -> Result<(Sources, Columns, ParquetOptions)> {
    let options = schema_file::merge(options)?;
    let sources = Sources::open(files, &options)?;
    let columns = Columns::plan(&sources.files, &options)?;
    Ok((sources, columns, options))
}

#[cfg(test)]
mod tests;
