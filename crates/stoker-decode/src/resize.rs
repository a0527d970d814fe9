//! Resizes a region of an image.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3, U16};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};
use stoker_types::round_to_u32;

use crate::{BadValue, Channels, Interpolation, Region};

/// Pixels in row-major order, with the channels of a pixel next to each other.
#[derive(Clone, Copy, Debug)]
pub struct Pixels<'a> {
    /// `height * width * channels` bytes.
    pub bytes: &'a [u8],
    /// The number of rows of pixels.
    pub height: u32,
    /// The number of pixels in a row.
    pub width: u32,
    /// The channels of a pixel.
    pub channels: Channels,
    /// The type of the numbers of a pixel.
    pub samples: Samples,
}

/// The type of the numbers of a pixel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Samples {
    /// One byte each.
    #[default]
    UInt8,
    /// Two bytes each, in the byte order of this machine; of images with one channel.
    UInt16,
}

impl Samples {
    /// The bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Samples::UInt8 => 1,
            Samples::UInt16 => 2,
        }
    }

    /// Gives all numbers one value.
    pub(crate) fn fill(self, pixels: &mut [u8], value: u8) {
        match self {
            Samples::UInt8 => pixels.fill(value),
            Samples::UInt16 => pixels.as_chunks_mut::<2>().0.fill(u16::from(value).to_ne_bytes()),
        }
    }
}

impl Pixels<'_> {
    /// Returns the region that contains all pixels.
    pub fn region(&self) -> Region {
        Region::whole(self.height, self.width)
    }

    /// Returns the bytes of a pixel.
    pub(crate) fn pixel_bytes(&self) -> usize {
        self.channels.count() * self.samples.bytes()
    }
}

/// Resizes `region` of `source` to `height` x `width` pixels with the same channels. `target` must have exactly the
/// bytes of these pixels. If the region begins at a whole pixel and keeps its size, the pixels are copied unchanged.
///
/// # Errors
/// [`BadValue`] when a length is wrong or the region is not inside the image.
pub fn resize(
    resizer: &mut Resizer,
    source: &Pixels<'_>,
    region: &Region,
    interpolation: Interpolation,
    (height, width): (u32, u32),
    target: &mut [u8],
) -> Result<(), BadValue> {
    if let Some((top, left)) = whole_pixels(region, height, width) {
        return copy(source, (top, left), width, target);
    }
    let options = ResizeOptions::new().resize_alg(algorithm(interpolation));
    let options = match *region == source.region() {
        true => options,
        false => options.crop(region.left, region.top, region.width, region.height),
    };
    let resized = match (source.channels, source.samples) {
        (Channels::Gray, Samples::UInt8) => resize_pixels::<U8>(resizer, source, &options, (height, width), target),
        (Channels::Rgb, Samples::UInt8) => resize_pixels::<U8x3>(resizer, source, &options, (height, width), target),
        (Channels::Gray, Samples::UInt16) => resize_pixels::<U16>(resizer, source, &options, (height, width), target),
        (Channels::Rgb, Samples::UInt16) => Err("its colours have two bytes".into()),
    };
    resized.map_err(|reason| BadValue::new(format!("cannot be resized: {reason}")))
}

/// Resizes pixels of one type. `Resizer::resize` would be compiled for a dozen types that no image here has, which takes
/// the compiler minutes.
fn resize_pixels<P: PixelTrait>(
    resizer: &mut Resizer,
    source: &Pixels<'_>,
    options: &ResizeOptions,
    (height, width): (u32, u32),
    target: &mut [u8],
) -> Result<(), String> {
    let from = TypedImageRef::<P>::from_buffer(source.width, source.height, source.bytes);
    let from = from.map_err(|error| error.to_string())?;
    let mut to = TypedImage::<P>::from_buffer(width, height, target).map_err(|error| error.to_string())?;
    resizer.resize_typed(&from, &mut to, options).map_err(|error| error.to_string())
}

fn algorithm(interpolation: Interpolation) -> ResizeAlg {
    match interpolation {
        Interpolation::Nearest => ResizeAlg::Nearest,
        Interpolation::Box => ResizeAlg::Convolution(FilterType::Box),
        Interpolation::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
        Interpolation::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
        Interpolation::Lanczos => ResizeAlg::Convolution(FilterType::Lanczos3),
    }
}

/// Returns top and left of a region that begins at a whole pixel and keeps its size, else `None`.
fn whole_pixels(region: &Region, height: u32, width: u32) -> Option<(usize, usize)> {
    let is_kept = region.height == f64::from(height) && region.width == f64::from(width);
    let is_whole = region.top.fract() == 0.0 && region.left.fract() == 0.0;
    (is_kept && is_whole).then_some((round_to_u32(region.top) as usize, round_to_u32(region.left) as usize))
}

fn copy(source: &Pixels<'_>, (top, left): (usize, usize), width: u32, target: &mut [u8]) -> Result<(), BadValue> {
    let pixel_bytes = source.pixel_bytes();
    let (stride, row_bytes) = (source.width as usize * pixel_bytes, width as usize * pixel_bytes);
    let rows = source.bytes.chunks_exact(stride).skip(top);
    for (from, to) in rows.zip(target.chunks_exact_mut(row_bytes)) {
        let kept = from.get(left * pixel_bytes..left * pixel_bytes + row_bytes);
        to.copy_from_slice(kept.ok_or_else(|| BadValue::new("cannot be cropped: the region is not in the image"))?);
    }
    Ok(())
}
