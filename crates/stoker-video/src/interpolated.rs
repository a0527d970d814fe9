//! Converts frames for which libswscale interpolates chroma: those of more than 8 bits, those whose chroma is one plane of
//! pairs, and those of an odd height.
//!
//! The colours are those of libswscale without its option for accurate rounding. It scales samples to 15 bits, and
//! rounds interpolated chroma to 8 bits. A sample of chroma then is a whole number of steps of luma, and one factor makes
//! a colour of both.
#![expect(unsafe_code, reason = "instructions of newer processors, see the safety comment")]

use stoker_libav::{ColorRange, Matrix, Plane};

use crate::convert::Rows;
use crate::factors::{Factors, fixed};

/// The bits after the point of the factors.
const POINT: u32 = 16;

/// The factors from samples of 8 bits to colours of 8 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepFactors {
    /// The colours for a step of luma.
    luma: i32,
    /// What is added to the product, with half a colour to round it.
    bias: i32,
    /// The steps of luma for a step of chroma.
    red_of_v: i32,
    green_of_u: i32,
    green_of_v: i32,
    blue_of_u: i32,
}

impl StepFactors {
    pub fn new(matrix: Matrix, range: ColorRange) -> Self {
        let limited = Factors::new(matrix, ColorRange::Limited);
        let half = 1 << (POINT - 1);
        let (luma, bias) = match range {
            ColorRange::Limited => {
                let luma = (255 << POINT) / 219;
                // Not quite the colour of black: libswscale's table of colours begins at a whole step.
                (luma, 326 * luma - (400 << POINT) + half)
            }
            ColorRange::Full => (1 << POINT, half),
        };
        let steps = |factor: f64| {
            let factor = match range {
                ColorRange::Limited => fixed(factor, POINT),
                ColorRange::Full => fixed(factor, POINT) * 224 / 255,
            };
            let steps = ((i64::from(factor) << POINT) + i64::from(half)) / i64::from(luma);
            i32::try_from(steps).unwrap_or(0)
        };
        Self {
            luma,
            bias,
            red_of_v: steps(limited.red_of_v),
            green_of_u: steps(limited.green_of_u),
            green_of_v: steps(limited.green_of_v),
            blue_of_u: steps(limited.blue_of_u),
        }
    }
}

/// Planes of luma and chroma.
pub(crate) struct Interpolated<'a> {
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

impl Interpolated<'_> {
    pub fn convert(&self, factors: &StepFactors, [red, green, blue]: [&mut Vec<u8>; 3], rows: &mut Rows) {
        let width = self.width;
        for part in &mut rows.chroma {
            part.resize(width, 0);
        }
        let targets = red.chunks_exact_mut(width).zip(green.chunks_exact_mut(width)).zip(blue.chunks_exact_mut(width));
        for (number, (samples, ((red, green), blue))) in self.luma.rows().zip(targets).enumerate() {
            fill(samples, (self.bits, None), false, &mut rows.samples[0]);
            rows.luma.clear();
            rows.luma.extend(rows.samples[0].iter().map(|sample| byte(4 * u32::from(*sample))));
            self.interpolate(self.us, 0, number, rows);
            self.interpolate(self.vs, 1, number, rows);
            self.spread(factors, rows);
            for (chroma, target) in rows.chroma.iter().zip([red, green, blue]) {
                add(&rows.luma, chroma, (factors.luma, factors.bias), target);
            }
        }
    }

    /// Interpolates one of the two planes of chroma for a row of pixels: from the two nearest rows of chroma, and between
    /// columns where the samples do not lie between the pixels for which they stand.
    fn interpolate(&self, plane: &Plane<'_>, which: usize, number: usize, rows: &mut Rows) {
        let near = number >> self.shifts.1;
        // A row of chroma lies between two rows of pixels, a quarter of the distance of rows of chroma from each.
        let far = match (self.shifts.1, number & 1) {
            (1, 0) => near.saturating_sub(1),
            (1, _) => (near + 1).min(plane.num_rows.saturating_sub(1)),
            _ => near,
        };
        let form = (self.bits, self.is_paired.then_some(which));
        let [nears, fars] = &mut rows.samples;
        fill(plane.row(near), form, self.is_left, nears);
        fill(plane.row(far), form, self.is_left, fars);
        let weighted = |(near, far): (&u16, &u16)| byte(3 * u32::from(*near) + u32::from(*far)).min(255);
        rows.values[which].clear();
        rows.values[which].extend(nears.iter().zip(&*fars).map(weighted));
    }

    /// Computes the steps of luma that chroma adds to each colour of each pixel of a row. Each product is rounded down.
    fn spread(&self, factors: &StepFactors, rows: &mut Rows) {
        let StepFactors { red_of_v, green_of_u, green_of_v, blue_of_u, .. } = *factors;
        #[expect(clippy::cast_possible_truncation, reason = "below 512: a sample of 8 bits, times a factor below 2")]
        let steps = |factor: i32, sample: i16| (((i32::from(sample) * factor) >> POINT) - (factor >> 9)) as i16;
        let [reds, greens, blues] = &mut rows.chroma;
        let pixels = 1 << self.shifts.0;
        let targets = reds.chunks_mut(pixels).zip(greens.chunks_mut(pixels)).zip(blues.chunks_mut(pixels));
        let [us, vs] = &rows.values;
        for ((u, v), ((reds, greens), blues)) in us.iter().zip(vs).zip(targets) {
            reds.fill(steps(red_of_v, *v));
            greens.fill(steps(green_of_u, *u) + steps(green_of_v, *v));
            blues.fill(steps(blue_of_u, *u));
        }
    }
}

