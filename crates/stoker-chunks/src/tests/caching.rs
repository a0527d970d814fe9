//! Tests of chunks that are cached in a folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use futures::future::join;
use stoker_batch::BufferPool;
use stoker_types::{ErrorKind, IoTotals};

use super::*;
use crate::cache::entry::{ChunkKey, HEADER_BYTES, PARTIAL, write_entry};
use crate::cache::ledger::Ledger;

const NUM_ROWS: usize = 400;
const BLOCK_ROWS: usize = 20;
const TABLE_BYTES: u64 = (NUM_ROWS * ROW) as u64;
/// The size of an entry, without the gap between pages that some blocks contain.
const ENTRY_BYTES: u64 = (HEADER_BYTES + BLOCK_ROWS * ROW) as u64;
const NUM_BLOCKS: usize = NUM_ROWS / BLOCK_ROWS;

/// A column in an object store.
async fn distant() -> Arc<DenseColumn> {
    dense(&table("memory://lake", NUM_ROWS, 50, 1_000).await).await
}

async fn open(folder: &Path, bytes_max: u64) -> ChunkCache {
    let options = CacheOptions { dir: folder.to_path_buf(), bytes_max: Some(bytes_max) };
    let cache = ChunkCache::open(&options).await.expect("a cache");
    cache.settled().await;
    cache
}

/// Reads all rows of a column, checks them, and waits until they are cached. Returns the counters.
async fn epoch_of(column: &Arc<DenseColumn>, cache: &ChunkCache, reads: BlockReads) -> IoTotals {
    let scan = ChunkScan::new(ChunkScanOptions::default()).with_cache(Some(cache.clone()));
    let slots = Slots::try_new(scan.pool(), NUM_ROWS, ROW).expect("memory");
    let block = |first: usize| {
        let rows = first..first + BLOCK_ROWS;
        let wanted = rows.clone().map(|row| (row as u64, slots.claim(row).expect("a free slot"))).collect();
        Block { number: (first / BLOCK_ROWS) as u64, num_rows: rows.len() as u64, wanted }
    };
    let blocks = (0..NUM_ROWS).step_by(BLOCK_ROWS).map(block).collect();
    let addresses = async |number: u64| {
        let first = number * BLOCK_ROWS as u64;
        Ok::<Vec<u64>, Error>((first..(first + BLOCK_ROWS as u64).min(NUM_ROWS as u64)).collect())
    };
    let column = BlockColumn { source: 0, table: 0, output: 0, name: "x", column };
    let bad = scan.gather_blocks(&reads, column, blocks, addresses).await.expect("rows");
    assert_eq!(bad.len(), 0);
    let bytes = slots.freeze().expect("all slots are filled");
    for row in 0..NUM_ROWS {
        let expected = (0..ROW).map(|at| (row * 31 + at * 7) as u8);
        assert!(bytes[row * ROW..(row + 1) * ROW].iter().copied().eq(expected), "row {row}");
    }
    cache.settled().await;
    scan.stats().totals()
}

async fn epoch(column: &Arc<DenseColumn>, cache: &ChunkCache) -> IoTotals {
    epoch_of(column, cache, BlockReads::ForCache).await
}

/// The paths of all files in a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn size(folder: &Path) -> u64 {
    files(folder).iter().map(|path| path.metadata().expect("metadata").len()).sum()
}

fn key_of(path: &Path) -> ChunkKey {
    let name = |path: &Path| path.file_name().expect("a name").to_str().expect("UTF-8").to_string();
    ChunkKey::of_file(&name(path.parent().expect("a folder")), &name(path)).expect("an entry")
}

/// Sets the time of the last use of all entries to `by` ago.
fn age(folder: &Path, by: Duration) {
    for path in files(folder) {
        let file = File::options().write(true).open(path).expect("a file");
        file.set_modified(SystemTime::now() - by).expect("a time");
    }
}

