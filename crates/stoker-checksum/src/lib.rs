//! The checksum of a row, and the hash of longer byte strings.
//!
//! The checksum is compared wherever rows are read, so it must cost little compared with a copy of the rows. The hash
//! function of the `twox-hash` library is inlined into the crate that calls it. It is called here, in a crate of its
//! own, because this crate is compiled with full optimisation (`opt-level = 3`) and `stoker-lake` is not.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

#[cfg(target_arch = "x86_64")]
mod avx512;

use twox_hash::XxHash3_64;

/// Returns the checksum of a row: the lower 32 bits of the XXH3 hash (64 bits, seed 0) of its bytes, or 1 if these bits
/// are 0.
///
/// The hash is specified at <https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>.
#[inline(never)]
#[expect(clippy::cast_possible_truncation, reason = "it takes the lower bits")]
pub fn checksum(bytes: &[u8]) -> u32 {
    (hash(bytes) as u32).max(1)
}

/// Returns the XXH3 hash (64 bits, seed 0) of `bytes`.
#[inline(never)]
pub fn hash(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(hash) = avx512::hash(bytes) {
        return hash;
    }
    XxHash3_64::oneshot(bytes)
}

#[cfg(test)]
mod tests {
    use super::checksum;

    /// Lengths and checksums that the reference implementation computed. Byte `index` is `index * 7919 % 251`.
    const GOLDEN: [(usize, u32); 7] = [
        (0, 0x38d3_94c2),
        (1, 0x074e_ecdb),
        (240, 0x2d36_5175),
        (241, 0x3522_a70b),
        (1_024, 0xf338_5fd4),
        (1_025, 0x8bfb_87b9),
        (100_000, 0x87ab_e9cd),
    ];

    #[test]
    fn the_hash_is_the_published_one() {
        for (length, expected) in GOLDEN {
            let bytes: Vec<u8> = (0..length).map(|index| (index * 7919 % 251) as u8).collect();
            assert_eq!(checksum(&bytes), expected, "{length} bytes");
        }
    }
}
