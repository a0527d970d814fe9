//! The box moov: tracks and their tables (ISO/IEC 14496-12, 8.2 to 8.6).

use super::boxes::{Boxes, version_and_flags};
use super::description::Description;
use super::edits::{self, Edit};
use super::tables::Tables;
use crate::input::Input;
use crate::{BadVideo, Rotation};

/// The content of moov.
pub(crate) struct Movie<'a> {
    /// Units of time per second of edit lists.
    pub timescale: u32,
    pub videos: Vec<Video<'a>>,
    /// The boxes trex, with the defaults of fragments: track and content.
    pub defaults: Vec<(u32, &'a [u8])>,
}

/// A video track.
pub(crate) struct Video<'a> {
    pub id: u32,
    pub timescale: u32,
    pub rotation: Rotation,
    pub edits: Vec<Edit>,
    pub tables: Tables<'a>,
    pub description: Description<'a>,
}

impl<'a> Movie<'a> {
    pub fn read(moov: &'a [u8]) -> Result<Self, BadVideo> {
        let mut movie = Self { timescale: 0, videos: Vec::new(), defaults: Vec::new() };
        for found in Boxes::new(moov, "the box moov") {
            let found = found?;
            match &found.kind {
                b"mvhd" => movie.timescale = timescale(found.content, "the box mvhd")?,
                b"trak" => movie.videos.extend(Video::read(found.content)?),
                b"mvex" => {
                    for found in Boxes::new(found.content, "the box mvex") {
                        let found = found?;
                        if &found.kind == b"trex" {
                            let mut input = Input::new(found.content, "the box trex");
                            version_and_flags(&mut input)?;
                            movie.defaults.push((input.u32()?, input.rest()));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(movie)
    }
}

impl<'a> Video<'a> {
    /// Returns `None` for tracks without video.
    fn read(trak: &'a [u8]) -> Result<Option<Self>, BadVideo> {
        let (mut header, mut edits, mut media) = ((0, Rotation::None), Vec::new(), None);
        for found in Boxes::new(trak, "a box trak") {
            let found = found?;
            match &found.kind {
                b"tkhd" => header = track_header(found.content)?,
                b"edts" => edits = edits::read(found.content)?,
                b"mdia" => media = Some(found.content),
                _ => {}
            }
        }
        let (mut scale, mut is_video, mut information) = (0, false, None);
        for found in Boxes::new(media.unwrap_or_default(), "a box mdia") {
            let found = found?;
            match &found.kind {
                b"mdhd" => scale = timescale(found.content, "a box mdhd")?,
                b"hdlr" => is_video = found.content.get(8..12) == Some(b"vide"),
                b"minf" => information = Some(found.content),
                _ => {}
            }
        }
        if !is_video {
            return Ok(None);
        }
        let mut tables = None;
        for found in Boxes::new(information.unwrap_or_default(), "a box minf") {
            let found = found?;
            if &found.kind == b"stbl" {
                tables = Some(Tables::read(found.content)?);
            }
        }
        let tables = tables.ok_or_else(|| BadVideo::new("a video track has no box stbl, which holds its tables"))?;
        let description = Description::read(tables.descriptions, tables.description_number()?)?;
        let (id, rotation) = header;
        Ok(Some(Self { id, timescale: scale, rotation, edits, tables, description }))
    }
}

/// Reads the time scale of mvhd or mdhd.
fn timescale(content: &[u8], name: &'static str) -> Result<u32, BadVideo> {
    let mut input = Input::new(content, name);
    let (version, _) = version_and_flags(&mut input)?;
    input.skip(if version == 1 { 16 } else { 8 })?;
    input.u32()
}

/// Reads the number of a track, and its rotation.
fn track_header(content: &[u8]) -> Result<(u32, Rotation), BadVideo> {
    let mut input = Input::new(content, "a box tkhd");
    let (version, _) = version_and_flags(&mut input)?;
    input.skip(if version == 1 { 16 } else { 8 })?;
    let id = input.u32()?;
    // Reserved, duration, reserved, layer, group, volume, reserved.
    input.skip(4 + if version == 1 { 8 } else { 4 } + 8 + 8)?;
    let mut matrix = [0; 9];
    for value in &mut matrix {
        *value = input.i32()?;
    }
    // A pixel at (x, y) is shown at (a x + c y, b x + d y), with y downwards.
    let [a, b, _, c, d, ..] = matrix.map(i32::signum);
    let rotation = match [a, b, c, d] {
        [0, 1, -1, 0] => Rotation::Clockwise90,
        [-1, 0, 0, -1] => Rotation::Half,
        [0, -1, 1, 0] => Rotation::Clockwise270,
        _ => Rotation::None,
    };
    Ok((id, rotation))
}
