//! Reads files of datasets as rows.
//!
//! `stoker-files` says what formats are, and `stoker-arrays` has those of arrays. The other ones are here, a folder for each,
//! and [`FORMATS`] has them all.

#![warn(clippy::disallowed_methods)]
#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod arrow_files;
mod decompress;
mod delimited;
mod hugging_face;
mod json_lines;
mod mds;
mod media_folder;
mod media_paths;
#[cfg(test)]
mod memory_folder;
#[cfg(test)]
mod read_files;
mod table_columns;
mod text_file;
mod text_rows;
mod values;
mod webdataset;

pub use arrow_files::ArrowIpc;
pub use delimited::DelimitedText;
pub use hugging_face::{FeatureMismatch, HUGGING_FACE_KEY, HuggingFace, feature_columns};
pub use json_lines::JsonLines;
pub use mds::Mds;
pub use media_folder::{AnyFilesFormat, AudioFolderFormat, VideoFolderFormat};
pub use stoker_arrays::{NumpyFormat, SafetensorsFormat};
pub use stoker_files::{
    BadRow, Error, FileBytes, FileFormat, FilesAhead, Folder, FolderFile, FormatOptions, LocalFile, LocalFolder,
    Result, RowBatch, RowFiles, RowReader, Sequential, real_path_inside,
};
pub use table_columns::SourceColumn;
pub use webdataset::WebDataset;

/// The formats, in the order in which they are tried: those with an index or a marker first. The last one is used by its
/// name only.
pub static FORMATS: [&dyn FileFormat; 11] = [
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
    &AnyFilesFormat,
];

/// Returns the format with a name.
pub fn format_named(name: &str) -> Option<&'static dyn FileFormat> {
    FORMATS.into_iter().find(|format| format.name() == name)
}

/// Returns the first format that recognises a folder, apart from those that are used by their names only.
pub fn format_of(folder: &dyn Folder) -> Option<&'static dyn FileFormat> {
    FORMATS.into_iter().find(|format| !format.is_named_only() && format.recognise(folder).is_some())
}

#[cfg(test)]
mod tests;

/// Measures the memory that the targets of fuzz tests hold.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
