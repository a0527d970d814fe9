//! `stoker ingest`: writes folders of images, and Parquet files, into tables.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use serde::de::DeserializeOwned;
use stoker::refuse_view;
use stoker_columns::is_compressed_tensor;
use stoker_ingest::{
    Channels, CompressedColumn, FileSizes, ImageFolderOptions, ImageSize, Images, IngestReport, Layout, Mode, OnError,
    ParquetOptions, Progress, Splits, TensorColumn, VectorColumn, ingest_imagefolder, ingest_parquet,
};
use stoker_lake::{LakeStore, StorageOptions};
use stoker_types::{SnapshotRef, TableName};

use crate::describe::of_compression;
use crate::output::output;

/// The time between two lines of progress if standard error is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Arguments of `stoker ingest`.
#[derive(Debug, clap::Args)]
pub struct IngestArgs {
    #[command(subcommand)]
    source: Source,
}

#[derive(Debug, clap::Subcommand)]
enum Source {
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

#[derive(Debug, clap::Args)]
struct CommonArgs {
    /// What to do if the table has rows already; append writes only the files that the table does not have
    #[arg(long, default_value = "create", value_parser = choice::<Mode>(&["create", "append", "overwrite"]))]
    mode: Mode,
    /// What to do with files that cannot be read: fail without changing the table, or skip them
    #[arg(long, default_value = "fail", value_parser = choice::<OnError>(&["fail", "skip"]))]
    on_error: OnError,
    /// Write all rows again, also those of files that the table has already
    #[arg(long)]
    again: bool,
    /// Compress a column: zstd, lz4, byte_stream_split or pco, with a level behind a colon, such as image=zstd:9; repeatable
    #[arg(long = "compress", value_name = "COLUMN=CODEC")]
    compress: Vec<CompressedColumn>,
    /// The most rows of a data file [default: 1048576]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..))]
    rows_per_fragment: Option<u64>,
    /// The most KiB of a chunk of a heavy column, which is read at once [default: 8064]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    page_kib: Option<u32>,
    /// MiB of source files between two points at which an interrupted run can resume
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    unit_mib: u64,
    /// Print no progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, clap::Args)]
struct ImagefolderArgs {
    /// The folder
    dir: PathBuf,
    /// The table
    table: TableName,
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
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, clap::Args)]
struct ParquetArgs {
    /// Files and folders
    #[arg(required = true, num_args = 1.., value_name = "FILES")]
    files: Vec<PathBuf>,
    /// The table
    table: TableName,
    /// Only these columns [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    columns: Vec<String>,
    /// Leave out these columns
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    drop: Vec<String>,
    /// A column of lists or bytes to convert to a tensor, such as image=uint8[3,224,224]; repeatable
    #[arg(long = "tensor", value_name = "COLUMN=TYPE[SIZES]")]
    tensors: Vec<TensorColumn>,
    /// A column of lists to convert to a vector, such as embedding=768; repeatable
    #[arg(long = "vector", value_name = "COLUMN=LENGTH")]
    vectors: Vec<VectorColumn>,
    /// A column that holds JPEG, PNG or WebP files; repeatable
    #[arg(long = "image", value_name = "COLUMN")]
    images: Vec<String>,
    /// A column that holds MP4, MOV, Matroska or WebM files; an index of the frames of each is stored beside it, so that
    /// streams read only the frames of a clip. Repeatable
    #[arg(long = "video", value_name = "COLUMN")]
    videos: Vec<String>,
    /// A struct column of bytes and path, as Hugging Face stores images, to keep as a struct; without this option, its
    /// bytes become encoded images. Repeatable
    #[arg(long = "as-is", value_name = "COLUMN")]
    as_is: Vec<String>,
    /// A JSON file that gives columns, drop, tensors, vectors, images and videos
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    #[command(flatten)]
    common: CommonArgs,
}

/// Parses one of a few words.
fn choice<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    words: &'static [&'static str],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).try_map(|word| serde_json::from_value::<T>(serde_json::Value::String(word)))
}

