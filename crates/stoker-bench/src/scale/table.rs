//! The table of the benchmark: one random bit per row.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use stoker_lake::{CommitMode, LakeStore, StorageOptions, WriteOptions};
use stoker_types::{ErrorKind, SnapshotRef, TableName};

/// The number of rows of a batch that is written at once: 128 KiB.
const ROWS_PER_BATCH: u64 = 1 << 20;

/// The number of rows of a fragment: 2 MiB, so that 10^9 rows are 60 fragments.
const ROWS_PER_FRAGMENT: u64 = 1 << 24;

/// The seed of the bits.
const SEED: u64 = 1;

/// The time between two lines of progress if standard error is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The table.
pub struct ScaleTable {
    pub lake: LakeStore,
    pub rows: u64,
    pub num_fragments: usize,
    /// Seconds for writing the table; `None` if the table existed.
    pub write_secs: Option<f64>,
}

/// Writes the table `scale` unless it exists.
pub async fn make(uri: &str, rows: u64) -> anyhow::Result<ScaleTable> {
    let lake = LakeStore::open(uri, &StorageOptions::default()).await?;
    let name = TableName::try_new("scale")?;
    let tables = match lake.tables().await {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        found => found?,
    };
    if let Some(other) = tables.iter().find(|table| **table != name) {
        bail!("{uri} holds table {other}: choose a folder of its own, because its row sets are removed");
    }
    let write_secs = match tables.is_empty() {
        true => Some(write(&lake, &name, rows).await?),
        false => None,
    };
    let table = lake.table(&name, &SnapshotRef::Latest).await?;
    let found = table.num_rows();
    ensure!(found == rows, "{uri} holds a table of {found} rows, not {rows}: choose another folder");
    Ok(ScaleTable { lake, rows, num_fragments: table.fragments().len(), write_secs })
}

/// Writes the table, and returns the seconds that writing took.
async fn write(lake: &LakeStore, name: &TableName, rows: u64) -> anyhow::Result<f64> {
    let schema = Arc::new(Schema::new(vec![Field::new("keep", DataType::Boolean, false)]));
    let options = WriteOptions { rows_per_fragment_max: ROWS_PER_FRAGMENT, ..WriteOptions::default() };
    let mut writer = lake.writer(name, &schema, false, options).await?;
    let mut progress = Progress::start(rows)?;
    let mut random = SplitMix64(SEED);
    let mut written = 0;
    while written < rows {
        let count = (rows - written).min(ROWS_PER_BATCH);
        let words: Vec<u64> = (0..count.div_ceil(64)).map(|_| random.next_bits()).collect();
        let keep = BooleanArray::new(BooleanBuffer::new(Buffer::from_vec(words), 0, count as usize), None);
        writer.write(&RecordBatch::try_new(schema.clone(), vec![Arc::new(keep)])?).await?;
        written += count;
        progress.set(written);
    }
    let schema = writer.schema();
    let drafts = writer.finish().await?;
    lake.commit(name, &schema, CommitMode::Create, drafts, None).await?;
    Ok(progress.finish())
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
}

/// Shows the rows written so far on standard error: as a bar, or as lines if standard error is no terminal.
struct Progress {
    bar: ProgressBar,
    rows: u64,
    started: Instant,
    last_line: Instant,
}

impl Progress {
    fn start(rows: u64) -> anyhow::Result<Self> {
        eprintln!("writing {} rows", HumanCount(rows));
        let bar = ProgressBar::new(rows);
        bar.set_style(ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} rows  {per_sec}  {eta} left")?);
        let now = Instant::now();
        Ok(Self { bar, rows, started: now, last_line: now })
    }

    fn set(&mut self, written: u64) {
        self.bar.set_position(written);
        if self.bar.is_hidden() && self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            eprintln!("{} of {} rows ({} rows/s)", HumanCount(written), HumanCount(self.rows), self.rate(written));
        }
    }

    /// Returns the seconds since the start.
    fn finish(&self) -> f64 {
        self.bar.finish_and_clear();
        let secs = self.started.elapsed().as_secs_f64();
        eprintln!("{} rows in {secs:.1} s ({} rows/s)", HumanCount(self.rows), self.rate(self.rows));
        secs
    }

    fn rate(&self, written: u64) -> HumanCount {
        rate(written, self.started.elapsed().as_secs_f64())
    }
}

/// Returns the rows per second.
#[expect(clippy::cast_possible_truncation, reason = "casts of numbers with fractions saturate")]
pub(super) fn rate(rows: u64, secs: f64) -> HumanCount {
    HumanCount((rows as f64 / secs.max(1e-9)) as u64)
}
