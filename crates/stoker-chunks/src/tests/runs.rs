//! Tests that runs of rows are read like their rows one by one.

use std::collections::BTreeSet;

use arrow_buffer::Buffer;
use stoker_batch::BufferPool;
use stoker_checksum::checksum;
use stoker_types::{Digest, ErrorKind, IoTotals};

use super::checksums::{all_addresses, flip, row_at};
use super::*;
use crate::coalesce::{Limits, Piece, Read, coalesce};
use crate::runs::disjoint;
use crate::verify::{addresses, expect};

const LOCAL_READS: [LocalReads; 2] = [LocalReads::Buffered, LocalReads::Direct];

/// The number of rows of a table that are more than one read, and more than one task.
const MANY_ROWS: usize = 7_200;

fn scan(local_reads: LocalReads) -> ChunkScan {
    ChunkScan::new(ChunkScanOptions { local_reads, ..ChunkScanOptions::default() })
}

/// The addresses of the rows of runs, each given by its first address and its number of rows.
fn rows_of(runs: &[(u64, usize)]) -> Vec<u64> {
    runs.iter().flat_map(|(address, num_rows)| *address..*address + *num_rows as u64).collect()
}

fn one_by_one(runs: &[(u64, usize)]) -> Vec<(u64, usize)> {
    rows_of(runs).into_iter().map(|address| (address, 1)).collect()
}

/// Claims slots for runs, in the order of the runs.
fn claim(slots: &Arc<Slots>, runs: &[(u64, usize)]) -> Vec<(u64, stoker_batch::SlotMut)> {
    let mut row = 0;
    let claim = |(address, num_rows): &(u64, usize)| {
        row += num_rows;
        (*address, slots.claim_rows(row - num_rows..row).expect("free slots"))
    };
    runs.iter().map(claim).collect()
}

/// Gathers runs. Returns the bytes of all rows and the counters.
async fn gather(scan: &ChunkScan, column: &Arc<DenseColumn>, runs: &[(u64, usize)]) -> (Buffer, IoTotals) {
    let slots = Slots::try_new(scan.pool(), rows_of(runs).len(), ROW).expect("memory");
    let bad = scan.gather("x", column, claim(&slots, runs)).await.expect("rows");
    assert_eq!(bad.len(), 0);
    (slots.freeze().expect("all slots are filled"), scan.stats().totals())
}

/// Gathers runs of blocks of `block_rows` rows of a table in one fragment.
async fn gather_blocks(
    scan: &ChunkScan,
    reads: &BlockReads,
    column: &Arc<DenseColumn>,
    runs: &[(u64, usize)],
    block_rows: u64,
    num_rows: u64,
) -> Buffer {
    let slots = Slots::try_new(scan.pool(), rows_of(runs).len(), ROW).expect("memory");
    let mut blocks: Vec<Block> = Vec::new();
    for (address, mut slot) in claim(&slots, runs) {
        let mut first = address;
        loop {
            let number = first / block_rows;
            let left = ((number + 1) * block_rows - first) as usize;
            let rest = (left < slot.num_rows()).then(|| slot.split_off(left).expect("two parts"));
            match blocks.iter_mut().find(|block| block.number == number) {
                Some(block) => block.wanted.push((first, slot)),
                None => blocks.push(Block { number, num_rows: block_rows, wanted: vec![(first, slot)] }),
            }
            let Some(rest) = rest else { break };
            (first, slot) = (first + left as u64, rest);
        }
    }
    let column = BlockColumn { source: 0, table: 0, output: 0, name: "x", column };
    let addresses = async |number: u64| {
        Ok::<Vec<u64>, Error>((number * block_rows..((number + 1) * block_rows).min(num_rows)).collect())
    };
    let bad = scan.gather_blocks(reads, column, blocks, addresses).await.expect("rows");
    assert_eq!(bad.len(), 0);
    slots.freeze().expect("all slots are filled")
}

