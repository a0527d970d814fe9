//! Converts frames whose samples of chroma stand for several pixels.
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
    /// Whether both planes of chroma are one plane of pairs.
    pub is_paired: bool,
    /// Whether samples of chroma lie at the left one of two pixels.
    pub is_left: bool,
    /// The binary logarithms of the pixels per sample of chroma: in a row, and in a column.
    pub shifts: (u32, u32),
    pub width: usize,
    pub bits: u32,
}

impl Subsampled<'_> {
    pub fn convert(&self, factors: &Factors, [red, green, blue]: [&mut Vec<u8>; 3], rows: &mut Rows) {
        let width = self.width;
        rows.luma.resize(width, 0);
        for part in &mut rows.chroma {
            part.resize(width, 0);
        }
        let scale = fixed(factors.luma, POINT);
        let black = factors.black << (self.bits - 8);
        let shift = POINT + self.bits - 8;
        let targets = red.chunks_exact_mut(width).zip(green.chunks_exact_mut(width)).zip(blue.chunks_exact_mut(width));
        for (number, (samples, ((red, green), blue))) in self.luma.rows().zip(targets).enumerate() {
            let is_first = number & ((1 << self.shifts.1) - 1) == 0;
            if self.bits > 8 {
                // Interpolated chroma differs in each row.
                self.interpolate(number, rows);
                let [us, vs] = &rows.samples;
                let pairs = us.iter().zip(vs).map(|(u, v)| (i32::from(*u), i32::from(*v)));
                self.spread(factors, pairs, &mut rows.chroma);
            } else if is_first {
                let (us, vs) = (row(self.us, number >> self.shifts.1), row(self.vs, number >> self.shifts.1));
                if self.is_paired {
                    let pairs = us.as_chunks::<2>().0.iter().map(|[u, v]| (i32::from(*u), i32::from(*v)));
                    self.spread(factors, pairs, &mut rows.chroma);
                } else {
                    let pairs = us.iter().zip(vs).map(|(u, v)| (i32::from(*u), i32::from(*v)));
                    self.spread(factors, pairs, &mut rows.chroma);
                }
            }
            if self.bits == 8 {
                scaled(samples, |sample| i32::from(*sample), (scale, black, shift), &mut rows.luma);
            } else {
                let samples = samples.as_chunks::<2>().0;
                let value = |sample: &[u8; 2]| i32::from(u16::from_le_bytes(*sample));
                scaled(samples, value, (scale, black, shift), &mut rows.luma);
            }
            for (chroma, target) in rows.chroma.iter().zip([red, green, blue]) {
                add(&rows.luma, chroma, target);
            }
        }
    }

    /// Computes what chroma adds to each colour of each pixel of a row. Each product is rounded down.
    fn spread(&self, factors: &Factors, pairs: impl Iterator<Item = (i32, i32)>, chroma: &mut [Vec<i16>; 3]) {
        let zero = 128 << (self.bits - 8);
        let shift = POINT + self.bits - 8;
        let Factors { red_of_v, green_of_u, green_of_v, blue_of_u, .. } = *factors;
        let [red_of_v, green_of_u, green_of_v, blue_of_u] =
            [red_of_v, green_of_u, green_of_v, blue_of_u].map(|factor| fixed(factor, POINT));
        #[expect(clippy::cast_possible_truncation, reason = "below 1,024: a sample of 8 bits, times a factor below 4")]
        let product = |factor: i32, sample: i32| ((factor * (sample - zero)) >> shift) as i16;
        let [reds, greens, blues] = chroma;
        let step = 1 << self.shifts.0;
        let targets = reds.chunks_mut(step).zip(greens.chunks_mut(step)).zip(blues.chunks_mut(step));
        for ((u, v), ((reds, greens), blues)) in pairs.zip(targets) {
            reds.fill(product(red_of_v, v));
            greens.fill(product(green_of_u, u) + product(green_of_v, v));
            blues.fill(product(blue_of_u, u));
        }
    }

    /// Interpolates the chroma of a row from the two nearest rows of chroma, and between columns where the samples do not
    /// lie between the pixels for which they stand.
    fn interpolate(&self, number: usize, rows: &mut Rows) {
        let near = number >> self.shifts.1;
        let last = self.us.num_rows.saturating_sub(1);
        // A row of chroma lies between two rows of pixels, a quarter of the distance of rows of chroma from each.
        let far = match (self.shifts.1, number & 1) {
            (1, 0) => near.saturating_sub(1),
            (1, _) => (near + 1).min(last),
            _ => near,
        };
        for (plane, samples) in [self.us, self.vs].into_iter().zip(&mut rows.samples) {
            let (near, far) = (row(plane, near).as_chunks::<2>().0, row(plane, far).as_chunks::<2>().0);
            samples.clear();
            let value = |sample: &[u8; 2]| u32::from(u16::from_le_bytes(*sample));
            samples.extend(near.iter().zip(far).map(|(near, far)| weighted(value(near), value(far))));
            if self.is_left {
                for at in 1..samples.len() {
                    samples[at - 1] = weighted(u32::from(samples[at - 1]), u32::from(samples[at]));
                }
            }
        }
    }
}

/// Returns the mean of three parts of one and one part of the other sample.
fn weighted(near: u32, far: u32) -> u16 {
    u16::try_from((3 * near + far + 2) >> 2).unwrap_or(u16::MAX)
}

fn row<'a>(plane: &Plane<'a>, number: usize) -> &'a [u8] {
    let start = number.min(plane.num_rows.saturating_sub(1)) * plane.stride;
    plane.bytes.get(start..start + plane.row_bytes).unwrap_or_default()
}

/// Writes what luma adds to the colours of each pixel of a row, rounded down.
#[inline(always)]
fn scaled<S>(samples: &[S], value: impl Fn(&S) -> i32, (scale, black, shift): (i32, i32, u32), target: &mut [i16]) {
    for (target, sample) in target.iter_mut().zip(samples) {
        #[expect(clippy::cast_possible_truncation, reason = "below 512: a sample of 8 bits, times a factor below 2")]
        let luma = (((value(sample) - black) * scale) >> shift) as i16;
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
