//! The formats of decoded pixels.

/// How samples become planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// One plane of luma.
    Gray,
    /// Planes of luma, blue difference and red difference. A sample of the two latter stands for `1 << log2_width` x
    /// `1 << log2_height` pixels.
    Yuv {
        /// The binary logarithm of the pixels in a row for which a sample of chroma stands.
        log2_width: u8,
        /// The binary logarithm of the rows for which a row of chroma stands.
        log2_height: u8,
    },
    /// A plane of luma, then a plane of alternating blue and red differences, each pair for 2 x 2 pixels.
    Nv12,
    /// Planes of green, blue and red.
    Gbr,
}

/// The format of a frame's pixels. Samples of more than 8 bits are 16-bit numbers in little-endian order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PixelFormat {
    /// The planes.
    pub arrangement: Arrangement,
    /// The bits of a sample: 8, 10 or 12.
    pub bits: u8,
    /// Whether the format itself says that samples use all values, as the formats `yuvj…` do, and grey and RGB always
    /// in libswscale.
    pub is_full_range: bool,
}

const fn yuv(log2_width: u8, log2_height: u8) -> Arrangement {
    Arrangement::Yuv { log2_width, log2_height }
}

/// The formats by their names in FFmpeg: planes, bits, whether samples use all values.
const FORMATS: [(&str, Arrangement, u8, bool); 25] = [
    ("yuv420p", yuv(1, 1), 8, false),
    ("yuv422p", yuv(1, 0), 8, false),
    ("yuv444p", yuv(0, 0), 8, false),
    ("yuv440p", yuv(0, 1), 8, false),
    ("yuv411p", yuv(2, 0), 8, false),
    ("yuv410p", yuv(2, 2), 8, false),
    ("yuvj420p", yuv(1, 1), 8, true),
    ("yuvj422p", yuv(1, 0), 8, true),
    ("yuvj444p", yuv(0, 0), 8, true),
    ("yuvj440p", yuv(0, 1), 8, true),
    ("yuvj411p", yuv(2, 0), 8, true),
    ("yuv420p10le", yuv(1, 1), 10, false),
    ("yuv422p10le", yuv(1, 0), 10, false),
    ("yuv444p10le", yuv(0, 0), 10, false),
    ("yuv440p10le", yuv(0, 1), 10, false),
    ("yuv420p12le", yuv(1, 1), 12, false),
    ("yuv422p12le", yuv(1, 0), 12, false),
    ("yuv444p12le", yuv(0, 0), 12, false),
    ("nv12", Arrangement::Nv12, 8, false),
    ("gray", Arrangement::Gray, 8, true),
    ("gray10le", Arrangement::Gray, 10, true),
    ("gray12le", Arrangement::Gray, 12, true),
    ("gbrp", Arrangement::Gbr, 8, true),
    ("gbrp10le", Arrangement::Gbr, 10, true),
    ("gbrp12le", Arrangement::Gbr, 12, true),
];

impl PixelFormat {
    /// Returns the format with a name in FFmpeg.
    pub fn of_name(name: &str) -> Option<Self> {
        let find = |(known, arrangement, bits, is_full_range): &(&str, Arrangement, u8, bool)| {
            let format = Self { arrangement: *arrangement, bits: *bits, is_full_range: *is_full_range };
            (*known == name).then_some(format)
        };
        FORMATS.iter().find_map(find)
    }

    /// The name of the format in FFmpeg.
    pub fn name(self) -> &'static str {
        let find = |(name, arrangement, bits, is_full_range): &(&'static str, Arrangement, u8, bool)| {
            let is_it = (*arrangement, *bits, *is_full_range) == (self.arrangement, self.bits, self.is_full_range);
            is_it.then_some(*name)
        };
        FORMATS.iter().find_map(find).unwrap_or("unknown")
    }

    /// The number of planes.
    pub fn num_planes(self) -> usize {
        match self.arrangement {
            Arrangement::Gray => 1,
            Arrangement::Nv12 => 2,
            Arrangement::Yuv { .. } | Arrangement::Gbr => 3,
        }
    }

    /// Returns the bytes of a row and the number of rows of a plane of a frame.
    pub fn plane_size(self, plane: usize, height: usize, width: usize) -> (usize, usize) {
        let sample_bytes = if self.bits > 8 { 2 } else { 1 };
        match self.arrangement {
            Arrangement::Yuv { log2_width, log2_height } if plane > 0 => {
                (width.div_ceil(1 << log2_width) * sample_bytes, height.div_ceil(1 << log2_height))
            }
            Arrangement::Nv12 if plane > 0 => (width.div_ceil(2) * 2, height.div_ceil(2)),
            _ => (width * sample_bytes, height),
        }
    }
}