fn check_rows(bytes: &[u8], runs: &[(u64, usize)], row_at: impl Fn(u64) -> Vec<u8>) {
    let rows = rows_of(runs);
    assert_eq!(bytes.len(), rows.len() * ROW);
    for (found, address) in bytes.chunks(ROW).zip(rows) {
        assert!(found == row_at(address), "{address:#x}");
    }
}

/// A group whose ranks share blocks of up to `bytes_max` bytes, with the rank's place in it. The reads are kept with it.
fn member(bytes_max: u64) -> (SharedReads, [Arc<Membership>; 2]) {
    let reads = SharedReads::default();
    stoker_batch::SharedMemory::resize(&reads, bytes_max);
    let group = || Group { stream: Digest::of(b"stream"), epoch: 0, residue: 0 };
    let members = [0, 1].map(|rank| Arc::new(reads.join(group(), rank, 2)));
    (reads, members)
}

async fn cache(folder: &tempfile::TempDir) -> ChunkCache {
    let options = CacheOptions { dir: folder.path().to_path_buf(), bytes_max: Some(1 << 30) };
    let cache = ChunkCache::open(&options).await.expect("a cache");
    cache.settled().await;
    cache
}

/// Runs of a table of 120 rows in fragments of 50, which end with their fragment at the latest.
fn some_runs() -> impl Strategy<Value = Vec<(u64, usize)>> {
    let run = (0usize..120, prop_oneof![1usize..4, 1usize..60]).prop_map(|(first, num_rows)| {
        let all = all_addresses();
        let fragment = all[first] >> 32;
        (all[first], all[first..].iter().take(num_rows).filter(|address| **address >> 32 == fragment).count())
    });
    proptest::collection::vec(run, 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Runs that overlap, repeat, touch and cross pages bring the same rows, with the same counts of wanted and verified
    /// bytes, as their rows one by one.
    #[test]
    fn runs_bring_the_same_as_their_rows_one_by_one(runs in some_runs(), page_rows in 1usize..30) {
        let folder = tempfile::tempdir().expect("a folder");
        let distinct = rows_of(&runs).into_iter().collect::<BTreeSet<_>>().len();
        for uri in [folder.path().to_str().expect("UTF-8"), "memory://lake"] {
            runtime().block_on(async {
                let column = dense(&table(uri, 120, page_rows, 50).await).await;
                for local_reads in LOCAL_READS {
                    let (bytes, totals) = gather(&scan(local_reads), &column, &runs).await;
                    check_rows(&bytes, &runs, row_at);
                    let (alone, totals_alone) = gather(&scan(local_reads), &column, &one_by_one(&runs)).await;
                    assert_eq!(bytes, alone);
                    for totals in [totals, totals_alone] {
                        let wanted = (distinct * ROW) as u64;
                        assert_eq!((totals.bytes_used, totals.verified_bytes), (wanted, wanted), "{totals:?}");
                    }
                }
            });
        }
    }

    /// The same for rows of blocks that are read for a group or for a cache, from the store and from the cache.
    #[test]
    fn runs_of_blocks_bring_the_same(runs in some_runs(), block_rows in 5u64..40, page_rows in 1usize..60) {
        // All runs lie in the first fragment.
        let runs: Vec<(u64, usize)> = runs.into_iter().map(|(address, rows)| (address & 0xFFFF_FFFF, rows)).collect();
        let folder = tempfile::tempdir().expect("a folder");
        runtime().block_on(async {
            let column = dense(&table("memory://lake", 50, page_rows, 50).await).await;
            let (_reads, [member, _other]) = member(1 << 20);
            let cache = cache(&folder).await;
            for reads in [BlockReads::ForGroup(member), BlockReads::ForCache, BlockReads::IfCached] {
                let scan = scan(LocalReads::Buffered).with_cache(Some(cache.clone()));
                let bytes = gather_blocks(&scan, &reads, &column, &runs, block_rows, 50).await;
                check_rows(&bytes, &runs, row_at);
                let distinct = rows_of(&runs).into_iter().collect::<BTreeSet<_>>().len();
                assert_eq!(scan.stats().totals().verified_bytes, (distinct * ROW) as u64);
                cache.settled().await;
            }
        });
    }
}

#[test]
fn damaged_rows_inside_runs_come_back_alone() {
    for local_reads in LOCAL_READS {
        let folder = tempfile::tempdir().expect("a folder");
        runtime().block_on(async {
            let column = dense(&table(folder.path().to_str().expect("UTF-8"), 120, 20, 50).await).await;
            // Two runs have row 3 and one has row 7; the rows 20 and 49 are the first row and the last one of a run.
            for row in [3, 7, 20, 49] {
                flip(folder.path(), &column, row);
            }
            let (runs, scan) = ([(0, 12), (2, 4), (20, 30), (1 << 32, 50)], scan(local_reads));
            let slots = Slots::try_new(scan.pool(), rows_of(&runs).len(), ROW).expect("memory");
            let bad = scan.gather("x", &column, claim(&slots, &runs)).await.expect("a gather");
            let found: Vec<_> = bad.iter().map(|bad| (bad.address, bad.slots.len())).collect();
            assert_eq!(found, [(3, 2), (7, 1), (20, 1), (49, 1)]);
            for bad in bad {
                let expected = checksum(&row_at(bad.address));
                assert!(bad.reason.contains(&format!(" and not {expected:#010x}, in ")), "{}", bad.reason);
                for mut slot in bad.slots {
                    assert_eq!(slot.num_rows(), 1);
                    slot.copy_from_slice(&row_at(bad.address));
                    slot.fill();
                }
            }
            let bytes = slots.freeze().expect("all other slots are filled");
            check_rows(&bytes, &runs, row_at);
            let totals = scan.stats().totals();
            assert_eq!((totals.bad_rows, totals.retries), (4, 0));
        });
    }
}

#[test]
fn suspects_are_cut_out_of_runs() {
    for is_found in [false, true] {
        let slots = Slots::try_new(&BufferPool::new(0), 14, 100).expect("memory");
        let mut piece = Piece::new(2 << 32 | 10, 50, slots.claim_rows(0..6).expect("free slots"));
        piece.slot.chunks_exact_mut(100).zip(0..).for_each(|(bytes, value)| bytes.fill(value));
        piece.copies.push(slots.claim_rows(6..12).expect("free slots"));
        let mut other = Piece::new(2 << 32 | 30, 2_050, slots.claim_rows(12..14).expect("free slots"));
        other.slot.copy_from_slice(&[9; 200]);
        let mut read = Read::new(2, 1_000, 2_250, vec![piece, other]);
        if is_found {
            // The checksums are computed as the rows arrive, before it is known what they should be.
            let arrived: Vec<Vec<u8>> = read.pieces.iter().map(|piece| piece.slot.to_vec()).collect();
            arrived.iter().for_each(|rows| read.checks.find(rows, 100));
        }
        // The rows 0, 2, 3, 5 of the first piece, and the first row of the second piece, have wrong checksums.
        let values = [8, 1, 8, 8, 4, 8, 8, 9];
        let checksums = values.iter().map(|value| Some(checksum(&[*value; 100]))).collect();
        expect(std::slice::from_mut(&mut read), checksums).expect("as many as rows");
        let stats = IoStats::default();
        let suspects = read.take_suspects(&stats).expect("a check");
        assert_eq!(addresses(&suspects), [10, 12, 13, 15, 30].map(|row| 2 << 32 | row));
        let ranges: Vec<_> = suspects.iter().map(|read| (read.fragment, read.offset, read.length)).collect();
        assert_eq!(ranges, [1_050, 1_250, 1_350, 1_550, 3_050].map(|offset| (2, offset, 100)));
        for (suspect, (value, num_copies)) in suspects.iter().zip([(0, 1), (2, 1), (3, 1), (5, 1), (9, 0)]) {
            let [piece] = &suspect.pieces[..] else { panic!("{suspect:?}") };
            assert_eq!((piece.at, piece.slot.to_vec(), piece.copies.len()), (0, vec![value; 100], num_copies));
            assert!(piece.copies.iter().all(|copy| copy.num_rows() == 1));
            assert_eq!(suspect.first_checksum(), Some(checksum(&[8; 100])));
        }
        let left: Vec<_> = read.pieces.iter().map(|piece| (piece.at, piece.address, piece.slot.num_rows())).collect();
        assert_eq!(left, [(150, 2 << 32 | 11, 1), (450, 2 << 32 | 14, 1), (2_150, 2 << 32 | 31, 1)]);
        assert_eq!(stats.totals().verified_bytes, 800);
        read.finish();
        suspects.into_iter().for_each(Read::finish);
        let bytes = slots.freeze().expect("all slots are filled");
        let found: Vec<u8> = bytes.chunks(100).map(|row| row[99]).collect();
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 9, 9]);
    }
}

