//! Opus packets become samples, by libavcodec.

use stoker_libav::{AudioCodec, AudioDecoder, DecodeError};
use symphonia::core::audio::{AudioBuffer, AudioMut as _, AudioSpec, Channels, GenericAudioBufferRef};

use crate::opus_head::{OPUS_RATE, OpusHead};
use crate::{BadSound, LibavSource};

/// A decoder of one stream. The library is loaded for the first packet.
pub(crate) struct OpusDecoder {
    head: OpusHead,
    source: LibavSource,
    decoder: Option<AudioDecoder>,
    samples: AudioBuffer<f32>,
}

impl OpusDecoder {
    pub fn new(head: OpusHead, source: &LibavSource) -> Self {
        let spec = AudioSpec::new(OPUS_RATE, Channels::Discrete(head.num_channels));
        Self { head, source: source.clone(), decoder: None, samples: AudioBuffer::new(spec, 0) }
    }

    /// Gives the decoder the next packet. All samples of the packets before were received.
    ///
    /// # Errors
    /// [`BadSound`] for damaged packets; a fatal one if there is no library.
    pub fn send(&mut self, packet: &[u8]) -> Result<(), BadSound> {
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            None => self.decoder.insert(open(&self.head, &self.source)?),
        };
        Ok(decoder.send(packet)?)
    }

    /// Tells the decoder that no packets follow.
    pub fn flush(&mut self) {
        if let Some(decoder) = &mut self.decoder {
            decoder.flush();
        }
    }

    /// Receives the next samples. Returns their number, which is zero when the decoder needs a packet or is at the end.
    ///
    /// # Errors
    /// [`BadSound`] for damaged packets.
    pub fn receive(&mut self) -> Result<usize, BadSound> {
        self.samples.clear();
        let Some(decoder) = &mut self.decoder else { return Ok(0) };
        while let Some(frame) = decoder.receive()? {
            let num_samples = frame.num_samples();
            if num_samples == 0 {
                continue;
            }
            self.samples.grow_capacity(num_samples);
            self.samples.resize_with_silence(num_samples);
            for channel in 0..usize::from(self.head.num_channels) {
                let places = self.samples.plane_mut(channel).unwrap_or_default();
                places.iter_mut().zip(frame.channel(channel)).for_each(|(place, sample)| *place = sample);
            }
            return Ok(num_samples);
        }
        Ok(0)
    }

    /// The samples that were received last.
    pub fn samples(&self) -> GenericAudioBufferRef<'_> {
        GenericAudioBufferRef::F32(&self.samples)
    }

    /// Forgets all packets, so that the next one may be any.
    pub fn reset(&mut self) {
        if let Some(decoder) = &mut self.decoder {
            decoder.reset();
        }
    }
}

fn open(head: &OpusHead, source: &LibavSource) -> Result<AudioDecoder, BadSound> {
    let libav = source.get("Opus")?;
    let num_channels = usize::from(head.num_channels);
    AudioDecoder::new(&libav, AudioCodec::Opus, &head.without_skip(), Some(num_channels)).map_err(|error| match error {
        DecodeError::NoDecoder { .. } => BadSound::fatal(format!("the file has Opus: {error}, from {}", libav.place())),
        error => error.into(),
    })
}
