//! What tensor each image becomes.

use arrow_schema::DataType;
use stoker_types::TensorType;

use crate::{Error, Result};

/// The default limit of the bytes of one decoded image: 256 MiB, about 9,400 x 9,400 pixels.
pub const IMAGE_BYTES_MAX: u64 = 256 << 20;

/// The most pixels of an edge: JPEG's limit (ITU-T T.81, B.2.2).
const EDGE_MAX: u32 = 65_535;

/// How an image becomes a tensor of a fixed shape. The steps in their order: decode, orient, choose a region, resize it, flip,
/// scale and normalise, lay out.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageTransform {
    /// Rows of pixels of the tensor.
    pub height: u32,
    /// Pixels in a row of the tensor.
    pub width: u32,
    /// What happens to images of another aspect ratio; no matter with [`ImageTransform::random_resized_crop`].
    pub fit: Fit,
    /// Which part [`Fit::Cover`] keeps.
    pub crop: Crop,
    /// For [`Fit::Cover`]: the pixels that the shorter side of the whole image has at the scale of the tensor, at least its
    /// height and width. `None`: as few as cover the tensor.
    pub shorter_side: Option<u32>,
    /// A random region in place of the one that `fit` chooses.
    pub random_resized_crop: Option<RandomResizedCrop>,
    /// The probability with which an image is mirrored left to right.
    pub horizontal_flip: f64,
    /// The channels of the tensor.
    pub channels: Channels,
    /// The order of its dimensions.
    pub layout: Layout,
    /// Its elements.
    pub element: Element,
    /// What floats are normalised with.
    pub normalize: Option<Normalize>,
    /// How pixels between pixels are found.
    pub interpolation: Interpolation,
    /// The value of the pixels around an image that [`Fit::Contain`] leaves empty, in each channel.
    pub fill: u8,
    /// What happens to the orientation tag of EXIF.
    pub orientation: Orientation,
    /// An image of more bytes than this after decoding is refused: a defence against small files that claim to be huge.
    pub image_bytes_max: u64,
}

/// What happens to images of another aspect ratio than the tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// Both sides are resized, each by its own factor, as `stoker ingest imagefolder --size` does.
    Stretch,
    /// The image is resized to cover the tensor, and what sticks out is cropped.
    #[default]
    Cover,
    /// The image is resized to lie within the tensor, in its centre, and the rest is filled.
    Contain,
}

/// Which part of an image is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crop {
    /// The centre.
    #[default]
    Center,
    /// Any part, all equally likely.
    Random,
}

/// A random region: its share of the image's area is uniform in `scale`, its aspect ratio log-uniform in `ratio` (Szegedy et
/// al., "Going deeper with convolutions", CVPR 2015, section 6; as torchvision's `RandomResizedCrop`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomResizedCrop {
    /// The least and the greatest share of the area.
    pub scale: (f64, f64),
    /// The least and the greatest width divided by height.
    pub ratio: (f64, f64),
}

impl Default for RandomResizedCrop {
    fn default() -> Self {
        Self { scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0) }
    }
}

/// The channels of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channels {
    /// One; colours become their luminance.
    Gray,
    /// Three; grey images are repeated, transparency is dropped.
    #[default]
    Rgb,
}

impl Channels {
    /// How many they are.
    pub fn count(self) -> usize {
        match self {
            Channels::Gray => 1,
            Channels::Rgb => 3,
        }
    }
}

/// The order of a tensor's dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Channels, height, width.
    #[default]
    Chw,
    /// Height, width, channels.
    Hwc,
}

/// The elements of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Element {
    /// 0 to 255.
    #[default]
    UInt8,
    /// 0 to 1, before they are normalised.
    Float32,
    /// As [`Element::Float32`], rounded to the nearest half-precision number at the end.
    Float16,
}

impl Element {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Element::UInt8 => 1,
            Element::Float16 => 2,
            Element::Float32 => 4,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Element::UInt8 => DataType::UInt8,
            Element::Float16 => DataType::Float16,
            Element::Float32 => DataType::Float32,
        }
    }
}

/// An element becomes (element - mean) / std, channel by channel; the first counts where there is one channel only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalize {
    /// What is subtracted, on the scale from 0 to 1.
    pub mean: [f32; 3],
    /// What is divided by.
    pub std: [f32; 3],
}

/// How pixels between pixels are found. All but [`Interpolation::Nearest`] widen their filter where an image gets smaller, against
/// aliasing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest pixel.
    Nearest,
    /// The mean of the pixels that are covered.
    Box,
    /// Linear.
    #[default]
    Bilinear,
    /// Cubic with a = -0.5 (Catmull and Rom).
    Bicubic,
    /// A windowed sinc of three lobes.
    Lanczos,
}

