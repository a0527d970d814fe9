//! Options of ingests.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stoker_lake::{StorageOptions, WriteOptions};

use crate::{CompressedColumn, Error, Result, TensorColumn, VectorColumn};

/// The default size of a unit, in bytes of source.
const UNIT_BYTES: u64 = 256 << 20;
/// The default limit of a decoded image, in bytes.
const IMAGE_BYTES_MAX: u64 = 256 << 20;

/// The effect on rows that are already in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The table must not exist.
    #[default]
    Create,
    /// The table must exist; the ingest adds rows.
    Append,
    /// The new version of the table contains only the new rows; the table need not exist.
    Overwrite,
}

/// The handling of a file that cannot be read or decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The ingest ends with an error; no table changes.
    #[default]
    Fail,
    /// The ingest skips the file and names it in the report.
    Skip,
}

/// The columns in which images are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Images {
    /// Decoded, in column `image`: a fixed-shape tensor of uint8.
    #[default]
    Tensor,
    /// The bytes of the file, in column `image`: LargeBinary.
    Encoded,
    /// Decoded in column `image`, and the bytes of the file in column `image_bytes`.
    Both,
}

/// The order of a tensor's dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Channels, height, width.
    #[default]
    Chw,
    /// Height, width, channels.
    Hwc,
}

/// The channels of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channels {
    /// Three channels; grey images are repeated, transparency is dropped.
    #[default]
    Rgb,
    /// One channel; colours become their luminance.
    Gray,
    /// One channel if the first image is grey, else three. A coloured image after a grey first image is an error.
    Auto,
}

/// The folders of the first level that are splits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Splits {
    /// All of them, if each is named `train`, `val`, `valid`, `validation` or `test`; none otherwise. The ingest
    /// refuses other folders that look like splits: several folders with names such as `train` and `extra`, or one such
    /// folder whose images all are in subfolders.
    #[default]
    Auto,
    /// None of them: all are classes, whatever their names.
    None,
    /// The folders with these names. All images must be in them.
    Named(Vec<String>),
}

impl Splits {
    fn is_auto(&self) -> bool {
        *self == Splits::Auto
    }
}

/// The height and width of images in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ImageSize {
    /// The number of rows of pixels.
    pub height: u32,
    /// The number of pixels in a row.
    pub width: u32,
}

impl FromStr for ImageSize {
    type Err = Error;

    /// Parses `HxW` such as `224x224`, or one number for squares.
    fn from_str(text: &str) -> Result<Self> {
        let (height, width) = text.split_once(['x', 'X']).unwrap_or((text, text));
        match (height.trim().parse(), width.trim().parse()) {
            (Ok(height @ 1..=65_535), Ok(width @ 1..=65_535)) => Ok(Self { height, width }),
            _ => Err(Error::option(
                "--size",
                format!("{text:?} should be HEIGHTxWIDTH such as 224x224, each from 1 to 65535"),
            )),
        }
    }
}

impl std::fmt::Display for ImageSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.height, self.width)
    }
}

/// The sizes of the files that are written. They change no row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSizes {
    /// The most rows of a fragment; `None` for the default.
    pub rows_per_fragment_max: Option<u64>,
    /// The most bytes of a page of a heavy column; `None` for the default.
    pub page_bytes: Option<usize>,
}

impl FileSizes {
    /// Returns the options of a writer.
    pub(crate) fn to_options(self) -> WriteOptions {
        let default = WriteOptions::default();
        WriteOptions {
            rows_per_fragment_max: self.rows_per_fragment_max.unwrap_or(default.rows_per_fragment_max).max(1),
            page_bytes: self.page_bytes.unwrap_or(default.page_bytes).max(1),
            ..default
        }
    }
}

