//! The transforms of images, from Python.

use std::path::PathBuf;

use pyo3::prelude::*;
use stoker_decode::{
    Channels, ColorJitter, Crop, Element, FileSamples, Fit, ImageTransform, Interpolation, Jpeg, Layout, Normalize,
    Orientation, RandomResizedCrop,
};
use stoker_session::ImageOptions;
use stoker_types::ErrorKind;

use crate::decode_request::chosen;
use crate::exceptions::{Raise, error};

/// What error messages call the options.
const NAME: &str = "image transform";

/// The names of filters that resize images.
pub(crate) const INTERPOLATIONS: [(&str, Interpolation); 5] = [
    ("bilinear", Interpolation::Bilinear),
    ("nearest", Interpolation::Nearest),
    ("box", Interpolation::Box),
    ("bicubic", Interpolation::Bicubic),
    ("lanczos", Interpolation::Lanczos),
];

/// The keys of the `TransformRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TransformRequest {
    height: u32,
    width: u32,
    fit: String,
    crop: String,
    shorter_side: Option<u32>,
    random_resized_crop: Option<((f64, f64), (f64, f64))>,
    horizontal_flip: f64,
    channels: u32,
    layout: String,
    dtype: String,
    mean: Option<[f32; 3]>,
    std: Option<[f32; 3]>,
    interpolation: String,
    fill: u8,
    apply_orientation: bool,
    rotation: (f64, f64),
    color_jitter: Option<JitterRequest>,
    samples: String,
    crops: Option<u32>,
    images: Option<u32>,
    matrix: bool,
    follow: Option<String>,
    image_bytes_max: Option<u64>,
    jpeg: String,
    libraries: Vec<PathBuf>,
}

/// The keys of the `JitterRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct JitterRequest {
    brightness: (f64, f64),
    contrast: (f64, f64),
    saturation: (f64, f64),
    hue: (f64, f64),
}

impl JitterRequest {
    fn to_jitter(&self) -> ColorJitter {
        let JitterRequest { brightness, contrast, saturation, hue } = *self;
        ColorJitter { brightness, contrast, saturation, hue }
    }
}

impl TransformRequest {
    /// Converts the request to options, and validates the transform.
    pub(crate) fn to_options(&self, py: Python<'_>) -> PyResult<ImageOptions> {
        Ok(ImageOptions { transform: self.to_transform(py)?, libraries: self.libraries.clone() })
    }

    fn to_transform(&self, py: Python<'_>) -> PyResult<ImageTransform> {
        let normalize = match (self.mean, self.std) {
            (None, None) => None,
            (mean, std) => Some(Normalize { mean: mean.unwrap_or([0.0; 3]), std: std.unwrap_or([1.0; 3]) }),
        };
        let fits = [("cover", Fit::Cover), ("stretch", Fit::Stretch), ("contain", Fit::Contain)];
        let crops = [("center", Crop::Center), ("random", Crop::Random)];
        let layouts = [("chw", Layout::Chw), ("hwc", Layout::Hwc)];
        let dtypes = [
            ("uint8", Element::UInt8),
            ("uint16", Element::UInt16),
            ("float32", Element::Float32),
            ("float16", Element::Float16),
        ];
        let jpegs = [("zune", Jpeg::Zune), ("turbo", Jpeg::Turbo), ("turbo_scaled", Jpeg::TurboScaled)];
        let samples = [("colors", FileSamples::Colors), ("values", FileSamples::Values)];
        let transform = ImageTransform {
            fit: chosen(py, NAME, "fit", &self.fit, &fits)?,
            crop: chosen(py, NAME, "crop", &self.crop, &crops)?,
            shorter_side: self.shorter_side,
            random_resized_crop: self.random_resized_crop.map(|(scale, ratio)| RandomResizedCrop { scale, ratio }),
            horizontal_flip: self.horizontal_flip,
            channels: match self.channels {
                1 => Channels::Gray,
                3 => Channels::Rgb,
                other => {
                    let message = format!("image transform: channels is {other}; it must be 1 or 3");
                    return Err(error(py, ErrorKind::InvalidRequest, &message));
                }
            },
            layout: chosen(py, NAME, "layout", &self.layout, &layouts)?,
            element: chosen(py, NAME, "dtype", &self.dtype, &dtypes)?,
            normalize,
            interpolation: chosen(py, NAME, "interpolation", &self.interpolation, &INTERPOLATIONS)?,
            fill: self.fill,
            orientation: if self.apply_orientation { Orientation::Apply } else { Orientation::Ignore },
            rotation: self.rotation,
            color_jitter: self.color_jitter.as_ref().map(JitterRequest::to_jitter),
            samples: chosen(py, NAME, "samples", &self.samples, &samples)?,
            crops: self.crops,
            images: self.images,
            matrix: self.matrix,
            follow: self.follow.clone(),
            image_bytes_max: self.image_bytes_max.unwrap_or(stoker_decode::IMAGE_BYTES_MAX),
            jpeg: chosen(py, NAME, "jpeg", &self.jpeg, &jpegs)?,
            ..ImageTransform::new(self.height, self.width)
        };
        transform.validate().raise(py)?;
        Ok(transform)
    }
}
