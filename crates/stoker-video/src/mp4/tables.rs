//! The box stbl: where frames lie, when they are shown (ISO/IEC 14496-12, 8.6 and 8.7).

use super::Budget;
use super::boxes::{Boxes, version_and_flags};
use crate::BadVideo;
use crate::index::FrameEntry;
use crate::input::Input;

/// The tables of a track, unread.
#[derive(Default)]
pub(crate) struct Tables<'a> {
    pub descriptions: &'a [u8],
    /// stts: runs of durations.
    times: &'a [u8],
    /// ctts: runs of distances from decoding to presentation.
    shifts: Option<&'a [u8]>,
    /// stss: numbers of key frames.
    keys: Option<&'a [u8]>,
    /// stsz or stz2: sizes.
    sizes: &'a [u8],
    is_compact: bool,
    /// stsc: runs of chunks with the same number of frames.
    chunks: &'a [u8],
    /// stco or co64: offsets of chunks.
    offsets: &'a [u8],
    has_wide_offsets: bool,
}

impl<'a> Tables<'a> {
    pub fn read(stbl: &'a [u8]) -> Result<Self, BadVideo> {
        let mut tables = Self::default();
        for found in Boxes::new(stbl, "a box stbl") {
            let found = found?;
            match &found.kind {
                b"stsd" => tables.descriptions = found.content,
                b"stts" => tables.times = found.content,
                b"ctts" => tables.shifts = Some(found.content),
                b"stss" => tables.keys = Some(found.content),
                b"stsz" | b"stz2" => {
                    (tables.sizes, tables.is_compact) = (found.content, &found.kind == b"stz2");
                }
                b"stsc" => tables.chunks = found.content,
                b"stco" | b"co64" => {
                    (tables.offsets, tables.has_wide_offsets) = (found.content, &found.kind == b"co64");
                }
                _ => {}
            }
        }
        Ok(tables)
    }

    /// Returns the number of the description of all frames.
    pub fn description_number(&self) -> Result<u32, BadVideo> {
        let mut entries = Entries::new(self.chunks, "the box stsc", 12)?;
        let mut number = None;
        while let Some(mut entry) = entries.next()? {
            entry.skip(8)?;
            let found = entry.u32()?;
            if *number.get_or_insert(found) != found {
                return Err(BadVideo::new("the codec changes within the track"));
            }
        }
        Ok(number.unwrap_or(1))
    }
}

/// The entries of a table that has as many entries as the number before them says.
struct Entries<'a> {
    input: Input<'a>,
    left: u32,
    entry_bytes: usize,
    name: &'static str,
}

impl<'a> Entries<'a> {
    /// Reads version, flags and number. An absent table has no entries.
    fn new(content: &'a [u8], name: &'static str, entry_bytes: usize) -> Result<Self, BadVideo> {
        let mut input = Input::new(content, name);
        let mut left = 0;
        if !input.is_empty() {
            version_and_flags(&mut input)?;
            left = input.u32()?;
        }
        Ok(Self { input, left, entry_bytes, name })
    }

    fn next(&mut self) -> Result<Option<Input<'a>>, BadVideo> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        self.input.take(self.entry_bytes).map(|entry| Some(Input::new(entry, self.name)))
    }
}

/// A table of pairs: a number of frames, and a value for each of them.
struct Runs<'a> {
    entries: Entries<'a>,
    left: u32,
    value: u32,
}

impl<'a> Runs<'a> {
    fn new(content: &'a [u8], name: &'static str) -> Result<Self, BadVideo> {
        Ok(Self { entries: Entries::new(content, name, 8)?, left: 0, value: 0 })
    }

    /// Returns the next frame's value, or that of the last run after the end of the table, as FFmpeg does.
    fn next(&mut self) -> Result<u32, BadVideo> {
        while self.left == 0 {
            let Some(mut entry) = self.entries.next()? else { return Ok(self.value) };
            (self.left, self.value) = (entry.u32()?, entry.u32()?);
        }
        self.left -= 1;
        Ok(self.value)
    }
}

/// The sizes of frames.
struct Sizes<'a> {
    input: Input<'a>,
    count: u32,
    constant: u32,
    /// The bits of a size in a compact table, or 32.
    bits: u8,
    /// The second of two sizes of 4 bits.
    second: Option<u8>,
}

