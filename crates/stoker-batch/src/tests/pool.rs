//! Tests of the pool of memory.

use crate::BufferPool;

#[test]
fn memory_that_shares_huge_pages_does_not_overlap() {
    for length in [1, 64 << 10, 100_000, 150_528, 524_288, 2 << 20, (2 << 20) + 1, 20 << 20] {
        let pool = BufferPool::new(256 << 20);
        let rounds = 3 * (4 << 20) / length.max(100_000) + 2;
        let mut all: Vec<_> = (0..rounds).map(|_| pool.take(length).expect("memory")).collect();
        for (number, memory) in all.iter_mut().enumerate() {
            assert_eq!(memory.as_ref().len(), length);
            assert_eq!(memory.as_ref().as_ptr() as usize % 64, 0);
            assert!(memory.as_ref().iter().all(|byte| *byte == 0), "fresh memory is zeros");
            memory.as_mut().fill(number as u8 + 1);
        }
        for (number, memory) in all.iter().enumerate() {
            assert!(memory.as_ref().iter().all(|byte| *byte == number as u8 + 1), "{number} of {length} bytes");
        }
        // The first ones are dropped first: a region lives until the last memory in it is dropped.
        drop(pool);
        all.drain(..rounds / 2);
        assert_eq!(all.last().map(|memory| memory.as_ref()[length - 1]), Some(rounds as u8));
    }
}