/// Options of [`crate::ingest_imagefolder`].
#[derive(Clone, Debug, Serialize)]
pub struct ImageFolderOptions {
    /// The effect on rows that are already in the table.
    pub mode: Mode,
    /// How images are stored.
    pub images: Images,
    /// The order of the tensor's dimensions.
    pub layout: Layout,
    /// The channels of the tensor.
    pub channels: Channels,
    /// Resizes every image to this size, bilinear with antialiasing, without keeping the aspect ratio. If it is `None`,
    /// all images must have the same size.
    pub size: Option<ImageSize>,
    /// The classes in the order of their labels. If it is `None`, the classes are the names of the class folders,
    /// sorted.
    pub classes: Option<Vec<String>>,
    /// The folders of the first level that are splits.
    #[serde(skip_serializing_if = "Splits::is_auto")]
    pub splits: Splits,
    /// Whether images that are stored only as files are decoded once, to find damaged ones. Otherwise only their
    /// headers are read.
    pub verify: bool,
    /// The largest image, in bytes of the file and after decoding; larger images are refused. The limit protects
    /// against small files that claim to be huge.
    pub image_bytes_max: u64,
    /// The columns that are compressed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compress: Vec<CompressedColumn>,
    /// The sizes of the files.
    #[serde(skip)]
    pub sizes: FileSizes,
    /// Bytes of source per unit. A resumed ingest continues after the last finished unit.
    pub unit_bytes: u64,
    /// The handling of unreadable files.
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

impl Default for ImageFolderOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Create,
            images: Images::Tensor,
            layout: Layout::Chw,
            channels: Channels::Rgb,
            size: None,
            classes: None,
            splits: Splits::Auto,
            verify: true,
            image_bytes_max: IMAGE_BYTES_MAX,
            compress: Vec::new(),
            sizes: FileSizes::default(),
            unit_bytes: UNIT_BYTES,
            on_error: OnError::Fail,
            again: false,
            source_options: StorageOptions::default(),
        }
    }
}

/// Options of [`crate::ingest_parquet`].
#[derive(Clone, Debug, Serialize)]
pub struct ParquetOptions {
    /// The effect on rows that are already in the table.
    pub mode: Mode,
    /// The columns to ingest; empty means all. Columns stay in the order of the files.
    pub columns: Vec<String>,
    /// Columns that are not ingested.
    pub drop: Vec<String>,
    /// Columns that become fixed-shape tensors: from FixedSizeList, List, nested lists, or binary of the right length
    /// (little-endian).
    pub tensors: Vec<TensorColumn>,
    /// List columns that become vectors.
    pub vectors: Vec<VectorColumn>,
    /// Binary columns, or structs with a field `bytes`, that contain JPEG, PNG or WebP files.
    pub images: Vec<String>,
    /// Binary columns, or structs with a field `bytes`, that contain MP4, MOV, Matroska or WebM files. Each gets an index of
    /// its frames in a column with its name and `_index`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub videos: Vec<String>,
    /// Struct columns that stay structs although they look like Hugging Face images, which become encoded images.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub as_is: Vec<String>,
    /// A JSON file that adds to `columns`, `drop`, `tensors`, `vectors`, `images` and `videos`:
    /// `{"drop": ["id"], "tensors": {"image": "uint8[3,224,224]"}, "vectors": {"embedding": 768},
    /// "images": ["photo"]}`.
    pub schema: Option<PathBuf>,
    /// The columns that are compressed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compress: Vec<CompressedColumn>,
    /// The sizes of the files.
    #[serde(skip)]
    pub sizes: FileSizes,
    /// Bytes of source per unit. A resumed ingest continues after the last finished unit.
    pub unit_bytes: u64,
    /// The handling of unreadable files and row groups. Values that do not fit their column are always an error.
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

impl Default for ParquetOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Create,
            columns: Vec::new(),
            drop: Vec::new(),
            tensors: Vec::new(),
            vectors: Vec::new(),
            images: Vec::new(),
            videos: Vec::new(),
            as_is: Vec::new(),
            schema: None,
            compress: Vec::new(),
            sizes: FileSizes::default(),
            unit_bytes: UNIT_BYTES,
            on_error: OnError::Fail,
            again: false,
            source_options: StorageOptions::default(),
        }
    }
}
