//! Tests that damaged rows are found by their checksums, and never delivered.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{Float32Array, LargeBinaryArray};
use stoker_batch::BufferPool;
use stoker_clock::Clock;
use stoker_columns::{KIND_ENCODED_IMAGE, KIND_KEY};
use stoker_types::ErrorKind;

use super::*;
use crate::coalesce::{Piece, Read};
use crate::verify::{addresses, expect};

const FRAGMENT_ROWS: usize = 50;

const LAST_OF_SECOND: u64 = 1 << 32 | 49;

/// A table of 120 rows in fragments of 50.
pub(super) async fn some_table(uri: &str) -> Table {
    table(uri, 120, 20, FRAGMENT_ROWS as u64).await
}

pub(super) fn all_addresses() -> Vec<u64> {
    (0..120).map(|row: u64| ((row / 50) << 32) | (row % 50)).collect()
}

/// The bytes of the row at an address.
pub(super) fn row_at(address: u64) -> Vec<u8> {
    let row = (address >> 32) as usize * FRAGMENT_ROWS + (address & 0xFFFF_FFFF) as usize;
    (0..ROW).map(|at| (row * 31 + at * 7) as u8).collect()
}

/// The path of the data file that contains a row.
pub(super) fn data_file(folder: &Path, column: &DenseColumn, address: u64) -> PathBuf {
    let file = column.file((address >> 32) as u32).expect("a fragment");
    folder.join("t.lance/data").join(file.reader.place().split(' ').nth(2).expect("a name"))
}

/// Flips a bit of a row in its file. Returns the file's name.
pub(super) fn flip(folder: &Path, column: &DenseColumn, address: u64) -> String {
    let file = column.file((address >> 32) as u32).expect("a fragment");
    let (offset, _) = file.locate(address & 0xFFFF_FFFF).expect("a row");
    let path = data_file(folder, column, address);
    let file: File = OpenOptions::new().read(true).write(true).open(&path).expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset + 700).expect("a byte");
    file.write_all_at(&[byte[0] ^ 0x10], offset + 700).expect("written");
    path.file_name().and_then(|name| name.to_str()).expect("a name").to_string()
}

#[test]
fn damaged_rows_come_back_with_their_slots_and_the_others_are_filled() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let column = dense(&some_table(folder.path().to_str().expect("UTF-8")).await).await;
        let scan = ChunkScan::new(ChunkScanOptions::default());
        scan.column("x", &column, &all_addresses()).await.expect("nothing is damaged yet");
        assert_eq!(scan.stats().totals().verified_bytes, 120 * ROW as u64);
        let name = flip(folder.path(), &column, 3);
        flip(folder.path(), &column, LAST_OF_SECOND);
        let wanted = [all_addresses(), vec![3, 4]].concat();
        let slots = Slots::try_new(scan.pool(), wanted.len(), ROW).expect("memory");
        let rows = wanted.iter().enumerate().map(|(row, address)| (*address, slots.claim(row).expect("a free slot")));
        let bad = scan.gather("x", &column, rows.collect()).await.expect("a gather");
        let found: Vec<_> = bad.iter().map(|bad| (bad.address, bad.slots.len())).collect();
        assert_eq!(found, [(3, 2), (LAST_OF_SECOND, 1)]);
        let expected = stoker_checksum::checksum(&row_at(3));
        assert!(bad[0].reason.starts_with("the checksum of column x is 0x"), "{}", bad[0].reason);
        let rest = format!(" and not {expected:#010x}, in data file {name} of table t@1");
        assert!(bad[0].reason.ends_with(&rest), "{}", bad[0].reason);
        for mut slot in bad.into_iter().flat_map(|bad| bad.slots) {
            slot.copy_from_slice(&row_at(7));
            slot.fill();
        }
        let bytes = slots.freeze().expect("all slots are filled");
        for (row, address) in wanted.iter().enumerate() {
            let address = if [3, LAST_OF_SECOND].contains(address) { 7 } else { *address };
            assert_eq!(&bytes[row * ROW..(row + 1) * ROW], &row_at(address), "{row}");
        }
        let totals = scan.stats().totals();
        assert_eq!((totals.bad_rows, totals.retries), (2, 0));
    });
}

