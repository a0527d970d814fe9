//! Tests of the chunk scan against Lance's own decoder.

mod caching;
mod checksums;
mod faults;
mod hedging;
mod local_reads;
mod pacing;
mod script;
mod sharing;
mod virtual_time;

use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, UInt8Array};
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;
use stoker_batch::BufferPool;
use stoker_lake::{CommitMode, DenseColumn, DenseProbe, LakeStore, StorageOptions, Table, WriteOptions};
use stoker_types::{SnapshotRef, TableName, TensorType};

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

#[test]
fn memory_returns_to_the_pool() {
    let pool = BufferPool::new(1 << 20);
    let slots = Slots::try_new(&pool, 4, 1_000).expect("memory");
    let address = slots.claim(0).expect("free").as_ptr() as usize;
    drop(slots);
    let again = Slots::try_new(&pool, 4, 1_000).expect("memory");
    assert_eq!(again.claim(0).expect("free").as_ptr() as usize, address);
    assert!(again.claim(0).is_err(), "claimed twice");
    assert!(again.freeze().is_err(), "not filled");
}

#[test]
fn memory_that_the_system_does_not_have_is_an_error() {
    let pool = BufferPool::new(1 << 20);
    for bytes in [1 << 46, 1 << 60, usize::MAX] {
        let error = pool.take(bytes).expect_err("more than there is");
        assert_eq!(error.kind(), stoker_types::ErrorKind::ResourceExhausted);
        assert!(error.to_string().contains(&format!("refused {bytes} bytes of memory")), "{error}");
    }
    assert!(Slots::try_new(&pool, 1 << 40, 1 << 40).is_err(), "more bytes than can be counted");
    assert_eq!(pool.used_bytes(), 0);
    Slots::try_new(&pool, 4, 1_000).expect("memory");
}

#[test]
fn a_pool_keeps_what_fits_beside_the_memory_in_use() {
    let pool = BufferPool::new(10_000);
    Slots::try_new(&pool, 4, 1_000).expect("memory").claim(0).expect("free").copy_from_slice(&[1; 1_000]);
    let is_kept = || Slots::try_new(&pool, 4, 1_000).expect("memory").claim(0).expect("free")[0] == 1;
    assert!(is_kept());
    let _other = Slots::try_new(&pool, 1, 7_000).expect("memory");
    assert!(!is_kept(), "used and kept memory take more than the pool's bytes");
}

#[test]
fn a_pool_keeps_a_little_whatever_is_in_use() {
    let pool = BufferPool::new(32_000);
    let fill = |length| {
        Slots::try_new(&pool, 1, length).expect("memory").claim(0).expect("free").copy_from_slice(&vec![1; length])
    };
    let is_kept = |length| Slots::try_new(&pool, 1, length).expect("memory").claim(0).expect("free")[0] == 1;
    let _others = Slots::try_new(&pool, 1, 100_000).expect("memory");
    fill(2_000);
    assert!(is_kept(2_000));
    fill(2_001);
    assert!(!is_kept(2_001), "more than a sixteenth");
}

#[test]
fn a_pool_that_shrinks_gives_memory_back() {
    let pool = BufferPool::new(10_000);
    let fill = || Slots::try_new(&pool, 4, 1_000).expect("memory").claim(0).expect("free").copy_from_slice(&[1; 1_000]);
    let is_kept = || Slots::try_new(&pool, 4, 1_000).expect("memory").claim(0).expect("free")[0] == 1;
    fill();
    pool.resize(4_000);
    assert!(is_kept());
    pool.resize(0);
    pool.resize(10_000);
    assert!(!is_kept());
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
