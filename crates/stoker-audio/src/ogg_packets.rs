//! The packets of one stream of an Ogg file.

use crate::ogg_pages::{Page, pages};
use crate::{BadSound, opus_head};

/// A codec of sound in Ogg files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OggCodec {
    /// "Vorbis I specification", appendix A.
    Vorbis,
    /// RFC 7845.
    Opus,
}

impl OggCodec {
    /// Returns the codec of a stream that begins with these bytes.
    fn detect(first: &[u8]) -> Option<Self> {
        match first {
            _ if first.starts_with(b"\x01vorbis") => Some(Self::Vorbis),
            _ if first.starts_with(opus_head::MAGIC) => Some(Self::Opus),
            _ => None,
        }
    }

    /// The number of packets with which a stream begins: identification, comments, and the setup of Vorbis.
    fn num_headers(self) -> usize {
        match self {
            Self::Vorbis => 3,
            Self::Opus => 2,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Vorbis => "Vorbis",
            Self::Opus => "Opus",
        }
    }
}

/// A page of the stream with sound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageEntry {
    /// Where the page begins in the file.
    pub offset: usize,
    /// The position at the end of the last packet that ends on the page.
    pub granule: Option<i64>,
}

/// The pages of the first stream of sound of a file.
pub(crate) struct Stream<'a> {
    file: &'a [u8],
    pub codec: OggCodec,
    /// The pages after the headers.
    pub pages: Vec<PageEntry>,
}

impl<'a> Stream<'a> {
    /// Finds the pages. Also returns the header packets.
    ///
    /// # Errors
    /// [`BadSound`] for damaged headers, for several streams one after the other, and for files without Vorbis and Opus.
    pub fn open(file: &'a [u8]) -> Result<(Self, Vec<Vec<u8>>), BadSound> {
        let mut headers = vec![Vec::new()];
        let mut stream: Option<(u32, Self)> = None;
        let mut other = None;
        for (offset, page) in pages(file) {
            if page.is_first {
                let first = page.parts().next().map_or(&[][..], |(part, _)| part);
                match (&stream, OggCodec::detect(first)) {
                    (None, Some(codec)) => stream = Some((page.serial, Self { file, codec, pages: Vec::new() })),
                    (Some((_, stream)), Some(_)) if !stream.pages.is_empty() => {
                        return Err(BadSound::new("the Ogg file has several streams one after the other"));
                    }
                    _ => other = other.or(Some(codec_name(first))),
                }
            }
            let Some((_, stream)) = stream.as_mut().filter(|(serial, _)| *serial == page.serial) else { continue };
            let num_headers = stream.codec.num_headers();
            if headers.len() > num_headers {
                stream.pages.push(PageEntry { offset, granule: page.granule });
                continue;
            }
            page.check()?;
            for (part, is_end) in page.parts() {
                if headers.len() > num_headers {
                    let name = stream.codec.name();
                    return Err(BadSound::new(format!("the {name} stream has sound on the page of its headers")));
                }
                headers.last_mut().into_iter().for_each(|header| header.extend_from_slice(part));
                if is_end {
                    headers.push(Vec::new());
                }
            }
        }
        match (stream, other) {
            (Some((_, stream)), _) => match headers.len() > stream.codec.num_headers() {
                true => {
                    headers.pop();
                    Ok((stream, headers))
                }
                false => {
                    let name = stream.codec.name();
                    Err(BadSound::new(format!("the Ogg file ends before the headers of its {name} stream do")))
                }
            },
            (None, Some(codec)) => Err(BadSound::new(codec)),
            (None, None) => Err(BadSound::new("the Ogg file has no pages")),
        }
    }

    /// Returns a page from which on the last packet that ends on the page `anchor` is read as a whole: it begins there, or
    /// after the end of a packet there. `None` stands for the first page.
    pub fn page_before_end(&self, anchor: usize) -> Option<usize> {
        match self.begins_packet_that_ends(anchor) {
            true => Some(anchor),
            false => self.pages.get(..anchor)?.iter().rposition(|page| page.granule.is_some()),
        }
    }

    /// Tells whether the last packet that ends on a page also begins there.
    fn begins_packet_that_ends(&self, page: usize) -> bool {
        let bytes = self.pages.get(page).and_then(|entry| self.file.get(entry.offset..));
        bytes.and_then(Page::parse).is_some_and(|page| {
            let num_ends = page.segments.iter().filter(|segment| **segment < 255).count();
            num_ends > usize::from(page.is_continued)
        })
    }
}

/// Returns what is said about an Ogg stream of another codec, by its first bytes.
fn codec_name(first: &[u8]) -> String {
    let name = match first {
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
