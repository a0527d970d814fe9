//! Checks a library by the pixels that it decodes from a test image.

use std::sync::Arc;

use super::Decompressor;
use super::library::Turbo;
use crate::{Header, Window};

/// An image of 37 x 21 pixels with smaller colour planes (4:2:0) and optimized tables, which Pillow wrote.
const IMAGE: &[u8] = include_bytes!("probe.jpg");

/// Denominators of scales, the sizes of the image and the digests of its pixels, which are those of libjpeg-turbo 2.1.5
/// and 3.2.0.
const EXPECTED: [(u32, (u32, u32), u64); 4] = [
    (1, (21, 37), 0x4D6B_B09A_D13D_8375),
    (2, (11, 19), 0x1E90_AA72_7289_3451),
    (4, (6, 10), 0x938F_534B_5798_BB3A),
    (8, (3, 5), 0xB63F_CCC0_933A_3950),
];

/// Decodes the test image at each scale.
///
/// # Errors
/// What differs.
pub(super) fn check(turbo: &Arc<Turbo>) -> Result<(), String> {
    let mut decompressor = Decompressor::new(turbo).map_err(|bad| bad.reason)?;
    let mut pixels = Vec::new();
    for (denominator, (height, width), digest) in EXPECTED {
        let opened = decompressor.open(IMAGE).map_err(|bad| format!("it refuses a test image: {bad}"))?;
        let header = Header { height, width, has_color: true };
        let decoded = opened.decode(denominator, header, &Window::whole(header), &mut pixels);
        decoded.map_err(|bad| format!("it refuses a test image: {bad}"))?;
        if fnv1a(&pixels) != digest {
            return Err(format!("it decodes a test image to other pixels at scale 1/{denominator}"));
        }
    }
    Ok(())
}

/// Returns the 64-bit digest FNV-1a (Fowler, Noll and Vo).
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}
