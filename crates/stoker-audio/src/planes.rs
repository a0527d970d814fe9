//! Decoded samples, one plane per channel.

use symphonia::core::audio::{Audio, GenericAudioBufferRef};

use crate::BadSound;

/// How the channels of a file become planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Each channel has its own plane.
    Separate,
    /// One plane has the mean of all channels.
    Mean,
}

/// The samples of a range of a file. All planes have the same length.
#[derive(Default)]
pub(crate) struct Planes {
    samples: Vec<f32>,
    num_frames: usize,
    num_channels: usize,
    is_mean: bool,
}

impl Planes {
    /// Makes room for `num_frames` samples of each of the file's channels. The samples are zero.
    pub fn reset(&mut self, mix: Mix, num_channels: usize, num_frames: usize) {
        self.is_mean = mix == Mix::Mean;
        self.num_channels = num_channels;
        self.num_frames = num_frames;
        self.samples.clear();
        self.samples.resize(self.num_planes() * num_frames, 0.0);
    }

    /// Frees the memory if it is more than `bytes`.
    pub fn shrink(&mut self, bytes: u64) {
        if (self.samples.capacity() * size_of::<f32>()) as u64 > bytes {
            self.samples = Vec::new();
        }
    }

    fn num_planes(&self) -> usize {
        if self.is_mean { 1 } else { self.num_channels }
    }

    /// The samples of a plane; empty if there is no such plane.
    pub fn plane(&self, index: usize) -> &[f32] {
        let start = index.saturating_mul(self.num_frames);
        self.samples.get(start..start.saturating_add(self.num_frames)).unwrap_or_default()
    }

    /// Sets samples of one channel, from the position `at` on. All channels of a range are set in ascending order. The
    /// mean is the sum of the channels in this order, divided by their number.
    pub fn put(&mut self, channel: usize, at: usize, values: impl Iterator<Item = f32>) {
        let plane = if self.is_mean { 0 } else { channel };
        let start = plane * self.num_frames + at;
        let samples = self.samples.get_mut(start..(plane + 1) * self.num_frames).unwrap_or_default();
        let is_sum = self.is_mean && channel > 0;
        match is_sum {
            false => samples.iter_mut().zip(values).for_each(|(sample, value)| *sample = value),
            true if channel + 1 < self.num_channels => {
                samples.iter_mut().zip(values).for_each(|(sample, value)| *sample += value);
            }
            true => {
                #[expect(clippy::cast_precision_loss, reason = "files have few channels")]
                let num_channels = self.num_channels as f32;
                samples.iter_mut().zip(values).for_each(|(sample, value)| *sample = (*sample + value) / num_channels);
            }
        }
    }

    /// Sets `length` samples of all channels, from the position `at` on, to those of a decoded block from `from` on.
    ///
    /// # Errors
    /// A block with another number of channels.
    pub fn put_block(
        &mut self,
        block: &GenericAudioBufferRef<'_>,
        from: usize,
        length: usize,
        at: usize,
    ) -> Result<(), BadSound> {
        if block.num_planes() != self.num_channels {
            let (before, now) = (self.num_channels, block.num_planes());
            return Err(BadSound::new(format!("the number of channels changes from {before} to {now}")));
        }
        for channel in 0..self.num_channels {
            macro_rules! put {
                ($buffer:expr, $convert:expr) => {{
                    let plane = $buffer.plane(channel).unwrap_or_default();
                    let plane = plane.get(from..(from + length).min(plane.len())).unwrap_or_default();
                    self.put(channel, at, plane.iter().map($convert));
                }};
            }
            // The divisors are powers of two, so only integers of more than 24 bits are rounded.
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "samples become float32")]
            match block {
                GenericAudioBufferRef::U8(buffer) => put!(buffer, |value| (f32::from(*value) - 128.0) / 128.0),
                GenericAudioBufferRef::S8(buffer) => put!(buffer, |value| f32::from(*value) / 128.0),
                GenericAudioBufferRef::U16(buffer) => put!(buffer, |value| (f32::from(*value) - 32768.0) / 32768.0),
                GenericAudioBufferRef::S16(buffer) => put!(buffer, |value| f32::from(*value) / 32768.0),
                GenericAudioBufferRef::U24(buffer) => {
                    put!(buffer, |value| (value.inner() as f32 - 8_388_608.0) / 8_388_608.0)
                }
                GenericAudioBufferRef::S24(buffer) => put!(buffer, |value| value.inner() as f32 / 8_388_608.0),
                GenericAudioBufferRef::U32(buffer) => {
                    put!(buffer, |value| ((f64::from(*value) - 2_147_483_648.0) / 2_147_483_648.0) as f32)
                }
                GenericAudioBufferRef::S32(buffer) => put!(buffer, |value| *value as f32 / 2_147_483_648.0),
                GenericAudioBufferRef::F32(buffer) => put!(buffer, |value| *value),
                GenericAudioBufferRef::F64(buffer) => put!(buffer, |value| *value as f32),
            }
        }
        Ok(())
    }
}
