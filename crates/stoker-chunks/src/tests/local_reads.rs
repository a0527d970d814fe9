//! Tests that direct reads of local files return the same as reads through the page cache.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use stoker_batch::{BufferPool, SlotMut};
use stoker_checksum::checksum;
use stoker_lake::UncachedFile;

use super::checksums::{all_addresses, data_file, flip, row_at, some_table};
use super::*;
use crate::aligned_reader::{AlignedReader, BUFFER_BYTES, is_refusal};
use crate::coalesce::{Piece, Read};
use crate::local::{NEAR, Progress, ReadFrom, Unreadable, forget, read_local};
use crate::row_cursor::RowCursor;
use crate::stats::Asked;
use crate::verify::expect;

const LOCAL_READS: [LocalReads; 2] = [LocalReads::Buffered, LocalReads::Direct];

fn scan(local_reads: LocalReads) -> ChunkScan {
    ChunkScan::new(ChunkScanOptions { local_reads, ..ChunkScanOptions::default() })
}

/// A file of rows that ends with the last row.
#[derive(Clone, Debug)]
struct Rows {
    /// The offset of the first row.
    offset: u64,
    row_bytes: usize,
    num_rows: u64,
}

impl Rows {
    fn file_bytes(&self) -> u64 {
        self.offset + self.num_rows * self.row_bytes as u64
    }

    fn write(&self, path: &Path) {
        let bytes: Vec<u8> = (0..self.file_bytes()).map(byte_at).collect();
        fs::write(path, bytes).expect("a file");
    }

    fn offset_of(&self, row: u64) -> u64 {
        self.offset + row * self.row_bytes as u64
    }

    fn bytes_of(&self, row: u64) -> Vec<u8> {
        (self.offset_of(row)..self.offset_of(row + 1)).map(byte_at).collect()
    }

    /// A read of ascending rows, with their checksums, and its slots. Each of its pieces has up to `run_rows` neighbours.
    fn read(&self, wanted: &[u64], run_rows: usize) -> (Arc<Slots>, Read) {
        let slots = Slots::try_new(&BufferPool::new(0), wanted.len(), self.row_bytes).expect("memory");
        let (first, last) = (wanted[0], wanted[wanted.len() - 1]);
        let (mut pieces, mut place) = (Vec::new(), 0);
        for run in wanted.chunk_by(|one, next| one + 1 == *next).flat_map(|run| run.chunks(run_rows)) {
            let slot = slots.claim_rows(place..place + run.len()).expect("free slots");
            pieces.push(Piece::new(run[0], (run[0] - first) * self.row_bytes as u64, slot));
            place += run.len();
        }
        let (offset, length) = (self.offset_of(first), (last - first + 1) * self.row_bytes as u64);
        let mut read = Read::new(0, offset, length, pieces);
        let checksums = wanted.iter().map(|row| Some(checksum(&self.bytes_of(*row)))).collect();
        expect(std::slice::from_mut(&mut read), checksums).expect("as many as rows");
        (slots, read)
    }

    /// Reads rows of a file one by one and in runs, and checks them. Returns the reads that it took, which are the same.
    fn check(&self, file: &File, alignment: usize, memory: &mut [u8], wanted: &[u64]) -> Asked {
        let [asked, in_runs, in_long_runs] =
            [1, 3, 1_000].map(|run_rows| self.check_runs(file, alignment, memory, wanted, run_rows));
        assert_eq!((in_runs, in_long_runs), (asked, asked), "{self:?}, {wanted:?}");
        asked
    }