/// Runs `stoker ingest`. Ctrl-C stops it after the current group of rows; the same command then resumes after the last
/// finished unit.
pub async fn run(args: IngestArgs, lake: &str, storage: StorageOptions) -> anyhow::Result<()> {
    let lake = LakeStore::open(lake, &storage).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let watching = tokio::spawn(stop_on_ctrl_c(stop.clone()));
    let started = Instant::now();
    let (table, report) = match args.source {
        Source::Imagefolder(args) => {
            refuse_view(&lake, &args.table).await?;
            let progress = Display::new(args.common.quiet, stop);
            let (dir, table, options) = args.into_options();
            let report = ingest_imagefolder(&lake, &dir, &table, &options, &progress).await;
            progress.clear();
            (table, report.with_context(|| format!("ingesting {}", dir.display()))?)
        }
        Source::Parquet(args) => {
            refuse_view(&lake, &args.table).await?;
            let progress = Display::new(args.common.quiet, stop);
            let (files, table, options) = args.into_options();
            let report = ingest_parquet(&lake, &files, &table, &options, &progress).await;
            progress.clear();
            (table, report.context("ingesting Parquet files")?)
        }
    };
    watching.abort();
    print(&table, &report, started.elapsed())?;
    let written = lake.table(&table, &SnapshotRef::Version(report.version)).await?;
    if written.schema().fields().iter().any(|field| is_compressed_tensor(field)) {
        for line in stoker_maintenance::describe(&written).await?.iter().filter_map(of_compression) {
            writeln!(output(), "{line}")?;
        }
    }
    Ok(())
}

impl CommonArgs {
    fn sizes(&self) -> FileSizes {
        let page_bytes = self.page_kib.and_then(|kib| usize::try_from(kib).ok()).map(|kib| kib << 10);
        FileSizes { rows_per_fragment_max: self.rows_per_fragment, page_bytes }
    }
}

impl ImagefolderArgs {
    fn into_options(self) -> (PathBuf, TableName, ImageFolderOptions) {
        let splits = match (self.splits, self.no_splits) {
            (Some(names), _) => Splits::Named(names),
            (None, true) => Splits::None,
            (None, false) => Splits::Auto,
        };
        let options = ImageFolderOptions {
            splits,
            mode: self.common.mode,
            images: self.images,
            layout: self.layout,
            channels: self.channels,
            size: self.size,
            classes: self.classes,
            verify: !self.no_verify,
            image_bytes_max: self.image_mib_max << 20,
            sizes: self.common.sizes(),
            compress: self.common.compress,
            unit_bytes: self.common.unit_mib << 20,
            on_error: self.common.on_error,
            again: self.common.again,
        };
        (self.dir, self.table, options)
    }
}

impl ParquetArgs {
    fn into_options(self) -> (Vec<PathBuf>, TableName, ParquetOptions) {
        let options = ParquetOptions {
            mode: self.common.mode,
            columns: self.columns,
            drop: self.drop,
            tensors: self.tensors,
            vectors: self.vectors,
            images: self.images,
            videos: self.videos,
            as_is: self.as_is,
            schema: self.schema,
            sizes: self.common.sizes(),
            compress: self.common.compress,
            unit_bytes: self.common.unit_mib << 20,
            on_error: self.common.on_error,
            again: self.common.again,
        };
        (self.files, self.table, options)
    }
}

/// Requests a stop at the first Ctrl-C, and exits the process at the second.
async fn stop_on_ctrl_c(stop: Arc<AtomicBool>) {
    while tokio::signal::ctrl_c().await.is_ok() {
        if stop.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        eprintln!("stopping; press Ctrl-C again to end at once");
    }
}

