//! Clips of sounds.

use arrow_schema::DataType;
use parking_lot::Mutex;
use stoker_audio::{AudioClip, Scratch, Start};
use stoker_decode::{BadValue, Error as DecodeError, Number, OutputSpec, Row, ValueDecoder, draw_start, write_number};

/// Decodes clips of sounds. Its buffers are reused.
pub(super) struct SoundDecoder {
    clip: AudioClip,
    idle: Mutex<Vec<Scratch>>,
}

impl SoundDecoder {
    pub fn new(clip: AudioClip) -> Self {
        Self { clip, idle: Mutex::default() }
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

    fn parameter(&self) -> Option<&str> {
        match &self.clip.start {
            Start::Column(column) => Some(column),
            _ => None,
        }
    }

    fn decode(&self, row: &Row<'_>, outputs: &mut [&mut [u8]]) -> Result<(), BadValue> {
        let [samples, length] = outputs else { return Err(BadValue::fatal("a sound has two arrays")) };
        let (file, (_, draw)) = (row.file()?, draw_start(row.seed));
        let start = row.parameter.map(|number| match number {
            Number::Whole(seconds) => seconds as f64,
            Number::Real(seconds) => seconds,
        });
        let mut scratch = self.idle.lock().pop().unwrap_or_default();
        let decoded = self.clip.decode(&mut scratch, file, start, draw, samples);
        self.idle.lock().push(scratch);
        write_number(decoded.map_err(|bad| BadValue::new(bad.reason))?, length);
        Ok(())
    }
}
