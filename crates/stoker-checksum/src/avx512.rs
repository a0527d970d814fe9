//! XXH3 with AVX-512 instructions: 64 bits, seed 0, the default secret, for values of more than [`SHORT_MAX`] bytes.
//!
//! The `twox-hash` library uses AVX2 at most. The difference is noticeable beside a copy of the same bytes, which is
//! the cost of a read: `examples/checksum_rate.rs` measures it.
#![expect(unsafe_code, reason = "the standard library has no safe loads of 512 bits; see the safety comments")]

use std::arch::x86_64::{
    __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_add_epi64, _mm512_loadu_si512, _mm512_mul_epu32, _mm512_mullo_epi64,
    _mm512_set1_epi64, _mm512_shuffle_epi32, _mm512_srli_epi64, _mm512_storeu_si512, _mm512_xor_si512,
};
use std::array;

/// The length of the longest values that XXH3 hashes by another algorithm, which is not implemented here.
const SHORT_MAX: usize = 240;

const STRIPE_BYTES: usize = 64;

/// The number of stripes between two scrambles.
const BLOCK_STRIPES: usize = 16;
const BLOCK_BYTES: usize = BLOCK_STRIPES * STRIPE_BYTES;

/// Offsets in the secret. The first one scrambles the accumulator, the second one mixes in the last stripe, and the
/// third one merges the lanes at the end. Each stripe of a block has an offset of its own, 8 bytes after that of the
/// stripe before.
const SCRAMBLE_SECRET: usize = 128;
const LAST_SECRET: usize = 121;
const END_SECRET: usize = 11;

/// The default secret of the specification of XXH3.
#[rustfmt::skip]
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

const PRIME32_1: u64 = 0x9E37_79B1;
const PRIME32_2: u64 = 0x85EB_CA77;
const PRIME32_3: u64 = 0xC2B2_AE3D;
const PRIME64_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME64_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME64_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME64_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME64_5: u64 = 0x27D4_EB2F_1656_67C5;
const PRIME_MX1: u64 = 0x1656_6791_9E37_79F9;

/// The value of the accumulator before the first stripe.
const START: [u64; 8] = [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1];

/// Returns the hash, or `None` if the value is too short or the processor does not have the instructions.
pub(crate) fn hash(bytes: &[u8]) -> Option<u64> {
    if bytes.len() <= SHORT_MAX || !is_x86_feature_detected!("avx512f") || !is_x86_feature_detected!("avx512dq") {
        return None;
    }
    // SAFETY: the check above found that the processor has AVX-512F and AVX-512DQ.
    Some(unsafe { hash_long(bytes) })
}

/// Returns the hash of a value of at least 64 bytes, which is one stripe.
#[target_feature(enable = "avx512f,avx512dq")]
fn hash_long(bytes: &[u8]) -> u64 {
    let secrets: [__m512i; BLOCK_STRIPES] = array::from_fn(|stripe| load(secret(8 * stripe)));
    let (scramble, prime) = (load(secret(SCRAMBLE_SECRET)), _mm512_set1_epi64(PRIME32_1 as i64));
    // XXH3 mixes in the last 64 bytes with an offset of their own. Whole blocks and stripes therefore never include the
    // last byte, and the last 64 bytes may overlap the stripe before.
    let (stripes, _) = bytes[..bytes.len().saturating_sub(1)].as_chunks::<STRIPE_BYTES>();
    let (blocks, rest) = stripes.as_chunks::<BLOCK_STRIPES>();
    let mut sums = load(&bytes_of(START));
    for block in blocks {
        for (stripe, secret) in block.iter().zip(secrets) {
            prefetch(stripe.as_ptr().wrapping_add(BLOCK_BYTES));
            sums = accumulate(sums, load(stripe), secret);
        }
        let mixed = _mm512_xor_si512(_mm512_xor_si512(sums, _mm512_srli_epi64::<47>(sums)), scramble);
        sums = _mm512_mullo_epi64(mixed, prime);
    }
    for (stripe, secret) in rest.iter().zip(secrets) {
        sums = accumulate(sums, load(stripe), secret);
    }
    if let Some(last) = bytes.last_chunk() {
        sums = accumulate(sums, load(last), load(secret(LAST_SECRET)));
    }
    merge(store(sums), bytes.len() as u64)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn accumulate(sums: __m512i, data: __m512i, secret: __m512i) -> __m512i {
    let key = _mm512_xor_si512(data, secret);
    let product = _mm512_mul_epu32(key, _mm512_srli_epi64::<32>(key));
    // Each 64-bit lane adds the data of its neighbour.
    let crossed = _mm512_shuffle_epi32::<0b01_00_11_10>(data);
    _mm512_add_epi64(sums, _mm512_add_epi64(product, crossed))
}

/// Merges all lanes and the number of bytes into one hash.
fn merge(sums: [u64; 8], length: u64) -> u64 {
    let keys = words_of(secret(END_SECRET));
    let mut hash = length.wrapping_mul(PRIME64_1);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
    for pair in [0, 2, 4, 6] {
        let [one, other] = [pair, pair + 1].map(|lane| u128::from(sums[lane] ^ keys[lane]));
        let product = one * other;
        hash = hash.wrapping_add(product as u64 ^ (product >> 64) as u64);
    }
    hash = (hash ^ (hash >> 37)).wrapping_mul(PRIME_MX1);
    hash ^ (hash >> 32)
}

/// Returns 64 bytes of the secret from offset `at` on.
fn secret(at: usize) -> &'static [u8; STRIPE_BYTES] {
    const ZEROS: [u8; STRIPE_BYTES] = [0; STRIPE_BYTES];
    SECRET[at..].first_chunk().unwrap_or(&ZEROS)
}

fn bytes_of(words: [u64; 8]) -> [u8; STRIPE_BYTES] {
    let mut bytes = [0; STRIPE_BYTES];
    bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    bytes
}

fn words_of(bytes: &[u8; STRIPE_BYTES]) -> [u64; 8] {
    let mut words = [0; 8];
    words.iter_mut().zip(bytes.as_chunks().0).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    words
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; STRIPE_BYTES]) -> __m512i {
    // SAFETY: `bytes` has 64 bytes, and the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(sums: __m512i) -> [u64; 8] {
    let mut words = [0; 8];
    // SAFETY: `words` has room for 64 bytes, and the store needs no alignment.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), sums) };
    words
}

#[inline]
fn prefetch(address: *const u8) {
    // SAFETY: a prefetch is a hint that reads nothing and accepts any address. All x86-64 processors have the
    // instruction.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use twox_hash::XxHash3_64;

    use super::*;

    fn check(bytes: &[u8]) {
        let found = hash(bytes);
        let has_instructions = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq");
        assert_eq!(found.is_some(), has_instructions && bytes.len() > SHORT_MAX);
        if let Some(found) = found {
            assert_eq!(found, XxHash3_64::oneshot(bytes), "{} bytes", bytes.len());
        }
    }

    #[test]
    fn every_length_up_to_three_blocks() {
        let bytes: Vec<u8> = (0..=3 * BLOCK_BYTES).map(|index| (index * 7919 % 251) as u8).collect();
        // Miri needs a second for a few KiB.
        let step = if cfg!(miri) { 251 } else { 1 };
        (0..=bytes.len()).step_by(step).for_each(|length| check(&bytes[..length]));
    }

    proptest! {
        #[test]
        fn the_library_finds_the_same(bytes in prop::collection::vec(any::<u8>(), 0..20_000), offset in 0usize..64) {
            check(bytes.get(offset..).unwrap_or_default());
        }
    }
}
