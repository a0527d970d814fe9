//! Decodes one image into the bytes of a tensor.

use fast_image_resize::Resizer;
use stoker_decode::{BadValue, Channels, Frame, ImageFile, Interpolation, Pixels, Samples, resize, write_tensor};

use crate::stamp::StampError;
use crate::{ImageSize, Layout};

/// The tensor that each image becomes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub size: ImageSize,
    /// Whether images of another size are resized; otherwise they are refused.
    pub resize: bool,
    /// The number of channels: 1 or 3.
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

    fn frame(&self) -> Frame {
        let layout = match self.layout {
            Layout::Chw => stoker_decode::Layout::Chw,
            Layout::Hwc => stoker_decode::Layout::Hwc,
        };
        let channels = if self.channels == 3 { Channels::Rgb } else { Channels::Gray };
        Frame { width: self.size.width, channels, layout, is_flipped: false }
    }
}

/// The size of an image and whether it has colour, as its header says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub size: ImageSize,
    pub has_color: bool,
}

/// The reason why an image gave no row.
#[derive(Debug)]
pub(super) enum Failure {
    /// The file is damaged, is not an image, or is too large.
    Unreadable(String),
    /// The file changed after it was listed.
    Changed(String),
    /// The store of the file did not answer.
    Unreachable(String),
    /// The image is readable, but does not fit the tensor.
    Mismatch { expected: String, found: String },
}

impl From<StampError> for Failure {
    fn from(error: StampError) -> Self {
        match error {
            StampError::Changed(change) => Failure::Changed(change),
            StampError::Io(error) => Failure::Unreadable(error.to_string()),
            StampError::Unreachable(reason) => Failure::Unreachable(reason),
        }
    }
}

impl From<BadValue> for Failure {
    fn from(bad: BadValue) -> Self {
        Failure::Unreadable(bad.reason)
    }
}

/// Reads the header of an image. An image that takes more than `bytes_max` bytes when decoded is refused.
pub(super) fn header(file: &[u8], bytes_max: u64) -> Result<Header, Failure> {
    Ok(header_of(&ImageFile::open(file, bytes_max)?))
}

fn header_of(file: &ImageFile<'_>) -> Header {
    let stoker_decode::Header { height, width, has_color } = file.header();
    Header { size: ImageSize { height, width }, has_color }
}

/// Decodes the whole image and drops the result.
pub(super) fn verify(file: &[u8], bytes_max: u64) -> Result<(), Failure> {
    Ok(ImageFile::open(file, bytes_max)?.decode(Channels::Rgb, &mut Vec::new())?)
}

/// Decodes an image into `tensor`, which has the size of the target. Orientation tags are not applied, as in
/// torchvision.
pub(super) fn decode(file: &[u8], bytes_max: u64, target: &Target, tensor: &mut [u8]) -> Result<(), Failure> {
    let file = ImageFile::open(file, bytes_max)?;
    let Header { size, has_color } = header_of(&file);
    if size != target.size && !target.resize {
        let expected = format!("{} pixels (height x width) like the first image", target.size);
        return Err(Failure::Mismatch { expected, found: format!("{size}; give --size HxW to resize all images") });
    }
    if target.only_gray && has_color {
        let found = "an image with colour; give --channels rgb or gray".to_string();
        return Err(Failure::Mismatch { expected: "a grey image like the first one".into(), found });
    }
    let (frame, mut pixels) = (target.frame(), Vec::new());
    file.decode(frame.channels, &mut pixels)?;
    if size != target.size {
        pixels = resized(&pixels, size, target)?;
    }
    write_tensor(&pixels, &frame, tensor);
    Ok(())
}

fn resized(pixels: &[u8], size: ImageSize, target: &Target) -> Result<Vec<u8>, Failure> {
    let source = Pixels {
        bytes: pixels,
        height: size.height,
        width: size.width,
        channels: target.frame().channels,
        samples: Samples::UInt8,
    };
    let mut resized = vec![0; target.row_bytes()];
    let to = (target.size.height, target.size.width);
    resize(&mut Resizer::new(), &source, &source.region(), Interpolation::Bilinear, to, &mut resized)?;
    Ok(resized)
}
