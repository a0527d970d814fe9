//! Files that symphonia's readers take apart: FLAC, MP4, Matroska.

use symphonia::core::codecs::audio::{AudioCodecId, AudioCodecParameters};
use symphonia::core::errors::Error;
use symphonia::core::formats::{FormatOptions, FormatReader, SeekMode, SeekTo, Track, TrackType};
use symphonia::core::io::ReadBytes as _;
use symphonia::core::packet::Packet;
use symphonia::core::units::Timestamp;
use symphonia::default::formats::{FlacReader, IsoMp4Reader, MkvReader};

use crate::blocks::{Blocks, SoundBlock};
use crate::codec::PacketDecoder;
use crate::memory_file::reader;
use crate::mp4_edits::Edit;
use crate::{BadSound, LibavSource, flac_header, matroska_delay, mp4_edits};

/// The most samples of a packet: those of FLAC's largest blocks.
const PACKET_SAMPLES_MAX: u64 = 65_535;

/// The container of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    /// Native FLAC that begins at this offset.
    Flac(usize),
    Mp4,
    Matroska,
}

/// A track of sound, and the reader of its packets.
pub(crate) struct SoundTrack<'a> {
    pub file: &'a [u8],
    pub container: Container,
    pub reader: Box<dyn FormatReader + 'a>,
    pub track: Track,
    pub params: AudioCodecParameters,
}

impl<'a> SoundTrack<'a> {
    /// Reads the headers of a file.
    ///
    /// # Errors
    /// [`BadSound`] for damaged files, and for files without sound.
    pub fn open(file: &'a [u8], container: Container) -> Result<Self, BadSound> {
        let reader = open_reader(file, container)?;
        let track = reader.default_track(TrackType::Audio).cloned();
        let params = track.as_ref().and_then(|track| track.codec_params.as_ref()?.audio()).cloned();
        let (track, params) =
            track.zip(params).ok_or_else(|| BadSound::new("the file has no track of sound with a known codec"))?;
        Ok(Self { file, container, reader, track, params })
    }
}

/// A file with a track of sound, and its decoder.
///
/// Positions come from the timestamps of packets if these count samples. In Matroska, and in MP4 files whose time scale is
/// not the sample rate, they do not; there, decoding always begins at the start of the file, and samples are counted.
pub(crate) struct Stream<'a> {
    file: &'a [u8],
    container: Container,
    reader: Box<dyn FormatReader + 'a>,
    decoder: PacketDecoder,
    track_id: u32,
    /// The duration of a tick of the track's timestamps, in seconds: numerator, denominator.
    tick: Option<(u32, u32)>,
    pub sample_rate: u32,
    pub num_channels: u16,
    pub codec_id: AudioCodecId,
    /// The number of samples of each channel, if the file tells it.
    pub num_samples: Option<u64>,
    edit: Edit,
    clock: SamplePosition,
    /// The position after the last packet.
    end: u64,
    /// Whether no packet was read.
    is_fresh: bool,
}

/// What tells the position of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SamplePosition {
    /// Its timestamp.
    Timestamps,
    /// The packets before it. The value is its position; `None` for the first packet.
    Counted(Option<i64>),
}