fn print(table: &TableName, report: &IngestReport, elapsed: Duration) -> anyhow::Result<()> {
    for skipped in &report.skipped {
        eprintln!("skipped {}: {}", skipped.path, skipped.reason);
    }
    if !report.left_out.is_empty() {
        eprintln!("{}", left_out(&report.left_out));
    }
    if report.already_ingested {
        writeln!(
            output(),
            "table {table}: version {} contains these sources already ({} rows); nothing was written, --again writes \
             them again",
            report.version,
            HumanCount(report.rows)
        )?;
        return Ok(());
    }
    let resumed = match report.resumed_units {
        0 => String::new(),
        units => format!(", {units} units from an earlier run"),
    };
    let known = match report.known_files {
        0 => String::new(),
        files => format!(", {} files were there already", HumanCount(files)),
    };
    writeln!(
        output(),
        "table {table}: version {}, {} rows from {} files ({}) in {:.1} s, {} skipped{known}{resumed}",
        report.version,
        HumanCount(report.rows),
        HumanCount(report.files),
        HumanBytes(report.bytes),
        elapsed.as_secs_f64(),
        report.skipped.len()
    )?;
    Ok(())
}

/// Says how many files were left out because of their extensions, the most frequent extension first.
fn left_out(endings: &BTreeMap<String, u64>) -> String {
    let mut counts: Vec<(&String, &u64)> = endings.iter().collect();
    counts.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let listed: Vec<String> = counts.iter().map(|(ending, count)| format!("{ending} {count}")).collect();
    let files = match endings.values().sum::<u64>() {
        1 => "1 file with another ending was".to_string(),
        count => format!("{count} files with other endings were"),
    };
    format!("{files} left out: {}", listed.join(", "))
}

/// A progress bar on standard error, or plain lines if standard error is no terminal.
struct Display {
    /// Hidden unless standard error is a terminal.
    bar: ProgressBar,
    lines: bool,
    counts: Mutex<Counts>,
    stop: Arc<AtomicBool>,
}

struct Counts {
    bytes_total: u64,
    bytes: u64,
    files: u64,
    rows: u64,
    started: Instant,
    last_line: Instant,
}

impl Display {
    fn new(quiet: bool, stop: Arc<AtomicBool>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if quiet || !terminal { ProgressBar::hidden() } else { ProgressBar::new(0) };
        let style = "{bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {msg} ETA {eta}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        let now = Instant::now();
        let counts = Counts { bytes_total: 0, bytes: 0, files: 0, rows: 0, started: now, last_line: now };
        Self { bar, lines: !quiet && !terminal, counts: Mutex::new(counts), stop }
    }

    fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Formats the bytes done, the rate and the remaining time as a line for a log.
    fn line(&self) -> String {
        let rate = self.bytes as f64 / self.started.elapsed().as_secs_f64().max(1e-3);
        let left = self.bytes_total.saturating_sub(self.bytes) as f64 / rate.max(1.0);
        #[expect(clippy::cast_possible_truncation, reason = "casts of numbers with fractions saturate")]
        let whole_rate = rate as u64;
        let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
        format!(
            "{} of {}, {} files, {} rows, {}/s, {} left",
            HumanBytes(self.bytes),
            HumanBytes(self.bytes_total),
            HumanCount(self.files),
            HumanCount(self.rows),
            HumanBytes(whole_rate),
            HumanDuration(left)
        )
    }
}

impl Progress for Display {
    fn total(&self, _files: u64, bytes: u64) {
        self.bar.set_length(bytes);
        let mut counts = self.counts();
        counts.bytes_total = bytes;
        counts.started = Instant::now();
    }

    fn advance(&self, files: u64, rows: u64, bytes: u64) {
        let mut counts = self.counts();
        counts.bytes += bytes;
        counts.files += files;
        counts.rows += rows;
        self.bar.set_message(format!("{} rows", HumanCount(counts.rows)));
        self.bar.inc(bytes);
        if self.lines && counts.last_line.elapsed() >= LINE_INTERVAL {
            counts.last_line = Instant::now();
            eprintln!("{}", counts.line());
        }
    }

    fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
