//! Tests of streams that want different rows of the same blocks.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::{join, pending};
use futures::poll;
use stoker_batch::SharedMemory;
use stoker_types::Digest;

use super::*;
use crate::deadline::{Deadline, Until};
use crate::shared_reads::BlockKey;

const NUM_ROWS: u64 = 400;
const BLOCK_ROWS: u64 = 25;
const BLOCK_BYTES: u64 = BLOCK_ROWS * ROW as u64;

fn group() -> Group {
    Group { stream: Digest::of(b"stream"), epoch: 0, residue: 0 }
}

fn scan() -> ChunkScan {
    ChunkScan::new(ChunkScanOptions::default())
}

/// Gathers rows of a table in one fragment and checks their bytes. `found` counts how often the addresses of a block
/// were looked up.
async fn take(scan: &ChunkScan, group: &Arc<Membership>, column: &Arc<DenseColumn>, rows: &[u64], found: &AtomicU64) {
    let slots = Slots::try_new(scan.pool(), rows.len(), ROW).expect("memory");
    let mut blocks: Vec<Block> = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        let (number, wanted) = (row / BLOCK_ROWS, (*row, slots.claim(place).expect("a slot")));
        match blocks.iter_mut().find(|block| block.number == number) {
            Some(block) => block.wanted.push(wanted),
            None => blocks.push(Block { number, num_rows: BLOCK_ROWS, wanted: vec![wanted] }),
        }
    }
    let reads = BlockReads::ForGroup(group.clone());
    let column = BlockColumn { source: 0, table: 0, output: 0, name: "x", column };
    let addresses = async |number: u64| {
        found.fetch_add(1, Ordering::Relaxed);
        Ok::<_, Error>((number * BLOCK_ROWS..(number + 1) * BLOCK_ROWS).collect())
    };
    let bad = scan.gather_blocks(&reads, column, blocks, addresses).await.expect("rows");
    assert!(bad.is_empty());
    let bytes = slots.freeze().expect("all slots");
    for (row, bytes) in rows.iter().zip(bytes.chunks_exact(ROW)) {
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == (*row as usize * 31 + at * 7) as u8), "row {row}");
    }
}

async fn column() -> Arc<DenseColumn> {
    dense(&table("memory://", NUM_ROWS as usize, 60, 1_000).await).await
}

fn join_both(reads: &SharedReads) -> (Arc<Membership>, Arc<Membership>) {
    (reads.join(group(), 0, 2).into(), reads.join(group(), 1, 2).into())
}

fn read(scan: &ChunkScan) -> u64 {
    scan.stats().totals().bytes_read
}

#[test]
fn blocks_are_read_by_the_first_and_dropped_after_the_last_row() {
    runtime().block_on(async {
        let (column, reads, found) = (column().await, SharedReads::default(), AtomicU64::new(0));
        reads.resize(20 * BLOCK_BYTES);
        let (one, two) = join_both(&reads);
        assert!(one.is_shared() && two.is_shared());
        let (scan_one, scan_two) = (scan(), scan());
        // The rows are in descending order, and one of them is there twice.
        let even: Vec<u64> = (0..NUM_ROWS).rev().step_by(2).chain([399]).collect();
        let odd: Vec<u64> = (0..NUM_ROWS).step_by(2).collect();
        join(take(&scan_one, &one, &column, &even, &found), take(&scan_two, &two, &column, &odd, &found)).await;
        assert_eq!(read(&scan_one) + read(&scan_two), NUM_ROWS * ROW as u64);
        assert_eq!(found.load(Ordering::Relaxed), NUM_ROWS / BLOCK_ROWS);
        assert_eq!(reads.bytes(), 0, "all rows were taken");
        // After the first stream's second pass, half of the rows of each block are still wanted.
        take(&scan_one, &one, &column, &even, &found).await;
        assert_eq!(reads.bytes(), NUM_ROWS * ROW as u64);
        // Ranks that return within 10 s still find the blocks.
        drop((one, two));
        let (one, scan) = (Arc::new(reads.join(group(), 0, 2)), scan());
        assert!(one.is_shared());
        take(&scan, &one, &column, &odd, &found).await;
        assert_eq!((read(&scan), reads.bytes()), (0, 0));
    });
}

#[test]
fn blocks_that_do_not_fit_are_given_up_and_read_as_far_as_they_are_wanted() {
    runtime().block_on(async {
        let (column, reads, found) = (column().await, SharedReads::default(), AtomicU64::new(0));
        reads.resize(4 * BLOCK_BYTES);
        let (fast, slow) = join_both(&reads);
        let (scan_fast, scan_slow) = (scan(), scan());
        let most: Vec<u64> = (0..NUM_ROWS).filter(|row| row % BLOCK_ROWS != 3).collect();
        let few: Vec<u64> = (0..NUM_ROWS).filter(|row| row % BLOCK_ROWS == 3).collect();
        for rows in most.chunks(24) {
            take(&scan_fast, &fast, &column, rows, &found).await;
            assert!(reads.bytes() <= 4 * BLOCK_BYTES);
        }
        assert_eq!(read(&scan_fast), NUM_ROWS * ROW as u64);
        take(&scan_slow, &slow, &column, &few, &found).await;
        // Four blocks are still in memory; the slow stream reads only its own rows of the others.
        let given_up = NUM_ROWS / BLOCK_ROWS - 4;
        assert_eq!(read(&scan_slow), given_up * ROW as u64);
        assert_eq!(found.load(Ordering::Relaxed), NUM_ROWS / BLOCK_ROWS, "none was read whole again");
        assert_eq!(reads.bytes(), 0);
    });
}

