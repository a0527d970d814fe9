//! Pixels as JPEG files, with the error of each.

use jpeg_encoder::{ColorType, Encoder};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::{Error, Result};

/// The size of images, and their channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JpegSize {
    /// The number of pixels in a row.
    pub width: u16,
    /// The number of rows of pixels.
    pub height: u16,
    /// Whether a pixel has red, green and blue; otherwise it is grey.
    pub has_color: bool,
}

impl JpegSize {
    /// The bytes of the pixels.
    pub fn num_bytes(self) -> usize {
        usize::from(self.width) * usize::from(self.height) * if self.has_color { 3 } else { 1 }
    }
}

/// Adds pixels, row after row, as a JPEG file (baseline, `quality` from 1 to 100; colours have half the resolution below 90).
/// Returns the largest difference between a value of a pixel and the one that zune-jpeg decodes.
///
/// # Errors
/// [`Error::Internal`] for pixels of another size, and if a library fails.
pub fn encode_jpeg(size: JpegSize, quality: u8, pixels: &[u8], files: &mut Vec<u8>) -> Result<u8> {
    if pixels.len() != size.num_bytes() {
        return Err(Error::internal(format!("{} bytes of pixels for {size:?}", pixels.len())));
    }
    let start = files.len();
    let (color, space) = match size.has_color {
        true => (ColorType::Rgb, ColorSpace::RGB),
        false => (ColorType::Luma, ColorSpace::Luma),
    };
    Encoder::new(&mut *files, quality).encode(pixels, size.width, size.height, color).map_err(Error::internal)?;
    let options =
        DecoderOptions::default().set_max_width(usize::MAX).set_max_height(usize::MAX).jpeg_set_out_colorspace(space);
    let file = files.get(start..).unwrap_or_default();
    let decoded = JpegDecoder::new_with_options(ZCursor::new(file), options).decode();
    let decoded =
        decoded.map_err(|error| Error::internal(format!("decoding a file that was just encoded: {error}")))?;
    if decoded.len() != pixels.len() {
        return Err(Error::internal(format!("a file of {size:?} has {} bytes of pixels", decoded.len())));
    }
    Ok(pixels.iter().zip(&decoded).map(|(pixel, found)| pixel.abs_diff(*found)).max().unwrap_or(0))
}
