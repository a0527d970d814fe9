//! The image transforms of a stream, from Python.

use pyo3::prelude::*;
use stoker_decode::{
    Channels, Crop, Element, Fit, ImageTransform, Interpolation, Layout, Normalize, Orientation, RandomResizedCrop,
};
use stoker_session::DecodeOptions;
use stoker_types::ErrorKind;

use crate::exceptions::{Raise, error};

/// The keys of the `DecodeRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct DecodeRequest {
    columns: Vec<(String, TransformRequest)>,
    num_threads: usize,
}

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
    image_bytes_max: Option<u64>,
}

impl DecodeRequest {
    /// Converts the request to options, which are not yet validated against a schema.
    pub(crate) fn to_options(&self, py: Python<'_>) -> PyResult<DecodeOptions> {
        let column = |(name, transform): &(String, TransformRequest)| Ok((name.clone(), transform.to_transform(py)?));
        let columns = self.columns.iter().map(column).collect::<PyResult<_>>()?;
        Ok(DecodeOptions { columns, num_threads: self.num_threads })
    }
}

impl TransformRequest {
    /// Converts the request to a transform and validates it.
    pub(crate) fn to_transform(&self, py: Python<'_>) -> PyResult<ImageTransform> {
        let normalize = match (self.mean, self.std) {
            (None, None) => None,
            (mean, std) => Some(Normalize { mean: mean.unwrap_or([0.0; 3]), std: std.unwrap_or([1.0; 3]) }),
        };
        let fits = [("cover", Fit::Cover), ("stretch", Fit::Stretch), ("contain", Fit::Contain)];
        let crops = [("center", Crop::Center), ("random", Crop::Random)];
        let layouts = [("chw", Layout::Chw), ("hwc", Layout::Hwc)];
        let dtypes = [("uint8", Element::UInt8), ("float32", Element::Float32), ("float16", Element::Float16)];
        let interpolations = [
            ("bilinear", Interpolation::Bilinear),
            ("nearest", Interpolation::Nearest),
            ("box", Interpolation::Box),
            ("bicubic", Interpolation::Bicubic),
            ("lanczos", Interpolation::Lanczos),
        ];
        let transform = ImageTransform {
            fit: chosen(py, "fit", &self.fit, &fits)?,
            crop: chosen(py, "crop", &self.crop, &crops)?,
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
            layout: chosen(py, "layout", &self.layout, &layouts)?,
            element: chosen(py, "dtype", &self.dtype, &dtypes)?,
            normalize,
            interpolation: chosen(py, "interpolation", &self.interpolation, &interpolations)?,
            fill: self.fill,
            orientation: if self.apply_orientation { Orientation::Apply } else { Orientation::Ignore },
            image_bytes_max: self.image_bytes_max.unwrap_or(stoker_decode::IMAGE_BYTES_MAX),
            ..ImageTransform::new(self.height, self.width)
        };
        transform.validate().raise(py)?;
        Ok(transform)
    }
}

/// Validates a transform, without a stream.
#[pyfunction]
pub(crate) fn check_transform(py: Python<'_>, transform: TransformRequest) -> PyResult<()> {
    transform.to_transform(py).map(drop)
}

fn chosen<T: Copy>(py: Python<'_>, option: &str, name: &str, choices: &[(&str, T)]) -> PyResult<T> {
    if let Some((_, value)) = choices.iter().find(|(choice, _)| *choice == name) {
        return Ok(*value);
    }
    let names: Vec<String> = choices.iter().map(|(choice, _)| format!("{choice:?}")).collect();
    let message = format!("image transform: {option} is {name:?}; it must be one of {}", names.join(", "));
    Err(error(py, ErrorKind::InvalidRequest, &message))
}