#[test]
fn runs_that_no_fragment_has_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let column = dense(&table(folder.path().to_str().expect("UTF-8"), 120, 20, 50).await).await;
        let scan = scan(LocalReads::Buffered);
        let fails = async |address: u64, num_rows: usize, row_bytes: usize| {
            let slots = Slots::try_new(scan.pool(), num_rows, row_bytes).expect("memory");
            let slot = slots.claim_rows(0..num_rows).expect("free slots");
            scan.gather("x", &column, vec![(address, slot)]).await.expect_err("no such rows")
        };
        let error = fails(45, 6, ROW).await;
        assert!(matches!(error, Error::UnknownRow { address: 50, .. }), "{error:?}");
        for error in [fails(0xFFFF_FFFE, 3, ROW).await, fails(0, 3, ROW - 1).await, fails(0, 1, 2 * ROW).await] {
            assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
        }
    });
}

#[test]
fn reads_of_long_runs_keep_their_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let column = dense(&table(folder.path().to_str().expect("UTF-8"), 120, 120, 120).await).await;
        let row = ROW as u64;
        let limits = Limits { gap_bytes_max: 5 * row, free_gap_bytes: 0, waste_divisor: 1, read_bytes_max: 4 * row };
        let check = |runs: &[(u64, usize)], limits: Limits, expected: &[(u64, &[usize])]| {
            let slots = Slots::try_new(&BufferPool::new(0), rows_of(runs).len(), ROW).expect("memory");
            let reads = coalesce("x", &column, claim(&slots, runs), limits).expect("reads");
            let rows = |read: &Read| read.pieces.iter().map(|piece| piece.slot.num_rows()).collect::<Vec<usize>>();
            let found: Vec<_> = reads.iter().map(|read| (read.length / row, rows(read))).collect();
            let expected: Vec<_> = expected.iter().map(|(length, rows)| (*length, rows.to_vec())).collect();
            assert_eq!(found, expected, "{runs:?}");
        };
        check(&[(0, 10)], limits, &[(4, &[4]), (4, &[4]), (2, &[2])]);
        check(&[(2, 8), (0, 2)], limits, &[(2, &[2]), (4, &[4]), (4, &[4])]);
        check(&[(0, 2), (2, 2), (4, 1)], limits, &[(4, &[2, 2]), (1, &[1])]);
        check(&[(0, 3), (1, 1)], limits, &[(3, &[1, 1, 1])]);
        // A single row may be larger than the limit.
        check(&[(0, 2)], Limits { read_bytes_max: row / 2, ..limits }, &[(1, &[1]), (1, &[1])]);
        // A gap of three rows is worth reading beside four wanted ones, but not beside two.
        let limits = Limits { read_bytes_max: 100 * row, ..limits };
        check(&[(0, 1), (4, 3)], limits, &[(7, &[1, 3])]);
        check(&[(0, 1), (4, 1)], limits, &[(1, &[1]), (1, &[1])]);
        check(&[(0, 20), (26, 20)], limits, &[(20, &[20]), (20, &[20])]);
    });
}

