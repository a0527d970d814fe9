//! The arguments of `stoker ingest`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::de::DeserializeOwned;
use stoker_ingest::{
    Channels, ColumnCast, CompressedColumn, FileSizes, FilesOptions, ImageFolderOptions, ImageSize, Images, Layout,
    Mode, OnError, ParquetOptions, RenamedColumn, SourceKind, Splits, TensorColumn, VectorColumn,
};
use stoker_lake::StorageOptions;
use stoker_types::TableName;

use crate::connect::{storage_options, warn_of_credentials};

/// The option with which the object store of sources is described.
const SOURCE_OPTION: &str = "--source-option";

#[derive(Debug, clap::Subcommand)]
pub(super) enum SourceCommand {
    /// Write a folder of images, DIR/CLASS/* or DIR/SPLIT/CLASS/*, into a table
    ///
    /// Columns: image, label (index of the class in the sorted folder names), label_name, path, split. The folders of
    /// the first level are taken for splits if all of them are named train, val, valid, validation or test. If only
    /// some of them have such names (train beside extra), the command fails until --splits or --no-splits says which
    /// folders are splits.
    Imagefolder(ImagefolderArgs),
    /// Write Parquet files, and the Parquet files in folders, into a table
    Parquet(ParquetArgs),
}

/// What is ingested, whatever kind it is.
#[derive(Debug, clap::Args)]
pub(super) struct SourceArgs {
    /// Files and folders: paths, or URIs of a bucket, s3://, gs://, az:// or abfss://, or of files of a web server, https://.
    /// A path that is named like a command is written ./parquet. A stream of Arrow IPC on standard input is -
    #[arg(required = true, num_args = 1.., value_name = "SOURCE")]
    pub sources: Vec<PathBuf>,
    /// The table
    pub table: TableName,
    /// The kind of the sources, instead of the one that is recognised
    #[arg(long = "as", value_name = "KIND", value_parser = PossibleValuesParser::new(SourceKind::names()))]
    pub kind: Option<String>,
    /// Write nothing: print the columns, the first rows, what would be left out and why, and the bytes to write
    #[arg(long)]
    pub dry_run: bool,
    /// Only these columns, as the files name them [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub columns: Vec<String>,
    /// Leave out these columns
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub drop: Vec<String>,
    /// Another name for a column, such as observation.state=state; repeatable. Without this option, columns keep their
    /// names, with _ for each dot
    #[arg(long, value_name = "NAME=NEW_NAME")]
    pub rename: Vec<RenamedColumn>,
    /// A column whose values become another type, such as label=int32, a vector, such as embedding=float32[768], or a
    /// tensor, such as image=uint8[3,224,224]; repeatable
    #[arg(long, value_name = "COLUMN=TYPE")]
    pub cast: Vec<ColumnCast>,
    /// A column that holds JPEG, PNG or WebP files or, in JSON Lines and CSV, their paths; repeatable
    #[arg(long = "image", value_name = "COLUMN")]
    pub image_columns: Vec<String>,
    /// A column that holds MP4, MOV, Matroska or WebM files, or their paths; an index of the frames of each is stored
    /// beside it, so that streams read only the frames of a clip. Repeatable
    #[arg(long = "video", value_name = "COLUMN")]
    pub video_columns: Vec<String>,
    /// A column that holds files of sound, or their paths; repeatable
    #[arg(long = "audio", value_name = "COLUMN")]
    pub audio_columns: Vec<String>,
    /// The number of rows from which the types of columns are found, where files do not say them [default: 1000]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    pub sample_rows: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(super) struct CommonArgs {
    /// What to do if the table has rows already; append writes only the files that the table does not have
    #[arg(long, default_value = "create", value_parser = choice::<Mode>(&["create", "append", "overwrite"]))]
    pub mode: Mode,
    /// What to do with files and rows that cannot be read: fail without changing the table, or skip them
    #[arg(long, default_value = "fail", value_parser = choice::<OnError>(&["fail", "skip"]))]
    pub on_error: OnError,
    /// Write all rows again, also those of files that the table has already
    #[arg(long)]
    pub again: bool,
    /// Compress a column: zstd, lz4, byte_stream_split or pco, with a level behind a colon, such as image=zstd:9; repeatable
    #[arg(long = "compress", value_name = "COLUMN=CODEC")]
    pub compress: Vec<CompressedColumn>,
    /// The most rows of a data file [default: 1048576]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..))]
    pub rows_per_fragment: Option<u64>,
    /// The most KiB of a chunk of a heavy column, which is read at once [default: 8064]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub page_kib: Option<u32>,
    /// MiB of source files between two points at which an interrupted run can resume
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub unit_mib: u64,
    /// An option of the object store of sources in a bucket, such as aws_endpoint=http://127.0.0.1:9000; repeatable. The keys
    /// are those of --storage-option; what is left open comes from the environment. Put credentials into environment variables
    /// instead, such as STOKER_SOURCE_AWS_SECRET_ACCESS_KEY for aws_secret_access_key
    #[arg(long = "source-option", value_name = "KEY=VALUE")]
    pub source_options: Vec<String>,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ImagefolderArgs {
    /// The folder: a path, or a URI in a bucket
    pub dir: PathBuf,
    /// The table
    pub table: TableName,
    #[command(flatten)]
    pub images: ImageArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// How images of class folders are stored.
#[derive(Debug, clap::Args)]
pub(super) struct ImageArgs {
    /// What to store: decoded tensors, the files as they are, or both (columns image and image_bytes)
    #[arg(long, default_value = "tensor", value_parser = choice::<Images>(&["tensor", "encoded", "both"]))]
    images: Images,
    /// The order of the tensor's dimensions: channels first or last
    #[arg(long, default_value = "chw", value_parser = choice::<Layout>(&["chw", "hwc"]))]
    layout: Layout,
    /// The channels of the tensor; auto takes those of the first image
    #[arg(long, default_value = "rgb", value_parser = choice::<Channels>(&["rgb", "gray", "auto"]))]
    channels: Channels,
    /// Resize all images to HEIGHTxWIDTH pixels (bilinear); without this option, all images must have the same size
    #[arg(long, value_name = "HxW")]
    size: Option<ImageSize>,
    /// Classes in the order of their labels [default: sorted folder names]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    classes: Option<Vec<String>>,
    /// The folders of the first level that are splits; each contains a folder for each class
    #[arg(long, value_delimiter = ',', value_name = "NAMES", conflicts_with = "no_splits")]
    splits: Option<Vec<String>>,
    /// The folders of the first level are classes, even if they are named like splits
    #[arg(long)]
    no_splits: bool,
    /// With --images encoded, read only the headers of images, instead of decoding each image once to find damaged ones
    #[arg(long)]
    no_verify: bool,
    /// Refuse images that take more MiB than this after decoding
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=2_047))]
    image_mib_max: u64,
}

