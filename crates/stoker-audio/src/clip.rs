//! The options that define the tensor of each sound.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The default of [`AudioClip::bytes_max`]: 256 MiB, about 25 minutes of one channel at 44.1 kHz.
pub const AUDIO_BYTES_MAX: u64 = 256 << 20;

/// The largest sample rate of tensors and files, in Hz.
pub const SAMPLE_RATE_MAX: u32 = 768_000;

/// The most channels of a tensor.
pub const CHANNELS_MAX: u16 = 256;

/// How a sound file becomes a tensor `float32[channels, samples]`. The steps are, in this order: choose a start, decode
/// from there, mix the channels down, resample, pad with zeros.
///
/// Full scale is -1.0 to 1.0. Samples of float files are not clipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioClip {
    /// The sample rate of the tensor, in Hz.
    pub sample_rate: u32,
    /// The length of the tensor, in seconds. It has `round(seconds * sample_rate)` samples.
    pub seconds: f64,
    /// Where in the file the clip starts.
    #[serde(default)]
    pub start: Start,
    /// The channels of the tensor. 1 is the mean of all channels of the file. With another number, the file must have
    /// as many channels, or one, which is repeated.
    #[serde(default = "default_channels")]
    pub channels: u16,
    /// The most bytes of memory for the samples of one file and for resampling them. Files that need more are refused.
    /// The decoders themselves take at most a few MiB in addition, and as many bytes as the file has.
    #[serde(default = "default_bytes_max")]
    pub bytes_max: u64,
}

/// Where in the file a clip starts. The start is rounded to the nearest sample at the rate of the tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The same position in all files, in seconds.
    Seconds(f64),
    /// The position in seconds is the value of this column in the row of the file.
    Column(String),
    /// A random position. All positions at which the file has enough samples are equally likely; a file with fewer
    /// samples starts at zero.
    Random,
}

impl Default for Start {
    fn default() -> Self {
        Start::Seconds(0.0)
    }
}

fn default_channels() -> u16 {
    1
}

fn default_bytes_max() -> u64 {
    AUDIO_BYTES_MAX
}

impl AudioClip {
    /// Returns a clip of one channel that starts at zero.
    pub fn new(sample_rate: u32, seconds: f64) -> Self {
        let (channels, bytes_max) = (default_channels(), default_bytes_max());
        Self { sample_rate, seconds, start: Start::default(), channels, bytes_max }
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::InvalidClip`] for an option outside its range.
    pub fn validate(&self) -> Result<()> {
        let Self { sample_rate, seconds, start, channels, bytes_max } = self;
        if !(1..=SAMPLE_RATE_MAX).contains(sample_rate) {
            return Err(Error::clip("sample_rate", format!("is {sample_rate}, not 1 to {SAMPLE_RATE_MAX} Hz")));
        }
        if !(seconds.is_finite() && *seconds > 0.0) {
            return Err(Error::clip("seconds", format!("is {seconds}, not a positive number")));
        }
        if !(1..=CHANNELS_MAX).contains(channels) {
            return Err(Error::clip("channels", format!("is {channels}, not 1 to {CHANNELS_MAX}")));
        }
        match start {
            Start::Seconds(start) if !(start.is_finite() && *start >= 0.0) => {
                return Err(Error::clip("start", format!("is {start} s, not zero or a positive number")));
            }
            Start::Column(column) if column.is_empty() => {
                return Err(Error::clip("start", "names no column"));
            }
            Start::Seconds(_) | Start::Column(_) | Start::Random => {}
        }
        if self.samples() == 0 {
            let reason = format!("is {seconds}, less than half a sample at {sample_rate} Hz");
            return Err(Error::clip("seconds", reason));
        }
        let bytes = self.row_bytes() as u64;
        if bytes > *bytes_max {
            let reason = format!("is {seconds}: the tensor has {bytes} bytes, more than bytes_max, {bytes_max}");
            return Err(Error::clip("seconds", reason));
        }
        Ok(())
    }

    /// The shape of the tensor: channels, samples.
    pub fn shape(&self) -> [usize; 2] {
        [usize::from(self.channels), self.samples()]
    }

    /// The bytes of the tensor.
    pub fn row_bytes(&self) -> usize {
        self.samples().saturating_mul(usize::from(self.channels)).saturating_mul(size_of::<f32>())
    }

    fn samples(&self) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the conversion saturates, and `validate` refuses the result"
        )]
        let samples = (self.seconds * f64::from(self.sample_rate)).round() as usize;
        samples
    }
}
