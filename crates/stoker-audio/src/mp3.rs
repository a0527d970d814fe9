//! MP3 files: frames of MPEG audio, layer III.

use symphonia::core::codecs::audio::well_known::CODEC_ID_MP3;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder as _, AudioDecoderOptions};
use symphonia::core::packet::PacketRef;
use symphonia::core::units::{Duration, Timestamp};
use symphonia::default::codecs::MpaDecoder;

use crate::BadSound;
use crate::blocks::{Blocks, SoundBlock};
use crate::container::id3_bytes;
use crate::mpeg_frame::Frame;
use crate::xing_tag::XingTag;

/// A frame may use main data from this many bytes before it (ISO/IEC 11172-3, 2.4.2.7: `main_data_begin` has nine bits).
const RESERVOIR_BYTES: usize = 511;

/// Frames before a frame that change its samples apart from its main data: by the overlap of the transform, and by the
/// state of the filter bank.
const OVERLAP_FRAMES: usize = 2;

/// An MP3 file whose frames were found.
///
/// Positions are exact, as all frames are counted, so a wrong or missing Xing tag does no harm. With LAME's tag, the
/// delay of the encoder and the padding are removed, as libsndfile and FFmpeg do. Bytes that are no frames are skipped.
pub(crate) struct Mp3<'a> {
    file: &'a [u8],
    first: Frame,
    /// The offsets of the frames.
    offsets: Vec<usize>,
    delay: u64,
    num_samples: u64,
    decoder: MpaDecoder,
    /// The index of the frame that is decoded next.
    next: usize,
}

impl<'a> Mp3<'a> {
    /// Finds the frames of a file from an offset on.
    ///
    /// # Errors
    /// [`BadSound`] for files without frames, and if the format of the frames changes.
    pub fn open(file: &'a [u8], start: usize) -> Result<Self, BadSound> {
        let mut offsets = Vec::new();
        let mut found: Option<Frame> = None;
        let mut tag = None;
        let mut at = start;
        while let Some((offset, frame)) = next_frame(file, at, found.as_ref()) {
            at = offset + frame.bytes;
            let bytes = file.get(offset..at).unwrap_or_default();
            if let Some(first) = &found {
                check_same(first, &frame)?;
            } else {
                found = Some(frame);
                tag = XingTag::read(frame, bytes);
                if tag.is_some() {
                    continue;
                }
            }
            offsets.push(offset);
        }
        let first = found.ok_or_else(|| BadSound::new("the MP3 file has no frames"))?;
        let XingTag { num_frames, delay, padding } = tag.unwrap_or_default();
        let has_end = num_frames.is_none_or(|num_frames| offsets.len() as u64 >= num_frames);
        let trimmed = delay + if has_end { padding } else { 0 };
        let num_samples = (offsets.len() as u64 * u64::from(first.num_samples)).saturating_sub(trimmed);
        let decoder = decoder()?;
        Ok(Self { file, first, offsets, delay, num_samples, decoder, next: 0 })
    }

    pub fn sample_rate(&self) -> u32 {
        self.first.sample_rate
    }

    pub fn num_channels(&self) -> u16 {
        self.first.num_channels
    }

    fn frame(&self, index: usize) -> Option<(Frame, &'a [u8])> {
        let bytes = self.file.get(*self.offsets.get(index)?..)?;
        let frame = Frame::parse(bytes)?;
        Some((frame, bytes.get(..frame.bytes)?))
    }
}

impl Blocks for Mp3<'_> {
    fn seek(&mut self, position: u64) -> Result<(), BadSound> {
        let target = (position + self.delay) / u64::from(self.first.num_samples);
        let target = usize::try_from(target).unwrap_or(usize::MAX).min(self.offsets.len());
        let mut index = target.saturating_sub(OVERLAP_FRAMES);
        let mut reservoir = 0;
        while index > 0 && reservoir < RESERVOIR_BYTES {
            index -= 1;
            reservoir += self.frame(index).map_or(0, |(frame, _)| frame.main_bytes());
        }
        self.next = index;
        self.decoder.reset();
        Ok(())
    }

    fn next_block(&mut self) -> Result<Option<SoundBlock<'_>>, BadSound> {
        let Some((frame, bytes)) = self.frame(self.next) else { return Ok(None) };
        let length = u64::from(frame.num_samples);
        let start = (self.next as u64).saturating_mul(length);
        self.next += 1;
        // The padding is not part of the sound.
        let end = self.delay + self.num_samples;
        let length = length.min(end.saturating_sub(start));
        if length == 0 {
            return Ok(None);
        }
        let position = i64::try_from(start).unwrap_or(i64::MAX).saturating_sub_unsigned(self.delay);
        let packet = PacketRef::new(0, Timestamp::new(0), Duration::new(length), bytes);
        let samples = self.decoder.decode_ref(&packet).map_err(BadSound::from);
        Ok(Some(SoundBlock { position, length, samples }))
    }

    fn count(&mut self) -> Result<u64, BadSound> {
        Ok(self.num_samples)
    }
}

fn decoder() -> Result<MpaDecoder, BadSound> {
    let mut params = AudioCodecParameters::new();
    params.for_codec(CODEC_ID_MP3);
    Ok(MpaDecoder::try_new(&params, &AudioDecoderOptions::default())?)
}

/// Returns the next frame that lies in the file as a whole, at or after an offset. A frame that does not follow
/// another one directly must be followed by a frame like it.
fn next_frame(file: &[u8], start: usize, first: Option<&Frame>) -> Option<(usize, Frame)> {
    let rest = file.get(start..)?;
    // Files may be joined with their tags.
    let start = start + id3_bytes(rest);
    let rest = file.get(start..)?;
    if let Some(first) = first
        && let Some(frame) = Frame::parse(rest).filter(|frame| rest.len() >= frame.bytes)
        && (check_same(first, &frame).is_ok() || Frame::follows(rest))
    {
        return Some((start, frame));
    }
    let mut offsets = rest.iter().enumerate().filter(|(_, byte)| **byte == 0xFF).map(|(offset, _)| offset);
    offsets.find_map(|offset| {
        let rest = rest.get(offset..)?;
        let frame = Frame::parse(rest).filter(|_| Frame::follows(rest))?;
        first.is_none_or(|first| first.is_like(&frame)).then_some((start + offset, frame))
    })
}

fn check_same(first: &Frame, frame: &Frame) -> Result<(), BadSound> {
    if !frame.is_like(first) {
        let (before, now) = (first.sample_rate, frame.sample_rate);
        return Err(BadSound::new(format!("the sample rate changes from {before} to {now} Hz")));
    }
    if frame.num_channels != first.num_channels {
        let (before, now) = (first.num_channels, frame.num_channels);
        return Err(BadSound::new(format!("the number of channels changes from {before} to {now}")));
    }
    Ok(())
}