#[test]
fn runs_that_overlap_are_divided_at_their_borders() {
    let folder = tempfile::tempdir().expect("a folder");
    runtime().block_on(async {
        let column = dense(&table(folder.path().to_str().expect("UTF-8"), 120, 120, 120).await).await;
        let check = |runs: &[(u64, usize)], expected: &[(u64, usize)]| {
            let slots = Slots::try_new(&BufferPool::new(0), rows_of(runs).len(), ROW).expect("memory");
            let parts = disjoint(&column, claim(&slots, runs)).expect("runs");
            let found: Vec<_> = parts.iter().map(|(address, slot)| (*address, slot.num_rows())).collect();
            assert_eq!(found, expected, "{runs:?}");
        };
        check(&[(5, 5), (0, 5)], &[(0, 5), (5, 5)]);
        check(&[(0, 5), (0, 5), (5, 1)], &[(0, 5), (0, 5), (5, 1)]);
        check(&[(0, 5), (3, 4)], &[(0, 3), (3, 2), (3, 2), (5, 2)]);
        check(&[(0, 2), (0, 5), (20, 3)], &[(0, 2), (0, 2), (2, 3), (20, 3)]);
        check(&[(0, 9), (2, 1), (4, 9)], &[(0, 2), (2, 1), (2, 1), (3, 1), (4, 5), (4, 5), (9, 4)]);
    });
}

