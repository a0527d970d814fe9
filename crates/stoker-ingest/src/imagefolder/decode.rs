//! Decodes one image into the bytes of a tensor.

use std::io::Cursor;

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::{DynamicImage, ImageDecoder, ImageReader, Limits};

use crate::stamp::StampError;
use crate::{ImageSize, Layout};

/// The tensor that each image becomes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub size: ImageSize,
    /// Whether images of another size are resized; otherwise they are refused.
    pub resize: bool,
    /// 1 or 3.
    pub channels: usize,
    /// Whether images with colour are refused.
    pub only_gray: bool,
    pub layout: Layout,
}

impl Target {
    pub fn shape(&self) -> Vec<usize> {
        let (height, width) = (self.size.height as usize, self.size.width as usize);
        match self.layout {
            Layout::Chw => vec![self.channels, height, width],
            Layout::Hwc => vec![height, width, self.channels],
        }
    }

    pub fn row_bytes(&self) -> usize {
        self.shape().iter().product()
    }
}

/// What the header of an image says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub size: ImageSize,
    pub has_color: bool,
}

/// Why an image gave no row.
#[derive(Debug)]
pub(super) enum Failure {
    /// The file is damaged, no image, or too large.
    Unreadable(String),
    /// The file is not the one that was listed.
    Changed(String),
    /// The image is fine, but other than the tensor needs it.
    Mismatch { expected: String, found: String },
}

impl From<StampError> for Failure {
    fn from(error: StampError) -> Self {
        match error {
            StampError::Changed(change) => Failure::Changed(change),
            StampError::Io(error) => Failure::Unreadable(error.to_string()),
        }
    }
}

/// Reads the header; at most `bytes_max` bytes may follow from it.
pub(super) fn header(file: &[u8], bytes_max: u64) -> Result<Header, Failure> {
    let decoder = open(file, bytes_max)?;
    let (width, height) = decoder.dimensions();
    Ok(Header { size: ImageSize { height, width }, has_color: decoder.color_type().has_color() })
}

/// Decodes the whole image and drops it.
pub(super) fn verify(file: &[u8], bytes_max: u64) -> Result<(), Failure> {
    DynamicImage::from_decoder(open(file, bytes_max)?).map(drop).map_err(unreadable)
}

/// Decodes into a buffer of the target's bytes. Orientation tags are not applied, as in torchvision.
pub(super) fn decode(file: &[u8], bytes_max: u64, target: &Target, tensor: &mut [u8]) -> Result<(), Failure> {
    let decoder = open(file, bytes_max)?;
    let (width, height) = decoder.dimensions();
    let size = ImageSize { height, width };
    if size != target.size && !target.resize {
        let expected = format!("{} pixels (height x width) like the first image", target.size);
        return Err(Failure::Mismatch { expected, found: format!("{size}; give --size HxW to resize all images") });
    }
    if target.only_gray && decoder.color_type().has_color() {
        let found = "an image with colour; give --channels rgb or gray".to_string();
        return Err(Failure::Mismatch { expected: "a grey image like the first one".into(), found });
    }
    let image = DynamicImage::from_decoder(decoder).map_err(unreadable)?;
    let pixels = if target.channels == 3 { image.into_rgb8().into_raw() } else { image.into_luma8().into_raw() };
    let pixels = if size == target.size { pixels } else { resize(&pixels, size, target)? };
    match target.layout {
        Layout::Chw if target.channels == 3 => {
            let (red, rest) = tensor.split_at_mut(pixels.len() / 3);
            let (green, blue) = rest.split_at_mut(pixels.len() / 3);
            let planes = red.iter_mut().zip(green).zip(blue);
            for (pixel, ((red, green), blue)) in pixels.chunks_exact(3).zip(planes) {
                (*red, *green, *blue) = (pixel[0], pixel[1], pixel[2]);
            }
        }
        _ => tensor.copy_from_slice(&pixels),
    }
    Ok(())
}

/// A decoder for what the content is, whatever the name says, that refuses images over `bytes_max`.
fn open(file: &[u8], bytes_max: u64) -> Result<impl ImageDecoder + '_, Failure> {
    let reader = ImageReader::new(Cursor::new(file)).with_guessed_format();
    let mut reader = reader.map_err(|error| Failure::Unreadable(error.to_string()))?;
    if reader.format().is_none() {
        let start = file.get(..file.len().min(8)).unwrap_or_default().escape_ascii();
        let reason = format!("it is no PNG, JPEG or WebP file: it begins with \"{start}\"");
        return Err(Failure::Unreadable(reason));
    }
    let mut limits = Limits::default();
    limits.max_alloc = Some(bytes_max.saturating_mul(2));
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(unreadable)?;
    if decoder.total_bytes() > bytes_max {
        let (width, height) = decoder.dimensions();
        let reason =
            format!("{height}x{width} pixels take {} bytes, more than the limit of {bytes_max}", decoder.total_bytes());
        return Err(Failure::Unreadable(reason));
    }
    if decoder.dimensions().0 == 0 || decoder.dimensions().1 == 0 {
        return Err(Failure::Unreadable("the image has no pixels".into()));
    }
    Ok(decoder)
}

fn resize(pixels: &[u8], size: ImageSize, target: &Target) -> Result<Vec<u8>, Failure> {
    let pixel = if target.channels == 3 { PixelType::U8x3 } else { PixelType::U8 };
    let fail = |reason: String| Failure::Unreadable(format!("cannot be resized: {reason}"));
    let source = ImageRef::new(size.width, size.height, pixels, pixel).map_err(|error| fail(error.to_string()))?;
    let mut resized = Image::new(target.size.width, target.size.height, pixel);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    Resizer::new().resize(&source, &mut resized, &options).map_err(|error| fail(error.to_string()))?;
    Ok(resized.into_vec())
}

fn unreadable(error: image::ImageError) -> Failure {
    Failure::Unreadable(error.to_string())
}