#[test]
fn what_fits_is_read_from_the_store_once() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let (column, cache) = (distant().await, open(folder.path(), 1 << 30).await);
        let first = epoch(&column, &cache).await;
        assert!(first.cache_miss_bytes >= TABLE_BYTES && first.cache_hit_bytes == 0, "{first:?}");
        assert!(
            first.bytes_read >= first.cache_miss_bytes && first.requests == 1,
            "neighbours are read at once: {first:?}"
        );
        // A second cache value over the folder behaves like another process.
        for cache in [cache, open(folder.path(), 1 << 30).await] {
            let second = epoch(&column, &cache).await;
            assert_eq!((second.requests, second.bytes_read, second.cache_miss_bytes), (0, 0, 0));
            assert_eq!(second.cache_hit_bytes, first.cache_miss_bytes);
            assert_eq!(second.verified_bytes, TABLE_BYTES);
        }
        assert_eq!(files(folder.path()).len(), NUM_BLOCKS);
        let other = epoch(&distant().await, &open(folder.path(), 1 << 30).await).await;
        assert_eq!(other.cache_hit_bytes, 0, "another file is another key");
    });
}

#[test]
fn a_full_folder_keeps_a_part_that_stays() {
    runtime().block_on(async {
        let column = distant().await;
        for bytes_max in [1, ENTRY_BYTES + 200, 4 * ENTRY_BYTES + 500, 11 * ENTRY_BYTES] {
            let folder = tempfile::tempdir().expect("a folder");
            let cache = open(folder.path(), bytes_max).await;
            let mut hits = 0;
            for number in 0..5 {
                let totals = epoch(&column, &cache).await;
                assert!(size(folder.path()) <= bytes_max, "{} of {bytes_max}", size(folder.path()));
                assert!(totals.cache_hit_bytes >= hits, "epoch {number}, {bytes_max}: {totals:?}");
                // Only missing chunks are read, and the gaps between pages.
                assert!(totals.bytes_read + totals.cache_hit_bytes <= TABLE_BYTES + 1_000, "{totals:?}");
                hits = totals.cache_hit_bytes;
            }
            assert!(hits + 2 * ENTRY_BYTES > bytes_max, "{hits} of {bytes_max}");
        }
    });
}

#[test]
fn what_nobody_uses_makes_room() {
    // The entries were used an hour ago, or shortly before this process opened the folder.
    what_was_used_makes_room(Duration::from_secs(3_600));
    what_was_used_makes_room(Duration::from_secs(20));
}

/// Reads another table into a full folder whose entries were last used `before` ago, except for half of them, which
/// this process used.
fn what_was_used_makes_room(before: Duration) {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let (old, new) = (distant().await, distant().await);
        let bytes_max = 10 * ENTRY_BYTES;
        epoch(&old, &open(folder.path(), bytes_max).await).await;
        age(folder.path(), before);
        let cache = open(folder.path(), bytes_max).await;
        // Half of the old entries are used again, so that they stay.
        let used: Vec<PathBuf> = files(folder.path()).into_iter().step_by(2).collect();
        for path in &used {
            let stats = IoStats::default();
            let length = path.metadata().expect("metadata").len() as usize - HEADER_BYTES;
            assert!(cache.read(&key_of(path), length, &BufferPool::new(0), &stats).is_some());
        }
        epoch(&new, &cache).await;
        assert!(size(folder.path()) <= bytes_max);
        assert!(used.iter().all(|path| path.exists()), "an entry went that was used: {before:?}");
        let kept = epoch(&new, &cache).await.cache_hit_bytes;
        assert!(kept >= 2 * ENTRY_BYTES, "{kept}");
    });
}

#[test]
fn damaged_entries_are_removed_and_foreign_files_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let (column, cache) = (distant().await, open(folder.path(), 1 << 30).await);
        let first = epoch(&column, &cache).await;
        let entries = files(folder.path());
        let mut flipped = fs::read(&entries[0]).expect("an entry");
        flipped[HEADER_BYTES + 5_000] ^= 0x10;
        fs::write(&entries[0], flipped).expect("written");
        File::options().write(true).open(&entries[1]).expect("a file").set_len(9_000).expect("cut");
        fs::write(&entries[2], "no entry").expect("written");
        let same_size = |path: &&PathBuf| path.metadata().expect("metadata").len() == ENTRY_BYTES;
        let mut whole = entries[3..].iter().filter(same_size);
        let (one, other) = (whole.next().expect("an entry"), whole.next().expect("another"));
        fs::copy(one, other).expect("the entry of another chunk");
        let foreign =
            ["notes.txt", "chunks-v1/notes.txt", "chunks-v1/ab/notes.txt"].map(|name| folder.path().join(name));
        for path in &foreign {
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, vec![1; 5_000]).expect("written");
        }
        let second = epoch(&column, &cache).await;
        assert_eq!(second.cache_damaged, 4);
        assert_eq!(second.cache_hit_bytes + second.cache_miss_bytes, first.cache_miss_bytes);
        epoch(&column, &cache).await;
        let last = epoch(&column, &cache).await;
        assert_eq!((last.cache_damaged, last.cache_hit_bytes), (0, first.cache_miss_bytes));
        let small = 3 * ENTRY_BYTES;
        open(folder.path(), small).await;
        assert!(foreign.iter().all(|path| path.exists()));
        assert!(size(folder.path()) <= small + 3 * 5_000, "the smaller limit holds from then on");
    });
}