#[test]
fn a_column_with_a_damaged_row_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let column = dense(&some_table(folder.path().to_str().expect("UTF-8")).await).await;
        let scan = ChunkScan::new(ChunkScanOptions::default());
        let name = flip(folder.path(), &column, LAST_OF_SECOND);
        let error = scan.column("x", &column, &all_addresses()).await.expect_err("a damaged row");
        assert_eq!(error.kind(), ErrorKind::DataCorrupt, "{error}");
        assert!(matches!(&error, Error::BadRow { address: LAST_OF_SECOND, column, .. } if column == "x"), "{error:?}");
        let message = error.to_string();
        assert!(message.starts_with("row address 0x100000031 is damaged: the checksum of column x is"), "{message}");
        assert!(message.contains(&name), "{message}");
        let others: Vec<u64> = all_addresses().into_iter().filter(|address| *address != LAST_OF_SECOND).collect();
        let array = scan.column("x", &column, &others).await.expect("the other rows");
        assert_eq!(array.len(), 119);
    });
}

#[test]
fn without_verification_bytes_are_delivered_as_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let column = dense(&some_table(folder.path().to_str().expect("UTF-8")).await).await;
        flip(folder.path(), &column, 3);
        let scan = ChunkScan::new(ChunkScanOptions { verify: false, ..ChunkScanOptions::default() });
        let array = scan.column("x", &column, &[3]).await.expect("a row");
        let mut expected = row_at(3);
        expected[700] ^= 0x10;
        let found = array.as_fixed_size_list().values().as_primitive::<UInt8Type>().values().to_vec();
        assert_eq!(found, expected);
        assert_eq!(scan.stats().totals().verified_bytes, 0);
    });
}

#[test]
fn rows_from_an_object_store_are_checked_too() {
    runtime().block_on(async {
        let column = dense(&some_table("memory://lake").await).await;
        let scan = ChunkScan::new(ChunkScanOptions::default());
        scan.column("x", &column, &[all_addresses(), vec![5]].concat()).await.expect("rows");
        let totals = scan.stats().totals();
        assert_eq!((totals.verified_bytes, totals.bad_rows), (120 * ROW as u64, 0));
    });
}

#[test]
fn light_rows_that_are_read_as_plain_bytes_are_checked_too() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        // A vector of 256 bytes is dense, but light, so that it has no file of its own.
        let uri = folder.path().to_str().expect("UTF-8");
        let lake = LakeStore::open(uri, &StorageOptions::default()).await.expect("a lake");
        let name = TableName::try_new("t").expect("a name");
        let field = TensorType { element: DataType::Float32, shape: vec![64] }.to_field("x");
        let DataType::FixedSizeList(item, length) = field.data_type().clone() else { unreachable!("a tensor") };
        let schema = Arc::new(Schema::new(vec![field]));
        let values: ArrayRef = Arc::new(Float32Array::from_iter_values((0..30 * 64).map(|at| at as f32)));
        let vectors = FixedSizeListArray::new(item, length, values, None);
        let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(vectors.clone())]).expect("a batch");
        let mut writer = lake.writer(&name, &schema, false, WriteOptions::default()).await.expect("a writer");
        writer.write(&batch).await.expect("written");
        let schema = writer.schema();
        let drafts = writer.finish().await.expect("finished");
        lake.commit(&name, &schema, CommitMode::Create, drafts, None).await.expect("committed");
        let column = dense(&lake.table(&name, &SnapshotRef::Latest).await.expect("a table")).await;
        let scan = ChunkScan::new(ChunkScanOptions::default());
        let array = scan.column("x", &column, &(0..30).collect::<Vec<u64>>()).await.expect("rows");
        assert_eq!(array.as_fixed_size_list().values(), vectors.values());
        assert_eq!(scan.stats().totals().verified_bytes, 30 * 256);
    });
}

