//! Converts frames of 8 bits whose samples of chroma stand for several pixels.
#![expect(unsafe_code, reason = "instructions of newer processors, see the safety comment")]

use stoker_libav::Plane;

use crate::convert::Rows;
use crate::factors::{Factors, fixed};

/// The bits after the point of the factors, as in libswscale.
const POINT: u32 = 13;

/// Planes of luma and chroma.
pub(crate) struct Subsampled<'a> {
    pub luma: &'a Plane<'a>,
    pub us: &'a Plane<'a>,
    pub vs: &'a Plane<'a>,
    /// The binary logarithms of the pixels per sample of chroma: in a row, and in a column.
    pub shifts: (u32, u32),
    pub width: usize,
}

impl Subsampled<'_> {
    pub fn convert(&self, factors: &Factors, [red, green, blue]: [&mut Vec<u8>; 3], rows: &mut Rows) {
        let width = self.width;
        rows.luma.resize(width, 0);
        for part in &mut rows.chroma {
            part.resize(width, 0);
        }
        let scale = fixed(factors.luma, POINT);
        let targets = red.chunks_exact_mut(width).zip(green.chunks_exact_mut(width)).zip(blue.chunks_exact_mut(width));
        for (number, (samples, ((red, green), blue))) in self.luma.rows().zip(targets).enumerate() {
            if number & ((1 << self.shifts.1) - 1) == 0 {
                let at = number >> self.shifts.1;
                self.spread(factors, (self.us.row(at), self.vs.row(at)), &mut rows.chroma);
            }
            scaled(samples, scale, factors.black, &mut rows.luma);
            for (chroma, target) in rows.chroma.iter().zip([red, green, blue]) {
                add(&rows.luma, chroma, target);
            }
        }
    }

    /// Computes what chroma adds to each colour of each pixel of a row. Each product is rounded down.
    fn spread(&self, factors: &Factors, (us, vs): (&[u8], &[u8]), chroma: &mut [Vec<i16>; 3]) {
        let Factors { red_of_v, green_of_u, green_of_v, blue_of_u, .. } = *factors;
        let [red_of_v, green_of_u, green_of_v, blue_of_u] =
            [red_of_v, green_of_u, green_of_v, blue_of_u].map(|factor| fixed(factor, POINT));
        #[expect(clippy::cast_possible_truncation, reason = "below 1,024: a sample of 8 bits, times a factor below 4")]
        let product = |factor: i32, sample: u8| ((factor * (i32::from(sample) - 128)) >> POINT) as i16;
        let [reds, greens, blues] = chroma;
        let step = 1 << self.shifts.0;
        let targets = reds.chunks_mut(step).zip(greens.chunks_mut(step)).zip(blues.chunks_mut(step));
        for ((u, v), ((reds, greens), blues)) in us.iter().zip(vs).zip(targets) {
            reds.fill(product(red_of_v, *v));
            greens.fill(product(green_of_u, *u) + product(green_of_v, *v));
            blues.fill(product(blue_of_u, *u));
        }
    }
}

/// Writes what luma adds to the colours of each pixel of a row, rounded down.
fn scaled(samples: &[u8], scale: i32, black: i32, target: &mut [i16]) {
    for (target, sample) in target.iter_mut().zip(samples) {
        #[expect(clippy::cast_possible_truncation, reason = "below 512: a sample of 8 bits, times a factor below 2")]
        let luma = (((i32::from(*sample) - black) * scale) >> POINT) as i16;
        *target = luma;
    }
}

/// Adds luma and chroma of a row.
fn add(luma: &[i16], chroma: &[i16], target: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: `add_with_avx2` requires only AVX2, and the condition above checks that the processor supports AVX2.
        unsafe { add_with_avx2(luma, chroma, target) };
        return;
    }
    add_each(luma, chroma, target);
}

/// Adds, compiled for AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_with_avx2(luma: &[i16], chroma: &[i16], target: &mut [u8]) {
    add_each(luma, chroma, target);
}

#[inline(always)]
fn add_each(luma: &[i16], chroma: &[i16], target: &mut [u8]) {
    for ((target, luma), chroma) in target.iter_mut().zip(luma).zip(chroma) {
        let byte = (luma + chroma).clamp(0, 255) as u8;
        *target = byte;
    }
}
