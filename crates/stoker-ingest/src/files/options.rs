//! Options of ingests of files of any format.

use std::str::FromStr;

use serde::Serialize;
use stoker_formats::FormatOptions;
use stoker_lake::StorageOptions;

use super::cast::ColumnCast;
use crate::{CompressedColumn, Error, FileSizes, Mode, OnError, Result};

/// The default size of a unit, in bytes of source.
const UNIT_BYTES: u64 = 256 << 20;
/// The default number of rows from which the types of columns are found.
const SAMPLED_ROWS: usize = 1000;

/// Options of [`crate::ingest_files`]. Columns have the names that they have in the files, except in `compress`.
#[derive(Clone, Debug, Serialize)]
pub struct FilesOptions {
    /// The effect on rows that are already in the table.
    pub mode: Mode,
    /// The name of the format; `None` for the first format that recognises the files.
    pub format: Option<String>,
    /// The columns to ingest; empty means all. Columns stay in the order of the files.
    pub columns: Vec<String>,
    /// Columns that are not ingested.
    pub drop: Vec<String>,
    /// Columns that get other names in the table.
    pub rename: Vec<RenamedColumn>,
    /// Columns whose values are converted to other types.
    pub cast: Vec<ColumnCast>,
    /// Columns that hold JPEG, PNG or WebP files: their bytes or, in JSON Lines and CSV, their paths in the folder.
    pub images: Vec<String>,
    /// Columns that hold MP4, MOV, Matroska or WebM files, as `images`. Each gets an index of its frames in a column
    /// with its name and `_index`.
    pub videos: Vec<String>,
    /// Columns that hold files of sound, as `images`.
    pub audio: Vec<String>,
    /// The number of rows from which the types of columns are found, where files do not say them.
    pub sampled_rows: usize,
    /// The columns of the table that are compressed.
    pub compress: Vec<CompressedColumn>,
    /// The sizes of the files.
    #[serde(skip)]
    pub sizes: FileSizes,
    /// Bytes of source per unit; a larger file is a unit of its own. A resumed ingest continues after the last finished
    /// unit.
    pub unit_bytes: u64,
    /// The handling of files and rows that cannot be read.
    #[serde(skip)]
    pub on_error: OnError,
    /// Whether to write the rows again if this source was ingested before.
    #[serde(skip)]
    pub again: bool,
    /// Options of the object store of sources in a bucket, such as their credentials. What they leave open comes from the
    /// environment.
    #[serde(skip)]
    pub source_options: StorageOptions,
}

impl Default for FilesOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Create,
            format: None,
            columns: Vec::new(),
            drop: Vec::new(),
            rename: Vec::new(),
            cast: Vec::new(),
            images: Vec::new(),
            videos: Vec::new(),
            audio: Vec::new(),
            sampled_rows: SAMPLED_ROWS,
            compress: Vec::new(),
            sizes: FileSizes::default(),
            unit_bytes: UNIT_BYTES,
            on_error: OnError::Fail,
            again: false,
            source_options: StorageOptions::default(),
        }
    }
}

impl FilesOptions {
    /// Returns what a format needs to know.
    pub(super) fn to_format_options(&self) -> FormatOptions {
        FormatOptions {
            images: self.images.clone(),
            videos: self.videos.clone(),
            audio: self.audio.clone(),
            sampled_rows: self.sampled_rows,
        }
    }
}

/// A column that has another name in the table than in the files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RenamedColumn {
    /// The name in the files.
    pub from: String,
    /// The name in the table.
    pub to: String,
}

impl FromStr for RenamedColumn {
    type Err = Error;

    /// Parses `NAME=NEW_NAME`.
    fn from_str(text: &str) -> Result<Self> {
        match text.rsplit_once('=') {
            Some((from, to)) if !from.trim().is_empty() && !to.trim().is_empty() => {
                Ok(Self { from: from.trim().into(), to: to.trim().into() })
            }
            _ => Err(Error::option(
                "--rename",
                format!("{text:?} should be NAME=NEW_NAME, such as observation.state=state"),
            )),
        }
    }
}
