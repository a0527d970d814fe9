//! Decoders of compressed sound.
#![expect(unsafe_code, reason = "reads structures of a C library")]

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use crate::frame::{field, held_bytes};
use crate::layout::{frame, parameters, sample_format};
use crate::raw_decoder::{DecoderSetup, RawDecoder};
use crate::{DecodeError, Libav};

/// The most channels of a stream. Frames of more channels keep their planes elsewhere.
pub const SOUND_CHANNELS_MAX: usize = 8;

/// The most samples of a channel in a frame.
const FRAME_SAMPLES_MAX: i64 = 1 << 16;

/// A format of compressed sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AudioCodec {
    /// RFC 6716 and RFC 8251.
    Opus,
    /// Advanced Audio Coding of all kinds, ISO/IEC 14496-3.
    Aac,
    /// Vorbis I.
    Vorbis,
}

impl AudioCodec {
    fn c_name(self) -> &'static CStr {
        match self {
            AudioCodec::Opus => c"opus",
            AudioCodec::Aac => c"aac",
            AudioCodec::Vorbis => c"vorbis",
        }
    }

    /// The names of the decoders, the preferred one first.
    fn decoders(self) -> &'static [&'static CStr] {
        match self {
            AudioCodec::Opus => &[c"opus", c"libopus"],
            AudioCodec::Aac => &[c"aac"],
            AudioCodec::Vorbis => &[c"vorbis"],
        }
    }
}

/// A decoder of one stream of sound. After [`AudioDecoder::reset`] it decodes from another packet.
pub struct AudioDecoder {
    /// `None` if each frame has as many channels as it has planes.
    num_channels: Option<usize>,
    raw: RawDecoder,
}

impl AudioDecoder {
    /// Opens a decoder. `extradata` is the configuration that the container keeps beside the packets: for Opus the
    /// identification header (RFC 7845, section 5.1), for AAC the AudioSpecificConfig, for Vorbis the three headers as
    /// Matroska keeps them. `num_channels` is the number of channels that it tells, from 1 to [`SOUND_CHANNELS_MAX`];
    /// with `None`, decoders must return planes, whose number is that of the channels.
    ///
    /// # Errors
    /// [`DecodeError::NoDecoder`]; [`DecodeError::Open`] for damaged extradata and for more channels.
    pub fn new(
        libav: &Arc<Libav>,
        codec: AudioCodec,
        extradata: &[u8],
        num_channels: Option<usize>,
    ) -> Result<Self, DecodeError> {
        let setup = DecoderSetup {
            codec: codec.c_name(),
            decoders: codec.decoders(),
            media_type: parameters::TYPE_AUDIO,
            extradata,
            options: &[
                (c"threads", 1),
                (c"max_samples", FRAME_SAMPLES_MAX),
                (c"request_sample_fmt", sample_format::FLOAT.into()),
            ],
        };
        if let Some(num_channels) = num_channels.filter(|number| !(1..=SOUND_CHANNELS_MAX).contains(number)) {
            let reason = format!("it has {num_channels} channels, not 1 to {SOUND_CHANNELS_MAX}");
            let codec = codec.c_name().to_str().unwrap_or_default();
            return Err(DecodeError::Open { codec, reason });
        }
        Ok(Self { num_channels, raw: RawDecoder::new(libav, &setup)? })
    }

    /// Gives the decoder the next packet.
    ///
    /// # Errors
    /// [`DecodeError::Packet`] for damaged packets. [`DecodeError::Full`] when samples must be received first; the packet
    /// was not taken then.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.raw.send(bytes, 0, true)
    }

    /// Tells the decoder that no packets follow, so that it returns the samples that it holds back. After the last ones,
    /// only [`AudioDecoder::reset`] makes the decoder useful again.
    pub fn flush(&mut self) {
        self.raw.flush();
    }

    /// Returns the next samples, or `None` when the decoder needs a packet or is at the end.
    ///
    /// # Errors
    /// [`DecodeError::Frame`] for damaged packets, and for frames with another form than expected.
    pub fn receive(&mut self) -> Result<Option<SampleFrame<'_>>, DecodeError> {
        let num_channels = self.num_channels;
        let Some(frame) = self.raw.receive()? else { return Ok(None) };
        // Decoders tell the rate of their samples here, which may be twice that of the extradata.
        let sample_rate = u32::try_from(self.raw.get(c"ar")).unwrap_or(0);
        // SAFETY: the frame stays unchanged until the next call, which needs `&mut self`.
        unsafe { SampleFrame::read(self.raw.libav(), frame, num_channels, sample_rate) }.map(Some)
    }

    /// Drops all packets and samples, so that the next packet may be any.
    pub fn reset(&mut self) {
        self.raw.reset();
    }
}

/// How the samples of a frame lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SampleLayout {
    /// One plane of 32-bit floats for each channel.
    PlanarFloat,
    /// One plane of 32-bit floats, the channels in turn.
    Float,
    /// One plane of signed 16-bit integers, the channels in turn.
    Short,
}

/// Decoded samples, which the decoder lends until it is asked for the next ones.
#[derive(Clone, Copy, Debug)]
pub struct SampleFrame<'a> {
    num_samples: usize,
    num_channels: usize,
    sample_rate: u32,
    layout: SampleLayout,
    planes: [&'a [u8]; SOUND_CHANNELS_MAX],
}

