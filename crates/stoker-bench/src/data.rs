//! The tables of the benchmark, and the byte ranges of their rows.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow_array::{ArrayRef, FixedSizeListArray, Int32Array, Int64Array, RecordBatch, UInt8Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_columns::{HEAVY_KEY, TensorType};
use stoker_lake::{
    CommitMode, DenseColumn, DenseFile, DenseProbe, FragmentInfo, LakeStore, StorageOptions, Table, WriteOptions,
};
use stoker_types::{SnapshotRef, TableName, to_usize};

/// The bytes of heavy columns that are written at once.
const WRITE_BYTES: u64 = 8 << 20;

/// The values of `pick` are random numbers below this, scattered over the table.
pub const PICKS: u64 = 20;

/// The kinds of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pictures of 147 KiB.
    Images,
    /// Sequences of tokens, 2 KiB each.
    Tokens,
    /// Rows of 256 bytes.
    Narrow,
}

impl Kind {
    /// The table's name.
    pub fn table(self) -> &'static str {
        match self {
            Kind::Images => "images",
            Kind::Tokens => "tokens",
            Kind::Narrow => "narrow",
        }
    }

    /// The name of the heavy column.
    pub fn column(self) -> &'static str {
        match self {
            Kind::Images => "image",
            Kind::Tokens | Kind::Narrow => "tokens",
        }
    }

    fn tensor(self) -> TensorType {
        let (element, shape) = match self {
            Kind::Images => (DataType::UInt8, vec![3, 224, 224]),
            Kind::Tokens => (DataType::Int32, vec![512]),
            Kind::Narrow => (DataType::Int32, vec![64]),
        };
        TensorType { element, shape }
    }

    /// The number of bytes of a row of the heavy column.
    pub fn row_bytes(self) -> u64 {
        let tensor = self.tensor();
        let elements = tensor.shape.iter().product::<usize>();
        (elements * tensor.element.primitive_width().unwrap_or(1)) as u64
    }

    /// The type of the heavy column, for people.
    pub fn describe(self) -> String {
        let tensor = self.tensor();
        let shape: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
        format!("{}[{}]", tensor.element.to_string().to_lowercase(), shape.join(","))
    }

    /// Returns the columns: the tensor, `label` (the classes in order), `pick` (random).
    fn schema(self) -> SchemaRef {
        let tensor = self.tensor().to_field(self.column());
        let mut metadata = tensor.metadata().clone();
        metadata.insert(HEAVY_KEY.to_string(), "true".to_string());
        let (label, pick) = (Field::new("label", DataType::Int64, false), Field::new("pick", DataType::Int64, false));
        Arc::new(Schema::new(vec![tensor.with_metadata(metadata), label, pick]))
    }
}

/// A table of the benchmark.
pub struct DataSet {
    pub kind: Kind,
    pub num_rows: u64,
    column: Arc<DenseColumn>,
    fragments: Vec<FragmentInfo>,
    /// The folder of the data files.
    dir: PathBuf,
}

/// A byte range of a data file.
#[derive(Clone, Debug)]
pub struct ByteRange {
    /// The name of the file in the folder of data files.
    pub file: String,
    pub offset: u64,
    pub length: u64,
}

impl DataSet {
    /// Writes a table unless it exists.
    pub async fn make(lake: &Path, kind: Kind, num_rows: u64, classes: u64) -> anyhow::Result<Self> {
        let uri = lake.to_str().context("the folder's name is not UTF-8")?;
        let lake = LakeStore::open(uri, &StorageOptions::default()).await?;
        let name = TableName::try_new(kind.table())?;
        if !lake.has_table(&name).await? {
            eprintln!("making {num_rows} rows of {} in {}", kind.describe(), lake.uri());
            write(&lake, &name, kind, num_rows, classes, WriteOptions::default()).await?;
        }
        let table = lake.table(&name, &SnapshotRef::Latest).await?;
        let found = table.num_rows();
        ensure!(found == num_rows, "{} holds {found} rows, not {num_rows}: choose another folder", table.uri());
        let column = match table.dense_column(kind.column()).await? {
            DenseProbe::Dense(column) => column,
            DenseProbe::NotDense { reason } => bail!("the benchmark's own table is not dense: {reason}"),
        };
        let data = Self { kind, num_rows, column, fragments: table.fragments(), dir: data_dir(&table) };
        data.sync()?;
        Ok(data)
    }

    /// Returns the sample query of all rows.
    pub fn query(&self) -> String {
        format!("SELECT {}, label FROM {}", self.kind.column(), self.kind.table())
    }

