//! Options of ingests.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Result, TensorSpec, VectorSpec};

/// Bytes of source per unit, when an option does not say.
const UNIT_BYTES: u64 = 256 << 20;
/// Bytes of one decoded image at most, when an option does not say.
const IMAGE_BYTES_MAX: u64 = 256 << 20;

/// What to do with rows that are in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The table must not exist.
    #[default]
    Create,
    /// The table must exist; rows are added.
    Append,
    /// The new version of the table holds only these rows; it need not exist.
    Overwrite,
}

/// What to do with a file that cannot be read or decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// End the ingest; no table changes.
    #[default]
    Fail,
    /// Leave it out and say so in the report.
    Skip,
}

/// How images are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Images {
    /// Decoded, as column `image`: a fixed-shape tensor of uint8.
    #[default]
    Tensor,
    /// The bytes of the file, as column `image`: LargeBinary.
    Encoded,
    /// Decoded as column `image`, and the file's bytes as column `image_bytes`.
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
    /// Three; grey images are repeated, transparency is dropped.
    #[default]
    Rgb,
    /// One; colours become their luminance.
    Gray,
    /// As the first image has it; a coloured image in a grey data set is an error.
    Auto,
}

/// Which folders of the first level are splits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Splits {
    /// All of them, if they are named `train`, `val`, `valid`, `validation` or `test`; none otherwise. Folders are refused that
    /// look like splits in other ways: by several names such as `train` and `extra`, or by one of which all images lie in
    /// folders of their own.
    #[default]
    Auto,
    /// None: they are classes, whatever their names.
    None,
    /// These. All images must be in them.
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
    /// Rows of pixels.
    pub height: u32,
    /// Pixels in a row.
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

/// Options of [`crate::ingest_imagefolder`].
#[derive(Clone, Debug, Serialize)]
pub struct ImageFolderOptions {
    /// What to do with rows that are in the table.
    pub mode: Mode,
    /// How images are stored.
    pub images: Images,
    /// The order of the tensor's dimensions.
    pub layout: Layout,
    /// The channels of the tensor.
    pub channels: Channels,
    /// Resizes every image to this size, bilinear with antialiasing and without keeping the aspect ratio. Without it all
    /// images must share one size.
    pub size: Option<ImageSize>,
    /// The classes in the order of their labels; without it the names of the class folders, sorted.
    pub classes: Option<Vec<String>>,
    /// Which folders of the first level are splits.
    #[serde(skip_serializing_if = "Splits::is_auto")]
    pub splits: Splits,
    /// Whether images of which only the file is stored are decoded once to find damaged ones; otherwise only their
    /// headers are read.
    pub verify: bool,
    /// A single image of more bytes than this after decoding is refused: a defence against small files that claim to be
    /// huge.
    pub image_bytes_max: u64,
    /// Bytes of source per unit of resumption.
    pub unit_bytes: u64,
    /// What to do with unreadable files.
    #[serde(skip)]
    pub on_error: OnError,
    /// Whether to add the rows once more when this source was ingested before.
    #[serde(skip)]
    pub again: bool,
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
            unit_bytes: UNIT_BYTES,
            on_error: OnError::Fail,
            again: false,
        }
    }
}

/// Options of [`crate::ingest_parquet`].
#[derive(Clone, Debug, Serialize)]
pub struct ParquetOptions {
    /// What to do with rows that are in the table.
    pub mode: Mode,
    /// Only these columns; empty means all. Columns stay in the order of the files.
    pub columns: Vec<String>,
    /// Without these columns.
    pub drop: Vec<String>,
    /// Columns that become fixed-shape tensors: from FixedSizeList, List, nested lists, or binary of the right length
    /// (little-endian).
    pub tensors: Vec<TensorSpec>,
    /// List columns that become vectors.
    pub vectors: Vec<VectorSpec>,
    /// Binary columns, or structs with a field `bytes`, that hold JPEG, PNG or WebP files.
    pub images: Vec<String>,
    /// Columns that stay as they are: structs of Hugging Face images, which would otherwise become encoded images.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub as_is: Vec<String>,
    /// A JSON file that adds to `columns`, `drop`, `tensors`, `vectors` and `images`:
    /// `{"drop": ["id"], "tensors": {"image": "uint8[3,224,224]"}, "vectors": {"embedding": 768}, "images": ["photo"]}`.
    pub schema: Option<PathBuf>,
    /// Bytes of source per unit of resumption.
    pub unit_bytes: u64,
    /// What to do with unreadable files and row groups. Values that do not fit their column are an error in any case.
    #[serde(skip)]
    pub on_error: OnError,
    /// Whether to add the rows once more when this source was ingested before.
    #[serde(skip)]
    pub again: bool,
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
            as_is: Vec::new(),
            schema: None,
            unit_bytes: UNIT_BYTES,
            on_error: OnError::Fail,
            again: false,
        }
    }
}
