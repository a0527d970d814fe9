//! How the columns of a table are stored, and what about it costs speed or safety.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The layout of one column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnLayout {
    /// The column's name.
    pub name: String,
    /// The Arrow type of the column.
    pub data_type: String,
    /// What the values are: `tensor uint8[3, 224, 224]`, `vector float32[768]`, `encoded image`, `text`, `scalar`, ….
    pub kind: String,
    /// Whether the column is heavy: filtering does not read it, except where a predicate names it.
    pub heavy: bool,
    /// Bytes per row: exact for fixed-width columns, else the bytes on disk divided by the rows that are not deleted.
    pub bytes_per_row: Option<u64>,
    /// The number of chunks (Lance pages) in all fragments.
    pub num_chunks: u64,
    /// The size of the largest chunk on disk, in bytes.
    pub chunk_bytes_max: u64,
    /// The bytes of all chunks on disk.
    pub bytes: u64,
    /// Whether every chunk is plain row-major bytes, which are read without decoding.
    pub dense: bool,
    /// Why the column is not dense; `None` for dense columns.
    pub why_not_dense: Option<String>,
    /// The encodings found, for example `none` or `miniblock: bitpacking`.
    pub compression: String,
    /// The number of fragments in which the values have no checksums, so that damage to them is not noticed.
    #[serde(default)]
    pub unchecked_fragments: u64,
    /// How the rows of compressed tensors and of lossy columns are written, such as `pco:8` and `float16`; `None` for other
    /// columns.
    #[serde(default)]
    pub codec: Option<String>,
    /// The bytes of the tensors of all rows, as they were before they were compressed; `None` for other columns.
    #[serde(default)]
    pub plain_bytes: Option<u64>,
    /// The bytes of tensors that one thread decodes in a second, measured on the first rows. `None` for other columns, and
    /// where it was not measured.
    #[serde(default)]
    pub decode_bytes_per_sec: Option<u64>,
    /// The largest absolute error of an element of a lossy column, as it was measured when rows were written; `None` for other
    /// columns.
    #[serde(default)]
    pub max_abs_error: Option<f64>,
    /// Whether some rows are null, as the data files say; `None` where they do not say it.
    #[serde(default)]
    pub has_nulls: Option<bool>,
    /// The indexes over the column, each as its name and its kind: `label_idx (BTree)`.
    #[serde(default)]
    pub indexes: Vec<String>,
}

impl ColumnLayout {
    /// How many times as large as on disk the tensors are; `None` for columns without a codec.
    pub fn ratio(&self) -> Option<f64> {
        self.plain_bytes.map(|plain| plain as f64 / self.bytes.max(1) as f64)
    }

    /// How the bytes of the column are read.
    pub fn verdict(&self) -> Verdict {
        match (self.dense, self.heavy) {
            (true, _) => Verdict::Dense,
            (false, true) => Verdict::Decoder,
            (false, false) => Verdict::Light,
        }
    }
}

/// How the bytes of a column are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Dense: bytes are read at the offsets in the page table, directly into batches.
    Dense,
    /// Heavy but not dense: bytes are read through Lance's decoder.
    Decoder,
    /// Neither heavy nor dense: bytes are read through Lance's decoder too, which is cheap for few bytes.
    Light,
}

impl Verdict {
    /// `dense`, `decoder` or `light`.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Dense => "dense",
            Verdict::Decoder => "decoder",
            Verdict::Light => "light",
        }
    }
}

/// The layout of a table's columns, and what about the table costs speed or safety.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The layout of each column, in the order of the schema.
    pub columns: Vec<ColumnLayout>,
    /// The findings about columns in the order of the schema, then those about the table.
    pub findings: Vec<Finding>,
}

/// A property of a table's layout that costs speed or safety.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The column; `None` for the table as a whole.
    #[serde(default)]
    pub column: Option<String>,
    /// A stable identifier of the kind of finding, for programs: `nulls`, `no_checksums`, ….
    pub code: String,
    /// What was found, and in which fragments.
    pub what: String,
    /// What it costs.
    pub cost: String,
    /// What to do about it.
    pub remedy: String,
    /// Lines of Python that apply the remedy, where `lake` is a connection to this lake.
    #[serde(default)]
    pub example: Option<String>,
}

/// Writes a paragraph of several lines. The first one begins with the column and the code.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.column {
            Some(column) => write!(f, "column {column}")?,
            None => f.write_str("table")?,
        }
        let Finding { code, what, cost, remedy, .. } = self;
        write!(f, " [{code}]: {what}\n  costs: {cost}\n  do this: {remedy}")?;
        for line in self.example.iter().flat_map(|example| example.lines()) {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}
