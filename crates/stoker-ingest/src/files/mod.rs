//! Ingests files of any format.

mod cast;
mod columns;
mod convert;
mod decode;
mod folder;
mod inspect;
mod options;
mod plan;
mod recognise;
mod skips;
mod sources;
mod units;

use std::path::PathBuf;
use std::sync::Arc;

use stoker_columns::with_index_columns;
use stoker_formats::FORMATS;
use stoker_lake::LakeStore;
use stoker_types::{DigestBuilder, TableName};

pub use cast::{CastType, ColumnCast};
pub use inspect::inspect_files;
#[cfg(test)]
pub(crate) use inspect::inspect_with;
pub use options::{FilesOptions, RenamedColumn};
pub(crate) use plan::Formats;
#[cfg(test)]
pub(crate) use recognise::recognise_with;
pub use recognise::{RecognisedSources, SourceKind, recognise_sources};

use crate::compress::written_schema;
use crate::job::{Job, blocking, existing};
use crate::labels::check_labels;
use crate::place::shown;
use crate::{Error, IngestReport, Mode, Progress, Result};
use plan::FilePlan;
use units::FilesSource;

/// Writes files of one format into a table. A source is a file, or a folder, which stands for all files in it at any
/// depth, except hidden ones.
///
/// The format is that of the options, or else the first of [`stoker_formats::FORMATS`] that recognises the files and need
/// not be named. It decides which files have rows, in which order they come, and which columns there are: what it reads of
/// the first rows, or of an index, holds for all files. Then:
///
/// - dictionaries, run-end encodings and views become the plain types that they represent, binary becomes LargeBinary,
///   and tensors become non-null
/// - `cast` converts values to other types, to vectors and to tensors
/// - images get the field metadata `stoker.kind` = `encoded_image`, and videos an index of their frames in a column beside
///   them; their values must begin as such files, and are not decoded. A table to which rows are appended decides whether
///   its videos have indexes
/// - a column is named in the table as in the files, with `_` for each dot, because tables have no names with dots, unless
///   `rename` gives it another name
///
/// A row that does not fit ends the ingest, or is skipped and reported with its file, its number and the reason. A file
/// that cannot be read to its end keeps the rows before the damage, if such files are skipped. A file of which no row was
/// kept is none of the table's files: an ingest that appends tries it again.
///
/// Rows are decoded on several threads, and written in order. Decoders hold at most 512 MiB of rows together, and one
/// batch of rows each. Dropping the future ends the ingest like a kill: the same call continues after the last finished
/// unit. It begins anew when a file of the sources changed.
///
/// # Errors
/// [`Error::AlreadyExists`] in [`Mode::Create`]; [`Error::Empty`] for sources that no format recognises or that have no
/// rows; [`Error::InvalidOption`] for columns that do not exist, and for names that tables cannot have;
/// [`Error::Column`] for a file with other columns; [`Error::Row`] and [`Error::Unreadable`] unless such rows and files
/// are skipped; [`Error::Changed`] when a file is changed, replaced or removed meanwhile; [`Error::Stopped`]; errors of the
/// lake. The table does not change, except when storage failed after the commit.
pub async fn ingest_files(
    lake: &LakeStore,
    sources: &[PathBuf],
    table: &TableName,
    options: &FilesOptions,
    progress: &dyn Progress,
) -> Result<IngestReport> {
    ingest_with(lake, sources, table, options, progress, &FORMATS).await
}

/// Writes files of one of the given formats into a table.
pub(crate) async fn ingest_with(
    lake: &LakeStore,
    sources: &[PathBuf],
    table: &TableName,
    options: &FilesOptions,
    progress: &dyn Progress,
    formats: Formats,
) -> Result<IngestReport> {
    let plan = {
        let (sources, options) = (sources.to_vec(), options.clone());
        blocking("listing files", move || FilePlan::new(&sources, &options, formats)).await?
    };
    let mut digest = DigestBuilder::new("stoker ingest files 1").part(table.as_str().as_bytes());
    let json = serde_json::to_vec(options).map_err(|source| Error::internal("describing the ingest", source))?;
    digest.update(&json);
    plan.add_to(&mut digest);
    let appended_to = match options.mode {
        Mode::Append => existing(lake, table).await?,
        Mode::Create | Mode::Overwrite => None,
    };
    if let (Some(table), Some(classes)) = (&appended_to, plan.rows.classes()) {
        let refuse = |difference: &str, _: &str| {
            let advice =
                "labels are the indices of the sorted names of class folders: give the folder with all classes";
            Error::option("--mode", format!("{difference}; {advice}"))
        };
        check_labels(table, &classes, refuse).await?;
    }
    let appended_to = appended_to.map(|table| table.schema());
    let schema = written_schema(&plan.schema, &options.compress, appended_to.as_deref())?;
    let schema = match appended_to {
        Some(_) => schema,
        None => with_index_columns(&schema).map_err(|reason| Error::option("--video", reason))?,
    };
    let plan = Arc::new(plan);
    let root = sources.first().map(|source| shown(source)).unwrap_or_default();
    let job = Job {
        lake,
        table,
        schema,
        sizes: options.sizes,
        mode: options.mode,
        on_error: options.on_error,
        again: options.again,
        digest,
        left_out: plan.left_out(),
        root: &root,
        progress,
    };
    let source = FilesSource { plan: plan.clone(), unit_bytes: options.unit_bytes };
    let mut report = job.run(&source, plan.skipped.clone()).await?;
    // Files to which rows refer were opened meanwhile.
    report.left_out = plan.left_out();
    Ok(report)
}
