//! Tests of the chunk scan against Lance's own decoder.

mod caching;
mod checksums;
mod faults;
mod hedging;
mod local_reads;
mod pacing;
mod runs;
mod script;
mod sharing;

use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, UInt8Array};
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;
use stoker_batch::Slots;
use stoker_columns::TensorType;
use stoker_lake::{CommitMode, DenseColumn, DenseProbe, LakeStore, StorageOptions, Table, WriteOptions};
use stoker_types::{SnapshotRef, TableName};

use crate::*;

const ROW: usize = 1_200;

/// A table of `num_rows` rows whose bytes are a function of the row, in pages of `page_rows` rows.
async fn table(uri: &str, num_rows: usize, page_rows: usize, fragment_rows: u64) -> Table {
    let lake = LakeStore::open(uri, &StorageOptions::default()).await.expect("a lake");
    let name = TableName::try_new("t").expect("a name");
    let field = TensorType { element: DataType::UInt8, shape: vec![ROW] }.to_field("x");
    let DataType::FixedSizeList(item, length) = field.data_type().clone() else { unreachable!("a tensor") };
    let schema = Arc::new(Schema::new(vec![field, Field::new("id", DataType::Int64, false)]));
    let options =
        WriteOptions { page_bytes: page_rows * ROW, rows_per_fragment_max: fragment_rows, ..WriteOptions::default() };
    let mut writer = lake.writer(&name, &schema, false, options).await.expect("a writer");
    let bytes = (0..num_rows * ROW).map(|at| ((at / ROW) * 31 + at % ROW * 7) as u8);
    let values: ArrayRef = Arc::new(UInt8Array::from_iter_values(bytes));
    let tensors = FixedSizeListArray::new(item, length, values, None);
    let ids = Int64Array::from_iter_values(0..num_rows as i64);
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(tensors), Arc::new(ids)]).expect("a batch");
    writer.write(&batch).await.expect("written");
    let schema = writer.schema();
    let drafts = writer.finish().await.expect("finished");
    lake.commit(&name, &schema, CommitMode::Create, drafts, None).await.expect("committed");
    lake.table(&name, &SnapshotRef::Latest).await.expect("a table")
}

async fn dense(table: &Table) -> Arc<DenseColumn> {
    match table.dense_column("x").await.expect("a probe") {
        DenseProbe::Dense(column) => column,
        DenseProbe::NotDense { reason } => panic!("not dense: {reason}"),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime")
}

#[test]
fn a_run_of_rows_is_one_request_per_page_at_most() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let table = table(folder.path().to_str().expect("UTF-8"), 400, 50, 1_000).await;
        let column = dense(&table).await;
        let scan = ChunkScan::new(ChunkScanOptions::default());
        let array = scan.column("x", &column, &(0..400).collect::<Vec<u64>>()).await.expect("rows");
        assert_eq!(array.len(), 400);
        let totals = scan.stats().totals();
        assert!(totals.requests <= 8, "{totals:?}");
        assert_eq!(totals.bytes_used, 400 * ROW as u64);
        // Pages begin at multiples of 64 bytes, so there are gaps between them.
        assert!(totals.bytes_read <= 400 * ROW as u64 + 8 * 64, "{totals:?}");
    });
}

#[test]
fn unknown_addresses_and_cut_files_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let uri = folder.path().to_str().expect("UTF-8").to_string();
    runtime().block_on(async {
        let made = table(&uri, 60, 50, 1_000).await;
        let column = dense(&made).await;
        let scan = ChunkScan::new(ChunkScanOptions::default());
        for address in [60, 1 << 32] {
            let error = scan.column("x", &column, &[3, address]).await.expect_err("no such row");
            assert_eq!(error.kind(), stoker_types::ErrorKind::DataCorrupt, "{error}");
        }
        let data = folder.path().join("t.lance/data");
        let files = std::fs::read_dir(&data).expect("files").map(|entry| entry.expect("an entry").path());
        let heavy = files.max_by_key(|path| path.metadata().expect("metadata").len()).expect("a file");
        let bytes = std::fs::read(&heavy).expect("bytes");
        std::fs::write(&heavy, &bytes[..bytes.len() / 2]).expect("cut");
        let lake = LakeStore::open(&uri, &StorageOptions::default()).await.expect("a lake");
        let fresh = lake.table(made.name(), &SnapshotRef::Latest).await.expect("a table");
        let error = fresh.dense_column("x").await.map(|_| ()).expect_err("a cut file");
        assert_eq!(error.kind(), stoker_types::ErrorKind::DataCorrupt, "{error}");
        assert!(error.to_string().contains("table t@1"), "{error}");
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Any rows in any order, with duplicates and over several fragments, equal the output of Lance's own decoder, on
    /// disk and in memory.
    #[test]
    fn gathered_rows_equal_the_stock_decoder(
        picks in proptest::collection::vec(0u64..500, 0..300), page_rows in 1usize..40, fragment_rows in 60u64..600,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        for uri in [folder.path().to_str().expect("UTF-8"), "memory://lake"] {
            runtime().block_on(async {
                let table = table(uri, 500, page_rows, fragment_rows).await;
                let column = dense(&table).await;
                let mut addresses = Vec::new();
                for fragment in table.fragments() {
                    addresses.extend((0..fragment.physical_rows).map(|row| u64::from(fragment.id) << 32 | row));
                }
                let wanted: Vec<u64> = picks.iter().map(|pick| addresses[*pick as usize]).collect();
                let stock = table.take(&["x".to_string()], &wanted).await.expect("rows");
                for local_reads in [LocalReads::Buffered, LocalReads::Direct] {
                    let scan = ChunkScan::new(ChunkScanOptions { local_reads, ..ChunkScanOptions::default() });
                    let mine = scan.column("x", &column, &wanted).await.expect("rows");
                    assert_eq!(mine.to_data(), stock.column(0).to_data());
                }
            });
        }
    }
}
