//! The data of the benchmark.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use arrow_array::{FixedSizeListArray, Int64Array, RecordBatch, UInt8Array};
use arrow_schema::{DataType, Field, Schema};
use stoker_lake::{CommitMode, DenseProbe, Lake, StorageOptions, WriteOptions};
use stoker_types::{SnapshotRef, TableName, TensorType};

/// Bytes of a row: uint8[3,224,224].
pub const ROW_BYTES: u64 = 150_528;

/// Makes the table `bench` unless it is there, and returns the data files of its tensors.
pub async fn make(uri: &str, rows: u64, classes: u64) -> anyhow::Result<Vec<PathBuf>> {
    let lake = Lake::open(uri, &StorageOptions::default()).await?;
    let name = TableName::try_new("bench")?;
    let table = match lake.table(&name, &SnapshotRef::Latest).await {
        Ok(table) => table,
        Err(_) => {
            write(&lake, &name, rows, classes).await?;
            lake.table(&name, &SnapshotRef::Latest).await?
        }
    };
    anyhow::ensure!(table.num_rows() == rows, "the folder holds a table of {} rows: choose another", table.num_rows());
    let DenseProbe::Dense(column) = table.dense_column("image").await? else {
        anyhow::bail!("the benchmark's own table is not dense");
    };
    let data = PathBuf::from(table.uri()).join("data");
    let mut files = Vec::new();
    for fragment in table.fragments() {
        let file = column.file(fragment.id).context("a fragment without a file")?;
        let name = file.reader.place().split_whitespace().nth(2).context("a file without a name")?.to_string();
        files.push(data.join(name));
    }
    Ok(files)
}

async fn write(lake: &Lake, name: &TableName, rows: u64, classes: u64) -> anyhow::Result<()> {
    let field = TensorType { element: DataType::UInt8, shape: vec![3, 224, 224] }.to_field("image");
    let DataType::FixedSizeList(item, length) = field.data_type().clone() else { anyhow::bail!("not a tensor") };
    let schema = Arc::new(Schema::new(vec![field, Field::new("label", DataType::Int64, false)]));
    let mut writer = lake.writer(name, &schema, false, WriteOptions::default()).await?;
    let mut random = 1u64;
    let mut row = 0;
    while row < rows {
        let count = (rows - row).min(55);
        let mut bytes = Vec::with_capacity((count * ROW_BYTES) as usize);
        while bytes.len() < (count * ROW_BYTES) as usize {
            // A linear congruential generator (Knuth's MMIX constants): any bytes do, as long as they are not constant.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.extend_from_slice(&random.to_le_bytes());
        }
        bytes.truncate((count * ROW_BYTES) as usize);
        let images = FixedSizeListArray::new(item.clone(), length, Arc::new(UInt8Array::from(bytes)), None);
        let labels = Int64Array::from_iter_values((row..row + count).map(|row| (row * classes / rows) as i64));
        writer.write(&RecordBatch::try_new(schema.clone(), vec![Arc::new(images), Arc::new(labels)])?).await?;
        row += count;
    }
    let schema = writer.schema();
    let drafts = writer.finish().await?;
    lake.commit(name, &schema, CommitMode::Create, drafts, None).await?;
    Ok(())
}