/// What happens to the orientation tag of EXIF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orientation {
    /// Nothing, as in torchvision and in `stoker ingest`.
    #[default]
    Ignore,
    /// The image is turned as the tag says.
    Apply,
}

impl ImageTransform {
    /// uint8[3, height, width]; the centre of the image, resized as little as covers the tensor.
    pub fn new(height: u32, width: u32) -> Self {
        Self {
            height,
            width,
            fit: Fit::default(),
            crop: Crop::default(),
            shorter_side: None,
            random_resized_crop: None,
            horizontal_flip: 0.0,
            channels: Channels::default(),
            layout: Layout::default(),
            element: Element::default(),
            normalize: None,
            interpolation: Interpolation::default(),
            fill: 0,
            orientation: Orientation::default(),
            image_bytes_max: IMAGE_BYTES_MAX,
        }
    }

    /// The shape and element type of each row.
    pub fn tensor_type(&self) -> TensorType {
        let (height, width, channels) = (self.height as usize, self.width as usize, self.channels.count());
        let shape = match self.layout {
            Layout::Chw => vec![channels, height, width],
            Layout::Hwc => vec![height, width, channels],
        };
        TensorType { element: self.element.data_type(), shape }
    }

    /// Bytes of each row.
    pub fn row_bytes(&self) -> usize {
        self.height as usize * self.width as usize * self.channels.count() * self.element.bytes()
    }

    /// Checks the options, alone and together.
    ///
    /// # Errors
    /// [`Error::InvalidTransform`] naming the option, its value and what it must be.
    pub fn validate(&self) -> Result<()> {
        let bad = |option, reason: String| Err(Error::transform(option, reason));
        if !(1..=EDGE_MAX).contains(&self.height) || !(1..=EDGE_MAX).contains(&self.width) {
            let reason = format!("is {}x{}; height and width must be from 1 to {EDGE_MAX}", self.height, self.width);
            return bad("size", reason);
        }
        if self.row_bytes() as u64 > self.image_bytes_max.min(i32::MAX as u64) {
            let reason = format!("gives tensors of {} bytes; the limit is {}", self.row_bytes(), self.image_bytes_max);
            return bad("size", reason);
        }
        if !(0.0..=1.0).contains(&self.horizontal_flip) {
            return bad("horizontal_flip", format!("is {}; it must be from 0 to 1", self.horizontal_flip));
        }
        self.validate_region()?;
        self.validate_normalize()
    }

    fn validate_region(&self) -> Result<()> {
        let bad = |option, reason: String| Err(Error::transform(option, reason));
        if let Some(RandomResizedCrop { scale, ratio }) = self.random_resized_crop {
            if !(scale.0 > 0.0 && scale.0 <= scale.1 && scale.1 <= 1.0) {
                let reason = format!("has scale {scale:?}; it must be a range within 0 (not included) to 1");
                return bad("random_resized_crop", reason);
            }
            if !(ratio.0 >= 0.01 && ratio.0 <= ratio.1 && ratio.1 <= 100.0) {
                let reason = format!("has ratio {ratio:?}; it must be a range within 0.01 to 100");
                return bad("random_resized_crop", reason);
            }
            if self.crop == Crop::Random || self.shorter_side.is_some() {
                return bad("random_resized_crop", "chooses the region itself: leave out crop and shorter_side".into());
            }
        }
        if self.fit != Fit::Cover && (self.crop == Crop::Random || self.shorter_side.is_some()) {
            return bad("fit", format!("is {:?}, which crops nothing: leave out crop and shorter_side", self.fit));
        }
        match self.shorter_side {
            Some(side) if !(self.height.max(self.width)..=EDGE_MAX).contains(&side) => {
                let least = self.height.max(self.width);
                bad(
                    "shorter_side",
                    format!("is {side}; it must be from {least}, the tensor's longer side, to {EDGE_MAX}"),
                )
            }
            _ => Ok(()),
        }
    }

    fn validate_normalize(&self) -> Result<()> {
        let Some(Normalize { mean, std }) = self.normalize else { return Ok(()) };
        if self.element == Element::UInt8 {
            return Err(Error::transform("normalize", "needs float elements; the element type is uint8"));
        }
        if mean.iter().chain(&std).any(|value| !value.is_finite()) || std.iter().any(|std| *std <= 0.0) {
            let reason = format!("has mean {mean:?} and std {std:?}; they must be finite, and std positive");
            return Err(Error::transform("normalize", reason));
        }
        Ok(())
    }
}
