//! The checksum of rows.
//!
//! It is compared wherever rows are read, so it has to cost little beside a copy of them. The hash is inlined into the crate that
//! calls it: this one is compiled for speed, those that know tables are not.

#[cfg(target_arch = "x86_64")]
mod avx512;

use twox_hash::XxHash3_64;

/// The checksum of a row: the lower 32 bits of the XXH3 hash (64 bits, seed 0) of its bytes, and 1 where these are 0.
///
/// The hash is specified at <https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>.
#[inline(never)]
pub fn checksum(bytes: &[u8]) -> u32 {
    (hash(bytes) as u32).max(1)
}

fn hash(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(hash) = avx512::hash(bytes) {
        return hash;
    }
    XxHash3_64::oneshot(bytes)
}

#[cfg(test)]
mod tests {
    use super::checksum;

    #[test]
    fn the_hash_is_the_published_one() {
        // XXH3 of nothing with seed 0 is 0x2d06800538d394c2, by the reference implementation.
        assert_eq!(checksum(b""), 0x38d3_94c2);
        assert_eq!(checksum(b"stoker"), checksum(&[b"sto".as_slice(), b"ker"].concat()));
        assert_ne!(checksum(b"stoker"), checksum(b"stokes"));
    }
}