#[test]
fn another_pass_over_an_epoch_reads_blocks_again_that_were_given_up() {
    runtime().block_on(async {
        let (column, reads, found) = (column().await, SharedReads::default(), AtomicU64::new(0));
        reads.resize(4 * BLOCK_BYTES);
        let (num_blocks, given_up) = (NUM_ROWS / BLOCK_ROWS, NUM_ROWS / BLOCK_ROWS - 4);
        let few: Vec<u64> = (0..NUM_ROWS).filter(|row| row % BLOCK_ROWS == 3).collect();
        for pass in 0..2 {
            let (one, two) = join_both(&reads);
            let (scan_one, scan_two) = (scan(), scan());
            for row in &few {
                take(&scan_one, &one, &column, &[*row], &found).await;
            }
            // In the second pass, the last four blocks of the first pass are evicted for the first ones.
            assert_eq!(found.load(Ordering::Relaxed), num_blocks + pass * given_up);
            take(&scan_two, &two, &column, &few, &found).await;
            assert_eq!(read(&scan_two), given_up * ROW as u64);
        }
    });
}

#[test]
fn a_reader_that_goes_away_leaves_its_blocks_to_the_next() {
    runtime().block_on(async {
        let (column, reads, found) = (column().await, SharedReads::default(), AtomicU64::new(0));
        reads.resize(20 * BLOCK_BYTES);
        let (one, two) = join_both(&reads);
        let scan = scan();
        {
            let slots = Slots::try_new(scan.pool(), 1, ROW).expect("memory");
            let wanted = vec![(7, slots.claim(0).expect("a slot"))];
            let blocks = vec![Block { number: 0, num_rows: BLOCK_ROWS, wanted }];
            let reads = BlockReads::ForGroup(one.clone());
            let wanted = BlockColumn { source: 0, table: 0, output: 0, name: "x", column: &column };
            let never = async |_| pending::<Result<Vec<u64>>>().await;
            let mut gone = pin!(scan.gather_blocks(&reads, wanted, blocks, never));
            assert!(poll!(&mut gone).is_pending());
        }
        let rows: Vec<u64> = (0..NUM_ROWS).step_by(5).collect();
        take(&scan, &two, &column, &rows, &found).await;
        assert_eq!(read(&scan), NUM_ROWS * ROW as u64);
    });
}

#[test]
fn a_block_that_can_never_fit_drives_out_no_others() {
    let reads = SharedReads::default();
    reads.resize(4 * BLOCK_BYTES);
    let key = |number| BlockKey { group: group(), source: 0, table: 0, output: 0, number, num_rows: BLOCK_ROWS };
    for number in 0..4 {
        assert!(reads.enter(&key(number), BLOCK_BYTES).is_some());
    }
    assert!(reads.enter(&key(4), 4 * BLOCK_BYTES + 1).is_none());
    assert_eq!(reads.bytes(), 4 * BLOCK_BYTES);
    assert!(reads.enter(&key(5), 2 * BLOCK_BYTES).is_some(), "two old ones go");
    assert_eq!(reads.bytes(), 4 * BLOCK_BYTES);
}

#[test]
fn sharing_is_wanted_while_half_of_the_ranks_are_here_and_a_moment_longer() {
    let reads = SharedReads::default();
    let first = reads.join(group(), 0, 4);
    let again = reads.join(group(), 0, 4);
    assert!(!reads.are_wanted() && !first.is_shared(), "one rank in two epochs");
    let second = reads.join(group(), 1, 4);
    assert!(reads.are_wanted() && second.is_shared());
    let other = Group { residue: 1, ..group() };
    let alone = reads.join(other, 1, 4);
    assert!(reads.are_wanted() && !alone.is_shared());
    drop((first, again, second));
    assert!(reads.are_wanted(), "the next epoch may come");
}

#[test]
fn a_deadline_holds_until_its_time() {
    let (deadline, now) = (Deadline::default(), Instant::now());
    assert!(!deadline.is_ahead(), "nobody has set it");
    let cases = [
        (Some(Until::Told), true),
        (Some(Until::Time(now)), false),
        (Some(Until::Time(now + Duration::from_secs(3_600))), true),
        (None, false),
    ];
    for (until, is_ahead) in cases {
        deadline.set(until);
        assert_eq!(deadline.is_ahead(), is_ahead, "{until:?}");
        assert_eq!(until.is_some_and(Until::is_ahead), is_ahead, "{until:?}");
    }
    assert!(Until::Time(now) < Until::Told);
}

#[test]
fn rows_beyond_all_memory_are_read_alone() {
    runtime().block_on(async {
        let (column, reads, found) = (column().await, SharedReads::default(), AtomicU64::new(0));
        let (one, two) = join_both(&reads);
        let scan = scan();
        take(&scan, &one, &column, &[7, 60, 399], &found).await;
        assert_eq!((read(&scan), found.load(Ordering::Relaxed)), (3 * ROW as u64, 0));
        drop((one, two));
    });
}
