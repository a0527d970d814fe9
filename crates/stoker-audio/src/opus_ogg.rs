//! Opus in Ogg files (RFC 7845).

use crate::BadSound;
use crate::ogg_packets::{Packets, Stream};
use crate::opus::OpusPackets;
use crate::opus_head::{ByteOrder, OpusHead, packet_samples};

/// The packets of an Ogg file.
///
/// Pages tell by their granule the position at the end of the last packet that ends on them. The packets tell their
/// lengths, too, so granules that do not fit are noticed. Only the last page may tell less than its packets have: the
/// samples after its granule are padding.
pub(crate) struct OggPackets<'a> {
    stream: Stream<'a>,
    packets: Packets<'a>,
    /// The granule at the beginning of the first packet.
    origin: i64,
    /// The granule at the end of the sound.
    end: i64,
    /// The granule after the last packet that was read.
    next: i64,
    /// The last page with a granule.
    last_page: Option<usize>,
}

impl<'a> OggPackets<'a> {
    /// Finds the packets. Also returns the header.
    ///
    /// # Errors
    /// [`BadSound`] for damaged files.
    pub fn open(stream: Stream<'a>, headers: &[Vec<u8>]) -> Result<(Self, OpusHead), BadSound> {
        let [head, tags] = headers else { return Err(BadSound::new("the Opus stream has not two headers")) };
        if !tags.starts_with(b"OpusTags") {
            return Err(BadSound::new("the Opus stream has no comments after its header"));
        }
        let head = OpusHead::parse(head, ByteOrder::Little)?;
        let last_page = stream.pages.iter().rposition(|page| page.granule.is_some());
        let end = last_page.and_then(|page| stream.pages.get(page)?.granule).unwrap_or(0);
        let packets = Packets::new(&stream, 0);
        let mut opened = Self { stream, packets, origin: 0, end, next: 0, last_page };
        opened.find_origin()?;
        Ok((opened, head))
    }

    /// The position at the end of the sound.
    pub fn end(&self) -> i64 {
        self.end.saturating_sub(self.origin)
    }

    /// Counts the samples of the packets that end on the first page with a granule. They end there, so their number tells
    /// where they begin. A stream of one page, which may have padding, begins at zero, or later.
    fn find_origin(&mut self) -> Result<(), BadSound> {
        let first_page = self.stream.pages.iter().position(|page| page.granule.is_some());
        let Some(first_page) = first_page else { return Ok(()) };
        let granule = self.stream.pages.get(first_page).and_then(|page| page.granule).unwrap_or(0);
        let mut num_samples = 0;
        while let Some(packet) = self.packets.next(&self.stream.pages)? {
            num_samples += i64::try_from(packet_samples(packet.bytes)?).unwrap_or(0);
            if packet.ends_page == Some(first_page) {
                break;
            }
        }
        self.origin = granule - num_samples;
        if self.origin < 0 && Some(first_page) != self.last_page {
            let reason = format!("the first page of the Ogg file ends at sample {granule}, and has {num_samples}");
            return Err(BadSound::new(reason));
        }
        self.origin = self.origin.max(0);
        self.packets = Packets::new(&self.stream, 0);
        self.next = self.origin;
        Ok(())
    }
}

impl OpusPackets for OggPackets<'_> {
    fn seek(&mut self, position: i64) -> Result<i64, BadSound> {
        let granule = self.origin.saturating_add(position);
        // The granule of the last page is not where its packets end.
        let pages = self.stream.pages.get(..self.last_page.unwrap_or(0)).unwrap_or_default();
        let anchor = pages.iter().rposition(|page| page.granule.is_some_and(|end| end <= granule));
        let before = anchor.and_then(|anchor| self.stream.page_before_end(anchor));
        (self.packets, self.next) = (Packets::new(&self.stream, before.unwrap_or(0)), self.origin);
        if let (Some(anchor), Some(_)) = (anchor, before) {
            while let Some(packet) = self.packets.next(&self.stream.pages)? {
                if packet.ends_page == Some(anchor) {
                    break;
                }
            }
            self.next = self.stream.pages.get(anchor).and_then(|page| page.granule).unwrap_or(self.origin);
        }
        Ok(self.next.saturating_sub(self.origin))
    }

    fn next(&mut self) -> Result<Option<&[u8]>, BadSound> {
        let Some(packet) = self.packets.next(&self.stream.pages)? else { return Ok(None) };
        self.next = self.next.saturating_add(i64::try_from(packet_samples(packet.bytes)?).unwrap_or(0));
        let told = packet.ends_page.and_then(|page| self.stream.pages.get(page)?.granule);
        let has_padding = packet.ends_page == self.last_page;
        if let Some(told) = told.filter(|told| *told > self.next || (*told < self.next && !has_padding)) {
            let (told, found) = (told.saturating_sub(self.origin), self.next.saturating_sub(self.origin));
            return Err(BadSound::new(format!("a page of the Ogg file ends at sample {found}, and tells {told}")));
        }
        Ok(Some(packet.bytes))
    }
}
