//! The stored form of an index. `FORMAT.md` beside this crate's manifest specifies it.

use stoker_libav::{Codec, ColorRange, Matrix};

use crate::index::{EXTRADATA_BYTES_MAX, FrameEntry, Parts};
use crate::input::{Input, put_signed, put_varint};
use crate::{BadVideo, Rotation, VideoIndex};

/// The letters with which the stored form begins; the last one is the version.
const MAGIC: [u8; 4] = *b"SVI1";

/// The letters of version 2, in which the checksums of the frames follow.
const CHECKED_MAGIC: [u8; 4] = *b"SVI2";

/// The bytes of a checksum.
const CHECKSUM_BYTES: usize = 4;

/// The least bytes of a frame: offset, size and time.
const FRAME_BYTES_MIN: usize = 3;

const KEY: u64 = 1;
const HIDDEN: u64 = 2;

impl VideoIndex {
    /// Returns the compact form of the index: a header of about 60 bytes, and 4 to 6 bytes per frame.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.put(MAGIC)
    }

    /// Returns the compact form with a checksum of each frame.
    pub(crate) fn to_checked_bytes(&self, checksums: &[u32]) -> Vec<u8> {
        let mut bytes = self.put(CHECKED_MAGIC);
        checksums.iter().for_each(|checksum| bytes.extend_from_slice(&checksum.to_le_bytes()));
        bytes
    }

    fn put(&self, magic: [u8; 4]) -> Vec<u8> {
        let parts = self.parts();
        let mut bytes = magic.to_vec();
        let numbers = [
            codec_number(parts.codec),
            rotation_number(parts.rotation),
            range_number(parts.range),
            matrix_number(parts.matrix),
            u64::from(parts.height),
            u64::from(parts.width),
            u64::from(parts.time_base.0),
            u64::from(parts.time_base.1),
            parts.file_bytes,
        ];
        numbers.into_iter().for_each(|number| put_varint(&mut bytes, number));
        for part in [&parts.extradata, &parts.prefix] {
            put_varint(&mut bytes, part.len() as u64);
            bytes.extend_from_slice(part);
        }
        let step = step(&parts.frames);
        put_varint(&mut bytes, step);
        put_varint(&mut bytes, parts.frames.len() as u64);
        let (mut end, mut pts) = (0u64, 0i64);
        for frame in &parts.frames {
            put_signed(&mut bytes, frame.offset.wrapping_sub(end).cast_signed());
            let flags = if frame.is_key { KEY } else { 0 } | if frame.is_shown { 0 } else { HIDDEN };
            put_varint(&mut bytes, u64::from(frame.size) << 2 | flags);
            // All differences are multiples of the step, and times are below 2^61 in size.
            put_signed(&mut bytes, (frame.pts - pts) / step.cast_signed());
            end = frame.offset + u64::from(frame.size);
            pts = frame.pts;
        }
        bytes
    }

    /// Reads what [`VideoIndex::to_bytes`] or [`CheckedIndex::to_bytes`](crate::CheckedIndex::to_bytes) wrote. Memory is
    /// bounded by the length of `bytes`.
    ///
    /// # Errors
    /// [`BadVideo`] for bytes that are damaged or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadVideo> {
        Self::from_checked_bytes(bytes).map(|(index, _)| index)
    }

    /// Reads an index of any version, and the checksums of its frames in decoding order; version 1 has none.
    pub(crate) fn from_checked_bytes(bytes: &[u8]) -> Result<(Self, Vec<u32>), BadVideo> {
        let mut input = Input::new(bytes, "the index of the video");
        let magic = input.take(MAGIC.len())?;
        if magic != MAGIC && magic != CHECKED_MAGIC {
            return Err(BadVideo::new("the index of the video is damaged, or of a newer version"));
        }
        let codec = codec_of(input.varint()?)?;
        let rotation = rotation_of(input.varint()?)?;
        let range = range_of(input.varint()?)?;
        let matrix = matrix_of(input.varint()?)?;
        let [height, width, numerator, denominator] =
            [small(&mut input)?, small(&mut input)?, small(&mut input)?, small(&mut input)?];
        let file_bytes = input.varint()?;
        let extradata = part(&mut input)?;
        let prefix = part(&mut input)?;
        let frames = frames(&mut input)?;
        let checksums = match magic == CHECKED_MAGIC {
            true => checksums(&mut input, frames.len())?,
            false => Vec::new(),
        };
        if !input.is_empty() {
            return Err(damaged());
        }
        let index = Self::try_new(Parts {
            codec,
            extradata,
            prefix,
            height,
            width,
            rotation,
            time_base: (numerator, denominator),
            range,
            matrix,
            file_bytes,
            frames,
        })?;
        Ok((index, checksums))
    }
}