    fn check_runs(&self, file: &File, alignment: usize, memory: &mut [u8], wanted: &[u64], run_rows: usize) -> Asked {
        let (slots, mut read) = self.read(wanted, run_rows);
        let asked = AlignedReader::new(file, alignment, memory).read(&mut read).expect("rows");
        assert_eq!(read.num_right(), wanted.len(), "{self:?}, {wanted:?}");
        let (start, end) = (read.offset, read.offset + read.length);
        let alignment = alignment as u64;
        let span = end.next_multiple_of(alignment) - (start - start % alignment);
        assert!(asked.bytes.is_multiple_of(alignment) && asked.bytes <= span, "{asked:?}, {self:?}, {wanted:?}");
        read.finish();
        let bytes = slots.freeze().expect("all slots are filled");
        for (row, found) in wanted.iter().zip(bytes.chunks(self.row_bytes)) {
            assert_eq!(found, self.bytes_of(*row), "row {row}, {self:?}");
        }
        asked
    }

    /// Reads rows of a file from the disk and checks them, if the file system supports direct reads.
    fn check_uncached(&self, path: &Path, wanted: &[u64]) {
        let Some(file) = UncachedFile::open(path, "a file") else { return };
        let mut memory = vec![0; 3 * file.alignment()];
        self.check(file.file(), file.alignment(), &mut memory, wanted);
        self.check(file.file(), file.alignment(), &mut vec![0; BUFFER_BYTES], wanted);
    }
}

/// The byte at an offset of the file, which depends on the offset.
fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn some_rows() -> impl Strategy<Value = Rows> {
    let row_bytes = prop_oneof![Just(7), Just(2_048), Just(4_096), 1usize..6_000];
    (0u64..10_000, row_bytes, 1u64..150).prop_map(|(offset, row_bytes, num_rows)| Rows { offset, row_bytes, num_rows })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn rows_of_any_size_come_through_buffers_of_any_size(
        rows in some_rows(), picks in proptest::collection::btree_set(0u64..150, 0..40), bits in 9u32..15, blocks in 2usize..6,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows");
        rows.write(&path);
        let last = rows.num_rows - 1;
        let wanted: Vec<u64> = picks.into_iter().filter(|row| *row < last).chain([last]).collect();
        let (file, alignment) = (File::open(&path).expect("a file"), 1 << bits);
        rows.check(&file, alignment, &mut vec![0; blocks * alignment], &wanted);
        rows.check_uncached(&path, &wanted);
    }
}

#[test]
fn rows_larger_than_what_is_asked_at_once_come_in_several_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    for row_bytes in [150_528, 3 << 20] {
        let (path, rows) = (folder.path().join("rows"), Rows { offset: 64, row_bytes, num_rows: 20 });
        rows.write(&path);
        let file = File::open(&path).expect("a file");
        for wanted in [(0..20).collect::<Vec<u64>>(), vec![3, 4, 11], vec![19]] {
            let asked = rows.check(&file, 4_096, &mut vec![0; BUFFER_BYTES], &wanted);
            let reads = asked.bytes.div_ceil(BUFFER_BYTES as u64 - 8_192) + wanted.len() as u64;
            assert!(asked.requests <= reads, "{asked:?}");
            rows.check_uncached(&path, &wanted);
        }
    }
}

#[test]
fn what_fills_a_buffer_and_nobody_wants_is_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, rows) = (folder.path().join("rows"), Rows { offset: 0, row_bytes: 100, num_rows: 1_001 });
    rows.write(&path);
    let file = File::open(&path).expect("a file");
    let asked = rows.check(&file, 512, &mut vec![0; 5 * 512], &[0, 1_000]);
    assert!(asked.requests == 2 && asked.bytes <= 6 * 512, "{asked:?}");
}

