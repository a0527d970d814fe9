//! Opus in Matroska and MP4.

use symphonia::core::formats::FormatReader;
use symphonia::core::packet::Packet;

use crate::opus::OpusPackets;
use crate::opus_head::{ByteOrder, OPUS_RATE, OpusHead, packet_samples};
use crate::stream::{Container, SoundTrack, open_reader};
use crate::{BadSound, matroska_delay, mp4_edits};

/// The packets of a track, which are always read from the first one on.
pub(crate) struct TrackPackets<'a> {
    file: &'a [u8],
    container: Container,
    reader: Box<dyn FormatReader + 'a>,
    track_id: u32,
    packet: Option<Packet>,
}

/// What a track's headers and packets tell.
pub(crate) struct OpusSpan {
    pub head: OpusHead,
    /// Where the sound begins and ends, in samples from the beginning of the first packet.
    pub begin: i64,
    pub end: i64,
}

impl<'a> TrackPackets<'a> {
    /// Reads the headers of all packets.
    ///
    /// # Errors
    /// [`BadSound`] for damaged files.
    pub fn open(track: SoundTrack<'a>) -> Result<(Self, OpusSpan), BadSound> {
        let SoundTrack { file, container, reader, track, params } = track;
        let order = if container == Container::Mp4 { ByteOrder::Big } else { ByteOrder::Little };
        let head = OpusHead::parse(params.extra_data.as_deref().unwrap_or_default(), order)?;
        let mut opened = Self { file, container, reader, track_id: track.id, packet: None };
        let mut total = 0u64;
        while let Some(packet) = opened.next()? {
            total = total.saturating_add(packet_samples(packet)?);
        }
        // The times of MP4 files may tell that the last packet has padding.
        let counts_samples = track.time_base.is_some_and(|base| (base.numer.get(), base.denom.get()) == (1, OPUS_RATE));
        let told = track.num_frames.filter(|told| counts_samples && *told > 0);
        let total = told.map_or(total, |told| total.min(told));
        let pre_skip = u64::from(head.pre_skip);
        let (begin, end) = match container {
            Container::Mp4 => {
                let edit = mp4_edits::read(file, track.id, OPUS_RATE).unwrap_or_default();
                (edit.skipped.max(pre_skip), edit.skipped.saturating_add(edit.apply(total)))
            }
            Container::Matroska | Container::Flac(_) => {
                (pre_skip, total.saturating_sub(matroska_delay::end_padding(file, track.id, OPUS_RATE)?))
            }
        };
        let position = |samples: u64| i64::try_from(samples).unwrap_or(i64::MAX);
        opened.seek(0)?;
        Ok((opened, OpusSpan { head, begin: position(begin), end: position(end) }))
    }
}

impl OpusPackets for TrackPackets<'_> {
    fn seek(&mut self, _position: i64) -> Result<i64, BadSound> {
        self.packet = None;
        self.reader = open_reader(self.file, self.container)?;
        Ok(0)
    }

    fn next(&mut self) -> Result<Option<&[u8]>, BadSound> {
        loop {
            self.packet = self.reader.next_packet()?;
            if self.packet.as_ref().is_none_or(|packet| packet.track_id == self.track_id) {
                return Ok(self.packet.as_ref().map(|packet| &*packet.data));
            }
        }
    }
}