/// A table of 40 encoded images of 3,000 bytes each, in one file.
async fn images(uri: &str) -> Table {
    let lake = LakeStore::open(uri, &StorageOptions::default()).await.expect("a lake");
    let name = TableName::try_new("t").expect("a name");
    let kind = [(KIND_KEY.to_string(), KIND_ENCODED_IMAGE.to_string())];
    let image = Field::new("x", DataType::LargeBinary, false).with_metadata(kind.into());
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), image]));
    let images = LargeBinaryArray::from_iter_values((0..40).map(image_at));
    let ids = Int64Array::from_iter_values(0..40);
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(ids), Arc::new(images)]).expect("a batch");
    let mut writer = lake.writer(&name, &schema, false, WriteOptions::default()).await.expect("a writer");
    writer.write(&batch).await.expect("written");
    let schema = writer.schema();
    let drafts = writer.finish().await.expect("finished");
    lake.commit(&name, &schema, CommitMode::Create, drafts, None).await.expect("committed");
    lake.table(&name, &SnapshotRef::Latest).await.expect("a table")
}

fn image_at(row: u64) -> Vec<u8> {
    (0..3_000u64).map(|at| (((row + 1) * (at + 17) * 2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn decoded_values_are_checked_and_read_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let table = images(folder.path().to_str().expect("UTF-8")).await;
        let (addresses, retry, clock) = ([7, 5, 5, 30], RetryPolicy::default(), Clock::default());
        let columns = ["x".to_string(), "id".to_string()];
        let taken = table.take(&columns, &addresses).await.expect("rows");
        for (column, values) in columns.iter().zip(taken.columns()) {
            let bad = verify_values(&table, column, &addresses, values, retry, &clock).await.expect("a check");
            assert!(bad.is_empty(), "{column}: {bad:?}");
        }
        // These values differ from those in storage.
        let wrong: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values([7, 6, 5, 30].map(image_at)));
        let error =
            verify_values(&table, "x", &addresses, &wrong, retry, &clock).await.expect_err("a second read is right");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        // The next values are read from bytes that are damaged in storage.
        let checksums = table.checksums("x").await.expect("a probe").expect("checksums");
        let place = checksums.reader(5).expect("a file").place().to_string();
        let path = folder.path().join("t.lance/data").join(place.split(' ').nth(2).expect("a name"));
        let mut bytes = std::fs::read(&path).expect("bytes");
        let image = image_at(5);
        let offset = bytes.windows(image.len()).position(|window| window == image).expect("it is stored as it is");
        bytes[offset + 2_000] ^= 1;
        std::fs::write(&path, bytes).expect("written");
        let taken = table.take(&columns[..1], &addresses).await.expect("rows");
        let bad = verify_values(&table, "x", &addresses, taken.column(0), retry, &clock).await.expect("a check");
        assert_eq!(bad.iter().map(|(address, _)| *address).collect::<Vec<_>>(), [5]);
        assert!(bad[0].1.starts_with("the checksum of column x is 0x"), "{}", bad[0].1);
        assert!(bad[0].1.ends_with(&place), "{}", bad[0].1);
    });
}

#[test]
fn suspects_are_taken_out_of_a_read_as_reads_of_their_own() {
    let slots = Slots::try_new(&BufferPool::new(0), 4, 100).expect("memory");
    let mut read = Read::new(2, 1_000, 700, Vec::new());
    for row in 0..4u64 {
        let mut slot = slots.claim(row as usize).expect("a free slot");
        slot.copy_from_slice(&[row as u8; 100]);
        read.pieces.push(Piece::new(2 << 32 | row, row * 200, slot));
    }
    let stats = IoStats::default();
    assert!(read.take_suspects(&stats).expect("a check").is_empty() && !read.is_checked());
    let checksum_of = |value: u8| Some(stoker_checksum::checksum(&[value; 100]));
    // Row 1 has the checksum of row 0, and row 2 has no checksum.
    assert!(expect(std::slice::from_mut(&mut read), vec![checksum_of(0)]).is_err(), "three rows would not be verified");
    let checksums = vec![checksum_of(0), checksum_of(0), None, checksum_of(3)];
    expect(std::slice::from_mut(&mut read), checksums).expect("as many as rows");
    let suspects = read.take_suspects(&stats).expect("a check");
    assert_eq!(addresses(&suspects), [2 << 32 | 1]);
    assert_eq!((suspects[0].fragment, suspects[0].offset, suspects[0].length), (2, 1_200, 100));
    assert_eq!(suspects[0].pieces[0].at, 0);
    assert_eq!(addresses(&[read]), [2 << 32, 2 << 32 | 2, 2 << 32 | 3]);
    assert_eq!(stats.totals().verified_bytes, 300);
}