    /// Returns the path of a file of a byte range.
    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    /// Returns the heavy column's bytes, in ranges of at most `bytes` bytes.
    pub fn ranges(&self, bytes: u64) -> anyhow::Result<Vec<ByteRange>> {
        let mut ranges = Vec::new();
        for fragment in &self.fragments {
            let (file, name) = self.file(fragment.id)?;
            let last_row = file.num_rows.checked_sub(1).context("a fragment without rows")?;
            let (start, _) = file.locate(0).context("a fragment without pages")?;
            let (last, _) = file.locate(last_row).context("a fragment without pages")?;
            let end = last + self.kind.row_bytes();
            let mut offset = start;
            while offset < end {
                let length = bytes.min(end - offset);
                ranges.push(ByteRange { file: name.clone(), offset, length });
                offset += length;
            }
        }
        Ok(ranges)
    }

    /// Returns the byte ranges of the rows for which `wanted` holds, one range for each row, in order.
    pub fn rows(&self, wanted: impl Fn(u64) -> bool) -> anyhow::Result<Vec<ByteRange>> {
        let (mut ranges, mut first_row) = (Vec::new(), 0);
        for fragment in &self.fragments {
            let (file, name) = self.file(fragment.id)?;
            for row in (0..file.num_rows).filter(|row| wanted(first_row + row)) {
                let (offset, _) = file.locate(row).context("a row without a place")?;
                ranges.push(ByteRange { file: name.clone(), offset, length: self.kind.row_bytes() });
            }
            first_row += fragment.physical_rows;
        }
        Ok(ranges)
    }

    fn file(&self, fragment: u32) -> anyhow::Result<(&DenseFile, String)> {
        let file = self.column.file(fragment).context("a fragment without a file")?;
        // A reader's location reads "data file NAME of table …".
        let name = file.reader.place().split_whitespace().nth(2).context("a file without a name")?;
        Ok((file, name.to_string()))
    }

    /// Waits until the written files are on the disk, because the kernel would otherwise write them back during a
    /// measurement.
    fn sync(&self) -> anyhow::Result<()> {
        for found in self.dir.read_dir()? {
            File::open(found?.path())?.sync_all()?;
        }
        Ok(())
    }
}

fn data_dir(table: &Table) -> PathBuf {
    PathBuf::from(table.uri()).join("data")
}

/// Returns the value of `pick` in a row.
pub fn pick(row: u64) -> u64 {
    // This is SplitMix64's output function (Steele, Lea and Flood, OOPSLA 2014).
    let mut bits = row.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (bits ^ (bits >> 31)) % PICKS
}

/// Writes a table in fragments of this many rows, as appends of so many rows do.
pub async fn write_parts(
    lake: &Path,
    kind: Kind,
    num_rows: u64,
    classes: u64,
    rows_per_fragment_max: u64,
) -> anyhow::Result<()> {
    let uri = lake.to_str().context("the folder's name is not UTF-8")?;
    let lake = LakeStore::open(uri, &StorageOptions::default()).await?;
    let name = TableName::try_new(kind.table())?;
    let options = WriteOptions { rows_per_fragment_max, ..WriteOptions::default() };
    write(&lake, &name, kind, num_rows, classes, options).await
}

async fn write(
    lake: &LakeStore,
    name: &TableName,
    kind: Kind,
    num_rows: u64,
    classes: u64,
    options: WriteOptions,
) -> anyhow::Result<()> {
    let schema = kind.schema();
    let mut writer = lake.writer(name, &schema, false, options).await?;
    let mut random = 1u64;
    let mut row = 0;
    while row < num_rows {
        let count = (num_rows - row).min((WRITE_BYTES / kind.row_bytes()).max(1));
        let tensors = tensors(kind, to_usize(count), &mut random)?;
        let rows = row..row + count;
        let labels = Int64Array::from_iter_values(rows.clone().map(|row| (row * classes / num_rows) as i64));
        let picks = Int64Array::from_iter_values(rows.map(|row| pick(row) as i64));
        let columns = vec![tensors, Arc::new(labels), Arc::new(picks)];
        writer.write(&RecordBatch::try_new(schema.clone(), columns)?).await?;
        row += count;
    }
    let schema = writer.schema();
    let drafts = writer.finish().await?;
    lake.commit(name, &schema, CommitMode::Create, drafts, None).await?;
    Ok(())
}

fn tensors(kind: Kind, count: usize, random: &mut u64) -> anyhow::Result<ArrayRef> {
    let words = (0..count * to_usize(kind.row_bytes()) / 8).map(|_| {
        // This is a linear congruential generator with Knuth's MMIX constants. The bytes need not be good random
        // numbers, only not constant.
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *random
    });
    let bytes = Buffer::from_vec(words.collect::<Vec<u64>>());
    let tensor = kind.tensor().to_field(kind.column());
    let DataType::FixedSizeList(item, length) = tensor.data_type().clone() else { bail!("not a tensor") };
    let elements = count * length as usize;
    let values: ArrayRef = match kind {
        Kind::Images => Arc::new(UInt8Array::new(ScalarBuffer::new(bytes, 0, elements), None)),
        Kind::Tokens | Kind::Narrow => Arc::new(Int32Array::new(ScalarBuffer::new(bytes, 0, elements), None)),
    };
    Ok(Arc::new(FixedSizeListArray::new(item, length, values, None)))
}