impl<'a> SampleFrame<'a> {
    /// The number of samples of each channel.
    pub fn num_samples(&self) -> usize {
        self.num_samples
    }

    /// The number of channels.
    pub fn num_channels(&self) -> usize {
        self.num_channels
    }

    /// The sample rate in Hz; 0 if the decoder does not tell it.
    pub fn sample_rate(&self) -> u32 {
        self.sample_rate
    }

    /// Returns the samples of a channel from -1 to 1; none if there is no such channel. The channels have FFmpeg's order.
    pub fn channel(&self, index: usize) -> impl Iterator<Item = f32> + use<'a> {
        let layout = self.layout;
        let (plane, place, step) = match layout {
            SampleLayout::PlanarFloat => (self.planes.get(index).copied().unwrap_or_default(), 0, 1),
            SampleLayout::Float | SampleLayout::Short => {
                let plane = if index < self.num_channels { self.planes[0] } else { &[] };
                (plane, index, self.num_channels)
            }
        };
        let sample_bytes = layout.sample_bytes();
        plane.chunks_exact(sample_bytes).skip(place).step_by(step).map(move |sample| match (layout, sample) {
            (SampleLayout::Short, &[low, high]) => f32::from(i16::from_ne_bytes([low, high])) / 32768.0,
            (_, &[a, b, c, d]) => f32::from_ne_bytes([a, b, c, d]),
            _ => 0.0,
        })
    }

    /// Reads an `AVFrame` that a decoder filled.
    ///
    /// # Safety
    /// `raw` must be an `AVFrame` of the library, which is unchanged during `'a`.
    unsafe fn read(
        libav: &Libav,
        raw: *mut c_void,
        num_channels: Option<usize>,
        sample_rate: u32,
    ) -> Result<Self, DecodeError> {
        let bad = |reason: String| DecodeError::Frame { reason };
        // SAFETY: the fields lie at these offsets of every `AVFrame`, see `layout.rs`.
        let (count, number) = unsafe { (field::<i32>(raw, frame::NB_SAMPLES), field::<i32>(raw, frame::FORMAT)) };
        let num_samples = usize::try_from(count).map_err(|_| bad(format!("it has {count} samples")))?;
        let layout = match number {
            sample_format::PLANAR_FLOAT => SampleLayout::PlanarFloat,
            sample_format::FLOAT => SampleLayout::Float,
            sample_format::SHORT => SampleLayout::Short,
            _ => return Err(bad(format!("its samples have the format {number}, which is not supported"))),
        };
        let is_planar = layout == SampleLayout::PlanarFloat;
        let num_channels = match num_channels {
            Some(num_channels) => num_channels,
            // SAFETY: as the caller guarantees.
            None if is_planar => unsafe { num_planes(raw) }?,
            None => return Err(bad("its channels are in one plane, so that their number is not known".to_string())),
        };
        let (num_planes, per_plane) = if is_planar { (num_channels, 1) } else { (1, num_channels) };
        let length = num_samples.checked_mul(per_plane * layout.sample_bytes());
        let length = length.ok_or_else(|| bad(format!("it has {num_samples} samples")))?;
        let mut planes: [&[u8]; SOUND_CHANNELS_MAX] = [&[]; SOUND_CHANNELS_MAX];
        for (index, plane) in planes.iter_mut().enumerate().take(num_planes) {
            // SAFETY: as the caller guarantees; the planes of up to eight channels are in `data`.
            *plane = unsafe { held_bytes(libav, raw, index, length) }?;
        }
        Ok(Self { num_samples, num_channels, sample_rate, layout, planes })
    }
}

/// Returns the number of planes of a frame.
///
/// # Errors
/// [`DecodeError::Frame`] for frames without planes, and with more than [`SOUND_CHANNELS_MAX`].
///
/// # Safety
/// `raw` must be an `AVFrame` of the library.
unsafe fn num_planes(raw: *mut c_void) -> Result<usize, DecodeError> {
    // SAFETY: see `layout.rs`. The pointers of planes that a frame does not have are null; those of more planes than have
    // room in the frame lie elsewhere, and so do all others then.
    let (planes, others) = unsafe {
        (field::<[*mut u8; SOUND_CHANNELS_MAX]>(raw, frame::DATA), field::<*mut c_void>(raw, frame::EXTENDED_DATA))
    };
    let num_planes = planes.iter().take_while(|plane| !plane.is_null()).count();
    match num_planes {
        0 => Err(DecodeError::Frame { reason: "it has no planes".to_string() }),
        // SAFETY: `data` lies in the frame.
        _ if others != unsafe { raw.byte_add(frame::DATA) } => {
            Err(DecodeError::Frame { reason: format!("it has more than {SOUND_CHANNELS_MAX} channels") })
        }
        _ => Ok(num_planes),
    }
}

impl SampleLayout {
    fn sample_bytes(self) -> usize {
        match self {
            SampleLayout::PlanarFloat | SampleLayout::Float => size_of::<f32>(),
            SampleLayout::Short => size_of::<i16>(),
        }
    }
}
