//! The options that define the tensor of each image.

use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

use crate::{Error, Jpeg, Result};

/// The default limit of the bytes of one decoded image: 256 MiB, about 9,400 x 9,400 pixels.
pub const IMAGE_BYTES_MAX: u64 = 256 << 20;

/// The most pixels of a tensor's edge: JPEG's limit (ITU-T T.81, B.2.2).
const EDGE_MAX: u32 = 65_535;

/// The most crops of an image, and images of a list.
const COUNT_MAX: u32 = 4096;

/// How an image becomes a tensor of a fixed shape. The steps are, in this order: decode, orient, choose a region,
/// resize the region, flip, scale and normalize, lay out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageTransform {
    /// The height of the tensor, in pixels.
    pub height: u32,
    /// The width of the tensor, in pixels.
    pub width: u32,
    /// How images are fitted whose aspect ratio is not that of the tensor. Ignored if `random_resized_crop` is set.
    pub fit: Fit,
    /// The part of the image that [`Fit::Cover`] keeps.
    pub crop: Crop,
    /// For [`Fit::Cover`]: the pixels of the whole image's shorter side after resizing; at least the tensor's height
    /// and width. With `None` the image is resized to the smallest size that covers the tensor.
    pub shorter_side: Option<u32>,
    /// A random region, which replaces the region that `fit` chooses.
    pub random_resized_crop: Option<RandomResizedCrop>,
    /// The probability with which an image is mirrored left to right, from 0 to 1.
    pub horizontal_flip: f64,
    /// The least and the greatest angle by which the image is rotated around the centre of its region, in degrees,
    /// counter-clockwise. What the rotated region covers is taken from the image where the image has it.
    pub rotation: (f64, f64),
    /// Random changes of the colours.
    pub color_jitter: Option<ColorJitter>,
    /// What the pixels of the files are.
    pub samples: FileSamples,
    /// The channels of the tensor.
    pub channels: Channels,
    /// The order of the tensor's dimensions.
    pub layout: Layout,
    /// The type of the tensor's elements.
    pub element: Element,
    /// The normalization of float elements.
    pub normalize: Option<Normalize>,
    /// The filter that resizes the image.
    pub interpolation: Interpolation,
    /// The value of the pixels that [`Fit::Contain`] or a rotation leaves empty around an image, in each channel.
    pub fill: u8,
    /// Whether the orientation tag of EXIF is applied.
    pub orientation: Orientation,
    /// The number of crops of each image, which the tensor has in a dimension before those of an image; `None` for one
    /// crop without that dimension. Each crop has draws of its own.
    pub crops: Option<u32>,
    /// For columns of lists of images: the number of images that the tensor has, in its first dimension. Of a longer
    /// list the first ones are decoded; behind a shorter list the tensor is zero. `None` for columns of images.
    pub images: Option<u32>,
    /// Whether there is a second array that says where the pixels of an image lie in its tensor: float32[2, 3], which
    /// maps (x, y, 1) of the decoded image to the x and y of the tensor, with the dimensions of images and crops before
    /// it.
    pub matrix: bool,
    /// The column whose random choices this one repeats, so that masks get the regions, flips and rotations of their
    /// images; `None` for choices of its own.
    pub follow: Option<String>,
    /// The most bytes of a decoded image. Larger images are refused, as a defence against small files that claim to be
    /// huge.
    pub image_bytes_max: u64,
    /// The decoder of JPEG files. It is left out where it is the default, so that the digests of transforms from before
    /// this option stay.
    #[serde(default, skip_serializing_if = "Jpeg::is_zune")]
    pub jpeg: Jpeg,
}

/// How images are fitted whose aspect ratio is not that of the tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// Height and width are resized independently, as `stoker ingest imagefolder --size` does.
    Stretch,
    /// The image is resized to cover the tensor, and the parts outside the tensor are cropped.
    #[default]
    Cover,
    /// The image is resized to lie within the tensor, at its centre, and the rest is filled.
    Contain,
}

/// The part of an image that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Crop {
    /// The part at the centre.
    #[default]
    Center,
    /// A random part; all parts are equally likely.
    Random,
}

/// A random region whose share of the image's area is uniform in `scale` and whose aspect ratio is log-uniform in
/// `ratio` (Szegedy et al., "Going deeper with convolutions", CVPR 2015, section 6; as torchvision's
/// `RandomResizedCrop`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// The least and the greatest share of the image's area.
    pub scale: (f64, f64),
    /// The least and the greatest aspect ratio, width divided by height.
    pub ratio: (f64, f64),
}

