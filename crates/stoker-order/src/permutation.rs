//! Seeded permutations of `0..n` that need no memory.

/// A 64-bit key, derived from seed and labels.
///
/// Absorbing is the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) over the running state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

/// The golden ratio as a 64-bit fraction, SplitMix64's increment.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

impl Key {
    /// The key of a seed.
    pub fn new(seed: u64) -> Self {
        Key(mix(seed.wrapping_add(GOLDEN)))
    }

    /// The key after absorbing one more value. Keys of different sequences of values are unrelated.
    #[must_use]
    pub fn with(self, value: u64) -> Self {
        Key(mix(self.0.wrapping_add(GOLDEN) ^ mix(value.wrapping_add(GOLDEN).rotate_left(32))))
    }

    /// The 64 bits.
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// Feistel rounds; even, so that the halves end where they began.
const NUM_ROUNDS: usize = 8;

/// A seeded permutation of `0..n`: an alternating Feistel network over the next power of two, walked along its cycles until
/// the value falls below `n` (Black and Rogaway, CT-RSA 2002). At most two walks are expected.
#[derive(Clone, Debug)]
pub struct Permutation {
    n: u64,
    low_bits: u32,
    high_bits: u32,
    keys: [u64; NUM_ROUNDS],
}

impl Permutation {
    /// The permutation of `0..n` under `key`.
    pub fn new(n: u64, key: Key) -> Self {
        let bits = (64 - n.saturating_sub(1).leading_zeros()).max(2);
        let mut keys = [0; NUM_ROUNDS];
        for (round, slot) in keys.iter_mut().enumerate() {
            *slot = key.with(round as u64).bits();
        }
        Self { n, low_bits: bits / 2, high_bits: bits - bits / 2, keys }
    }

    /// How many values are permuted.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Whether there is nothing to permute.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The image of `index`, which must be below `n`.
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

    /// The index whose image is `value`, which must be below `n`.
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
