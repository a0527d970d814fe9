//! Decodes a clip of a file.

use std::ops::Range;

use stoker_types::catch_panic;

use crate::planes::Mix;
use crate::resample::Conversion;
use crate::scratch::Scratch;
use crate::sound::Sound;
use crate::{AudioClip, BadSound, Start};

/// The bytes of one sample.
const SAMPLE_BYTES: usize = size_of::<f32>();

/// The latest start, in samples of the tensor. All numbers up to it are exact in `f64`.
const START_MAX: u64 = 1 << 52;

impl AudioClip {
    /// Decodes one file into a tensor, and returns how many samples of each channel are sound: at least one, at most all.
    /// The samples after them are zero.
    ///
    /// `out` gets the tensor's [`row_bytes`](AudioClip::row_bytes): the channels one after the other, in native byte order.
    /// `start` is the position in seconds for [`Start::Column`], and ignored otherwise. `draw` is a number from 0 to 1
    /// (exclusive) that chooses the position for [`Start::Random`], and ignored otherwise. The result depends on nothing
    /// but the arguments; resampled values may differ in their last bits between processors, which have different
    /// instructions.
    ///
    /// The tensor's sample `k` is the sound at `start + k / sample_rate`. A clip has the same samples as a longer clip
    /// of the same file at its place, bit by bit, except where a codec has noise of its own (AAC), or never forgets its past
    /// as a whole (Opus, about 1e-6).
    ///
    /// Only the part of the file that the clip needs is decoded, and at most [`AudioClip::bytes_max`] bytes of samples
    /// are held. Matroska files, and MP4 files whose time scale is not the sample rate, are decoded from their beginning,
    /// except those with Opus; HE-AAC always is. Opus, HE-AAC, and AAC and Vorbis with more than two channels need
    /// libavcodec, from [`Scratch::new`].
    ///
    /// # Errors
    /// A fatal [`BadSound`] if libavcodec is missing. [`BadSound`] for files of unknown formats and codecs, for damage that
    /// decoders report inside the clip, for clips that start after the end of the sound, and for files with other channels
    /// than the clip. Missing samples at the
    /// end of a file are no error where the format allows to leave them out: WAV, MP3, Ogg.
    pub fn decode(
        &self,
        scratch: &mut Scratch,
        file: &[u8],
        start: Option<f64>,
        draw: f64,
        out: &mut [u8],
    ) -> Result<usize, BadSound> {
        let result = catch_panic(|| self.decode_clip(scratch, file, start, draw, out), BadSound::new);
        scratch.shrink();
        result
    }

    fn decode_clip(
        &self,
        scratch: &mut Scratch,
        file: &[u8],
        start: Option<f64>,
        draw: f64,
        out: &mut [u8],
    ) -> Result<usize, BadSound> {
        if out.len() != self.row_bytes() {
            let (expected, found) = (self.row_bytes(), out.len());
            return Err(BadSound::new(format!("the clip has {expected} bytes, and its place {found}")));
        }
        let mut sound = Sound::open(file, &scratch.libav)?;
        let channels = sound.header.channels;
        let mix = self.mix(channels)?;
        let num_planes = if mix == Mix::Mean { 1 } else { usize::from(channels) };
        let conversion = Conversion::new(sound.header.sample_rate, self.sample_rate);
        let mut range = self.range(&mut sound, &conversion, start, draw)?;
        let mut source = conversion.source(&range);
        if let Some(num_frames) = sound.header.num_frames {
            source.end = source.end.min(num_frames).max(source.start);
        }
        let bytes = (source.end - source.start).saturating_mul(num_planes as u64).saturating_mul(SAMPLE_BYTES as u64);
        let bytes = bytes.saturating_add(conversion.bytes());
        if bytes > self.bytes_max {
            let (before, after, limit) = (sound.header.sample_rate, self.sample_rate, self.bytes_max);
            let reason =
                format!("the samples of the clip take {bytes} bytes at {before} Hz and on the way to {after} Hz");
            return Err(BadSound::new(format!("{reason}, more than the limit of {limit}")));
        }
        scratch.planes.reset(mix, channels.into(), usize::try_from(source.end - source.start).unwrap_or(0));
        let end = sound.read(source.clone(), &mut scratch.planes)?;
        let num_frames = if end < source.end { Some(end) } else { sound.header.num_frames };
        if let Some(total) = num_frames.map(|num_frames| conversion.length(num_frames)) {
            self.check_start(range.start, total)?;
            range.end = range.end.min(total);
        }
        self.write(scratch, conversion, &range, num_planes, out)
    }