#[test]
fn what_is_not_in_memory_is_left_to_a_read_that_may_wait() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, rows) = (folder.path().join("rows"), Rows { offset: 100, row_bytes: 70_000, num_rows: 40 });
    rows.write(&path);
    let (file, wanted) = (File::open(&path).expect("a file"), (0..40).collect::<Vec<u64>>());
    file.sync_all().expect("a disk");
    // Not all file systems drop ranges from the page cache.
    forget(&file, rows.offset_of(13)..rows.offset_of(40));
    for run_rows in [1, 7, 40] {
        let ((slots, mut read), mut progress) = (rows.read(&wanted, run_rows), Progress::default());
        read_local(&file, &mut read, &mut Vec::new(), (NEAR, ReadFrom::Memory), &mut progress).expect("rows");
        assert_eq!(read.num_right(), progress.next.index);
        read_local(&file, &mut read, &mut Vec::new(), (NEAR, ReadFrom::Anywhere), &mut progress).expect("rows");
        assert_eq!((read.num_right(), progress.next.index, progress.next.piece), (40, 40, read.pieces.len()));
        assert!(progress.calls >= 40 / 3, "{progress:?}: rows are checked soon after they were read");
        read.finish();
        let bytes = slots.freeze().expect("all slots are filled");
        assert!(wanted.iter().zip(bytes.chunks(70_000)).all(|(row, found)| found == rows.bytes_of(*row)));
        // A read continues after the rows that are there already.
        let (_slots, mut read) = rows.read(&wanted, run_rows);
        let next = RowCursor { piece: 30 / run_rows, row: 30 % run_rows, index: 30 };
        let mut progress = Progress { next, calls: 5, bytes: 0 };
        read_local(&file, &mut read, &mut Vec::new(), (NEAR, ReadFrom::Memory), &mut progress).expect("rows");
        assert_eq!(read.num_right(), progress.next.index - 30);
        let found: Vec<u8> = read.pieces.iter().flat_map(|piece| piece.slot.to_vec()).collect();
        assert!(found[..30 * 70_000].iter().all(|byte| *byte == 0), "rows were read that are there already");
    }
}

#[test]
fn rows_that_are_near_to_each_other_are_read_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, rows) = (folder.path().join("rows"), Rows { offset: 100, row_bytes: 2_000, num_rows: 60 });
    rows.write(&path);
    let file = File::open(&path).expect("a file");
    // Rows of a file are one read, however far apart they are. A gap of one row is read along with eleven rows, a gap of
    // nine rows is not.
    let cases: [(&[u64], u64, u64); 4] = [
        (&[0, 10, 20, 59], 4, 4),
        (&[0, 1, 2, 30, 31, 59], 3, 6),
        (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12], 1, 13),
        (&[0, 2], 2, 2),
    ];
    for (wanted, calls, rows_read) in cases {
        for run_rows in [1, 3] {
            let ((slots, mut read), mut progress) = (rows.read(wanted, run_rows), Progress::default());
            read_local(&file, &mut read, &mut Vec::new(), (NEAR, ReadFrom::Anywhere), &mut progress).expect("rows");
            assert_eq!((progress.calls, progress.bytes), (calls, rows_read * 2_000), "{wanted:?}");
            assert_eq!(read.num_right(), wanted.len());
            read.finish();
            let bytes = slots.freeze().expect("all slots are filled");
            assert!(wanted.iter().zip(bytes.chunks(2_000)).all(|(row, found)| found == rows.bytes_of(*row)));
        }
    }
}

#[test]
fn an_error_names_the_rows_that_cannot_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, rows) = (folder.path().join("rows"), Rows { offset: 100, row_bytes: 20_000, num_rows: 40 });
    rows.write(&path);
    let file = File::options().read(true).write(true).open(&path).expect("a file");
    file.set_len(rows.offset_of(30) + 1).expect("a shorter file");
    let ((_slots, mut read), mut progress) = (rows.read(&[0, 30, 39], 1), Progress::default());
    let failed = read_local(&file, &mut read, &mut Vec::new(), (NEAR, ReadFrom::Anywhere), &mut progress);
    let Unreadable { range, source } = failed.expect_err("the file ends in row 30");
    assert_eq!((range, source.kind()), (rows.offset_of(30)..rows.offset_of(31), io::ErrorKind::UnexpectedEof));
    assert_eq!((progress.next.index, progress.bytes), (1, 20_000));
}

