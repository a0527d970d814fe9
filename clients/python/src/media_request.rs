//! Clips of sound and video, from Python.

use std::path::PathBuf;

use pyo3::prelude::*;
use stoker_audio::{AUDIO_BYTES_MAX, AudioClip};
use stoker_decode::{Interpolation, Orientation};
use stoker_session::{AudioOptions, VideoOptions};
use stoker_types::ErrorKind;
use stoker_video::{Layout, PIXELS_MAX, VideoClip};

use crate::decode_request::chosen;
use crate::exceptions::error;
use crate::image_request::INTERPOLATIONS;

/// The keys of the `AudioRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct AudioRequest {
    sample_rate: u32,
    seconds: f64,
    start: String,
    start_seconds: f64,
    start_column: String,
    channels: u16,
    bytes_max: Option<u64>,
    libraries: Vec<PathBuf>,
}

impl AudioRequest {
    /// Converts the request to options, which are not validated.
    pub(crate) fn to_options(&self) -> AudioOptions {
        let clip = AudioClip {
            start: match self.start.as_str() {
                "random" => stoker_audio::Start::Random,
                "column" => stoker_audio::Start::Column(self.start_column.clone()),
                _ => stoker_audio::Start::Seconds(self.start_seconds),
            },
            channels: self.channels,
            bytes_max: self.bytes_max.unwrap_or(AUDIO_BYTES_MAX),
            ..AudioClip::new(self.sample_rate, self.seconds)
        };
        AudioOptions { clip, libraries: self.libraries.clone() }
    }
}

/// The keys of the `VideoRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct VideoRequest {
    frames: usize,
    stride: usize,
    start: String,
    start_seconds: f64,
    start_column: String,
    offsets: Option<Vec<f64>>,
    within: Option<(String, String)>,
    size: (u32, u32),
    layout: String,
    interpolation: String,
    apply_orientation: bool,
    pixels_max: Option<u64>,
    libraries: Vec<PathBuf>,
}

/// What error messages call the options.
const VIDEO: &str = "video clip";

impl VideoRequest {
    /// Converts the request to options, which are not validated.
    pub(crate) fn to_options(&self, py: Python<'_>) -> PyResult<VideoOptions> {
        let layouts = [("tchw", Layout::Tchw), ("thwc", Layout::Thwc), ("cthw", Layout::Cthw)];
        let interpolation: Interpolation = chosen(py, VIDEO, "interpolation", &self.interpolation, &INTERPOLATIONS)?;
        let clip = VideoClip {
            stride: self.stride,
            start: self.start(py)?,
            offsets: self.offsets.clone(),
            within: self.within.clone(),
            size: Some(self.size),
            layout: chosen(py, VIDEO, "layout", &self.layout, &layouts)?,
            interpolation,
            orientation: if self.apply_orientation { Orientation::Apply } else { Orientation::Ignore },
            pixels_max: self.pixels_max.unwrap_or(PIXELS_MAX),
            ..VideoClip::new(self.frames)
        };
        Ok(VideoOptions { clip, libraries: self.libraries.clone() })
    }

    fn start(&self, py: Python<'_>) -> PyResult<stoker_video::Start> {
        use stoker_video::Start;
        Ok(match self.start.as_str() {
            "random" => Start::Random,
            "uniform" => Start::Uniform,
            "column" => Start::Column(self.start_column.clone()),
            "seconds" => Start::Seconds(self.start_seconds),
            _ if self.start_seconds < 0.0 => {
                let message = format!("{VIDEO}: start is {}; a frame is not negative", self.start_seconds);
                return Err(error(py, ErrorKind::InvalidRequest, &message));
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
            _ => Start::Frame(self.start_seconds as u64),
        })
    }
}