    /// Tells how the channels of a file become those of the clip.
    fn mix(&self, channels: u16) -> Result<Mix, BadSound> {
        match self.channels {
            1 => Ok(Mix::Mean),
            wanted if wanted == channels || channels == 1 => Ok(Mix::Separate),
            wanted => Err(BadSound::new(format!("it has {channels} channels, and the clip {wanted}"))),
        }
    }

    /// Chooses the samples of the clip, as positions at the rate of the tensor. They may go beyond the end of the sound.
    fn range(
        &self,
        sound: &mut Sound<'_>,
        conversion: &Conversion,
        start: Option<f64>,
        draw: f64,
    ) -> Result<Range<u64>, BadSound> {
        let [_, samples] = self.shape();
        let samples = samples as u64;
        let seconds = match &self.start {
            Start::Seconds(seconds) => *seconds,
            Start::Column(column) => {
                start.ok_or_else(|| BadSound::new(format!("the row has no start in column {column}")))?
            }
            Start::Random => {
                if !(0.0..1.0).contains(&draw) {
                    return Err(BadSound::new(format!("the random number {draw} is not from 0 to 1")));
                }
                let total = conversion.length(sound.num_frames()?).min(START_MAX);
                let start = uniform(draw, total.saturating_sub(samples));
                return Ok(start..start + samples);
            }
        };
        if !(seconds.is_finite() && seconds >= 0.0) {
            return Err(BadSound::new(format!("the clip starts at {seconds} s, which is not in the sound")));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates")]
        let start = ((seconds * f64::from(self.sample_rate)).round() as u64).min(START_MAX);
        if let Some(num_frames) = sound.header.num_frames {
            self.check_start(start, conversion.length(num_frames))?;
        }
        Ok(start..start + samples)
    }

    /// Refuses clips that start at the end of the sound or after it.
    fn check_start(&self, start: u64, total: u64) -> Result<(), BadSound> {
        if start < total {
            return Ok(());
        }
        #[expect(clippy::cast_precision_loss, reason = "the text is for people")]
        let seconds = |position: u64| position as f64 / f64::from(self.sample_rate);
        let (start, end) = (seconds(start), seconds(total));
        Err(BadSound::new(format!("the clip starts at {start} s, and the sound ends at {end} s")))
    }

    /// Resamples the decoded samples into `out`. Returns the number of samples.
    fn write(
        &self,
        scratch: &mut Scratch,
        conversion: Conversion,
        range: &Range<u64>,
        num_planes: usize,
        out: &mut [u8],
    ) -> Result<usize, BadSound> {
        let [_, samples] = self.shape();
        let valid = usize::try_from(range.end - range.start).unwrap_or(0).min(samples);
        let (planes, mut resampler) = scratch.parts(conversion)?;
        let channel_bytes = samples * SAMPLE_BYTES;
        for (index, out) in out.chunks_exact_mut(channel_bytes).take(num_planes).enumerate() {
            let plane = planes.plane(index);
            match &mut resampler {
                None => put(out, 0, plane.get(..valid).unwrap_or(plane)),
                Some(resampler) => resampler.convert(range, plane, |at, part| put(out, at, part))?,
            }
            out.get_mut(valid * SAMPLE_BYTES..).unwrap_or_default().fill(0);
        }
        for channel in num_planes..usize::from(self.channels) {
            out.copy_within(..channel_bytes, channel * channel_bytes);
        }
        Ok(valid)
    }
}

/// Chooses one of the numbers from 0 to `last`, with equal probability.
fn uniform(draw: f64, last: u64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "the product is from 0 to `last` + 1, and files have fewer than 2^53 samples"
    )]
    let chosen = (draw * (last as f64 + 1.0)) as u64;
    chosen.min(last)
}

/// Writes samples in native byte order, after `at` other samples.
fn put(out: &mut [u8], at: usize, samples: &[f32]) {
    let (places, _) = out.get_mut(at * SAMPLE_BYTES..).unwrap_or_default().as_chunks_mut::<SAMPLE_BYTES>();
    places.iter_mut().zip(samples).for_each(|(place, sample)| *place = sample.to_ne_bytes());
}