impl<'a> Stream<'a> {
    /// Makes the decoder of a track.
    ///
    /// # Errors
    /// [`BadSound`] for damaged files, and for unknown codecs, which are named; a fatal one if libavcodec is needed and
    /// missing.
    pub fn open(track: SoundTrack<'a>, libav: &LibavSource) -> Result<Self, BadSound> {
        let SoundTrack { file, container, mut reader, track, params } = track;
        let mut decoder = PacketDecoder::open(&params, libav)?;
        let codec_id = params.codec;
        let told = decoder.format(&params);
        let is_fresh = told.is_some();
        let (sample_rate, num_channels) = match told {
            Some(format) => format,
            // MP4 files do not tell the format of MP3, and headers of AAC not that of all packets.
            None => first_format(&mut *reader, track.id, &mut decoder)?,
        };
        let tick = track.time_base.map(|base| (base.numer.get(), base.denom.get()));
        let counts_samples = tick == Some((1, sample_rate));
        let edit = match container {
            Container::Flac(_) => Edit::default(),
            Container::Mp4 => mp4_edits::read(file, track.id, sample_rate).unwrap_or_default(),
            Container::Matroska => Edit { skipped: matroska_delay::samples(file, track.id, sample_rate), kept: None },
        };
        let total = track.num_frames.filter(|total| counts_samples && *total > 0);
        let num_samples = total.map(|total| edit.apply(total));
        let clock = if counts_samples { SamplePosition::Timestamps } else { SamplePosition::Counted(None) };
        let track_id = track.id;
        Ok(Self {
            file,
            container,
            reader,
            decoder,
            track_id,
            tick,
            sample_rate,
            num_channels,
            codec_id,
            num_samples,
            edit,
            clock,
            end: 0,
            is_fresh,
        })
    }

    fn reopen(&mut self) -> Result<(), BadSound> {
        if !self.is_fresh {
            self.reader = open_reader(self.file, self.container)?;
            self.decoder.reset()?;
            self.is_fresh = true;
            if let SamplePosition::Counted(next) = &mut self.clock {
                *next = None;
            }
        }
        Ok(())
    }

    fn next_packet(&mut self) -> Result<Option<Packet>, BadSound> {
        self.is_fresh = false;
        while let Some(packet) = self.reader.next_packet()? {
            if packet.track_id == self.track_id {
                return Ok(Some(packet));
            }
        }
        Ok(None)
    }

    /// Converts a number of samples to a time of the track.
    fn ticks(&self, samples: u64) -> u64 {
        let (numerator, denominator) = self.tick.unwrap_or((1, self.sample_rate.max(1)));
        let seconds = u128::from(samples) * u128::from(denominator) / u128::from(self.sample_rate.max(1));
        u64::try_from(seconds / u128::from(numerator)).unwrap_or(u64::MAX)
    }

    /// Converts a time of the track to samples.
    fn samples(&self, ticks: i64) -> i64 {
        let (numerator, denominator) = self.tick.unwrap_or((1, self.sample_rate.max(1)));
        let samples =
            i128::from(ticks) * i128::from(numerator) * i128::from(self.sample_rate) / i128::from(denominator);
        i64::try_from(samples).unwrap_or(i64::MAX)
    }
}