#[test]
#[cfg(target_os = "linux")]
fn file_systems_that_cannot_tell_what_is_in_memory_are_waited_for() {
    let expected = fs::read("/proc/version").expect("a file");
    let (file, rows) = (File::open("/proc/version").expect("a file"), Rows { offset: 0, row_bytes: 7, num_rows: 2 });
    let ((slots, mut read), mut progress) = (rows.read(&[0, 1], 2), Progress::default());
    read_local(&file, &mut read, &mut Vec::new(), (NEAR, ReadFrom::Memory), &mut progress).expect("nothing");
    assert_eq!(progress, Progress::default());
    read_local(&file, &mut read, &mut Vec::new(), (NEAR, ReadFrom::Anywhere), &mut progress).expect("rows");
    assert_eq!(progress.next, RowCursor { piece: 1, row: 0, index: 2 });
    read.finish();
    assert_eq!(slots.freeze().expect("all slots are filled").as_slice(), &expected[..14]);
}

#[test]
fn rows_come_alike_on_one_thread_and_on_several() {
    let folder = tempfile::tempdir().expect("a folder");
    let uri = folder.path().to_str().expect("UTF-8");
    let several = runtime();
    let (column, wanted) = several.block_on(async { (dense(&some_table(uri).await).await, all_addresses()) });
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let found = [&several, &one].map(|runtime| {
        let scan = scan(LocalReads::Buffered);
        let array = runtime.block_on(scan.column("x", &column, &wanted)).expect("rows");
        (array.to_data(), scan.stats().totals().verified_bytes)
    });
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0].1, (wanted.len() * ROW) as u64);
}

#[test]
fn direct_reads_that_wait_for_a_thread_hold_no_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let column = dense(&some_table(folder.path().to_str().expect("UTF-8")).await).await;
        let options = ChunkScanOptions { local_reads: LocalReads::Direct, local_threads: 1, ..Default::default() };
        let (scan, wanted) = (ChunkScan::new(options), all_addresses());
        // Both threads are busy until the test releases them.
        let (begin, begun) = std::sync::mpsc::channel::<()>();
        let mut releases = Vec::new();
        for _ in 0..2 {
            let (release, released) = std::sync::mpsc::channel::<()>();
            let (scan, begin) = (scan.clone(), begin.clone());
            let work = move || Ok(begin.send(()).is_ok() && released.recv().is_ok());
            tokio::spawn(async move { scan.on_local_thread(work).await });
            releases.push(release);
        }
        assert!(begun.iter().take(2).count() == 2);
        let rows = tokio::spawn({
            let (scan, column, wanted) = (scan.clone(), column.clone(), wanted.clone());
            async move { scan.column("x", &column, &wanted).await }
        });
        while scan.local_threads().num_waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(scan.pool().used_bytes() < BUFFER_BYTES, "{} bytes", scan.pool().used_bytes());
        releases.clear();
        assert_eq!(rows.await.expect("a task").expect("rows").len(), wanted.len());
    });
}

#[test]
fn files_that_end_early_are_told_from_file_systems_that_refuse() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, rows) = (folder.path().join("rows"), Rows { offset: 100, row_bytes: 5_000, num_rows: 4 });
    for length in [20_099, 20_000, 4 * 4_096, 15_100, 0] {
        rows.write(&path);
        File::options().write(true).open(&path).expect("a file").set_len(length).expect("cut");
        let plain = File::open(&path).expect("a file");
        let uncached = UncachedFile::open(&path, "a file");
        let files = uncached.iter().map(|file| (file.file(), file.alignment()));
        for (file, alignment) in files.chain([(&plain, 512), (&plain, 4_096)]) {
            let (_slots, mut read) = rows.read(&[0, 3], 1);
            let mut memory = vec![0; 4 * alignment];
            let error = AlignedReader::new(file, alignment, &mut memory).read(&mut read).expect_err("it ends early");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length}");
            assert!(!is_refusal(&error));
        }
    }
    rows.write(&path);
    if let Some(file) = UncachedFile::open(&path, "a file") {
        // Some file systems accept unaligned reads too.
        let (_slots, mut read) = rows.read(&[0, 3], 1);
        let unaligned = AlignedReader::new(file.file(), 1, &mut vec![0; 999]).read(&mut read);
        assert!(unaligned.as_ref().err().is_none_or(is_refusal), "{unaligned:?}");
    }
}

