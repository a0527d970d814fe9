//! The box stsd: codec and size of a track (ISO/IEC 14496-12, 12.1.3; 14496-14 and -15; AV1 in ISOBMFF; VP9 in ISOBMFF).

use stoker_libav::{Codec, ColorRange, Matrix};

use super::boxes::{Boxes, version_and_flags};
use crate::BadVideo;
use crate::input::Input;

/// The description of a track's frames.
#[derive(Debug)]
pub(crate) struct Description<'a> {
    pub codec: Codec,
    /// The configuration of the codec, as libavcodec takes it.
    pub extradata: &'a [u8],
    pub height: u32,
    pub width: u32,
    pub range: Option<ColorRange>,
    pub matrix: Option<Matrix>,
}

/// The bytes of a visual sample entry before the boxes that it contains.
const ENTRY_BYTES: usize = 78;

impl<'a> Description<'a> {
    /// Reads a description by its number, which is counted from 1.
    pub fn read(stsd: &'a [u8], number: u32) -> Result<Self, BadVideo> {
        let mut input = Input::new(stsd, "the box stsd");
        version_and_flags(&mut input)?;
        input.skip(4)?;
        let index = usize::try_from(number).unwrap_or(usize::MAX).saturating_sub(1);
        let entry = Boxes::new(input.rest(), "the box stsd").nth(index);
        let entry = entry.ok_or_else(|| BadVideo::new(format!("the box stsd has no description {number}")))??;
        let codec = codec(entry.kind, entry.content)?;
        let mut input = Input::new(entry.content, "the description of the video");
        input.skip(24)?;
        let (width, height) = (u32::from(input.u16()?), u32::from(input.u16()?));
        let mut description = Self { codec, extradata: &[], height, width, range: None, matrix: None };
        for found in Boxes::new(entry.content.get(ENTRY_BYTES..).unwrap_or_default(), "the description of the video") {
            // Some writers leave bytes that are no box.
            let Ok(found) = found else { break };
            match (&found.kind, codec) {
                (b"avcC", Codec::H264) | (b"hvcC", Codec::Hevc) | (b"av1C", Codec::Av1) => {
                    description.extradata = found.content;
                }
                (b"esds", Codec::Mpeg4) => description.extradata = elementary(found.content)?,
                (b"colr", _) => description.read_colors(found.content)?,
                _ => {}
            }
        }
        Ok(description)
    }

    /// Reads colr (12.1.5): the codes of ITU-T H.273.
    fn read_colors(&mut self, content: &[u8]) -> Result<(), BadVideo> {
        let mut input = Input::new(content, "the box colr");
        let kind = input.take(4)?;
        if kind == b"nclx" || kind == b"nclc" {
            input.skip(4)?;
            self.matrix = Matrix::of_number(i64::from(input.u16()?));
        }
        if kind == b"nclx" {
            self.range = Some(if input.u8()? & 0x80 != 0 { ColorRange::Full } else { ColorRange::Limited });
        }
        Ok(())
    }
}

fn codec(kind: [u8; 4], content: &[u8]) -> Result<Codec, BadVideo> {
    match &kind {
        b"avc1" | b"avc2" | b"avc3" | b"avc4" => Ok(Codec::H264),
        b"hvc1" | b"hev1" => Ok(Codec::Hevc),
        b"vp08" => Ok(Codec::Vp8),
        b"vp09" => Ok(Codec::Vp9),
        b"av01" => Ok(Codec::Av1),
        b"mp4v" => object_codec(content),
        b"jpeg" | b"mjpg" => Ok(Codec::Mjpeg),
        b"encv" => Err(BadVideo::new("the video is encrypted")),
        other => Err(BadVideo::new(format!("videos with the codec {} are not supported", other.escape_ascii()))),
    }
}

/// Returns the codec of an entry mp4v by the object type in its esds.
fn object_codec(content: &[u8]) -> Result<Codec, BadVideo> {
    let boxes = Boxes::new(content.get(ENTRY_BYTES..).unwrap_or_default(), "the description of the video");
    let esds = boxes.map_while(Result::ok).find(|found| &found.kind == b"esds");
    let object = match esds {
        Some(found) => decoder_config(found.content)?.u8()?,
        None => return Err(BadVideo::new("the description mp4v has no box esds")),
    };
    match object {
        0x20 => Ok(Codec::Mpeg4),
        0x6C => Ok(Codec::Mjpeg),
        _ => Err(BadVideo::new(format!("videos with the object type {object} of MPEG-4 are not supported"))),
    }
}

/// Returns the configuration in esds (ISO/IEC 14496-1, 7.2.6), or nothing.
fn elementary(esds: &[u8]) -> Result<&[u8], BadVideo> {
    let mut input = decoder_config(esds)?;
    input.skip(13)?;
    if input.is_empty() {
        return Ok(&[]);
    }
    let (tag, content) = descriptor(&mut input)?;
    Ok(if tag == 5 { content } else { &[] })
}

/// Returns the content of the descriptor of the decoder's configuration.
fn decoder_config(esds: &[u8]) -> Result<Input<'_>, BadVideo> {
    const NAME: &str = "the box esds";
    let mut input = Input::new(esds, NAME);
    version_and_flags(&mut input)?;
    let (_, stream) = descriptor(&mut input)?;
    let mut input = Input::new(stream, NAME);
    input.skip(2)?;
    let flags = input.u8()?;
    if flags & 0x80 != 0 {
        input.skip(2)?;
    }
    if flags & 0x40 != 0 {
        let length = input.u8()?;
        input.skip(usize::from(length))?;
    }
    if flags & 0x20 != 0 {
        input.skip(2)?;
    }
    let (tag, config) = descriptor(&mut input)?;
    if tag != 4 {
        return Err(BadVideo::new("the box esds has no configuration of a decoder"));
    }
    Ok(Input::new(config, NAME))
}

/// Reads a tag and the content of a descriptor, whose length has groups of 7 bits, the highest first.
fn descriptor<'a>(input: &mut Input<'a>) -> Result<(u8, &'a [u8]), BadVideo> {
    let tag = input.u8()?;
    let mut length = 0;
    for _ in 0..4 {
        let byte = input.u8()?;
        length = length << 7 | usize::from(byte & 0x7F);
        if byte < 0x80 {
            break;
        }
    }
    Ok((tag, input.take(length)?))
}