#[derive(Debug, clap::Args)]
pub(super) struct ParquetArgs {
    /// Files and folders: paths, or URIs
    #[arg(required = true, num_args = 1.., value_name = "FILES")]
    pub files: Vec<PathBuf>,
    /// The table
    pub table: TableName,
    /// Only these columns [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub columns: Vec<String>,
    /// Leave out these columns
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub drop: Vec<String>,
    /// A column that holds JPEG, PNG or WebP files; repeatable
    #[arg(long = "image", value_name = "COLUMN")]
    pub images: Vec<String>,
    /// A column that holds MP4, MOV, Matroska or WebM files; an index of the frames of each is stored beside it, so that
    /// streams read only the frames of a clip. Repeatable
    #[arg(long = "video", value_name = "COLUMN")]
    pub videos: Vec<String>,
    #[command(flatten)]
    pub declared: DeclaredArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// How columns of Parquet files are converted.
#[derive(Debug, Default, clap::Args)]
pub(super) struct DeclaredArgs {
    /// A column of lists or bytes to convert to a tensor, such as image=uint8[3,224,224]; repeatable
    #[arg(long = "tensor", value_name = "COLUMN=TYPE[SIZES]")]
    tensors: Vec<TensorColumn>,
    /// A column of lists to convert to a vector, such as embedding=768; repeatable
    #[arg(long = "vector", value_name = "COLUMN=LENGTH")]
    vectors: Vec<VectorColumn>,
    /// A struct column of bytes and path, as Hugging Face stores images, to keep as a struct; without this option, its
    /// bytes become encoded images. Repeatable
    #[arg(long = "as-is", value_name = "COLUMN")]
    as_is: Vec<String>,
    /// A JSON file that gives columns, drop, tensors, vectors, images and videos
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
}

/// Parses one of a few words.
fn choice<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    words: &'static [&'static str],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).try_map(|word| serde_json::from_value::<T>(serde_json::Value::String(word)))
}

