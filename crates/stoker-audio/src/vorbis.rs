//! Vorbis in Ogg files ("Vorbis I specification", appendix A).

use symphonia::core::audio::GenericAudioBufferRef;
use symphonia::core::packet::PacketRef;
use symphonia::core::units::{Duration, Timestamp};

use crate::blocks::{Blocks, SoundBlock};
use crate::codec::PacketDecoder;
use crate::ogg_packets::{Packets, PageEntry, Stream};
use crate::{BadSound, LibavSource};

/// A Vorbis stream whose headers and pages were read.
///
/// Packets do not tell where their samples belong; pages do, by their granule: the position at the end of the last packet
/// that ends on the page. The sound begins at zero: samples before it are dropped, and a later beginning is moved to
/// zero, as in libsndfile. The granule of the last page is the end of the sound.
pub(crate) struct Vorbis<'a> {
    stream: Stream<'a>,
    pub sample_rate: u32,
    pub num_channels: u16,
    decoder: PacketDecoder,
    packets: Packets<'a>,
    /// The granule of the first sample of the first packet; negative if samples are dropped.
    begin: i64,
    /// The granule of the end.
    end: i64,
    /// The granule after the last decoded sample.
    next: i64,
}

impl<'a> Vorbis<'a> {
    /// Reads the headers of a Vorbis stream.
    ///
    /// # Errors
    /// [`BadSound`] for damaged files; a fatal one if libavcodec is needed and missing.
    pub fn open(stream: Stream<'a>, headers: &[Vec<u8>], libav: &LibavSource) -> Result<Self, BadSound> {
        let [ident, _, setup] = headers else { return Err(BadSound::new("the Vorbis stream has not three headers")) };
        let Some(&[num_channels, r0, r1, r2, r3]) = ident.get(11..16) else {
            return Err(BadSound::new("the header of the Vorbis stream is too short"));
        };
        let decoder = PacketDecoder::vorbis(ident, setup, libav)?;
        let end = stream.pages.iter().rev().find_map(|page| page.granule).unwrap_or(0);
        let packets = Packets::new(&stream, 0);
        let (sample_rate, num_channels) = (u32::from_le_bytes([r0, r1, r2, r3]), num_channels.into());
        let mut opened = Self { stream, sample_rate, num_channels, decoder, packets, begin: 0, end, next: 0 };
        opened.find_begin()?;
        Ok(opened)
    }

    /// Decodes the packets that end on the first page with a granule. Their samples end there, so their number tells
    /// where they begin. Only on the last page, samples after the granule are padding, so a stream of one page begins
    /// at zero.
    fn find_begin(&mut self) -> Result<(), BadSound> {
        let mut granules =
            self.stream.pages.iter().enumerate().filter_map(|(index, page)| Some((index, page.granule?)));
        if let (Some((first, granule)), Some(_)) = (granules.next(), granules.next()) {
            let mut begin = granule;
            while let Some((samples, page)) = decode(&mut self.packets, &self.stream.pages, &mut self.decoder)? {
                begin -= i64::try_from(samples.frames()).unwrap_or(0);
                if page == Some(first) {
                    break;
                }
            }
            self.begin = begin;
        }
        self.restart(0)
    }

    fn restart(&mut self, page: usize) -> Result<(), BadSound> {
        self.packets = Packets::new(&self.stream, page);
        self.next = self.begin;
        self.decoder.reset()
    }

    /// The granule of the first sample of the sound.
    fn origin(&self) -> i64 {
        self.begin.max(0)
    }
}

impl Blocks for Vorbis<'_> {
    fn seek(&mut self, position: u64) -> Result<(), BadSound> {
        let granule = self.origin().saturating_add_unsigned(position);
        let ends_before = |page: &PageEntry| page.granule.is_some_and(|end| end <= granule);
        // The next packet after the page `anchor` begins at that page's granule. It overlaps with the last packet that
        // ends on the page.
        let anchor = self.stream.pages.iter().rposition(ends_before);
        let before = anchor.and_then(|anchor| self.stream.page_before_end(anchor));
        let (Some(anchor), Some(before)) = (anchor, before) else {
            return self.restart(0);
        };
        let end = self.stream.pages.get(anchor).and_then(|page| page.granule).unwrap_or(0);
        self.restart(before)?;
        while let Some(packet) = self.packets.next(&self.stream.pages)? {
            if packet.ends_page == Some(anchor) {
                let packet = PacketRef::new(0, Timestamp::new(0), Duration::new(0), packet.bytes);
                self.decoder.decode(&packet)?;
                break;
            }
        }
        self.next = end;
        Ok(())
    }

    fn next_block(&mut self) -> Result<Option<SoundBlock<'_>>, BadSound> {
        let (next, origin, end) = (self.next, self.origin(), self.end);
        if next >= end {
            return Ok(None);
        }
        let decoded = decode(&mut self.packets, &self.stream.pages, &mut self.decoder)?;
        let Some((samples, _)) = decoded else { return Ok(None) };
        let length = i64::try_from(samples.frames()).unwrap_or(0).min(end - next);
        self.next += length;
        Ok(Some(SoundBlock { position: next - origin, length: length.unsigned_abs(), samples: Ok(samples) }))
    }

    fn count(&mut self) -> Result<u64, BadSound> {
        Ok(u64::try_from(self.end.saturating_sub(self.origin())).unwrap_or(0))
    }
}

/// Decodes the next packet. The first packet after a reset gives no samples. Also returns the page on which the packet
/// is the last one that ends.
fn decode<'d>(
    packets: &mut Packets<'_>,
    pages: &[PageEntry],
    decoder: &'d mut PacketDecoder,
) -> Result<Option<(GenericAudioBufferRef<'d>, Option<usize>)>, BadSound> {
    let Some(packet) = packets.next(pages)? else { return Ok(None) };
    let page = packet.ends_page;
    let packet = PacketRef::new(0, Timestamp::new(0), Duration::new(0), packet.bytes);
    Ok(Some((decoder.decode(&packet)?, page)))
}
