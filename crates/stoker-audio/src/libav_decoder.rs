//! Packets of AAC and Vorbis become samples, by libavcodec.

use stoker_libav::{AudioCodec, AudioDecoder, DecodeError, SampleFrame};
use symphonia::core::audio::{Audio as _, AudioBuffer, AudioMut as _, AudioSpec, Channels, GenericAudioBufferRef};

use crate::{BadSound, LibavSource};

/// The most samples of each channel that a packet of AAC-LC has. Packets with more have bands that were replicated (SBR).
const LC_SAMPLES_MAX: usize = 1024;

/// Opens the decoder of a stream.
type Open = Box<dyn Fn() -> Result<AudioDecoder, BadSound> + Send>;

/// A decoder of one stream, which gives the samples of each packet at once.
pub(crate) struct LibavDecoder {
    decoder: AudioDecoder,
    open: Open,
    samples: AudioBuffer<f32>,
    /// The preroll of a stream whose packets have at most [`LC_SAMPLES_MAX`] samples.
    preroll: Option<u64>,
    /// Whether a packet had more samples.
    has_long_packets: bool,
    /// Whether the first packet after the beginning and after a reset gives no samples.
    drops_first: bool,
    is_first: bool,
}

impl LibavDecoder {
    /// Opens a decoder of what messages call `kind`; the other arguments are those of [`AudioDecoder::new`].
    ///
    /// # Errors
    /// A fatal [`BadSound`] if there is no library, or one without this decoder; [`BadSound`] for damaged extradata.
    pub fn open(
        source: &LibavSource,
        codec: AudioCodec,
        kind: &str,
        extradata: &[u8],
        num_channels: Option<usize>,
    ) -> Result<Self, BadSound> {
        let libav = source.get(kind)?;
        let (kind, extradata) = (kind.to_string(), extradata.to_vec());
        let open: Open = Box::new(move || {
            AudioDecoder::new(&libav, codec, &extradata, num_channels).map_err(|error| match error {
                DecodeError::NoDecoder { .. } => {
                    BadSound::fatal(format!("the file has {kind}: {error}, from {}", libav.place()))
                }
                error => error.into(),
            })
        });
        Ok(Self {
            decoder: open()?,
            open,
            samples: AudioBuffer::default(),
            preroll: None,
            has_long_packets: false,
            drops_first: false,
            is_first: true,
        })
    }

    /// Returns the decoder with another preroll; it has no limited one before.
    pub fn with_preroll(self, preroll: Option<u64>) -> Self {
        Self { preroll, ..self }
    }

    /// Returns a decoder that drops the samples of the first packet, if the library gives any: those of Vorbis overlap with
    /// a packet before it.
    pub fn without_first_packet(self) -> Self {
        Self { drops_first: true, ..self }
    }

    /// Decodes a packet, which may give no samples.
    ///
    /// # Errors
    /// [`BadSound`] for damaged packets, and for a packet whose samples have several formats.
    pub fn decode(&mut self, packet: &[u8]) -> Result<GenericAudioBufferRef<'_>, BadSound> {
        self.samples.clear();
        self.decoder.send(packet)?;
        while let Some(frame) = self.decoder.receive()? {
            append(&mut self.samples, &frame)?;
        }
        self.has_long_packets |= self.samples.frames() > LC_SAMPLES_MAX;
        if std::mem::take(&mut self.is_first) && self.drops_first {
            self.samples.clear();
        }
        Ok(GenericAudioBufferRef::F32(&self.samples))
    }

    /// Forgets all packets, so that the next one may be any.
    ///
    /// # Errors
    /// [`BadSound`] if the decoder of a stream with replicated bands cannot be opened anew.
    pub fn reset(&mut self) -> Result<(), BadSound> {
        self.is_first = true;
        // libavcodec keeps what it knows of replicated bands when it is reset.
        if self.has_long_packets {
            self.decoder = (self.open)()?;
        } else {
            self.decoder.reset();
        }
        Ok(())
    }

    /// Returns how many samples before a sample are decoded so that the sample is right. `None` if these are all samples:
    /// what replicates bands is told by packets far before.
    pub fn preroll(&self) -> Option<u64> {
        self.preroll.filter(|_| !self.has_long_packets)
    }
}

/// Adds the samples of a frame.
fn append(samples: &mut AudioBuffer<f32>, frame: &SampleFrame<'_>) -> Result<(), BadSound> {
    if frame.num_samples() == 0 {
        return Ok(());
    }
    let (channels, rate) = (frame.num_channels(), frame.sample_rate());
    let spec = AudioSpec::new(rate, Channels::Discrete(u16::try_from(channels).unwrap_or(u16::MAX)));
    let begin = samples.frames();
    if *samples.spec() != spec {
        if begin > 0 {
            return Err(BadSound::new("the samples of a packet have several formats"));
        }
        *samples = AudioBuffer::new(spec, frame.num_samples());
    }
    let end = begin + frame.num_samples();
    samples.grow_capacity(end);
    samples.resize_with_silence(end);
    for channel in 0..channels {
        let places = samples.plane_mut(channel).and_then(|plane| plane.get_mut(begin..)).unwrap_or_default();
        places.iter_mut().zip(frame.channel(channel)).for_each(|(place, sample)| *place = sample);
    }
    Ok(())
}
