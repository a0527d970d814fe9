//! Tests of the pool of memory.

use std::pin::pin;

use futures::poll;
use stoker_types::ErrorKind;

use super::run;
use crate::{BufferPool, Pooled, Slots};

#[test]
fn memory_that_shares_huge_pages_does_not_overlap() {
    let lengths = [1, 64 << 10, 100_000, 150_528, 524_288, 2 << 20, (2 << 20) + 1, 20 << 20];
    // Miri compares a few MiB in a second.
    for length in lengths.into_iter().take(if cfg!(miri) { 4 } else { 8 }) {
        let pool = BufferPool::new(256 << 20);
        let rounds = 3 * (4 << 20) / length.max(100_000) + 2;
        let mut all: Vec<_> = (0..rounds).map(|_| pool.take(length).expect("memory")).collect();
        for (number, memory) in all.iter_mut().enumerate() {
            assert_eq!(memory.as_ref().len(), length);
            assert_eq!(memory.as_ref().as_ptr() as usize % 64, 0);
            assert!(memory.as_ref() == vec![0; length], "fresh memory is zeros");
            memory.as_mut().fill(number as u8 + 1);
        }
        for (number, memory) in all.iter().enumerate() {
            assert!(memory.as_ref() == vec![number as u8 + 1; length], "{number} of {length} bytes");
        }
        // The first ones are dropped first: a region lives until the last memory in it is dropped.
        drop(pool);
        all.drain(..rounds / 2);
        assert_eq!(all.last().map(|memory| memory.as_ref()[length - 1]), Some(rounds as u8));
    }
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
#[cfg_attr(miri, ignore = "Miri ends where a program asks for more memory than there is")]
fn memory_that_the_system_does_not_have_is_an_error() {
    let pool = BufferPool::new(1 << 20);
    for bytes in [1 << 46, 1 << 60, usize::MAX] {
        let error = pool.take(bytes).expect_err("more than there is");
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
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

#[test]
fn threads_fill_the_slots_of_one_column_at_once() {
    const ROW: usize = 96;
    let pool = BufferPool::new(1 << 20);
    let slots = Slots::try_new(&pool, 64, ROW).expect("memory");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let slots = &slots;
            scope.spawn(move || {
                for row in (thread..64).step_by(4) {
                    let mut slot = slots.claim(row).expect("free");
                    slot.copy_from_slice(&[row as u8; ROW]);
                    assert!(slots.claim(row).is_err(), "a slot is claimed once");
                    slot.fill();
                }
            });
        }
    });
    let mut again = slots.reopen(7).expect("filled");
    again.copy_from_slice(&[200; ROW]);
    again.fill();
    let buffer = slots.freeze().expect("all slots are filled");
    for (row, bytes) in buffer.as_slice().chunks_exact(ROW).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == if row == 7 { 200 } else { row as u8 }), "row {row}");
    }
}

#[test]
fn the_newest_memory_of_a_length_is_taken_first_and_the_oldest_is_released_first() {
    let pool = BufferPool::new(10_000);
    let take = |length: usize| pool.take(length).expect("memory");
    let address = |memory: &Pooled| memory.as_ref().as_ptr() as usize;
    let [mut first, mut other, mut second, mut third] = [1_000, 2_000, 1_000, 1_000].map(take);
    for (number, memory) in [&mut first, &mut other, &mut second, &mut third].into_iter().enumerate() {
        memory.as_mut().fill(number as u8 + 1);
    }
    let addresses = [&first, &second, &third].map(address);
    drop(first);
    drop(other);
    drop(second);
    drop(third);
    assert_eq!((pool.used_bytes(), pool.free_bytes()), (0, 5_000));
    let [third, second] = [1_000, 1_000].map(take);
    assert_eq!([address(&second), address(&third)], addresses[1..], "the newest first");
    assert_eq!((pool.used_bytes(), pool.free_bytes()), (2_000, 3_000));
    drop(second);
    // The first one is the oldest now, then the one of 2,000 bytes, then the second one.
    pool.resize(3_000);
    pool.resize(5_000);
    assert_eq!((pool.used_bytes(), pool.free_bytes()), (1_000, 1_000), "the oldest ones are released");
    assert_eq!(address(&take(1_000)), addresses[1], "the newest one stays");
    drop(third);
    assert_eq!((pool.used_bytes(), pool.free_bytes()), (0, 2_000));
}

