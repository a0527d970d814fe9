//! Clips of sounds.

use std::path::PathBuf;

use arrow_schema::DataType;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use stoker_audio::{AudioClip, LibavSource, Scratch, Start};
use stoker_decode::{BadValue, Error as DecodeError, Number, OutputSpec, Row, ValueDecoder, draw_start, write_number};

use super::clips::libav;

/// The clips of a column of sounds, and where libavcodec is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioOptions {
    /// The clip of each sound.
    pub clip: AudioClip,
    /// Files of libavcodec, and folders with them, that are tried before those of the system, for sounds that need the
    /// library. It is loaded for the first one.
    pub libraries: Vec<PathBuf>,
}

impl From<AudioClip> for AudioOptions {
    fn from(clip: AudioClip) -> Self {
        Self { clip, libraries: Vec::new() }
    }
}

/// Decodes clips of sounds. Its buffers are reused.
pub(super) struct SoundDecoder {
    clip: AudioClip,
    libav: LibavSource,
    idle: Mutex<Vec<Scratch>>,
}

impl SoundDecoder {
    pub fn new(options: &AudioOptions) -> Self {
        let libraries = options.libraries.clone();
        let libav = LibavSource::new(move || libav(&libraries).map_err(|missing| missing.to_string()));
        Self { clip: options.clip.clone(), libav, idle: Mutex::default() }
    }
}

impl ValueDecoder for SoundDecoder {
    fn noun(&self) -> &'static str {
        "sound"
    }

    fn validate(&self) -> stoker_decode::Result<()> {
        self.clip.validate().map_err(|error| match error {
            stoker_audio::Error::InvalidClip { option, reason } => DecodeError::invalid("audio clip", option, reason),
            other => DecodeError::invalid("audio clip", "it", other.to_string()),
        })
    }

    fn outputs(&self) -> Vec<OutputSpec> {
        vec![OutputSpec::tensor(DataType::Float32, self.clip.shape().into()), OutputSpec::number("length")]
    }

    fn parameters(&self) -> Vec<&str> {
        match &self.clip.start {
            Start::Column(column) => vec![column.as_str()],
            _ => Vec::new(),
        }
    }

    fn decode(&self, row: &Row<'_>, outputs: &mut [&mut [u8]]) -> Result<(), BadValue> {
        let [samples, length] = outputs else { return Err(BadValue::fatal("a sound has two arrays")) };
        let (file, (_, draw)) = (row.file()?, draw_start(row.seed));
        let start = row.parameter(0).map(|number| match number {
            Number::Whole(seconds) => seconds as f64,
            Number::Real(seconds) => seconds,
        });
        let idle = self.idle.lock().pop();
        let mut scratch = idle.unwrap_or_else(|| Scratch::new(self.libav.clone()));
        let decoded = self.clip.decode(&mut scratch, file, start, draw, samples);
        self.idle.lock().push(scratch);
        write_number(decoded.map_err(|bad| BadValue { reason: bad.reason, is_fatal: bad.is_fatal })?, length);
        Ok(())
    }
}
