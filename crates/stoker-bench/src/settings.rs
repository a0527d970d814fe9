//! The settings of the benchmark: the measurements' data, sizes and repetitions.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::data::Kind;

/// The variable that names a Python interpreter with pyarrow.
const PYTHON: &str = "STOKER_PYTHON";

/// The bucket of the object server, which is a folder in the data folder.
pub const BUCKET: &str = "bench";

/// The lake, a folder in the bucket.
pub const LAKE: &str = "lake";

/// The settings of all measurements.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// The tables to measure
    #[arg(long, value_enum, default_value = "both")]
    pub data: Data,
    /// Rows of uint8[3,224,224], sorted by class
    #[arg(long, default_value_t = 8_192, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: u64,
    /// Rows of int32[512], sorted by class
    #[arg(long, default_value_t = 262_144, value_parser = clap::value_parser!(u64).range(1..))]
    pub token_rows: u64,
    /// Rows of int32[64], from which `s3` reads a first batch
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub narrow_rows: u64,
    /// JPEG files of 256×256 pixels, and compressed tensors of 64×64 numbers, which `decode` decodes
    #[arg(long, default_value_t = 2_048, value_parser = clap::value_parser!(u64).range(1..))]
    pub jpeg_rows: u64,
    /// The number of classes
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub classes: u64,
    /// Rows per batch
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..))]
    pub batch_size: u64,
    /// The number of repetitions; the median is reported, with the spread
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub repeat: u64,
    /// The number of passes over the data in each process; the rate is that of all passes but the first
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: u64,
    /// Milliseconds before each response of the object store
    #[arg(long, default_value_t = 20)]
    pub latency_ms: u64,
    /// Do not profile the paths that miss a bar
    #[arg(long)]
    pub no_profile: bool,
    /// A Python interpreter with pyarrow, for the ceiling of Flight [default: $STOKER_PYTHON, or else python3]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// The folder in which the data is written and kept; a temporary folder by default
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw the ratios to the ceilings as a bar chart into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// The tables to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Data {
    /// uint8[3,224,224]
    Images,
    /// int32[512]
    Tokens,
    /// Both, one after the other
    Both,
}

impl Settings {
    /// Returns the kinds of rows of the tables that are streamed.
    pub fn kinds(&self) -> &'static [Kind] {
        match self.data {
            Data::Images => &[Kind::Images],
            Data::Tokens => &[Kind::Tokens],
            Data::Both => &[Kind::Images, Kind::Tokens],
        }
    }

    /// Returns the number of rows of a table.
    pub fn num_rows(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Images => self.rows,
            Kind::Tokens => self.token_rows,
            Kind::Narrow => self.narrow_rows,
        }
    }

    /// Returns the Python interpreter that runs pyarrow.
    pub fn python(&self) -> OsString {
        let given = self.python.as_ref().map(|path| path.as_os_str().to_owned());
        given.or_else(|| std::env::var_os(PYTHON)).unwrap_or_else(|| "python3".into())
    }
}

/// Returns the path of the lake in the data folder.
pub fn lake_in(dir: &Path) -> PathBuf {
    dir.join(BUCKET).join(LAKE)
}
