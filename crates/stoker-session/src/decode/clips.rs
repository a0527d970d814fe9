//! Clips of videos.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::DataType;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use stoker_decode::{BadValue, Error as DecodeError, OutputSpec, Row, ValueDecoder, draw_start, write_number};
use stoker_libav::Libav;
use stoker_video::{BadVideo, ByteSource, ClipBytes, Decoders, Position, Video, VideoClip, VideoIndex};

use crate::{Error, Result};

/// The clips of a column of videos, and where libavcodec is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VideoOptions {
    /// The clip of each video. It needs a size.
    pub clip: VideoClip,
    /// Files of libavcodec, and folders with them, that are tried before those of the system.
    pub libraries: Vec<PathBuf>,
}

/// Decodes clips. Decoders stay open for the next rows.
pub(super) struct ClipDecoder {
    clip: VideoClip,
    libav: Arc<Libav>,
    idle: Mutex<Vec<Decoders>>,
}

impl ClipDecoder {
    pub fn new(options: &VideoOptions) -> Result<Self> {
        let libav = libav(&options.libraries)?;
        Ok(Self { clip: options.clip.clone(), libav, idle: Mutex::default() })
    }

    /// Decodes the clip of a row from a whole file, or from a part of one.
    fn decode_from<S: ByteSource + ?Sized>(
        &self,
        video: &Video<'_, S>,
        row: &Row<'_>,
        outputs: [&mut [u8]; 3],
    ) -> Result<(), BadVideo> {
        let [tensor, length, mask] = outputs;
        let positions: Vec<Option<Position>> = row.parameters.iter().map(|number| number.map(Position::from)).collect();
        let (draw, _) = draw_start(row.seed);
        let frames = self.clip.frames_of_row(video.index, &positions, draw)?;
        let idle = self.idle.lock().pop();
        let mut decoders = idle.unwrap_or_else(|| Decoders::new(self.libav.clone()));
        let decoded = self.clip.decode_frames(&mut decoders, video, &frames, tensor);
        self.idle.lock().push(decoders);
        decoded?;
        write_number(frames.num_valid(), length);
        mask.iter_mut().zip(frames.valid()).for_each(|(to, is_valid)| *to = u8::from(*is_valid));
        Ok(())
    }
}

impl ValueDecoder for ClipDecoder {
    fn noun(&self) -> &'static str {
        "video"
    }

    fn validate(&self) -> stoker_decode::Result<()> {
        self.clip.validate().map_err(|error| match error {
            stoker_video::Error::InvalidClip { option, reason } => DecodeError::invalid("video clip", option, reason),
            other => DecodeError::invalid("video clip", "it", other.to_string()),
        })?;
        match self.clip.size {
            Some(_) => Ok(()),
            None => Err(DecodeError::invalid("video clip", "size", "is missing: all rows have tensors of one size")),
        }
    }

    fn outputs(&self) -> Vec<OutputSpec> {
        let shape = self.clip.shape().map(Vec::from).unwrap_or_default();
        let frames = OutputSpec::tensor(DataType::UInt8, shape);
        let mask = OutputSpec { suffix: "mask", element: DataType::Boolean, shape: vec![self.clip.frames] };
        vec![frames, OutputSpec::number("length"), mask]
    }

    fn parameters(&self) -> Vec<&str> {
        self.clip.columns()
    }

    fn decode(&self, row: &Row<'_>, outputs: &mut [&mut [u8]]) -> Result<(), BadValue> {
        let [tensor, length, mask] = outputs else { return Err(BadValue::fatal("a clip has three arrays")) };
        let outputs = [&mut **tensor, &mut **length, &mut **mask];
        let file = row.file()?;
        let bad = |bad: BadVideo| BadValue::new(bad.reason);
        let decoded = match ClipBytes::read(file).map_err(bad)? {
            Some(clip) => self.decode_from(&Video { index: &clip.index, source: &clip.pieces }, row, outputs),
            None => {
                let index = VideoIndex::read(file).map_err(bad)?;
                self.decode_from(&Video { index: &index, source: file }, row, outputs)
            }
        };
        decoded.map_err(bad)
    }
}

/// Returns libavcodec, which is loaded once for each list of places.
///
/// # Errors
/// [`Error::InvalidRequest`] with all places that were tried.
pub(super) fn libav(libraries: &[PathBuf]) -> Result<Arc<Libav>> {
    static LOADED: Mutex<Vec<(Vec<PathBuf>, Arc<Libav>)>> = Mutex::new(Vec::new());
    let mut loaded = LOADED.lock();
    if let Some((_, libav)) = loaded.iter().find(|(places, _)| places == libraries) {
        return Ok(libav.clone());
    }
    let libav = Libav::load(libraries).map_err(|missing| Error::invalid(missing.to_string()))?;
    loaded.push((libraries.to_vec(), libav.clone()));
    Ok(libav)
}