#[test]
fn two_processes_share_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let column = distant().await;
        let caches = (open(folder.path(), 1 << 30).await, open(folder.path(), 1 << 30).await);
        let (one, other) = join(epoch(&column, &caches.0), epoch(&column, &caches.1)).await;
        assert_eq!((one.cache_damaged, other.cache_damaged), (0, 0));
        let next = join(epoch(&column, &caches.0), epoch(&column, &caches.1)).await;
        assert_eq!((next.0.requests, next.1.requests), (0, 0));
        assert_eq!(files(folder.path()).len(), NUM_BLOCKS);
    });
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let (column, bytes_max) = (distant().await, 6 * ENTRY_BYTES);
        let caches = (open(folder.path(), bytes_max).await, open(folder.path(), bytes_max).await);
        join(epoch(&column, &caches.0), epoch(&column, &caches.1)).await;
        // Each of the two caches may exceed the limit by what it writes while the other one measures the folder.
        assert!(size(folder.path()) <= bytes_max + 8 * (ENTRY_BYTES + 200), "{}", size(folder.path()));
        open(folder.path(), bytes_max).await;
        assert!(size(folder.path()) <= bytes_max);
    });
}

#[test]
fn a_folder_may_be_removed_while_it_is_used() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let (column, cache) = (distant().await, open(folder.path(), 1 << 30).await);
        let first = epoch(&column, &cache).await;
        fs::remove_dir_all(folder.path()).expect("removed");
        assert_eq!(epoch(&column, &cache).await.bytes_read, first.bytes_read);
        assert_eq!(epoch(&column, &cache).await.cache_hit_bytes, first.cache_miss_bytes);
    });
}

#[test]
fn a_failed_write_ends_caching_and_no_stream() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let (column, cache) = (distant().await, open(folder.path(), 1 << 30).await);
        let layout = folder.path().join("chunks-v1");
        fs::remove_dir_all(&layout).expect("removed");
        fs::write(&layout, "no folder").expect("written");
        epoch(&column, &cache).await;
        assert_eq!(cache.room(), 0);
        fs::remove_file(&layout).expect("removed");
        epoch(&column, &cache).await;
        assert_eq!(files(folder.path()).len(), 0, "nothing more is kept");
    });
}

#[test]
fn a_failed_write_leaves_nothing_and_what_was_left_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let (column, cache) = (distant().await, open(folder.path(), 1 << 30).await);
        epoch(&column, &cache).await;
        let entry = files(folder.path()).remove(0);
        let (key, parent) = (key_of(&entry), entry.parent().expect("a folder"));
        cache.remove(&key);
        // A file cannot replace a folder.
        fs::create_dir(&entry).expect("a folder");
        write_entry(&entry, &key, &[1; 100]).expect("written").persist(&entry).expect_err("a folder is there");
        assert_eq!(files(folder.path()).len(), NUM_BLOCKS - 1);
        let (left, young) = (parent.join(format!("{PARTIAL}left")), parent.join(format!("{PARTIAL}young")));
        fs::write(&left, [1; 100]).expect("written");
        age(folder.path(), Duration::from_secs(7_200));
        fs::write(&young, [1; 100]).expect("written");
        open(folder.path(), 1 << 30).await;
        assert_eq!((left.exists(), young.exists()), (false, true), "what is young is being written");
    });
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error_that_names_the_option() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("file");
    fs::write(&dir, "no folder").expect("written");
    runtime().block_on(async {
        let options = CacheOptions { dir: dir.clone(), bytes_max: None };
        let error = ChunkCache::open(&options).await.expect_err("no folder");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.to_string().starts_with(&format!("cannot use {} as cache_dir: ", dir.display())), "{error}");
    });
}