/// Writes the samples of a row with 15 bits, from samples of so many bits, or from one number of each pair. With
/// `is_left`, they are those for the middle of the pixels.
fn fill(row: &[u8], (bits, which): (u32, Option<usize>), is_left: bool, samples: &mut Vec<u16>) {
    samples.clear();
    match (bits, which) {
        (8, None) => samples.extend(row.iter().map(|sample| u16::from(*sample))),
        (8, Some(which)) => samples.extend(row.as_chunks::<2>().0.iter().map(|pair| u16::from(pair[which & 1]))),
        _ => samples.extend(row.as_chunks::<2>().0.iter().map(|sample| u16::from_le_bytes(*sample))),
    }
    let wide = |quarters: u32| u16::try_from((quarters << 12) >> (bits - 1)).unwrap_or(u16::MAX);
    if let (true, Some(last)) = (is_left, samples.len().checked_sub(1)) {
        for at in 0..last {
            samples[at] = wide(3 * u32::from(samples[at]) + u32::from(samples[at + 1]));
        }
        samples[last] = wide(4 * u32::from(samples[last]));
    } else {
        samples.iter_mut().for_each(|sample| *sample = wide(4 * u32::from(*sample)));
    }
}

/// Rounds four samples of 15 bits to one of 8 bits.
fn byte(quarters: u32) -> i16 {
    i16::try_from((quarters + 256) >> 9).unwrap_or(i16::MAX)
}

/// Makes the colours of luma and chroma of a row.
fn add(luma: &[i16], chroma: &[i16], factors: (i32, i32), target: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: `add_with_avx2` requires only AVX2, and the condition above checks that the processor supports AVX2.
        unsafe { add_with_avx2(luma, chroma, factors, target) };
        return;
    }
    add_each(luma, chroma, factors, target);
}

/// Makes colours, compiled for AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_with_avx2(luma: &[i16], chroma: &[i16], factors: (i32, i32), target: &mut [u8]) {
    add_each(luma, chroma, factors, target);
}

#[inline(always)]
fn add_each(luma: &[i16], chroma: &[i16], (factor, bias): (i32, i32), target: &mut [u8]) {
    for ((target, luma), chroma) in target.iter_mut().zip(luma).zip(chroma) {
        let colour = ((i32::from(*luma) + i32::from(*chroma)) * factor + bias) >> POINT;
        *target = colour.clamp(0, 255) as u8;
    }
}
