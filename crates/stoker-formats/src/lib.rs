//! Reads files of datasets as rows.
//!
//! ```text
//! Folder ──recognise──► FileFormat ──plan──► RowFiles: schema, files ──read──► RowReader ──next──► RowBatch …
//!   └─ open ──► FileBytes, at any offset: a local file, or an object of a bucket
//! ```
//!
//! A [`FileFormat`] looks at the names in a [`Folder`], and says which files have rows. Planning reads what the format
//! needs to know of the columns: a few rows of the first file, or an index. Then each file is read on its own, in any
//! order and on any machine, and gives the same rows each time.
//!
//! The columns of [`RowFiles::schema`] are those of tables: media has the marks of `stoker-columns`, tensors are
//! fixed-size lists. Values that do not fit are [`BadRow`]s, which name the row and the reason; the caller decides
//! whether they end the ingest.
//!
//! Every reader limits the memory that it takes before it takes it, whatever a file declares.

#![warn(clippy::disallowed_methods)]
#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod array_rows;
mod arrow_files;
mod column_names;
mod decompress;
mod delimited;
mod error;
mod file_bytes;
mod file_names;
mod file_range;
mod folder;
mod format;
mod hugging_face;
mod json_lines;
mod mds;
mod media_folder;
mod media_paths;
#[cfg(test)]
mod memory_folder;
mod no_media;
mod npy_header;
mod npy_type;
mod numpy;
mod python_literal;
#[cfg(test)]
mod read_files;
mod safetensors;
mod sequential;
mod table_columns;
mod text_file;
mod text_rows;
mod values;
mod webdataset;
mod zip_directory;
mod zip_reader;

pub use arrow_files::ArrowIpc;
pub use delimited::DelimitedText;
pub use error::{Error, Result};
pub use file_bytes::{FileBytes, LocalFile};
pub use folder::{Folder, FolderFile, LocalFolder};
pub use format::{BadRow, FileFormat, FormatOptions, RowBatch, RowFiles, RowReader};
pub use hugging_face::{FeatureMismatch, HUGGING_FACE_KEY, HuggingFace, feature_columns};
pub use json_lines::JsonLines;
pub use mds::Mds;
pub use media_folder::{AnyFilesFormat, AudioFolderFormat, VideoFolderFormat};
pub use numpy::NumpyFormat;
pub use safetensors::SafetensorsFormat;
pub use sequential::Sequential;
pub use table_columns::SourceColumn;
pub use webdataset::WebDataset;

/// The formats, in the order in which they are tried: those with an index or a marker first.
pub static FORMATS: [&dyn FileFormat; 10] = [
    &Mds,
    &HuggingFace,
    &WebDataset,
    &ArrowIpc,
    &SafetensorsFormat,
    &NumpyFormat,
    &JsonLines,
    &DelimitedText,
    &AudioFolderFormat,
    &VideoFolderFormat,
];

/// The formats that recognise what others do, and are used by their names only.
pub static FORMATS_BY_NAME: [&dyn FileFormat; 1] = [&AnyFilesFormat];

/// Returns the format with a name.
pub fn format_named(name: &str) -> Option<&'static dyn FileFormat> {
    FORMATS.into_iter().chain(FORMATS_BY_NAME).find(|format| format.name() == name)
}

/// Returns the first format that recognises a folder.
pub fn format_of(folder: &dyn Folder) -> Option<&'static dyn FileFormat> {
    FORMATS.into_iter().find(|format| format.recognise(folder).is_some())
}

#[cfg(test)]
mod tests;

/// Measures the memory that the targets of fuzz tests hold.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