fn damaged() -> BadVideo {
    BadVideo::new("the index of the video is damaged")
}

fn small(input: &mut Input<'_>) -> Result<u32, BadVideo> {
    u32::try_from(input.varint()?).map_err(|_| damaged())
}

fn part(input: &mut Input<'_>) -> Result<Vec<u8>, BadVideo> {
    let length = usize::try_from(input.varint()?).ok().filter(|length| *length <= EXTRADATA_BYTES_MAX);
    Ok(input.take(length.ok_or_else(damaged)?)?.to_vec())
}

fn frames(input: &mut Input<'_>) -> Result<Vec<FrameEntry>, BadVideo> {
    let step = i64::try_from(input.varint()?).map_err(|_| damaged())?;
    let count = usize::try_from(input.varint()?).ok().filter(|count| *count <= input.rest().len() / FRAME_BYTES_MIN);
    let count = count.ok_or_else(damaged)?;
    let mut frames = Vec::with_capacity(count);
    let (mut end, mut pts) = (0u64, 0i64);
    for _ in 0..count {
        let offset = end.checked_add_signed(input.signed()?).ok_or_else(damaged)?;
        let word = input.varint()?;
        let size = u32::try_from(word >> 2).map_err(|_| damaged())?;
        let moved = input.signed()?.checked_mul(step).and_then(|change| pts.checked_add(change));
        pts = moved.ok_or_else(damaged)?;
        end = offset.checked_add(u64::from(size)).ok_or_else(damaged)?;
        frames.push(FrameEntry { offset, pts, size, is_key: word & KEY != 0, is_shown: word & HIDDEN == 0 });
    }
    Ok(frames)
}

fn checksums(input: &mut Input<'_>, num_frames: usize) -> Result<Vec<u32>, BadVideo> {
    let bytes = input.take(num_frames.checked_mul(CHECKSUM_BYTES).ok_or_else(damaged)?)?;
    Ok(bytes.as_chunks::<CHECKSUM_BYTES>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
}

/// Returns the greatest common divisor of the differences of successive times, at least 1.
fn step(frames: &[FrameEntry]) -> u64 {
    let (mut divisor, mut last) = (0u64, 0i64);
    for frame in frames {
        let mut rest = last.abs_diff(frame.pts);
        last = frame.pts;
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
    }
    divisor.max(1)
}

const ROTATIONS: [Rotation; 4] = [Rotation::None, Rotation::Clockwise90, Rotation::Half, Rotation::Clockwise270];

const RANGES: [Option<ColorRange>; 3] = [None, Some(ColorRange::Limited), Some(ColorRange::Full)];

const MATRICES: [Option<Matrix>; 6] =
    [None, Some(Matrix::Bt601), Some(Matrix::Bt709), Some(Matrix::Fcc), Some(Matrix::Smpte240m), Some(Matrix::Bt2020)];

fn number<T: PartialEq>(table: &[T], value: &T) -> u64 {
    table.iter().position(|entry| entry == value).unwrap_or(0) as u64
}

fn of<T: Copy>(table: &[T], number: u64) -> Result<T, BadVideo> {
    usize::try_from(number).ok().and_then(|number| table.get(number)).copied().ok_or_else(damaged)
}

fn codec_number(codec: Codec) -> u64 {
    number(&Codec::ALL, &codec)
}

fn codec_of(number: u64) -> Result<Codec, BadVideo> {
    of(&Codec::ALL, number)
}

fn rotation_number(rotation: Rotation) -> u64 {
    number(&ROTATIONS, &rotation)
}

fn rotation_of(number: u64) -> Result<Rotation, BadVideo> {
    of(&ROTATIONS, number)
}

fn range_number(range: Option<ColorRange>) -> u64 {
    number(&RANGES, &range)
}

fn range_of(number: u64) -> Result<Option<ColorRange>, BadVideo> {
    of(&RANGES, number)
}

fn matrix_number(matrix: Option<Matrix>) -> u64 {
    number(&MATRICES, &matrix)
}

fn matrix_of(number: u64) -> Result<Option<Matrix>, BadVideo> {
    of(&MATRICES, number)
}
