//! Sound files of all formats.

use std::ops::Range;

use stoker_types::catch_panic;

use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;

use crate::blocks::{self, Blocks};
use crate::clip::SAMPLE_RATE_MAX;
use crate::codec;
use crate::container::Container;
use crate::mp3::Mp3;
use crate::ogg_packets::{self, OggCodec};
use crate::opus::{Opus, OpusPackets};
use crate::opus_decoder::OpusDecoder;
use crate::opus_head::{OPUS_RATE, OpusHead};
use crate::opus_ogg::OggPackets;
use crate::opus_track::{OpusSpan, TrackPackets};
use crate::planes::Planes;
use crate::stream::{self, SoundTrack, Stream};
use crate::vorbis::Vorbis;
use crate::wav::Wav;
use crate::{BadSound, LibavSource};

/// The content of a sound file's headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Hz.
    pub sample_rate: u32,
    /// The number of channels.
    pub channels: u16,
    /// The number of samples of each channel, without the delay and the padding of encoders. `None` if only decoding
    /// tells it. Exact for WAV, MP3, Ogg and Opus; other files may have fewer samples than their header tells.
    pub num_frames: Option<u64>,
    /// The name of the codec, such as `flac`.
    pub codec: String,
}

/// Reads the headers of a sound file. The samples are not decoded; MP3, Ogg and Opus files are searched for all their
/// frames, pages and packets.
///
/// # Errors
/// [`BadSound`] for damaged files, other files, and codecs that are not supported. A fatal one for files whose packets tell
/// their format to libavcodec only: HE-AAC, and AAC and Vorbis with more than two channels.
pub fn header(file: &[u8]) -> Result<Header, BadSound> {
    catch_panic(|| Ok(Sound::open(file, &LibavSource::default())?.header), BadSound::new)
}

/// A sound file whose headers were read.
pub(crate) struct Sound<'a> {
    pub header: Header,
    source: Source<'a>,
}

enum Source<'a> {
    Pcm(Wav<'a>),
    Blocks(Box<dyn Blocks + 'a>),
}

impl<'a> Sound<'a> {
    /// Reads the headers.
    ///
    /// # Errors
    /// [`BadSound`] for damaged files, other files, and codecs that are not supported.
    pub fn open(file: &'a [u8], libav: &LibavSource) -> Result<Self, BadSound> {
        let opened = match Container::detect(file)? {
            Container::Wav => {
                let wav = Wav::open(file)?;
                let (sample_rate, channels, num_frames) = (wav.sample_rate, wav.num_channels, Some(wav.num_samples()));
                let header = Header { sample_rate, channels, num_frames, codec: wav.encoding.name().to_string() };
                Self { header, source: Source::Pcm(wav) }
            }
            Container::Flac(offset) => Self::of_track(file, stream::Container::Flac(offset), libav)?,
            Container::Mp4 => Self::of_track(file, stream::Container::Mp4, libav)?,
            Container::Matroska => Self::of_track(file, stream::Container::Matroska, libav)?,
            Container::Ogg => Self::of_ogg(file, libav)?,
            Container::Mpeg(offset) => {
                let mut mp3 = Mp3::open(file, offset)?;
                let num_frames = Some(mp3.count()?);
                let (sample_rate, channels) = (mp3.sample_rate(), mp3.num_channels());
                let header = Header { sample_rate, channels, num_frames, codec: "mp3".to_string() };
                Self { header, source: Source::Blocks(Box::new(mp3)) }
            }
        };
        let Header { sample_rate, channels, num_frames, .. } = &opened.header;
        if !(1..=SAMPLE_RATE_MAX).contains(sample_rate) {
            let reason = format!("its header tells a sample rate of {sample_rate} Hz, not 1 to {SAMPLE_RATE_MAX}");
            return Err(BadSound::new(reason));
        }
        if *channels == 0 {
            return Err(BadSound::new("its header tells no channels"));
        }
        if *num_frames == Some(0) {
            return Err(BadSound::new("the sound has no samples"));
        }
        Ok(opened)
    }

    fn of_track(file: &'a [u8], container: stream::Container, libav: &LibavSource) -> Result<Self, BadSound> {
        let track = SoundTrack::open(file, container)?;
        if track.params.codec == CODEC_ID_OPUS {
            let (packets, OpusSpan { head, begin, end }) = TrackPackets::open(track)?;
            return Ok(Self::of_opus(Box::new(packets), head, begin..end, libav));
        }
        let stream = Stream::open(track, libav)?;
        let (sample_rate, channels, num_frames) = (stream.sample_rate, stream.num_channels, stream.num_samples);
        let header = Header { sample_rate, channels, num_frames, codec: codec::name(stream.codec_id) };
        Ok(Self { header, source: Source::Blocks(Box::new(stream)) })
    }

    fn of_ogg(file: &'a [u8], libav: &LibavSource) -> Result<Self, BadSound> {
        let (stream, headers) = ogg_packets::Stream::open(file)?;
        match stream.codec {
            OggCodec::Vorbis => {
                let mut vorbis = Vorbis::open(stream, &headers, libav)?;
                let num_frames = Some(vorbis.count()?);
                let (sample_rate, channels) = (vorbis.sample_rate, vorbis.num_channels);
                let header = Header { sample_rate, channels, num_frames, codec: "vorbis".to_string() };
                Ok(Self { header, source: Source::Blocks(Box::new(vorbis)) })
            }
            OggCodec::Opus => {
                let (packets, head) = OggPackets::open(stream, &headers)?;
                let span = head.pre_skip.into()..packets.end();
                Ok(Self::of_opus(Box::new(packets), head, span, libav))
            }
        }
    }

    /// The sound of some packets that lies in a range of positions.
    fn of_opus(packets: Box<dyn OpusPackets + 'a>, head: OpusHead, span: Range<i64>, libav: &LibavSource) -> Self {
        let num_frames = Some(u64::try_from(span.end.saturating_sub(span.start)).unwrap_or(0));
        let header =
            Header { sample_rate: OPUS_RATE, channels: head.num_channels, num_frames, codec: "opus".to_string() };
        let opus = Opus::new(packets, OpusDecoder::new(head, libav), span);
        Self { header, source: Source::Blocks(Box::new(opus)) }
    }

    /// Returns the number of samples of each channel. If the headers do not tell it, packets are counted.
    ///
    /// # Errors
    /// [`BadSound`] for damaged files.
    pub fn num_frames(&mut self) -> Result<u64, BadSound> {
        match (self.header.num_frames, &mut self.source) {
            (Some(num_frames), _) => Ok(num_frames),
            (None, Source::Pcm(wav)) => Ok(wav.num_samples()),
            (None, Source::Blocks(blocks)) => blocks.count(),
        }
    }

    /// Decodes a range of samples into `planes`, from their start on. Returns the position after the last sample of the
    /// range, or the end of the sound if that comes first, which may be before the range.
    ///
    /// # Errors
    /// [`BadSound`] for damage inside the range.
    pub fn read(&mut self, range: Range<u64>, planes: &mut Planes) -> Result<u64, BadSound> {
        match &mut self.source {
            Source::Pcm(wav) => Ok(wav.read(range, planes)),
            Source::Blocks(blocks) => blocks::read(&mut **blocks, range, planes),
        }
    }
}
