//! Tests of the parts that decoders share.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray};
use parquet::arrow::{ArrowWriter, ProjectionMask};

use super::batch_size::{BatchSize, Change, plain_bytes};
use super::footer::{LastFooter, read_footer};
use crate::budget::Budget;

/// Writes a Parquet file of many rows, each with one of two strings.
fn repeated_strings(rows: i32, length: usize) -> File {
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a".repeat(length), "b".repeat(length)]));
    let keys = Int32Array::from_iter_values((0..rows).map(|row| row % 2));
    let strings: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::new(keys, values));
    let batch = RecordBatch::try_from_iter([("text", strings)]).unwrap();
    let file = tempfile::tempfile().unwrap();
    let mut writer = ArrowWriter::try_new(file.try_clone().unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    file
}

#[test]
fn record_batches_take_the_bytes_that_were_measured() {
    let check = |rows: u64, plain_bytes: u64, steps: &[(u64, Change, usize)]| {
        let mut size = BatchSize::new(rows, plain_bytes);
        for (row_bytes, change, expected) in steps {
            let decoded = size.rows();
            let found = size.learn(decoded, decoded as u64 * row_bytes);
            assert_eq!((found, size.rows()), (*change, *expected), "{rows} rows, {plain_bytes} bytes");
        }
        size
    };
    // The footer has the size of a dictionary, not of the strings: 335 strings of 50,000 bytes fit into 16 MiB.
    assert_eq!(BatchSize::new(6000, 47 << 10).rows(), 32);
    check(6000, 47 << 10, &[(50_000, Change::Grown, 335), (50_000, Change::Kept, 335)]);
    // Many narrow rows, and few of them.
    check(1_000_000, 8_000_000, &[(12, Change::Grown, 8192), (12, Change::Kept, 8192)]);
    check(100, 800, &[(12, Change::Kept, 32)]);
    // Rows of 100 MB, which the footer tells or not.
    check(100, 10_000_000_000, &[(100_000_000, Change::Kept, 1)]);
    check(100, 800, &[(100_000_000, Change::Shrunk, 1), (8, Change::Kept, 1)]);
    // Wide rows after narrow ones take up to twice the target size at first; then narrow rows come.
    let steps = [(8, Change::Grown, 8192), (4000, Change::Kept, 8192), (8192, Change::Shrunk, 2048)];
    let size = check(100_000, 800_000, &steps);
    assert_eq!((size.bytes(100_000), size.bytes(3)), (16 << 20, 3 * 8192));
    check(100_000, 800_000, &[steps[0], steps[1], steps[2], (8, Change::Kept, 2048)]);
    // A footer that tells large rows bounds the growth.
    check(100_000, 1_000_000_000, &[(8, Change::Grown, 1677)]);
    assert_eq!(BatchSize::new(0, u64::MAX).rows(), 1);
}

#[test]
fn footers_tell_of_strings_behind_a_dictionary() {
    let file = repeated_strings(6000, 50_000);
    assert!(file.metadata().unwrap().len() < 1_000_000);
    let footer = read_footer(&file).unwrap();
    let group = footer.metadata().row_group(0);
    assert!(plain_bytes(group, &ProjectionMask::all()) >= 6000 * 50_000);
    let nothing = ProjectionMask::roots(footer.parquet_schema(), []);
    assert_eq!(plain_bytes(group, &nothing), 0);
}

#[test]
fn decoders_of_one_file_share_its_footer() {
    let last = LastFooter::default();
    let (first, again, other) = (last.of(3), last.of(3), last.of(4));
    assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
    let file = repeated_strings(4, 1);
    let parsed = first.get(&file).unwrap();
    assert!(std::ptr::eq(parsed, again.get(&file).unwrap()), "parsed once");
    drop((first, again));
    assert_eq!(Arc::strong_count(&last.of(4)), 3, "the last one is kept, for the next decoders");
    last.of(5);
    assert_eq!(Arc::strong_count(&other), 1, "others only by their decoders");
}

/// Rows keep their order although each piece needs more than a third of the budget for each of its rows, and all pieces
/// are decoded at the same time.
#[test]
fn rows_keep_their_order_however_little_room_there_is() {
    for bytes_max in [1, 100, 1000] {
        let budget = Budget::new(bytes_max);
        let pieces: Vec<_> = (0..8usize)
            .map(|piece| {
                let (sender, receiver) = sync_channel(2);
                let budget = budget.clone();
                let decoder = thread::spawn(move || {
                    for row in 0..6 {
                        let mut held = budget.reserve(piece, 40, || false).unwrap();
                        held.settle(45);
                        sender.send((piece, row, held)).unwrap();
                    }
                });
                (receiver, decoder)
            })
            .collect();
        let mut found = Vec::new();
        for (piece, (receiver, decoder)) in pieces.into_iter().enumerate() {
            budget.give_turn(piece);
            found.extend(receiver.iter().map(|(piece, row, _held)| (piece, row)));
            decoder.join().unwrap();
        }
        let expected: Vec<(usize, i32)> = (0..8).flat_map(|piece| (0..6).map(move |row| (piece, row))).collect();
        assert_eq!(found, expected);
        assert_eq!(budget.held_bytes(), 0);
    }
}

#[test]
fn only_the_piece_whose_turn_it_is_passes_the_limit() {
    let budget = Budget::new(100);
    budget.give_turn(0);
    let own = budget.reserve(0, 80, || false).unwrap();
    let more = budget.reserve(0, 80, || false).unwrap();
    assert_eq!(budget.held_bytes(), 160);
    let waiting = {
        let budget = budget.clone();
        thread::spawn(move || {
            let held = budget.reserve(1, 50, || false);
            (budget.held_bytes(), held.is_some())
        })
    };
    drop(own);
    drop(more);
    assert_eq!(waiting.join().unwrap(), (50, true), "waited until the others were gone");
}

#[test]
fn who_waits_for_room_ends_when_nobody_wants_the_rows() {
    let budget = Budget::new(100);
    let _all = budget.reserve(0, 100, || false).unwrap();
    let unwanted = Arc::new(AtomicBool::new(false));
    let waiting = {
        let (budget, unwanted) = (budget.clone(), unwanted.clone());
        thread::spawn(move || budget.reserve(1, 1, || unwanted.load(Ordering::SeqCst)).is_none())
    };
    unwanted.store(true, Ordering::SeqCst);
    budget.wake();
    assert!(waiting.join().unwrap());
}
