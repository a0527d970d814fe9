//! Decoders by codec.

use symphonia::core::codecs::audio::well_known as codecs;
use symphonia::core::codecs::audio::{AudioCodecId, AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;

use crate::{BadSound, vorbis_setup};

/// Makes the decoder of a track.
///
/// # Errors
/// [`BadSound`] for damaged parameters, and for codecs that are not supported, which are named.
pub(crate) fn open(params: &AudioCodecParameters) -> Result<Box<dyn AudioDecoder>, BadSound> {
    if params.codec == codecs::CODEC_ID_VORBIS {
        let channels = params.channels.as_ref().map_or(0, |channels| channels.count());
        vorbis_setup::check_channels(channels)?;
        vorbis_setup::check(params.extra_data.as_deref().unwrap_or_default())?;
    }
    let options = AudioDecoderOptions::default();
    match symphonia::default::get_codecs().make_audio_decoder(params, &options) {
        Err(Error::Unsupported(reason)) => {
            let name = name(params.codec);
            Err(BadSound::new(format!("the file has {name}, which is not supported in this form: {reason}")))
        }
        result => Ok(result?),
    }
}

/// Returns how many samples before a sample are decoded so that the sample is right.
pub(crate) fn preroll(codec: AudioCodecId) -> u64 {
    match codec {
        // A block of the transform overlaps with the one before it.
        codecs::CODEC_ID_AAC => 2 * 1024,
        codecs::CODEC_ID_MP3 => 16 * 1152,
        // FLAC, ALAC and PCM have independent blocks.
        _ => 0,
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