impl Default for RandomResizedCrop {
    fn default() -> Self {
        Self { scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0) }
    }
}

/// Random changes of the colours of an image, as torchvision's `ColorJitter` makes them: each by a factor that is uniform
/// in a range, in a random order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColorJitter {
    /// The factors of all values.
    pub brightness: (f64, f64),
    /// The factors of the distance of all values from the mean luminance of the image.
    pub contrast: (f64, f64),
    /// The factors of the distance of all values from the luminance of their pixel.
    pub saturation: (f64, f64),
    /// The shares of the circle of colours by which hues are rotated, from -0.5 to 0.5.
    pub hue: (f64, f64),
}

/// What the pixels of files are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileSamples {
    /// Colours or luminances, which become those of the tensor.
    #[default]
    Colors,
    /// Numbers such as classes or depths, which stay as they are: palette indices or grey values of PNG files.
    Values,
}

/// The channels of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channels {
    /// One channel; colours are converted to their luminance.
    Gray,
    /// Three channels; grey images are repeated, transparency is dropped.
    #[default]
    Rgb,
}

impl Channels {
    /// The number of channels.
    pub fn count(self) -> usize {
        match self {
            Channels::Gray => 1,
            Channels::Rgb => 3,
        }
    }
}

/// The order of a tensor's dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Channels, height, width.
    #[default]
    Chw,
    /// Height, width, channels.
    Hwc,
}

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Element {
    /// Integers from 0 to 255.
    #[default]
    UInt8,
    /// Integers from 0 to 65,535, for [`FileSamples::Values`].
    UInt16,
    /// Numbers from 0 to 1, before normalization.
    Float32,
    /// As [`Element::Float32`], rounded to the nearest half-precision number after normalization.
    Float16,
}

impl Element {
    /// The bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Element::UInt8 => 1,
            Element::UInt16 | Element::Float16 => 2,
            Element::Float32 => 4,
        }
    }

    /// The Arrow type of an element.
    pub fn data_type(self) -> DataType {
        match self {
            Element::UInt8 => DataType::UInt8,
            Element::UInt16 => DataType::UInt16,
            Element::Float16 => DataType::Float16,
            Element::Float32 => DataType::Float32,
        }
    }
}

/// Normalizes each element to (element - mean) / std, per channel. A tensor with one channel uses the first mean and
/// std.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    /// The means that are subtracted, on the scale from 0 to 1.
    pub mean: [f32; 3],
    /// The standard deviations that the differences are divided by.
    pub std: [f32; 3],
}

/// The filter that resizes an image. All filters but [`Interpolation::Nearest`] become wider where an image gets
/// smaller, against aliasing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// The nearest pixel.
    Nearest,
    /// The mean of the covered pixels.
    Box,
    /// Linear interpolation.
    #[default]
    Bilinear,
    /// Cubic interpolation with a = -0.5 (Catmull and Rom).
    Bicubic,
    /// A windowed sinc with three lobes.
    Lanczos,
}

/// Whether the orientation tag of EXIF is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Orientation {
    /// The tag is ignored, as in torchvision and in `stoker ingest`.
    #[default]
    Ignore,
    /// The image is rotated and mirrored as the tag says.
    Apply,
}

impl ImageTransform {
    /// Creates a transform to uint8[3, height, width] that keeps the centre of the image, resized to the smallest size
    /// that covers the tensor.
    pub fn new(height: u32, width: u32) -> Self {
        Self {
            height,
            width,
            fit: Fit::default(),
            crop: Crop::default(),
            shorter_side: None,
            random_resized_crop: None,
            horizontal_flip: 0.0,
            rotation: (0.0, 0.0),
            color_jitter: None,
            samples: FileSamples::default(),
            channels: Channels::default(),
            layout: Layout::default(),
            element: Element::default(),
            normalize: None,
            interpolation: Interpolation::default(),
            fill: 0,
            orientation: Orientation::default(),
            crops: None,
            images: None,
            matrix: false,
            follow: None,
            image_bytes_max: IMAGE_BYTES_MAX,
            jpeg: Jpeg::default(),
        }
    }

