//! Converts frames that have chroma for each pixel.

use stoker_libav::Plane;

use crate::factors::{Factors, fixed};

/// The bits after the point of the factors.
const POINT: u32 = 16;

/// Converts planes of luma, blue and red difference. Colours are rounded to the nearest number.
pub(crate) fn full(planes: [&Plane<'_>; 3], bits: u32, width: usize, factors: &Factors, rgb: [&mut [u8]; 3]) {
    let [lumas, us, vs] = planes;
    let [red, green, blue] = rgb;
    let targets = red.chunks_exact_mut(width).zip(green.chunks_exact_mut(width)).zip(blue.chunks_exact_mut(width));
    for (((luma, us), vs), ((red, green), blue)) in lumas.rows().zip(us.rows()).zip(vs.rows()).zip(targets) {
        let row = Row { bits, factors, targets: [red, green, blue] };
        if bits == 8 {
            row.convert([luma, us, vs], |sample| i32::from(*sample));
        } else {
            let samples = [luma.as_chunks::<2>().0, us.as_chunks::<2>().0, vs.as_chunks::<2>().0];
            row.convert(samples, |sample| i32::from(u16::from_le_bytes(*sample)));
        }
    }
}

struct Row<'a> {
    bits: u32,
    factors: &'a Factors,
    targets: [&'a mut [u8]; 3],
}

impl Row<'_> {
    #[inline(always)]
    fn convert<S>(self, [lumas, us, vs]: [&[S]; 3], value: impl Fn(&S) -> i32) {
        let more = self.bits - 8;
        let Factors { luma, red_of_v, green_of_u, green_of_v, blue_of_u, black } = *self.factors;
        let [scale, red_of_v, green_of_u, green_of_v, blue_of_u] =
            [luma, red_of_v, green_of_u, green_of_v, blue_of_u].map(|factor| fixed(factor, POINT));
        let bias = (1 << (POINT + more - 1)) - scale * (black << more);
        let zero = 128 << more;
        let byte = |sum: i32| u8::try_from((sum >> (POINT + more)).clamp(0, 255)).unwrap_or(0);
        let [red, green, blue] = self.targets;
        let samples = lumas.iter().zip(us).zip(vs);
        for ((((luma, u), v), red), (green, blue)) in samples.zip(red).zip(green.iter_mut().zip(blue)) {
            let (luma, u, v) = (value(luma) * scale + bias, value(u) - zero, value(v) - zero);
            *red = byte(luma + red_of_v * v);
            *green = byte(luma + green_of_u * u + green_of_v * v);
            *blue = byte(luma + blue_of_u * u);
        }
    }
}