#[test]
fn neighbouring_slots_are_claimed_together_or_not_at_all() {
    const ROW: usize = 10;
    let slots = Slots::try_new(&BufferPool::new(0), 8, ROW).expect("memory");
    let sixth = slots.claim(6).expect("free");
    for (rows, reason) in [(3..7, "slot 6 is wanted and is claimed"), (5..9, "do not exist"), (4..4, "are none")] {
        let error = slots.claim_rows(rows).expect_err("no such rows");
        assert!(error.kind() == ErrorKind::Internal && error.to_string().contains(reason), "{error}");
    }
    // The failed claims left all rows free.
    let mut run = slots.claim_rows(1..6).expect("free");
    assert_eq!((run.num_rows(), run.row_bytes(), run.len()), (5, ROW, 5 * ROW));
    assert!(slots.claim_rows(0..2).is_err() && slots.claim(5).is_err());
    for at in [0, 5, 6] {
        assert!(run.split_off(at).is_err(), "{at}");
    }
    assert_eq!(run.num_rows(), 5, "a split that fails changes nothing");
    run.iter_mut().zip(10..).for_each(|(byte, value)| *byte = value);
    let tail = run.split_off(2).expect("two parts");
    assert_eq!((run.num_rows(), tail.num_rows(), run.len(), tail.len()), (2, 3, 2 * ROW, 3 * ROW));
    let values = |from: u8, to: u8| (from..to).collect::<Vec<u8>>();
    assert_eq!((&run[..], &tail[..]), (&values(10, 30)[..], &values(30, 60)[..]));
    run.fill();
    assert!(slots.reopen(3).is_err(), "the other part is not filled");
    tail.fill();
    for row in [0, 7] {
        slots.claim(row).expect("free").fill();
    }
    assert!(slots.claim_rows(0..1).is_err(), "filled slots are not free");
    assert!(slots.reopen(3).expect("filled").iter().copied().eq(30..40));
    sixth.fill();
    assert!(slots.freeze().is_err(), "row 3 was reopened");
}

#[test]
fn memory_of_similar_lengths_serves_each_other() {
    let pool = BufferPool::new(1 << 20);
    let mut first = pool.take(100_000).expect("memory");
    let address = first.as_mut_ptr();
    drop(first);
    // The lengths from 2^16 on are rounded up to multiples of 2^12.
    let mut again = pool.take(98_305).expect("memory");
    assert_eq!((again.as_mut_ptr(), again.as_ref().len()), (address, 98_305));
    assert_ne!(pool.take(98_304).expect("memory").as_mut_ptr(), address);
    drop(again);
    // Slots may take more memory than their rows, so that more rows find it again.
    let few = Slots::with_capacity(&pool, 3, 100, 1_000).expect("memory");
    few.claim_rows(0..3).expect("free").fill();
    assert!(few.claim(3).is_err(), "there are three rows");
    assert_eq!(few.freeze().expect("filled").as_ptr(), address.cast_const());
}

#[test]
fn memory_that_is_a_quarter_longer_is_taken() {
    let pool = BufferPool::new(1 << 20);
    let memory = |lengths: [usize; 3]| lengths.map(|length| pool.take(length).expect("memory"));
    let [mut long, mut longer, mut longest] = memory([106_496, 114_688, 131_072]);
    let addresses = [&mut long, &mut longer, &mut longest].map(Pooled::as_mut_ptr);
    drop((longest, longer, long));
    let [mut first, mut second, mut third] = memory([94_208; 3]);
    assert_eq!([first.as_mut_ptr(), second.as_mut_ptr()], addresses[..2], "the shortest that is long enough");
    assert!(!addresses.contains(&third.as_mut_ptr()), "131,072 bytes are too long");
    assert_eq!((first.as_ref().len(), pool.used_bytes()), (94_208, 106_496 + 114_688 + 94_208));
    drop((first, second, third));
    assert_eq!((pool.used_bytes(), pool.free_bytes()), (0, 106_496 + 114_688 + 94_208 + 131_072));
}

#[test]
fn memory_is_waited_for_until_some_of_its_length_returns() {
    let pool = BufferPool::new(1 << 20);
    let (one, other) = (pool.take(10_000).expect("memory"), pool.take(20_000).expect("memory"));
    run(async {
        let mut free = pin!(pool.until_free(20_000));
        assert!(poll!(free.as_mut()).is_pending());
        drop(one);
        assert!(poll!(free.as_mut()).is_pending(), "memory of another length");
        drop(other);
        free.await;
        pool.until_free(10_000).await;
    });
}
