//! Seeded permutations of `0..n` that take constant memory.

/// A 64-bit key that is derived from a seed and labels.
///
/// A value is absorbed by the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), applied to the running
/// state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

/// The golden ratio as a 64-bit fraction, which is the increment of SplitMix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

impl Key {
    /// Makes the key of a seed.
    pub fn new(seed: u64) -> Self {
        Key(mix(seed.wrapping_add(GOLDEN)))
    }

    /// Returns the key after it absorbs one more value. Keys of different sequences of values are unrelated.
    #[must_use]
    pub fn with(self, value: u64) -> Self {
        Key(mix(self.0.wrapping_add(GOLDEN) ^ mix(value.wrapping_add(GOLDEN).rotate_left(32))))
    }

    /// Returns the 64 bits of the key.
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// The number of Feistel rounds. It is even, so that each half of the value ends on the side where it began.
const NUM_ROUNDS: usize = 8;

/// A seeded permutation of `0..n`.
///
/// It is an alternating Feistel network over the smallest power of two that is at least `n` and at least 4. The network
/// is applied repeatedly until the value is below `n` (cycle walking: Black and Rogaway, CT-RSA 2002). At most two
/// applications are expected, or four if `n` is 1.
#[derive(Clone, Debug)]
pub struct Permutation {
    n: u64,
    low_bits: u32,
    high_bits: u32,
    keys: [u64; NUM_ROUNDS],
}

impl Permutation {
    /// Makes the permutation of `0..n` under `key`.
    pub fn new(n: u64, key: Key) -> Self {
        let bits = (64 - n.saturating_sub(1).leading_zeros()).max(2);
        let mut keys = [0; NUM_ROUNDS];
        for (round, slot) in keys.iter_mut().enumerate() {
            *slot = key.with(round as u64).bits();
        }
        Self { n, low_bits: bits / 2, high_bits: bits - bits / 2, keys }
    }

    /// Returns the number of permuted values.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Returns whether there is nothing to permute.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Returns the image of `index`, which must be below `n`.
    pub fn apply(&self, index: u64) -> u64 {
        debug_assert!(index < self.n);
        let mut value = index;
        loop {
            value = self.encrypt(value);
            if value < self.n {
                return value;
            }
        }
    }

    /// Returns the index whose image is `value`, which must be below `n`.
    pub fn invert(&self, value: u64) -> u64 {
        debug_assert!(value < self.n);
        let mut index = value;
        loop {
            index = self.decrypt(index);
            if index < self.n {
                return index;
            }
        }
    }

    fn encrypt(&self, value: u64) -> u64 {
        let (mut low, mut high) = (value & mask(self.low_bits), value >> self.low_bits);
        for pair in self.keys.chunks_exact(2) {
            high ^= round(low, pair[0]) & mask(self.high_bits);
            low ^= round(high, pair[1]) & mask(self.low_bits);
        }
        high << self.low_bits | low
    }

    fn decrypt(&self, value: u64) -> u64 {
        let (mut low, mut high) = (value & mask(self.low_bits), value >> self.low_bits);
        for pair in self.keys.chunks_exact(2).rev() {
            low ^= round(high, pair[1]) & mask(self.low_bits);
            high ^= round(low, pair[0]) & mask(self.high_bits);
        }
        high << self.low_bits | low
    }
}

fn round(half: u64, key: u64) -> u64 {
    mix(half.wrapping_mul(GOLDEN) ^ key)
}

fn mask(bits: u32) -> u64 {
    (1u64 << bits) - 1
}
