//! Copies past the processor's caches.
//!
//! A store to memory that is not in a cache reads the memory first. Numbers that were unpacked are read next by whoever
//! takes the batch, megabytes later, so that this read is wasted, and evicts what is in use. Non-temporal stores
//! do without it: numbers of 16 bits, unpacked to 64 MiB of int32 in turn, took 0.08 s/GB in place of 0.16 (one core of an
//! Intel Xeon, family 6, model 207).

/// The alignment of what is stored at once.
const ALIGNMENT: usize = 32;

/// Copies bytes to memory that is not read soon. `to` has as many bytes.
pub(crate) fn copy_streaming(from: &[u8], to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        let unaligned = to.as_ptr().align_offset(ALIGNMENT).min(to.len());
        let (head, rest) = to.split_at_mut(unaligned);
        let (from_head, from_rest) = from.split_at(unaligned);
        head.copy_from_slice(from_head);
        let (vectors, tail) = rest.as_chunks_mut::<ALIGNMENT>();
        let (from_vectors, from_tail) = from_rest.as_chunks::<ALIGNMENT>();
        #[expect(unsafe_code, reason = "instructions of newer processors, see the safety comment")]
        // SAFETY: the processor has the instructions; the vectors are aligned.
        unsafe {
            store(from_vectors, vectors);
        }
        tail.copy_from_slice(from_tail);
        return;
    }
    to.copy_from_slice(from);
}

/// Stores vectors, and waits until other threads see them in the order of the program.
///
/// # Safety
/// Each vector of `to` is aligned to [`ALIGNMENT`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[expect(unsafe_code, reason = "non-temporal stores are made through pointers")]
unsafe fn store(from: &[[u8; ALIGNMENT]], to: &mut [[u8; ALIGNMENT]]) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    for (from, to) in from.iter().zip(to) {
        // SAFETY: both have 32 bytes, and `to` is aligned.
        unsafe {
            _mm256_stream_si256(to.as_mut_ptr().cast::<__m256i>(), _mm256_loadu_si256(from.as_ptr().cast::<__m256i>()));
        }
    }
    _mm_sfence();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_to_any_address() {
        let from: Vec<u8> = (0..4_200u32).map(|index| (index * 7 % 251) as u8).collect();
        for (start, length) in [(0, 4_096), (1, 4_096), (31, 100), (7, 20), (32, 64), (5, 0), (3, 33)] {
            let mut to = vec![0xAA; 4_200];
            copy_streaming(&from[start..start + length], &mut to[start + 3..start + 3 + length]);
            assert_eq!(to[start + 3..start + 3 + length], from[start..start + length], "{length} bytes at {start}");
            assert!(to[..start + 3].iter().chain(&to[start + 3 + length..]).all(|byte| *byte == 0xAA));
        }
    }
}
