//! What symphonia's decoder of Vorbis cannot do, and the memory that decoders need ("Vorbis I specification", section 3.2.1).

use crate::BadSound;

/// The most bytes of a decoder's codebooks. Real streams need less than 1 MiB.
const CODEBOOK_BYTES_MAX: u64 = 32 << 20;

/// The 24 bits with which each codebook begins.
const SYNC: u128 = 0x56_43_42;

/// The decoder refuses larger codebooks.
const DIMENSIONS_MAX: u64 = 32;
const ENTRIES_MAX: u64 = 128 << 10;

/// The most channels that symphonia decodes. Its version 0.6.1 undoes the coupling of more channels in the wrong order, so
/// that most of them would have wrong samples; it must be the reverse of the order of the header ("Vorbis I
/// specification", section 4.3.5).
pub(crate) const CHANNELS_MAX: u8 = 2;

/// Returns headers as Matroska keeps them (RFC 9559, section 5.1.4.1.12): the number of headers minus one, the lengths of
/// all but the last one, and the headers. The one in the middle is left out.
pub(crate) fn with_lengths(ident: &[u8], setup: &[u8]) -> Vec<u8> {
    let rest = u8::try_from(ident.len() % 255).unwrap_or(0);
    let full = vec![255; ident.len() / 255];
    [&[2][..], &full, &[rest, 0], ident, setup].concat()
}

/// Refuses setup headers whose codebooks take too much memory. A header of some hundred bytes may describe codebooks of
/// several GiB.
///
/// The codebooks are found by their first bits, at any bit. Other bits that happen to look the same count as well.
///
/// # Errors
/// [`BadSound`] for such headers.
pub(crate) fn check(header: &[u8]) -> Result<(), BadSound> {
    let mut bytes = 0;
    for window in header.windows(9) {
        let value = window.iter().rev().fold(0, |value, byte| value << 8 | u128::from(*byte));
        for bit in 0..8 {
            let value = value >> bit;
            if value & 0xFF_FFFF == SYNC {
                let field = |shift: u32, mask: u128| u64::try_from(value >> shift & mask).unwrap_or(u64::MAX);
                let (dimensions, entries) = (field(24, 0xFFFF), field(40, 0xFF_FFFF));
                if dimensions <= DIMENSIONS_MAX && entries <= ENTRIES_MAX {
                    // Vectors, codewords, and tables that decode the codewords.
                    bytes += entries * (4 * dimensions + 24);
                }
            }
        }
    }
    if bytes > CODEBOOK_BYTES_MAX {
        let reason = format!("its codebooks take {bytes} bytes, more than the limit of {CODEBOOK_BYTES_MAX}");
        return Err(BadSound::new(reason));
    }
    Ok(())
}
