//! The factors between samples and colours (ITU-T H.273, 8.3).

use stoker_libav::{ColorRange, Matrix};

/// The factors from samples of 8 bits to colours of 8 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factors {
    pub luma: f64,
    pub red_of_v: f64,
    pub green_of_u: f64,
    pub green_of_v: f64,
    pub blue_of_u: f64,
    /// The luma of black.
    pub black: i32,
}

impl Factors {
    /// The shares of red and blue of luma have as many digits as in libswscale.
    pub fn new(matrix: Matrix, range: ColorRange) -> Self {
        let (red, blue) = match matrix {
            Matrix::Bt709 => (0.2126, 0.0722),
            Matrix::Fcc => (0.30, 0.11),
            Matrix::Smpte240m => (0.212, 0.087),
            Matrix::Bt2020 => (0.2627, 0.0593),
            _ => (0.299, 0.114),
        };
        let green = 1.0 - red - blue;
        let (luma, chroma, black) = match range {
            ColorRange::Limited => (255.0 / 219.0, 255.0 / 224.0, 16),
            ColorRange::Full => (1.0, 1.0, 0),
        };
        Self {
            luma,
            red_of_v: 2.0 * (1.0 - red) * chroma,
            green_of_u: -2.0 * (1.0 - blue) * blue / green * chroma,
            green_of_v: -2.0 * (1.0 - red) * red / green * chroma,
            blue_of_u: 2.0 * (1.0 - blue) * chroma,
            black,
        }
    }
}

/// Returns a factor with `point` bits after the point.
#[expect(clippy::cast_possible_truncation, reason = "factors are below 4")]
pub(crate) fn fixed(factor: f64, point: u32) -> i32 {
    (factor * f64::from(1 << point)).round() as i32
}