impl Default for CommonArgs {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            on_error: OnError::default(),
            again: false,
            compress: Vec::new(),
            rows_per_fragment: None,
            page_kib: None,
            unit_mib: 256,
            source_options: Vec::new(),
            quiet: false,
        }
    }
}

impl CommonArgs {
    fn sizes(&self) -> FileSizes {
        let page_bytes = self.page_kib.and_then(|kib| usize::try_from(kib).ok()).map(|kib| kib << 10);
        FileSizes { rows_per_fragment_max: self.rows_per_fragment, page_bytes }
    }

    /// Returns the options of the object store of the sources.
    ///
    /// # Errors
    /// An option that is not `KEY=VALUE`.
    pub fn source_options(&self) -> anyhow::Result<StorageOptions> {
        storage_options(SOURCE_OPTION, &self.source_options)
    }

    /// Warns of credentials on the command line.
    pub fn warn_of_credentials(&self) {
        warn_of_credentials(SOURCE_OPTION, "STOKER_SOURCE_AWS_SECRET_ACCESS_KEY", &self.source_options);
    }

    /// Returns the options of an ingest of images; without `images`, those of the images have their defaults.
    ///
    /// # Errors
    /// An option of the object store that is not `KEY=VALUE`.
    pub fn into_image_options(self, images: Option<ImageArgs>) -> anyhow::Result<ImageFolderOptions> {
        let (sizes, source_options) = (self.sizes(), self.source_options()?);
        let common = ImageFolderOptions {
            mode: self.mode,
            sizes,
            compress: self.compress,
            unit_bytes: self.unit_mib << 20,
            on_error: self.on_error,
            again: self.again,
            source_options,
            ..ImageFolderOptions::default()
        };
        let Some(images) = images else { return Ok(common) };
        let splits = match (images.splits, images.no_splits) {
            (Some(names), _) => Splits::Named(names),
            (None, true) => Splits::None,
            (None, false) => Splits::Auto,
        };
        Ok(ImageFolderOptions {
            splits,
            images: images.images,
            layout: images.layout,
            channels: images.channels,
            size: images.size,
            classes: images.classes,
            verify: !images.no_verify,
            image_bytes_max: images.image_mib_max << 20,
            ..common
        })
    }

    /// Returns the options of an ingest of Parquet files, without those that name columns.
    ///
    /// # Errors
    /// An option of the object store that is not `KEY=VALUE`.
    pub fn into_parquet_options(self, declared: DeclaredArgs) -> anyhow::Result<ParquetOptions> {
        let (sizes, source_options) = (self.sizes(), self.source_options()?);
        Ok(ParquetOptions {
            mode: self.mode,
            tensors: declared.tensors,
            vectors: declared.vectors,
            as_is: declared.as_is,
            schema: declared.schema,
            sizes,
            compress: self.compress,
            unit_bytes: self.unit_mib << 20,
            on_error: self.on_error,
            again: self.again,
            source_options,
            ..ParquetOptions::default()
        })
    }

    /// Returns the options of an ingest of files of a format, without those that name columns.
    ///
    /// # Errors
    /// An option of the object store that is not `KEY=VALUE`.
    pub fn into_files_options(self) -> anyhow::Result<FilesOptions> {
        let (sizes, source_options) = (self.sizes(), self.source_options()?);
        Ok(FilesOptions {
            mode: self.mode,
            sizes,
            compress: self.compress,
            unit_bytes: self.unit_mib << 20,
            on_error: self.on_error,
            again: self.again,
            source_options,
            ..FilesOptions::default()
        })
    }
}
