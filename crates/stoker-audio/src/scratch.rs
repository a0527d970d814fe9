//! Buffers that are reused from file to file.

use crate::planes::Planes;
use crate::resample::{Conversion, Resampler};
use crate::{BadSound, LibavSource};

/// The size in bytes from which a buffer is freed after use, so that a large file does not hold its memory forever.
const KEPT_BYTES: u64 = 32 << 20;

/// The most resamplers that are kept. Files of a data set have few sample rates.
const RESAMPLERS_MAX: usize = 4;

/// The buffers of one thread.
#[derive(Default)]
pub struct Scratch {
    /// Where libavcodec comes from, which files with Opus and some others need.
    pub(crate) libav: LibavSource,
    pub(crate) planes: Planes,
    /// The last used one is last.
    resamplers: Vec<Resampler>,
}

impl Scratch {
    /// Makes empty buffers, with a source of libavcodec.
    pub fn new(libav: LibavSource) -> Self {
        Self { libav, ..Self::default() }
    }

    /// Returns the decoded samples, and the resampler if the conversion changes the rate.
    ///
    /// # Errors
    /// [`BadSound`] if the library refuses the conversion.
    pub(crate) fn parts(&mut self, conversion: Conversion) -> Result<(&Planes, Option<&mut Resampler>), BadSound> {
        if conversion.is_identity() {
            return Ok((&self.planes, None));
        }
        let resampler = match self.resamplers.iter().position(|resampler| resampler.conversion == conversion) {
            Some(index) => self.resamplers.remove(index),
            None => Resampler::new(conversion)?,
        };
        if self.resamplers.len() >= RESAMPLERS_MAX {
            self.resamplers.remove(0);
        }
        self.resamplers.push(resampler);
        Ok((&self.planes, self.resamplers.last_mut()))
    }

    /// Frees large buffers.
    pub(crate) fn shrink(&mut self) {
        self.planes.shrink(KEPT_BYTES);
        self.resamplers.retain(|resampler| resampler.conversion.bytes() <= KEPT_BYTES);
    }
}