impl<'a> Sizes<'a> {
    fn new(tables: &Tables<'a>) -> Result<Self, BadVideo> {
        let mut input = Input::new(tables.sizes, "the box stsz");
        if input.is_empty() {
            return Ok(Self { input, count: 0, constant: 0, bits: 32, second: None });
        }
        version_and_flags(&mut input)?;
        let word = input.u32()?;
        let count = input.u32()?;
        let (constant, bits) = if tables.is_compact { (0, (word & 0xFF) as u8) } else { (word, 32) };
        if !matches!(bits, 4 | 8 | 16 | 32) {
            return Err(BadVideo::new(format!("the box stz2 has sizes of {bits} bits")));
        }
        Ok(Self { input, count, constant, bits, second: None })
    }

    fn next(&mut self) -> Result<u32, BadVideo> {
        if self.constant > 0 {
            return Ok(self.constant);
        }
        match self.bits {
            4 => match self.second.take() {
                Some(size) => Ok(u32::from(size)),
                None => {
                    let byte = self.input.u8()?;
                    self.second = Some(byte & 0x0F);
                    Ok(u32::from(byte >> 4))
                }
            },
            8 => self.input.u8().map(u32::from),
            16 => self.input.u16().map(u32::from),
            _ => self.input.u32(),
        }
    }
}

/// The numbers of frames in successive chunks.
struct Chunks<'a> {
    entries: Entries<'a>,
    /// The first chunk of the next run.
    next_first: u32,
    next_count: u32,
    count: u32,
}

impl<'a> Chunks<'a> {
    fn new(content: &'a [u8]) -> Result<Self, BadVideo> {
        let mut chunks =
            Self { entries: Entries::new(content, "the box stsc", 12)?, next_first: 0, next_count: 0, count: 0 };
        chunks.advance()?;
        Ok(chunks)
    }

    fn advance(&mut self) -> Result<(), BadVideo> {
        self.count = self.next_count;
        match self.entries.next()? {
            Some(mut entry) => (self.next_first, self.next_count) = (entry.u32()?, entry.u32()?),
            None => self.next_first = u32::MAX,
        }
        Ok(())
    }

    /// Returns the number of frames of a chunk; chunks are asked for in ascending order, counted from 1.
    fn of(&mut self, chunk: u32) -> Result<u32, BadVideo> {
        while self.next_first <= chunk && self.next_first != u32::MAX {
            self.advance()?;
        }
        Ok(self.count)
    }
}

/// Returns the frames in decoding order, and the time at which the last one ends. Frames without bytes are left out.
pub(crate) fn frames(tables: &Tables<'_>, budget: &mut Budget) -> Result<(Vec<FrameEntry>, i64), BadVideo> {
    let mut sizes = Sizes::new(tables)?;
    if sizes.constant > 0 {
        budget.check_count(u64::from(sizes.count))?;
    }
    let mut offsets = Entries::new(tables.offsets, "the box stco", if tables.has_wide_offsets { 8 } else { 4 })?;
    let mut chunks = Chunks::new(tables.chunks)?;
    let mut times = Runs::new(tables.times, "the box stts")?;
    let mut shifts = tables.shifts.map(|content| Runs::new(content, "the box ctts")).transpose()?;
    let mut keys = tables.keys.map(|content| Entries::new(content, "the box stss", 4)).transpose()?;
    let mut next_key = match &mut keys {
        Some(keys) => keys.next()?.map(|mut entry| entry.u32()).transpose()?,
        None => None,
    };
    let (mut frames, mut dts) = (Vec::new(), 0i64);
    let (mut chunk, mut left, mut offset) = (0u32, 0u32, 0u64);
    for number in 1..=sizes.count {
        while left == 0 {
            let Some(mut entry) = offsets.next()? else {
                return Err(BadVideo::new(format!(
                    "the file lists {} frames, but places for {}",
                    sizes.count,
                    number - 1
                )));
            };
            offset = entry.word(tables.has_wide_offsets)?;
            chunk += 1;
            left = chunks.of(chunk)?;
        }
        left -= 1;
        let size = sizes.next()?;
        let shift = shifts.as_mut().map(Runs::next).transpose()?.unwrap_or(0).cast_signed();
        let is_key = match &mut keys {
            None => true,
            Some(keys) => {
                while next_key.is_some_and(|key| key < number) {
                    next_key = keys.next()?.map(|mut entry| entry.u32()).transpose()?;
                }
                next_key == Some(number)
            }
        };
        if size > 0 {
            budget.take(number as usize, offset, size)?;
            let pts = dts.saturating_add(i64::from(shift));
            frames.push(FrameEntry { offset, size, pts, is_key, is_shown: true });
        }
        offset += u64::from(size);
        dts = dts.saturating_add(i64::from(times.next()?));
    }
    Ok((frames, dts))
}