impl Blocks for Stream<'_> {
    fn seek(&mut self, position: u64) -> Result<(), BadSound> {
        if self.clock == SamplePosition::Timestamps
            && position > 0
            && let Some(preroll) = self.decoder.preroll()
        {
            let wanted = position.saturating_add(self.edit.skipped).saturating_sub(preroll);
            let wanted = i64::try_from(wanted).unwrap_or(i64::MAX);
            let to = SeekTo::Timestamp { ts: Timestamp::new(wanted), track_id: self.track_id };
            self.is_fresh = false;
            if self.reader.seek(SeekMode::Accurate, to).is_ok_and(|found| found.actual_ts.get() <= wanted) {
                return self.decoder.reset();
            }
        }
        self.reopen()
    }

    fn next_block(&mut self) -> Result<Option<SoundBlock<'_>>, BadSound> {
        let Some(packet) = self.next_packet()? else {
            // The reader of FLAC leaves out damaged frames, so that the last one may be missing.
            return match (self.container, self.num_samples) {
                (Container::Flac(_), Some(total)) if self.end < total => Err(BadSound::new("the file ends early")),
                _ => Ok(None),
            };
        };
        let timestamp = packet.pts.get().saturating_sub_unsigned(self.edit.skipped);
        let started = match &self.clock {
            SamplePosition::Timestamps => timestamp,
            SamplePosition::Counted(next) => next.unwrap_or(0i64.saturating_sub_unsigned(self.edit.skipped)),
        };
        let decoded = self.decoder.decode(&packet.as_packet_ref());
        let mut length = match &decoded {
            Ok(samples) if samples.frames() > 0 && samples.spec().rate() != self.sample_rate => {
                let (before, now) = (self.sample_rate, samples.spec().rate());
                return Err(BadSound::new(format!("the sample rate changes from {before} to {now} Hz")));
            }
            Ok(samples) => samples.frames() as u64,
            Err(_) => packet.dur.get(),
        };
        if let SamplePosition::Counted(next) = &mut self.clock {
            if let Err(error) = decoded {
                return Err(error);
            }
            *next = Some(started.saturating_add_unsigned(length));
        }
        self.end = u64::try_from(started.saturating_add_unsigned(length)).unwrap_or(0);
        if let Some(total) = self.num_samples {
            let left = i64::try_from(total).unwrap_or(i64::MAX).saturating_sub(started);
            length = length.min(u64::try_from(left).unwrap_or(0));
        }
        Ok(Some(SoundBlock { position: started, length, samples: decoded }))
    }

    fn count(&mut self) -> Result<u64, BadSound> {
        if let Some(num_samples) = self.num_samples {
            return Ok(num_samples);
        }
        let (mut end, mut last, mut step) = (0i64, None::<i64>, 0);
        self.reopen()?;
        while let Some(packet) = self.next_packet()? {
            let begin = packet.pts.get();
            step = begin.saturating_sub(last.unwrap_or(begin)).unsigned_abs();
            end = end.max(begin.saturating_add_unsigned(packet.dur.get()));
            last = Some(begin);
        }
        // Most Matroska files do not tell the durations of packets. The last one is taken to be as long as the one
        // before it, or to end where the header says.
        if let Some(last) = last.filter(|last| end <= *last) {
            let told = self.reader.media_info().duration.map(|duration| duration.get());
            let told = told.and_then(|told| told.checked_sub(last.try_into().ok()?));
            let longest = if step == 0 { self.ticks(PACKET_SAMPLES_MAX) } else { step };
            end = last.saturating_add_unsigned(told.unwrap_or(step).min(longest));
        }
        let total = u64::try_from(self.samples(end)).unwrap_or(0);
        match self.container {
            // Its timestamps do not count the delay.
            Container::Matroska => Ok(total),
            Container::Flac(_) | Container::Mp4 => Ok(self.edit.apply(total)),
        }
    }
}

/// Opens the reader of a file.
///
/// # Errors
/// [`BadSound`] for damaged headers.
pub(crate) fn open_reader(file: &[u8], container: Container) -> Result<Box<dyn FormatReader + '_>, BadSound> {
    let options = FormatOptions::default();
    Ok(match container {
        Container::Flac(offset) => {
            let (head, frames) = flac_header::without_metadata(file.get(offset..).unwrap_or_default())?;
            Box::new(FlacReader::try_new(reader(head, frames), options)?)
        }
        Container::Mp4 => {
            let mut source = reader(Vec::new(), file);
            // The reader goes back by these bytes: it expects that the type of the first box was read.
            source.ignore_bytes(4).map_err(Error::from)?;
            Box::new(IsoMp4Reader::try_new(source, options)?)
        }
        Container::Matroska => Box::new(MkvReader::try_new(reader(Vec::new(), file), options)?),
    })
}

/// Decodes packets of a track until one gives samples. Returns their sample rate and their number of channels.
fn first_format(
    reader: &mut dyn FormatReader,
    track_id: u32,
    decoder: &mut PacketDecoder,
) -> Result<(u32, u16), BadSound> {
    while let Some(packet) = reader.next_packet()? {
        if packet.track_id == track_id
            && let Some(format) = decoder.format_of(&packet.as_packet_ref())?
        {
            return Ok(format);
        }
    }
    Err(BadSound::new("the sound has no samples"))
}