#[test]
fn bytes_that_were_damaged_before_they_were_kept_are_not_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let (column, cache) = (distant().await, open(folder.path(), 1 << 30).await);
        epoch(&column, &cache).await;
        let path = files(folder.path()).remove(0);
        let mut bytes = fs::read(&path).expect("an entry").split_off(HEADER_BYTES);
        bytes[3] ^= 0x10;
        write_entry(&path, &key_of(&path), &bytes).expect("written").persist(&path).expect("persisted");
        let totals = epoch(&column, &cache).await;
        assert_eq!((totals.requests, totals.retries, totals.bad_rows, totals.cache_damaged), (1, 1, 0, 0));
        assert!(!path.exists());
    });
}

#[test]
fn ranges_are_kept_if_they_are_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let (column, cache) = (distant().await, open(folder.path(), 1 << 30).await);
        let reader = &column.file(0).expect("a file").reader;
        let scan = ChunkScan::new(ChunkScanOptions::default()).with_cache(Some(cache.clone()));
        let read = async |freshness| {
            let bytes = scan.read_range(reader, 100..50_100, freshness).await.expect("a range");
            cache.settled().await;
            bytes
        };
        let expected = read(Freshness::Any).await;
        assert_eq!((expected.len(), files(folder.path()).len()), (50_000, 0), "others are not kept");
        assert_eq!(read(Freshness::Kept).await, expected);
        assert_eq!(read(Freshness::Kept).await, expected);
        let totals = scan.stats().totals();
        assert_eq!((totals.requests, totals.cache_miss_bytes, totals.cache_hit_bytes), (2, 50_000, 50_000));
        let path = files(folder.path()).remove(0);
        let damaged: Vec<u8> = expected.iter().map(|byte| byte ^ 1).collect();
        write_entry(&path, &key_of(&path), &damaged).expect("written").persist(&path).expect("persisted");
        assert_eq!(read(Freshness::Kept).await.as_slice(), damaged);
        assert_eq!(read(Freshness::PastCache).await, expected);
        assert!(!path.exists());
    });
}

#[test]
fn a_full_folder_keeps_no_ranges() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let (column, cache) = (distant().await, open(folder.path(), 1_000).await);
        let scan = ChunkScan::new(ChunkScanOptions::default()).with_cache(Some(cache.clone()));
        let reader = &column.file(0).expect("a file").reader;
        for _ in 0..2 {
            scan.read_range(reader, 0..5_000, Freshness::Kept).await.expect("a range");
            cache.settled().await;
        }
        assert_eq!((scan.stats().totals().requests, files(folder.path()).len()), (2, 0));
    });
}

#[test]
fn the_first_rows_wait_for_no_block() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let (column, cache) = (distant().await, open(folder.path(), 1 << 30).await);
        let first = epoch_of(&column, &cache, BlockReads::IfCached).await;
        assert_eq!((first.cache_hit_bytes, files(folder.path()).len()), (0, 0));
        epoch(&column, &cache).await;
        assert_eq!(epoch_of(&column, &cache, BlockReads::IfCached).await.requests, 0);
    });
}

#[test]
fn a_full_folder_is_measured_again_after_a_while() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = ChunkKey::of_file("ab", &"1".repeat(62)).expect("a key");
    let path = key.path_in(folder.path());
    write_entry(&path, &key, &[1; 900]).expect("written").persist(&path).expect("persisted");
    let (mut ledger, begun) = (Ledger::new(Some(1_000), SystemTime::UNIX_EPOCH), Instant::now());
    ledger.measure_if_due(folder.path(), 0, begun);
    assert!(!ledger.admit(folder.path(), 900), "an entry that may be used is there");
    fs::remove_file(&path).expect("removed");
    ledger.measure_if_due(folder.path(), 0, begun + Duration::from_secs(599));
    assert_eq!(ledger.room(), 44);
    ledger.measure_if_due(folder.path(), 0, begun + Duration::from_secs(600));
    assert!(ledger.admit(folder.path(), 900));
}

#[test]
fn a_folder_that_was_removed_has_the_room_of_its_file_system() {
    let folder = tempfile::tempdir().expect("a folder");
    let removed = folder.path().join("removed").join("chunks-v1");
    let mut ledger = Ledger::new(None, SystemTime::now());
    ledger.measure_if_due(&removed, 1, Instant::now());
    assert!(ledger.room() > 0);
    assert!(ledger.admit(&removed, 1));
}
