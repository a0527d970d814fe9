//! Converts frames to planes of red, green and blue.
//!
//! The pixels are those of libswscale, through which PyAV converts frames, for frames of an even height: of 8 bits, whose
//! chroma stands for two pixels in a row (`subsampled`), of more bits (`interpolated`), and within one of it for those
//! that have chroma for each pixel (`full`).

use stoker_libav::{Arrangement, ColorRange, FrameRef, Matrix, Plane};

use crate::BadVideo;
use crate::factors::Factors;
use crate::full::full;
use crate::interpolated::{Interpolated, StepFactors};
use crate::subsampled::Subsampled;

/// Rows that conversions reuse.
#[derive(Default)]
pub(crate) struct Rows {
    /// What chroma adds to red, green and blue, for each pixel.
    pub chroma: [Vec<i16>; 3],
    /// What luma adds to all colours, for each pixel.
    pub luma: Vec<i16>,
    /// Samples of two rows of chroma, with 15 bits.
    pub samples: [Vec<u16>; 2],
    /// Interpolated samples of both planes of chroma, with 8 bits.
    pub values: [Vec<i16>; 2],
}

/// Converts a frame. Each plane of `rgb` gets a byte for each pixel.
pub(crate) fn to_rgb(
    frame: &FrameRef<'_>,
    (range, matrix): (ColorRange, Matrix),
    rgb: &mut [Vec<u8>; 3],
    rows: &mut Rows,
) -> Result<(), BadVideo> {
    let (height, width) = (frame.height as usize, frame.width as usize);
    let num_pixels = height.checked_mul(width).ok_or_else(|| BadVideo::new("a frame is too large"))?;
    for plane in &mut *rgb {
        plane.resize(num_pixels, 0);
    }
    let bits = u32::from(frame.format.bits);
    let factors = Factors::new(matrix, range);
    let [red, green, blue] = rgb;
    match (frame.format.arrangement, frame.planes()) {
        (Arrangement::Gray, [luma]) => {
            copy(luma, bits, width, red);
            green.copy_from_slice(red);
            blue.copy_from_slice(red);
        }
        (Arrangement::Gbr, [greens, blues, reds]) => {
            copy(greens, bits, width, green);
            copy(blues, bits, width, blue);
            copy(reds, bits, width, red);
        }
        (Arrangement::Yuv { log2_width: 0, log2_height: 0 }, [luma, us, vs]) => {
            full([luma, us, vs], bits, width, &factors, [red, green, blue]);
        }
        (Arrangement::Yuv { log2_width, log2_height }, [luma, us, vs]) => {
            let shifts = (u32::from(log2_width), u32::from(log2_height));
            if bits == 8 && height.is_multiple_of(2) {
                Subsampled { luma, us, vs, shifts, width }.convert(&factors, [red, green, blue], rows);
            } else {
                let is_left = frame.has_left_chroma && log2_width == 1;
                let planes = Interpolated { luma, us, vs, is_paired: false, is_left, shifts, width, bits };
                planes.convert(&StepFactors::new(matrix, range), [red, green, blue], rows);
            }
        }
        (Arrangement::Nv12, [luma, pairs]) => {
            let (us, vs, is_left) = (pairs, pairs, frame.has_left_chroma);
            let planes = Interpolated { luma, us, vs, is_paired: true, is_left, shifts: (1, 1), width, bits };
            planes.convert(&StepFactors::new(matrix, range), [red, green, blue], rows);
        }
        _ => return Err(BadVideo::new("a frame does not have the planes of its format")),
    }
    Ok(())
}

/// Copies samples, rounded to 8 bits.
fn copy(plane: &Plane<'_>, bits: u32, width: usize, target: &mut [u8]) {
    for (row, target) in plane.rows().zip(target.chunks_exact_mut(width)) {
        if bits == 8 {
            target.copy_from_slice(row);
        } else {
            let shift = bits - 8;
            for (target, sample) in target.iter_mut().zip(row.as_chunks::<2>().0) {
                let sample = u32::from(u16::from_le_bytes(*sample));
                *target = u8::try_from((sample + (1 << (shift - 1))) >> shift).unwrap_or(u8::MAX);
            }
        }
    }
}
