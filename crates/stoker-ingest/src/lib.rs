//! Writes folders of images, Parquet files, and files of all formats of `stoker-formats` into tables of a lake.
//!
//! The functions divide their sources into deterministic units of about 256 MiB. An ingest writes the fragments of a
//! unit, then records the unit in a journal in the lake. When all units are written, one atomic commit makes their rows
//! visible. A job that was stopped or killed continues after its last finished unit, and readers never see a part of
//! it.
//!
//! ```text
//! sources ──list──► units ──decode, convert──► TableWriter ──drafts─► journal _stoker/ingest/<run>/{begun,<unit>}.json
//!                                                                         │
//!                                          all units there: one commit ◄──┘─► marker _stoker/ingest/done/<source>.json
//! ```
//!
//! Before its commit each ingest writes a list of its files with their digests,
//! `_stoker/ingest/files/<table>/<run>.json`. An ingest that appends to the table then writes only the files that the
//! table does not have.
//!
//! Sources are paths of this machine, or URIs of buckets and of files of web servers; `stoker-buckets` reads those.
//!
//! - [`ingest_imagefolder`]: one folder per class, optionally below one folder per split.
//! - [`ingest_parquet`]: Parquet files, with columns declared as tensors, vectors or encoded images.
//! - [`ingest_files`]: files of any [`stoker_formats::FileFormat`], such as WebDataset archives.
//!
//! [`recognise_sources`] looks which of them fits, and [`inspect_files`] and its siblings tell what they would write.
//!
//! [`ParquetRows`] is the way back: rows become a Parquet file.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod budget;
mod cleanup;
mod compress;
mod declared;
mod decoding;
mod error;
mod files;
mod imagefolder;
mod inspection;
mod job;
mod journal;
mod known_files;
mod labels;
mod options;
mod parquet_files;
mod parquet_rows;
mod place;
mod progress;
mod report;
mod source_file;
mod stamp;
mod walk;

pub use cleanup::{COLUMN_JOURNALS, clean_journals, forget_ingests, last_listed};
pub use compress::CompressedColumn;
pub use declared::{TensorColumn, VectorColumn};
pub use error::{Error, Result};
pub use files::{
    CastType, ColumnCast, FilesOptions, RecognisedSources, RenamedColumn, SourceKind, ingest_files, inspect_files,
    recognise_sources,
};
pub use imagefolder::{ingest_imagefolder, inspect_imagefolder};
pub use inspection::Inspection;
pub use options::{
    Channels, FileSizes, ImageFolderOptions, ImageSize, Images, Layout, Mode, OnError, ParquetOptions, Splits,
};
pub use parquet_files::{ingest_parquet, inspect_parquet};
pub use parquet_rows::ParquetRows;
pub use progress::{NoProgress, Progress};
pub use report::{IngestReport, Skipped};
pub use walk::LAKES_LEFT_OUT;

#[cfg(test)]
mod tests;