#[test]
fn runs_longer_than_a_read_or_a_task_or_a_range() {
    let folder = tempfile::tempdir().expect("a folder");
    let row_at = |address: u64| (0..ROW).map(|at| (address as usize * 31 + at * 7) as u8).collect();
    let all = MANY_ROWS as u64;
    runtime().block_on(async {
        for uri in [folder.path().to_str().expect("UTF-8"), "memory://lake"] {
            let column = dense(&table(uri, MANY_ROWS, MANY_ROWS, all).await).await;
            for runs in [vec![(0, MANY_ROWS)], vec![(3_000, 4_100), (10, 5_000), (10, 5_000), (7_199, 1)]] {
                let (bytes, totals) = gather(&scan(LocalReads::Buffered), &column, &runs).await;
                check_rows(&bytes, &runs, row_at);
                assert!(totals.requests >= 2, "{totals:?}");
            }
        }
        // A block of all rows is two ranges, and a run has rows of both of them.
        let column = dense(&table("memory://lake", MANY_ROWS, MANY_ROWS, all).await).await;
        let runs = [(6_800, 300), (6_900, 100), (100, 50)];
        let (_reads, [member, _other]) = member(64 << 20);
        let cache = cache(&folder).await;
        for reads in [BlockReads::ForGroup(member), BlockReads::ForCache] {
            let scan = scan(LocalReads::Buffered).with_cache(Some(cache.clone()));
            let bytes = gather_blocks(&scan, &reads, &column, &runs, all, all).await;
            check_rows(&bytes, &runs, row_at);
            let totals = scan.stats().totals();
            assert_eq!(totals.verified_bytes, 350 * ROW as u64);
            assert!(totals.cache_hit_bytes + totals.cache_miss_bytes >= all * ROW as u64, "{totals:?}");
            cache.settled().await;
        }
    });
}

#[test]
fn a_shared_block_is_dropped_after_the_last_row_of_its_runs() {
    runtime().block_on(async {
        let column = dense(&table("memory://lake", 50, 20, 50).await).await;
        let (reads, [one, two]) = member(1 << 20);
        let scan = scan(LocalReads::Buffered);
        gather_blocks(&scan, &BlockReads::ForGroup(one), &column, &[(0, 30)], 50, 50).await;
        assert_eq!(reads.bytes(), 50 * ROW as u64, "20 rows are still wanted");
        gather_blocks(&scan, &BlockReads::ForGroup(two), &column, &[(30, 20)], 50, 50).await;
        assert_eq!(reads.bytes(), 0);
    });
}
