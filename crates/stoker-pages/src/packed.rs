//! Unpacks bit-packed numbers.
//!
//! 1,024 numbers of `T` bits are packed to words of as many bits in *lanes*: a vector of words of 1,024 bits is shifted at
//! once, and each word of it holds bits of its lane only (Afroozeh, Boncz: The FastLanes compression layout, VLDB 2023).
//! Lance's own function has a copy of itself for each number of bits, for processors of any age; one loop over the rows
//! of lanes, compiled for the processor at hand, does the same in a third of the time.

use crate::error::Result;
use crate::{BadPage, little_endian};

/// The numbers that are packed together.
pub(crate) const PACKED: usize = 1_024;

/// Where the rows of lanes belong among the numbers, in units of 16 (FastLanes' unified transposed layout).
const ROW_ORDER: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];

/// Unpacks 1,024 numbers of `width` bytes. The first packed word says how many bits each of them has. `target` is aligned
/// as the numbers are.
pub(crate) fn unpack(packed: &[u8], width: usize, target: &mut [u8]) -> Result<()> {
    match width {
        1 => unpack_as(packed, target, unpack_u8),
        2 => unpack_as(packed, target, unpack_u16),
        4 => unpack_as(packed, target, unpack_u32),
        8 => unpack_as(packed, target, unpack_u64),
        width => Err(BadPage::new(format!("numbers of {width} bytes are not packed"))),
    }
}

fn unpack_as<T: bytemuck::Pod>(
    packed: &[u8],
    target: &mut [u8],
    rows: fn(usize, &[T], &mut [T; PACKED]),
) -> Result<()> {
    let width = size_of::<T>();
    let misfit = || BadPage::new(format!("{} bytes are no packed numbers of {width} bytes", packed.len()));
    let bits = packed.get(..width).map(little_endian).and_then(|bits| usize::try_from(bits).ok());
    let bits = bits.filter(|bits| *bits <= width * 8).ok_or_else(misfit)?;
    let aligned: Vec<T>;
    let words: &[T] = match bytemuck::try_cast_slice(packed) {
        Ok(words) => words,
        Err(_) if packed.len().is_multiple_of(width) => {
            aligned = bytemuck::pod_collect_to_vec(packed);
            &aligned
        }
        Err(_) => return Err(misfit()),
    };
    let words = words.get(1..).filter(|words| size_of_val(*words) * 8 == PACKED * bits).ok_or_else(misfit)?;
    let target: &mut [T] = bytemuck::try_cast_slice_mut(target).map_err(|_| misfit())?;
    rows(bits, words, target.first_chunk_mut().ok_or_else(misfit)?);
    Ok(())
}

/// Defines the function for numbers of one type: `words` are 1,024 numbers of `bits` bits each.
macro_rules! unpack_numbers {
    ($name:ident, $number:ty, $rows:ident) => {
        fn $name(bits: usize, words: &[$number], numbers: &mut [$number; PACKED]) {
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                #[target_feature(enable = "avx2")]
                fn with_avx2(bits: usize, words: &[$number], numbers: &mut [$number; PACKED]) {
                    $rows(bits, words, numbers);
                }
                #[expect(unsafe_code, reason = "instructions of newer processors, see the safety comment")]
                // SAFETY: the processor has the instructions.
                unsafe {
                    with_avx2(bits, words, numbers);
                }
                return;
            }
            $rows(bits, words, numbers);
        }

        #[inline(always)]
        fn $rows(bits: usize, words: &[$number], numbers: &mut [$number; PACKED]) {
            const BITS: usize = <$number>::BITS as usize;
            const LANES: usize = PACKED / BITS;
            let vectors = words.as_chunks::<LANES>().0;
            let mask = if bits == 0 { 0 } else { <$number>::MAX >> (BITS - bits) };
            for row in 0..BITS {
                let (word, shift) = (row * bits / BITS, row * bits % BITS);
                let at = ROW_ORDER[row / 8] * 16 + row % 8 * 128;
                let Some(target) = numbers[at..].first_chunk_mut::<LANES>() else { continue };
                let Some(low) = vectors.get(word) else {
                    target.fill(0);
                    continue;
                };
                match vectors.get(word + 1) {
                    Some(high) if shift + bits > BITS => {
                        for lane in 0..LANES {
                            target[lane] = (low[lane] >> shift | high[lane] << (BITS - shift)) & mask;
                        }
                    }
                    _ => {
                        for lane in 0..LANES {
                            target[lane] = low[lane] >> shift & mask;
                        }
                    }
                }
            }
        }
    };
}

unpack_numbers!(unpack_u8, u8, rows_of_u8);
unpack_numbers!(unpack_u16, u16, rows_of_u16);
unpack_numbers!(unpack_u32, u32, rows_of_u32);
unpack_numbers!(unpack_u64, u64, rows_of_u64);

#[cfg(test)]
mod tests {
    use lance_bitpacking::BitPacking;

    use super::*;

    fn check<T: BitPacking + bytemuck::Pod + PartialEq + std::fmt::Debug>(from: impl Fn(u64) -> T) {
        let width = size_of::<T>();
        for bits in 0..=width * 8 {
            let mask = if bits == 0 { 0 } else { u64::MAX >> (64 - bits) };
            let number = |index: u64| from(index.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) & mask);
            let numbers: Vec<T> = (0..PACKED as u64).map(number).collect();
            let mut words = vec![from(0); 1 + PACKED * bits / (width * 8)];
            words[0] = from(bits as u64);
            #[expect(unsafe_code, reason = "Lance's function has no checks")]
            // SAFETY: there are 1,024 numbers, and room for as many of `bits` bits.
            unsafe {
                T::unchecked_pack(bits, &numbers, &mut words[1..]);
            }
            let mut found = vec![from(7); PACKED];
            let packed: &[u8] = bytemuck::cast_slice(&words);
            unpack(packed, width, bytemuck::cast_slice_mut(&mut found)).unwrap();
            assert_eq!(found, numbers, "{bits} of {} bits", width * 8);
            // The same bytes at an odd address.
            let odd = [&[0][..], packed].concat();
            found.fill(from(7));
            unpack(&odd[1..], width, bytemuck::cast_slice_mut(&mut found)).unwrap();
            assert_eq!(found, numbers, "{bits} of {} bits, unaligned", width * 8);
            unpack(&packed[..packed.len() - 1], width, bytemuck::cast_slice_mut(&mut found)).unwrap_err();
        }
    }

    #[test]
    fn numbers_are_those_that_lance_packs() {
        check(|number| number as u8);
        check(|number| number as u16);
        check(|number| number as u32);
        check(|number| number);
    }

    #[test]
    fn what_is_not_packed_is_refused() {
        let mut target = [0u64; PACKED];
        let target = bytemuck::cast_slice_mut(&mut target);
        for (packed, width) in [(&[][..], 4), (&[33, 0, 0, 0], 4), (&[1, 0, 0, 0], 4), (&[0, 0, 0, 0], 3)] {
            unpack(packed, width, target).unwrap_err();
        }
        unpack(&[0, 0, 0, 0], 4, target).unwrap();
        unpack(&[0, 0, 0, 0], 4, &mut target[..4_092]).unwrap_err();
    }
}
