//! Fragments: boxes moof, which list frames of their own (ISO/IEC 14496-12, 8.8).

use super::Budget;
use super::boxes::{Boxes, version_and_flags};
use super::movie::Movie;
use crate::BadVideo;
use crate::index::FrameEntry;
use crate::input::Input;

/// Duration, size and flags of frames for which a run states none.
#[derive(Clone, Copy, Default)]
struct Defaults {
    description: u32,
    duration: u32,
    size: u32,
    flags: u32,
}

/// The bits of a frame's flags that say that it depends on others or is no key frame.
const NO_KEY: u32 = 0x0101_0000;

/// The place and the time at which the next frame of a track fragment begins.
struct Next {
    base: u64,
    offset: u64,
    dts: i64,
}

/// Appends the frames of all fragments of a track. `end` is the time at which the track's tables end.
pub(crate) fn append(
    file: &[u8],
    movie: &Movie<'_>,
    track: u32,
    end: i64,
    frames: &mut Vec<FrameEntry>,
    budget: &mut Budget,
) -> Result<(), BadVideo> {
    let defaults = match movie.defaults.iter().find(|(id, _)| *id == track) {
        Some((_, trex)) => {
            let mut input = Input::new(trex, "the box trex");
            let description = input.u32()?;
            Defaults { description, duration: input.u32()?, size: input.u32()?, flags: input.u32()? }
        }
        None => Defaults::default(),
    };
    let mut dts = end;
    for found in Boxes::new(file, "the file") {
        let found = found?;
        if &found.kind != b"moof" {
            continue;
        }
        // Without flags, the data of a track begin where those of the previous track in the fragment end.
        let mut data_end = found.start as u64;
        for traf in Boxes::new(found.content, "a box moof") {
            let traf = traf?;
            if &traf.kind == b"traf" {
                let mut fragment = Fragment { track, start: found.start as u64, data_end, dts, defaults };
                (data_end, dts) = fragment.read(traf.content, frames, budget)?;
            }
        }
    }
    Ok(())
}

struct Fragment {
    track: u32,
    /// The offset of the box moof.
    start: u64,
    data_end: u64,
    dts: i64,
    defaults: Defaults,
}

impl Fragment {
    /// Reads a box traf. Returns where its data end, and the time at which the track goes on.
    fn read(&mut self, traf: &[u8], frames: &mut Vec<FrameEntry>, budget: &mut Budget) -> Result<(u64, i64), BadVideo> {
        let mut next = None;
        let mut is_of_track = false;
        for found in Boxes::new(traf, "a box traf") {
            let found = found?;
            match &found.kind {
                b"tfhd" => {
                    let (id, base) = self.header(found.content)?;
                    is_of_track = id == self.track;
                    next = Some(Next { base, offset: base, dts: self.dts });
                }
                b"tfdt" if is_of_track => {
                    let mut input = Input::new(found.content, "a box tfdt");
                    let (version, _) = version_and_flags(&mut input)?;
                    let time = input.word(version == 1)?;
                    if let Some(next) = &mut next {
                        next.dts = i64::try_from(time).unwrap_or(i64::MAX);
                    }
                }
                b"trun" => {
                    let next = next.as_mut().ok_or_else(|| BadVideo::new("a box trun has no tfhd before it"))?;
                    self.run(found.content, next, is_of_track.then_some((&mut *frames, &mut *budget)))?;
                }
                _ => {}
            }
        }
        let Some(next) = next else { return Ok((self.data_end, self.dts)) };
        Ok((next.offset, if is_of_track { next.dts } else { self.dts }))
    }

    /// Reads the box tfhd. Returns the track and the offset from which runs count.
    fn header(&mut self, content: &[u8]) -> Result<(u32, u64), BadVideo> {
        let mut input = Input::new(content, "a box tfhd");
        let (_, flags) = version_and_flags(&mut input)?;
        let has = |flag: u32| flags & flag != 0;
        let track = input.u32()?;
        let base = match () {
            () if has(0x1) => input.u64()?,
            () if has(0x2_0000) => self.start,
            () => self.data_end,
        };
        let description = if has(0x2) { input.u32()? } else { self.defaults.description };
        if track == self.track && description > 1 {
            return Err(BadVideo::new("the codec changes within the track"));
        }
        for (flag, value) in
            [(0x8, &mut self.defaults.duration), (0x10, &mut self.defaults.size), (0x20, &mut self.defaults.flags)]
        {
            if has(flag) {
                *value = input.u32()?;
            }
        }
        Ok((track, base))
    }

    /// Reads the box trun, whose frames lie one after the other. The frames of other tracks only move the offset.
    fn run(
        &self,
        content: &[u8],
        next: &mut Next,
        mut target: Option<(&mut Vec<FrameEntry>, &mut Budget)>,
    ) -> Result<(), BadVideo> {
        let mut input = Input::new(content, "a box trun");
        let (_, flags) = version_and_flags(&mut input)?;
        let has = |flag: u32| flags & flag != 0;
        let count = input.u32()?;
        if has(0x1) {
            next.offset = next.base.saturating_add_signed(i64::from(input.i32()?));
        }
        let mut first_flags = if has(0x4) { Some(input.u32()?) } else { None };
        let Defaults { duration, size, flags: default_flags, .. } = self.defaults;
        if !has(0x200) {
            let all = u64::from(count).saturating_mul(u64::from(size));
            match &target {
                None => {
                    next.offset = next.offset.saturating_add(all);
                    return Ok(());
                }
                Some(_) if size == 0 && count > 0 => return Err(BadVideo::new("a box trun has frames without a size")),
                Some((_, budget)) => budget.check_count(u64::from(count))?,
            }
        }
        for number in 0..count {
            let duration = if has(0x100) { input.u32()? } else { duration };
            let size = if has(0x200) { input.u32()? } else { size };
            let stated = if has(0x400) { input.u32()? } else { default_flags };
            let shift = if has(0x800) { input.i32()? } else { 0 };
            let flags = first_flags.take().filter(|_| number == 0).unwrap_or(stated);
            if let Some((frames, budget)) = &mut target
                && size > 0
            {
                budget.take(frames.len() + 1, next.offset, size)?;
                let pts = next.dts.saturating_add(i64::from(shift));
                let is_key = flags & NO_KEY == 0;
                frames.push(FrameEntry { offset: next.offset, size, pts, is_key, is_shown: true });
            }
            next.offset = next.offset.saturating_add(u64::from(size));
            next.dts = next.dts.saturating_add(i64::from(duration));
        }
        Ok(())
    }
}
