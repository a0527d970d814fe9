//! The packets of one stream of an Ogg file.

use crate::BadSound;
use crate::ogg_pages::{Page, pages};

/// The number of packets with which a Vorbis stream begins: identification, comments, setup.
const NUM_HEADERS: usize = 3;

/// A page of the stream with sound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageEntry {
    /// Where the page begins in the file.
    pub offset: usize,
    /// The position at the end of the last packet that ends on the page.
    pub granule: Option<i64>,
}

/// The pages of the first Vorbis stream of a file.
pub(crate) struct Stream<'a> {
    file: &'a [u8],
    /// The pages after the headers.
    pub pages: Vec<PageEntry>,
}

impl<'a> Stream<'a> {
    /// Finds the pages. Also returns the header packets.
    ///
    /// # Errors
    /// [`BadSound`] for damaged headers, for several streams one after the other, and for files without Vorbis.
    pub fn open(file: &'a [u8]) -> Result<(Self, [Vec<u8>; NUM_HEADERS]), BadSound> {
        let mut headers: [Vec<u8>; NUM_HEADERS] = Default::default();
        let (mut num_headers, mut serial, mut other) = (0, None, None);
        let mut found = Vec::new();
        for (offset, page) in pages(file) {
            let first = page.parts().next().map_or(&[][..], |(part, _)| part);
            if page.is_first {
                let is_vorbis = first.starts_with(b"\x01vorbis");
                match serial {
                    None if is_vorbis => serial = Some(page.serial),
                    Some(_) if is_vorbis && !found.is_empty() => {
                        return Err(BadSound::new("the Ogg file has several streams one after the other"));
                    }
                    _ => other = other.or(Some(codec_name(first))),
                }
            }
            if serial != Some(page.serial) {
                continue;
            }
            if num_headers == NUM_HEADERS {
                found.push(PageEntry { offset, granule: page.granule });
                continue;
            }
            page.check()?;
            for (part, is_end) in page.parts() {
                let Some(header) = headers.get_mut(num_headers) else {
                    return Err(BadSound::new("the Vorbis stream has sound on the page of its headers"));
                };
                header.extend_from_slice(part);
                num_headers += usize::from(is_end);
            }
        }
        match (serial, other) {
            (Some(_), _) if num_headers == NUM_HEADERS => Ok((Self { file, pages: found }, headers)),
            (Some(_), _) => Err(BadSound::new("the Ogg file ends before the headers of its Vorbis stream do")),
            (None, Some(codec)) => Err(BadSound::new(codec)),
            (None, None) => Err(BadSound::new("the Ogg file has no pages")),
        }
    }

    /// Tells whether the last packet that ends on a page also begins there.
    pub fn begins_packet_that_ends(&self, page: usize) -> bool {
        let bytes = self.pages.get(page).and_then(|entry| self.file.get(entry.offset..));
        bytes.and_then(Page::parse).is_some_and(|page| {
            let num_ends = page.segments.iter().filter(|segment| **segment < 255).count();
            num_ends > usize::from(page.is_continued)
        })
    }
}

/// Returns what is said about an Ogg stream that is not Vorbis, by its first bytes.
fn codec_name(first: &[u8]) -> String {
    let name = match first {
        _ if first.starts_with(b"OpusHead") => return crate::codec::OPUS.to_string(),
        _ if first.starts_with(b"Speex   ") => "Speex",
        _ if first.starts_with(b"\x7fFLAC") => "FLAC inside Ogg",
        _ if first.starts_with(b"\x80theora") => "Theora and no sound",
        _ => "an unknown codec",
    };
    format!("the Ogg file has {name}, which is not supported")
}

/// Iterates over the packets of a stream.
pub(crate) struct Packets<'a> {
    file: &'a [u8],
    /// The index of the page that is read next.
    page: usize,
    /// The number of the last page.
    sequence: Option<u32>,
    /// The parts on the current page that were not read, the next one last.
    parts: Vec<(&'a [u8], bool)>,
    /// The parts of a packet that began on earlier pages.
    partial: Vec<u8>,
    /// Whether the beginning of the current packet was not read.
    is_cut: bool,
}

/// One packet.
pub(crate) struct Packet<'p> {
    pub bytes: &'p [u8],
    /// The index of the page on which the packet is the last one that ends.
    pub ends_page: Option<usize>,
}

impl<'a> Packets<'a> {
    /// Begins with the first packet that starts on a page or after it.
    pub fn new(stream: &Stream<'a>, page: usize) -> Self {
        let (parts, partial) = (Vec::new(), Vec::new());
        Self { file: stream.file, page, sequence: None, parts, partial, is_cut: false }
    }

    /// Returns the next packet, or `None` at the end of the file.
    ///
    /// # Errors
    /// [`BadSound`] for damaged and missing pages.
    pub fn next(&mut self, pages: &[PageEntry]) -> Result<Option<Packet<'_>>, BadSound> {
        self.partial.clear();
        loop {
            match self.parts.pop() {
                None => {
                    let entry = pages.get(self.page).and_then(|entry| self.file.get(entry.offset..));
                    let Some(page) = entry.and_then(Page::parse) else { return Ok(None) };
                    self.enter(&page)?;
                }
                Some((part, false)) if !self.is_cut => self.partial.extend_from_slice(part),
                Some((_, false)) => {}
                Some((part, true)) => {
                    if std::mem::take(&mut self.is_cut) {
                        continue;
                    }
                    let is_last = self.parts.iter().all(|(_, is_end)| !is_end);
                    let ends_page = is_last.then(|| self.page.saturating_sub(1));
                    if self.partial.is_empty() {
                        return Ok(Some(Packet { bytes: part, ends_page }));
                    }
                    self.partial.extend_from_slice(part);
                    return Ok(Some(Packet { bytes: &self.partial, ends_page }));
                }
            }
        }
    }

    fn enter(&mut self, page: &Page<'a>) -> Result<(), BadSound> {
        page.check()?;
        if self.sequence.is_some_and(|sequence| sequence.wrapping_add(1) != page.sequence) {
            return Err(BadSound::new(format!("pages before page {} of the Ogg file are missing", page.sequence)));
        }
        if self.partial.is_empty() == page.is_continued {
            match self.sequence {
                None => self.is_cut = true,
                Some(_) if self.is_cut => {}
                Some(_) => {
                    let reason = format!("page {} of the Ogg file does not continue the one before it", page.sequence);
                    return Err(BadSound::new(reason));
                }
            }
        }
        self.sequence = Some(page.sequence);
        self.parts.extend(page.parts());
        self.parts.reverse();
        self.page += 1;
        Ok(())
    }
}
