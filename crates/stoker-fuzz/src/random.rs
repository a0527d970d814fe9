//! Random numbers that are the same on every machine.

/// SplitMix64: <https://prng.di.unimi.it/splitmix64.c>.
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    #[expect(clippy::cast_possible_truncation, reason = "the result is below `end`")]
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// Returns true once in `count` calls on average.
    pub fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Returns a number from 1 to `max`; small numbers are more frequent.
    pub fn small(&mut self, max: usize) -> usize {
        let bits = self.below(usize::BITS.saturating_sub(max.leading_zeros()) as usize);
        (1 + self.below(2 << bits)).min(max.max(1))
    }

    /// Returns an element, or `None` of an empty slice.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }
}
