//! Decoders by codec.

use stoker_libav::AudioCodec;
use symphonia::core::audio::GenericAudioBufferRef;
use symphonia::core::codecs::audio::well_known as codecs;
use symphonia::core::codecs::audio::{AudioCodecId, AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::packet::PacketRef;

use crate::libav_decoder::LibavDecoder;
use crate::{BadSound, LibavSource, vorbis_setup};

/// The bytes of the first header of Vorbis ("Vorbis I specification", section 4.2.2).
const VORBIS_IDENT_BYTES: usize = 30;

/// The decoder of a track. The file alone decides which one it is, so that all ranks of a stream have the same samples.
pub(crate) enum PacketDecoder {
    /// Of all that symphonia decodes.
    Symphonia(Box<dyn AudioDecoder>),
    /// Of what symphonia refuses, and libavcodec knows: AAC other than LC with one or two channels, Vorbis with more
    /// channels.
    Libav(Box<LibavDecoder>),
}

impl PacketDecoder {
    /// Makes the decoder of a track.
    ///
    /// # Errors
    /// [`BadSound`] for damaged parameters, and for codecs that are not supported, which are named; a fatal one if
    /// libavcodec is needed and missing.
    pub fn open(params: &AudioCodecParameters, libav: &LibavSource) -> Result<Self, BadSound> {
        let extra_data = params.extra_data.as_deref().unwrap_or_default();
        if params.codec == codecs::CODEC_ID_VORBIS {
            let (ident, setup) = extra_data.split_at(extra_data.len().min(VORBIS_IDENT_BYTES));
            return Self::vorbis(ident, setup, libav);
        }
        match symphonia::default::get_codecs().make_audio_decoder(params, &AudioDecoderOptions::default()) {
            Err(Error::Unsupported(_)) if params.codec == codecs::CODEC_ID_AAC && !extra_data.is_empty() => {
                let (kind, preroll) = aac_kind(extra_data);
                let decoder = LibavDecoder::open(libav, AudioCodec::Aac, &kind, extra_data, None)?;
                Ok(Self::Libav(Box::new(decoder.with_preroll(preroll))))
            }
            Err(Error::Unsupported(reason)) => {
                let name = name(params.codec);
                Err(BadSound::new(format!("the file has {name}, which is not supported in this form: {reason}")))
            }
            result => Ok(Self::Symphonia(result?)),
        }
    }

    /// Makes the decoder of a Vorbis stream with the headers `ident` and `setup`.
    ///
    /// # Errors
    /// As for [`PacketDecoder::open`].
    pub fn vorbis(ident: &[u8], setup: &[u8], libav: &LibavSource) -> Result<Self, BadSound> {
        vorbis_setup::check(setup)?;
        let channels = ident.get(11).copied().unwrap_or(0);
        if channels > vorbis_setup::CHANNELS_MAX {
            let kind = format!("Vorbis of {channels} channels");
            let headers = vorbis_setup::with_lengths(ident, setup);
            let decoder = LibavDecoder::open(libav, AudioCodec::Vorbis, &kind, &headers, Some(channels.into()))?;
            return Ok(Self::Libav(Box::new(decoder.without_first_packet())));
        }
        let mut params = AudioCodecParameters::new();
        params.for_codec(codecs::CODEC_ID_VORBIS).with_extra_data([ident, setup].concat().into_boxed_slice());
        let made = symphonia::default::get_codecs().make_audio_decoder(&params, &AudioDecoderOptions::default())?;
        Ok(Self::Symphonia(made))
    }

    /// Returns the sample rate and the number of channels, as far as they are known before a packet is decoded. `params`
    /// are those of the container; the header of the compressed stream is more reliable.
    pub fn format(&self, params: &AudioCodecParameters) -> Option<(u32, u16)> {
        let Self::Symphonia(decoder) = self else { return None };
        let decoded = decoder.codec_params();
        let channels = decoded.channels.as_ref().or(params.channels.as_ref())?.count();
        let sample_rate = decoded.sample_rate.or(params.sample_rate).unwrap_or(0);
        (channels > 0).then(|| (sample_rate, u16::try_from(channels).unwrap_or(u16::MAX)))
    }

    /// Decodes a packet, which may give no samples.
    ///
    /// # Errors
    /// [`BadSound`] for damaged packets.
    pub fn decode(&mut self, packet: &PacketRef<'_>) -> Result<GenericAudioBufferRef<'_>, BadSound> {
        match self {
            Self::Symphonia(decoder) => Ok(decoder.decode_ref(packet)?),
            Self::Libav(decoder) => decoder.decode(packet.data),
        }
    }

    /// Decodes a packet. Returns the rate of its samples and the number of their channels; `None` if it gives none.
    ///
    /// # Errors
    /// As for [`PacketDecoder::decode`].
    pub fn format_of(&mut self, packet: &PacketRef<'_>) -> Result<Option<(u32, u16)>, BadSound> {
        let samples = self.decode(packet)?;
        let channels = u16::try_from(samples.num_planes()).unwrap_or(u16::MAX);
        Ok((samples.frames() > 0).then(|| (samples.spec().rate(), channels)))
    }

    /// Forgets all packets, so that the next one may be any.
    ///
    /// # Errors
    /// [`BadSound`] if a decoder cannot be opened anew.
    pub fn reset(&mut self) -> Result<(), BadSound> {
        match self {
            Self::Symphonia(decoder) => {
                decoder.reset();
                Ok(())
            }
            Self::Libav(decoder) => decoder.reset(),
        }
    }

    /// Returns how many samples before a sample are decoded so that the sample is right. `None` if these are all samples.
    pub fn preroll(&self) -> Option<u64> {
        match self {
            Self::Symphonia(decoder) => Some(match decoder.codec_params().codec {
                codecs::CODEC_ID_AAC => AAC_PREROLL,
                codecs::CODEC_ID_MP3 => 16 * 1152,
                // FLAC, ALAC and PCM have independent blocks.
                _ => 0,
            }),
            Self::Libav(decoder) => decoder.preroll(),
        }
    }
}

/// The preroll of AAC-LC: a block of the transform overlaps with the one before it.
const AAC_PREROLL: u64 = 2 * 1024;

/// Returns the name of a kind of AAC, by its AudioSpecificConfig (ISO/IEC 14496-3, 1.6.2.1), and its preroll if it has the
/// short memory of LC.
fn aac_kind(config: &[u8]) -> (String, Option<u64>) {
    let Some(&[first, second]) = config.first_chunk::<2>() else { return ("AAC without a kind".to_string(), None) };
    let (rate, channels) = (first << 1 & 0xE | second >> 7, second >> 3 & 0xF);
    match first >> 3 {
        2 => match (rate, channels) {
            (0..=14, 3..=6) => (format!("AAC of {channels} channels"), Some(AAC_PREROLL)),
            (0..=14, 7) => ("AAC of 8 channels".to_string(), Some(AAC_PREROLL)),
            _ => ("AAC of a rare form".to_string(), Some(AAC_PREROLL)),
        },
        5 => ("HE-AAC".to_string(), None),
        29 => ("HE-AAC v2".to_string(), None),
        number => (format!("AAC of the object type {number}"), None),
    }
}

/// The name of a codec.
pub(crate) fn name(codec: AudioCodecId) -> String {
    let registered = symphonia::default::get_codecs().get_audio_decoder(codec).map(|found| found.codec.info.short_name);
    match codec {
        codecs::CODEC_ID_AC3 => "ac3".to_string(),
        codecs::CODEC_ID_EAC3 => "eac3".to_string(),
        codecs::CODEC_ID_DCA => "dts".to_string(),
        _ => registered.map_or_else(|| format!("the codec {codec}"), str::to_string),
    }
}
