//! Resizes a region of an image.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use stoker_types::round_to_u32;

use crate::{BadImage, Channels, Interpolation, Region};

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
}

impl Pixels<'_> {
    /// Returns the region that contains all pixels.
    pub fn region(&self) -> Region {
        Region::whole(self.height, self.width)
    }
}

/// Resizes `region` of `source` to `height` x `width` pixels with the same channels. `target` must have exactly the
/// bytes of these pixels. If the region begins at a whole pixel and keeps its size, the pixels are copied unchanged.
///
/// # Errors
/// [`BadImage`] when a length is wrong or the region is not inside the image.
pub fn resize(
    resizer: &mut Resizer,
    source: &Pixels<'_>,
    region: &Region,
    interpolation: Interpolation,
    (height, width): (u32, u32),
    target: &mut [u8],
) -> Result<(), BadImage> {
    if let Some((top, left)) = whole_pixels(region, height, width) {
        return copy(source, (top, left), width, target);
    }
    let pixel = match source.channels {
        Channels::Gray => PixelType::U8,
        Channels::Rgb => PixelType::U8x3,
    };
    let fail = |reason: String| BadImage::new(format!("cannot be resized: {reason}"));
    let from =
        ImageRef::new(source.width, source.height, source.bytes, pixel).map_err(|error| fail(error.to_string()))?;
    let mut to = Image::from_slice_u8(width, height, target, pixel).map_err(|error| fail(error.to_string()))?;
    let options = ResizeOptions::new().resize_alg(algorithm(interpolation));
    let options = match *region == source.region() {
        true => options,
        false => options.crop(region.left, region.top, region.width, region.height),
    };
    resizer.resize(&from, &mut to, &options).map_err(|error| fail(error.to_string()))
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

fn copy(source: &Pixels<'_>, (top, left): (usize, usize), width: u32, target: &mut [u8]) -> Result<(), BadImage> {
    let channels = source.channels.count();
    let (stride, row_bytes) = (source.width as usize * channels, width as usize * channels);
    let rows = source.bytes.chunks_exact(stride).skip(top);
    for (from, to) in rows.zip(target.chunks_exact_mut(row_bytes)) {
        let kept = from.get(left * channels..left * channels + row_bytes);
        to.copy_from_slice(kept.ok_or_else(|| BadImage::new("cannot be cropped: the region is not in the image"))?);
    }
    Ok(())
}