    /// Returns the sizes of the dimensions of each row's tensor.
    pub fn shape(&self) -> Vec<usize> {
        let (height, width, channels) = (self.height as usize, self.width as usize, self.channels.count());
        let image = match self.layout {
            Layout::Chw => [channels, height, width],
            Layout::Hwc => [height, width, channels],
        };
        [self.images, self.crops].into_iter().flatten().map(|count| count as usize).chain(image).collect()
    }

    /// Returns the bytes of the tensor of one crop of one image.
    pub fn image_bytes(&self) -> usize {
        self.height as usize * self.width as usize * self.channels.count() * self.element.bytes()
    }

    /// Returns the number of crops of an image.
    pub fn num_crops(&self) -> usize {
        self.crops.unwrap_or(1) as usize
    }

    /// Returns the bytes of each row's tensor.
    pub fn row_bytes(&self) -> usize {
        let per_image = self.image_bytes().saturating_mul(self.num_crops());
        per_image.saturating_mul(self.images.unwrap_or(1) as usize)
    }

    /// Checks the options, separately and together.
    ///
    /// # Errors
    /// [`Error::InvalidTransform`], which names the option, its value and the allowed values.
    pub fn validate(&self) -> Result<()> {
        let bad = |option, reason: String| Err(Error::transform(option, reason));
        if !(1..=EDGE_MAX).contains(&self.height) || !(1..=EDGE_MAX).contains(&self.width) {
            let reason = format!("is {}x{}; height and width must be from 1 to {EDGE_MAX}", self.height, self.width);
            return bad("size", reason);
        }
        for (option, count) in [("crops", self.crops), ("images", self.images)] {
            if count.is_some_and(|count| !(1..=COUNT_MAX).contains(&count)) {
                return bad(option, format!("is {}; it must be from 1 to {COUNT_MAX}", count.unwrap_or_default()));
            }
        }
        if self.row_bytes() as u64 > self.image_bytes_max.min(i32::MAX as u64) {
            let reason = format!("gives tensors of {} bytes; the limit is {}", self.row_bytes(), self.image_bytes_max);
            return bad("size", reason);
        }
        if !(0.0..=1.0).contains(&self.horizontal_flip) {
            return bad("horizontal_flip", format!("is {}; it must be from 0 to 1", self.horizontal_flip));
        }
        self.validate_region()?;
        self.validate_changes()?;
        self.validate_samples()?;
        self.validate_normalize()
    }

    fn validate_changes(&self) -> Result<()> {
        let (least, most) = self.rotation;
        if !(-360.0..=360.0).contains(&least) || !(least..=360.0).contains(&most) {
            let reason = format!("is {:?}; it must be a range within -360 to 360 degrees", self.rotation);
            return Err(Error::transform("rotation", reason));
        }
        let Some(ColorJitter { brightness, contrast, saturation, hue }) = self.color_jitter else { return Ok(()) };
        for (name, (least, most), limits) in [
            ("brightness", brightness, (0.0, 100.0)),
            ("contrast", contrast, (0.0, 100.0)),
            ("saturation", saturation, (0.0, 100.0)),
            ("hue", hue, (-0.5, 0.5)),
        ] {
            if !(limits.0 <= least && least <= most && most <= limits.1) {
                let reason =
                    format!("has {name} {:?}; it must be a range within {} to {}", (least, most), limits.0, limits.1);
                return Err(Error::transform("color_jitter", reason));
            }
        }
        Ok(())
    }

    fn validate_samples(&self) -> Result<()> {
        let bad = |option, reason: &str| Err(Error::transform(option, reason));
        match self.samples {
            FileSamples::Colors if self.element == Element::UInt16 => {
                bad("dtype", "is uint16, which needs samples=\"values\": PNG files with one channel, as they are")
            }
            FileSamples::Values if self.channels != Channels::Gray => {
                bad("channels", "must be 1 for samples=\"values\"")
            }
            FileSamples::Values if !matches!(self.element, Element::UInt8 | Element::UInt16) => {
                bad("dtype", "must be uint8 or uint16 for samples=\"values\"")
            }
            FileSamples::Values if self.color_jitter.is_some() => {
                bad("color_jitter", "changes colours: samples=\"values\" has none")
            }
            FileSamples::Values if self.orientation == Orientation::Apply => {
                bad("apply_orientation", "is for photographs: samples=\"values\" has no orientation")
            }
            _ => Ok(()),
        }
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