#[test]
fn whole_blocks_are_counted_and_a_file_that_is_refused_is_read_as_usual() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let column = dense(&table(folder.path().to_str().expect("UTF-8"), 400, 50, 1_000).await).await;
        let wanted: Vec<u64> = (0..400).rev().step_by(3).chain([399, 7, 7]).collect();
        let expected = scan(LocalReads::Buffered).column("x", &column, &wanted).await.expect("rows");
        let reader = &column.file(0).expect("a fragment").reader;
        for is_refused in [false, true] {
            if let Some(file) = reader.uncached().filter(|_| is_refused) {
                file.refuse(&io::ErrorKind::InvalidInput.into());
                assert!(reader.uncached().is_none());
            }
            let scan = scan(LocalReads::Direct);
            let found = scan.column("x", &column, &wanted).await.expect("rows");
            assert_eq!(found.to_data(), expected.to_data());
            let totals = scan.stats().totals();
            assert_eq!((totals.bytes_used, totals.verified_bytes), (135 * ROW as u64, 135 * ROW as u64));
            let counts_blocks = totals.bytes_read.is_multiple_of(4_096) && totals.bytes_read > 0;
            assert!(counts_blocks || reader.uncached().is_none(), "{totals:?}");
            // Two of three rows are unwanted, and lie within the blocks that are read for the others.
            assert!(totals.requests <= 2 + totals.bytes_read / (BUFFER_BYTES as u64 / 2), "{totals:?}");
        }
    });
}

#[test]
fn damaged_rows_are_found_in_direct_reads() {
    for local_reads in LOCAL_READS {
        let folder = tempfile::tempdir().expect("a folder");
        runtime().block_on(async {
            let column = dense(&some_table(folder.path().to_str().expect("UTF-8")).await).await;
            flip(folder.path(), &column, 3);
            let (scan, wanted) = (scan(local_reads), all_addresses());
            let slots = Slots::try_new(scan.pool(), wanted.len(), ROW).expect("memory");
            let claim = |row| slots.claim(row).expect("a free slot");
            let rows = wanted.iter().enumerate().map(|(row, address)| (*address, claim(row))).collect();
            let bad = scan.gather("x", &column, rows).await.expect("a gather");
            assert_eq!(bad.iter().map(|bad| bad.address).collect::<Vec<_>>(), [3]);
            bad.into_iter().flat_map(|bad| bad.slots).for_each(SlotMut::fill);
            let bytes = slots.freeze().expect("all slots are filled");
            for (found, address) in bytes.chunks(ROW).zip(&wanted).filter(|(_, address)| **address != 3) {
                assert_eq!(found, row_at(*address), "{address:#x}");
            }
            assert_eq!(scan.stats().totals().bad_rows, 1);
        });
    }
}

#[test]
fn a_file_that_was_cut_fails_alike() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let column = dense(&some_table(folder.path().to_str().expect("UTF-8")).await).await;
        let (last, file) = (2 << 32 | 19, column.file(2).expect("a fragment"));
        let (offset, _) = file.locate(19).expect("a row");
        let path = data_file(folder.path(), &column, last);
        File::options().write(true).open(path).expect("a file").set_len(offset + 700).expect("cut");
        let mut errors = Vec::new();
        for local_reads in LOCAL_READS {
            let options = ChunkScanOptions { local_reads, verify: false, ..ChunkScanOptions::default() };
            let error = ChunkScan::new(options).column("x", &column, &[last]).await.expect_err("a cut file");
            assert!(error.to_string().contains(file.reader.place()), "{error}");
            errors.push((error.kind(), error.to_string()));
        }
        assert_eq!(errors[0], errors[1]);
    });
}
