//! Tracks: codec, size and colours (RFC 9559, 5.1.4).

use stoker_libav::{Codec, ColorRange, Matrix};

use super::ebml::{Element, Elements};
use crate::{BadVideo, Rotation};

const NUMBER: u32 = 0xD7;
const TYPE: u32 = 0x83;
const CODEC_ID: u32 = 0x86;
const CODEC_PRIVATE: u32 = 0x63A2;
const VIDEO: u32 = 0xE0;
const WIDTH: u32 = 0xB0;
const HEIGHT: u32 = 0xBA;
const COLOUR: u32 = 0x55B0;
const MATRIX: u32 = 0x55B1;
const RANGE: u32 = 0x55B9;
const PROJECTION: u32 = 0x7670;
const ROLL: u32 = 0x7675;
const ENCODINGS: u32 = 0x6D80;
const ENCODING: u32 = 0x6240;
const COMPRESSION: u32 = 0x5034;
const ALGORITHM: u32 = 0x4254;
const SETTINGS: u32 = 0x4255;
const ENCRYPTION: u32 = 0x5035;

/// A video track.
#[derive(Debug)]
pub(crate) struct Track<'a> {
    pub number: u64,
    pub codec: Codec,
    pub extradata: &'a [u8],
    /// Bytes that were removed from the beginning of each frame.
    pub prefix: &'a [u8],
    pub height: u32,
    pub width: u32,
    pub rotation: Rotation,
    pub range: Option<ColorRange>,
    pub matrix: Option<Matrix>,
}

impl<'a> Track<'a> {
    /// Returns `None` for tracks without video.
    pub fn read(entry: &Element<'a>) -> Result<Option<Self>, BadVideo> {
        let (mut kind, mut name, mut private) = (0, &[][..], &[][..]);
        let mut track = Self {
            number: 0,
            codec: Codec::H264,
            extradata: &[],
            prefix: &[],
            height: 0,
            width: 0,
            rotation: Rotation::None,
            range: None,
            matrix: None,
        };
        let mut encodings = None;
        for element in entry.children() {
            let element = element?;
            match element.id {
                NUMBER => track.number = element.unsigned()?,
                TYPE => kind = element.unsigned()?,
                CODEC_ID => name = element.content,
                CODEC_PRIVATE => private = element.content,
                VIDEO => track.read_video(element.children())?,
                ENCODINGS => encodings = Some(element),
                _ => {}
            }
        }
        if kind != 1 {
            return Ok(None);
        }
        track.codec = codec(name)?;
        // Decoders of VP8 and VP9 need no configuration, and decoders without one are shared by all files.
        if !matches!(track.codec, Codec::Vp8 | Codec::Vp9 | Codec::Mjpeg) {
            track.extradata = private;
        }
        if let Some(encodings) = encodings {
            track.read_encodings(encodings.children())?;
        }
        Ok(Some(track))
    }

    fn read_video(&mut self, elements: Elements<'a>) -> Result<(), BadVideo> {
        let edge = |element: &Element<'_>| Ok::<_, BadVideo>(u32::try_from(element.unsigned()?).unwrap_or(u32::MAX));
        for element in elements {
            let element = element?;
            match element.id {
                WIDTH => self.width = edge(&element)?,
                HEIGHT => self.height = edge(&element)?,
                COLOUR => {
                    for element in element.children() {
                        let element = element?;
                        match element.id {
                            MATRIX => self.matrix = Matrix::of_number(i64::try_from(element.unsigned()?).unwrap_or(0)),
                            RANGE => self.range = range(element.unsigned()?),
                            _ => {}
                        }
                    }
                }
                PROJECTION => {
                    for element in element.children() {
                        let element = element?;
                        if element.id == ROLL {
                            self.rotation = rotation(element.float()?);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads how frames are compressed: only the removal of equal first bytes is supported.
    fn read_encodings(&mut self, elements: Elements<'a>) -> Result<(), BadVideo> {
        for element in elements {
            let element = element?;
            if element.id != ENCODING {
                continue;
            }
            for element in element.children() {
                let element = element?;
                match element.id {
                    ENCRYPTION => return Err(BadVideo::new("the video is encrypted")),
                    COMPRESSION => {
                        let (mut algorithm, mut settings) = (0, &[][..]);
                        for element in element.children() {
                            let element = element?;
                            match element.id {
                                ALGORITHM => algorithm = element.unsigned()?,
                                SETTINGS => settings = element.content,
                                _ => {}
                            }
                        }
                        if algorithm != 3 || !self.prefix.is_empty() {
                            return Err(BadVideo::new(
                                "the frames are compressed a second time, which is not supported",
                            ));
                        }
                        self.prefix = settings;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn codec(name: &[u8]) -> Result<Codec, BadVideo> {
    match name.trim_ascii_end() {
        b"V_MPEG4/ISO/AVC" => Ok(Codec::H264),
        b"V_MPEGH/ISO/HEVC" => Ok(Codec::Hevc),
        b"V_VP8" => Ok(Codec::Vp8),
        b"V_VP9" => Ok(Codec::Vp9),
        b"V_AV1" => Ok(Codec::Av1),
        b"V_MPEG4/ISO/SP" | b"V_MPEG4/ISO/ASP" | b"V_MPEG4/ISO/AP" => Ok(Codec::Mpeg4),
        b"V_MJPEG" => Ok(Codec::Mjpeg),
        other => Err(BadVideo::new(format!("videos with the codec {} are not supported", other.escape_ascii()))),
    }
}

fn range(number: u64) -> Option<ColorRange> {
    match number {
        1 => Some(ColorRange::Limited),
        2 => Some(ColorRange::Full),
        _ => None,
    }
}

/// Returns the rotation of a roll, in degrees counter-clockwise.
fn rotation(roll: f64) -> Rotation {
    match roll {
        90.0 => Rotation::Clockwise270,
        -90.0 => Rotation::Clockwise90,
        180.0 | -180.0 => Rotation::Half,
        _ => Rotation::None,
    }
}
