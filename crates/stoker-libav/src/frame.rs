//! Decoded frames.
#![expect(unsafe_code, reason = "reads structures of a C library")]

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::{ptr, slice};

use crate::layout::{buffer, frame};
use crate::{Arrangement, DecodeError, Libav, PixelFormat};

/// Which values the samples of a frame use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ColorRange {
    /// Luma from 16 to 235 and chroma from 16 to 240, at 8 bits.
    #[default]
    Limited,
    /// All values.
    Full,
}

/// The coefficients between red, green, blue and the samples of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Matrix {
    /// ITU-R BT.601, also that of BT.470 and SMPTE 170M. libswscale uses it for frames without a known matrix.
    #[default]
    Bt601,
    /// ITU-R BT.709.
    Bt709,
    /// The coefficients of the FCC, 47 CFR 73.682.
    Fcc,
    /// SMPTE 240M.
    Smpte240m,
    /// ITU-R BT.2020 with constant or non-constant luminance; both are converted like the latter.
    Bt2020,
}

impl Matrix {
    /// Returns the matrix of a number of ITU-T H.273, table 4; `None` for "unspecified" and for matrices that have no
    /// coefficients of luma.
    pub fn of_number(number: i64) -> Option<Self> {
        match number {
            1 => Some(Matrix::Bt709),
            4 => Some(Matrix::Fcc),
            5 | 6 => Some(Matrix::Bt601),
            7 => Some(Matrix::Smpte240m),
            9 | 10 => Some(Matrix::Bt2020),
            _ => None,
        }
    }
}

/// One plane of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a> {
    /// The rows, each [`Plane::stride`] bytes after the previous one. The last row ends with its last sample.
    pub bytes: &'a [u8],
    /// The bytes from a row to the next one.
    pub stride: usize,
    /// The bytes of a row that hold samples.
    pub row_bytes: usize,
    /// The number of rows.
    pub num_rows: usize,
}

impl<'a> Plane<'a> {
    /// Returns the rows from the top, each with [`Plane::row_bytes`] bytes.
    pub fn rows(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let row_bytes = self.row_bytes;
        self.bytes.chunks(self.stride.max(1)).map(move |row| row.get(..row_bytes).unwrap_or_default())
    }

    /// Returns a row, counted from the top, or the last one if there are fewer.
    pub fn row(&self, number: usize) -> &'a [u8] {
        let start = number.min(self.num_rows.saturating_sub(1)) * self.stride;
        self.bytes.get(start..start + self.row_bytes).unwrap_or_default()
    }
}

/// A decoded frame, which the decoder lends until it is asked for the next one.
#[derive(Clone, Copy, Debug)]
pub struct FrameRef<'a> {
    /// The time that was given with the frame's packet; `None` if the decoder lost it.
    pub pts: Option<i64>,
    /// The number of rows of pixels.
    pub height: u32,
    /// The number of pixels in a row.
    pub width: u32,
    /// The format of the pixels.
    pub format: PixelFormat,
    /// The range that the stream states, or that its format implies.
    pub range: Option<ColorRange>,
    /// The matrix that the stream states.
    pub matrix: Option<Matrix>,
    /// Whether samples of chroma lie at the left one of the pixels for which they stand. Else they lie at the centre, or
    /// the stream does not state it.
    pub has_left_chroma: bool,
    planes: [Plane<'a>; 3],
}

/// The colours that a decoder knows of its stream, as numbers of FFmpeg.
#[derive(Clone, Copy, Default)]
pub(crate) struct Colors {
    pub range: i64,
    pub matrix: i64,
    pub location: i64,
}

impl<'a> FrameRef<'a> {
    /// The planes, as many as [`PixelFormat::num_planes`] says.
    pub fn planes(&self) -> &[Plane<'a>] {
        self.planes.get(..self.format.num_planes()).unwrap_or_default()
    }

    /// Reads an `AVFrame` that a decoder filled.
    ///
    /// # Safety
    /// `raw` must be an `AVFrame` of the library, which is unchanged during `'a`.
    pub(crate) unsafe fn read(
        libav: &Libav,
        raw: *mut c_void,
        colors: Colors,
        _owner: PhantomData<&'a ()>,
    ) -> Result<Self, DecodeError> {
        // SAFETY: the fields lie at these offsets of every `AVFrame`, see `layout.rs`.
        let (width, height, number, pts) = unsafe {
            (
                field::<i32>(raw, frame::WIDTH),
                field::<i32>(raw, frame::HEIGHT),
                field::<i32>(raw, frame::FORMAT),
                field::<i64>(raw, frame::PTS),
            )
        };
        let format = format(libav, number)?;
        let positive = |size: i32| u32::try_from(size).ok().filter(|size| *size > 0);
        let (Some(height), Some(width)) = (positive(height), positive(width)) else {
            return Err(DecodeError::Frame { reason: format!("it has {width} x {height} pixels") });
        };
        let empty = Plane { bytes: &[], stride: 0, row_bytes: 0, num_rows: 0 };
        let mut planes = [empty; 3];
        for (index, plane) in planes.iter_mut().enumerate().take(format.num_planes()) {
            // SAFETY: as above; the bytes that are read belong to a buffer that the frame holds.
            *plane =
                unsafe { read_plane(libav, raw, index, format.plane_size(index, height as usize, width as usize)) }?;
        }
        let range = match colors.range {
            _ if format.is_full_range => Some(ColorRange::Full),
            1 => Some(ColorRange::Limited),
            2 => Some(ColorRange::Full),
            _ => None,
        };
        let pts = (pts != i64::MIN).then_some(pts);
        // `AVCHROMA_LOC_LEFT`, `AVCHROMA_LOC_TOPLEFT` and `AVCHROMA_LOC_BOTTOMLEFT`.
        let has_left_chroma = matches!(colors.location, 1 | 3 | 5);
        Ok(Self {
            pts,
            height,
            width,
            format,
            range,
            matrix: Matrix::of_number(colors.matrix),
            has_left_chroma,
            planes,
        })
    }
}

/// Returns a plane after checking that its rows lie in the buffer that the frame holds for it.
///
/// # Safety
/// `raw` must be an `AVFrame` of the library, which is unchanged during `'a`.
unsafe fn read_plane<'a>(
    libav: &Libav,
    raw: *mut c_void,
    index: usize,
    (row_bytes, num_rows): (usize, usize),
) -> Result<Plane<'a>, DecodeError> {
    let bad = |reason: String| DecodeError::Frame { reason };
    // SAFETY: `AVFrame` has eight elements in the field, and `index` is below 3.
    let stride = unsafe { field::<i32>(raw, frame::LINESIZE + index * size_of::<i32>()) };
    let Some(stride) = usize::try_from(stride).ok().filter(|stride| *stride >= row_bytes) else {
        return Err(bad(format!("rows of {row_bytes} bytes lie {stride} bytes apart")));
    };
    let length = (num_rows.saturating_sub(1)).checked_mul(stride).and_then(|length| length.checked_add(row_bytes));
    let length = length.ok_or_else(|| bad(format!("its plane {index} has {num_rows} rows of {stride} bytes")))?;
    // SAFETY: as the caller guarantees.
    let bytes = unsafe { held_bytes(libav, raw, index, length) }?;
    Ok(Plane { bytes, stride, row_bytes, num_rows })
}

/// Returns the first bytes of a plane after checking that they lie in the buffer that the frame holds for it.
///
/// # Safety
/// `raw` must be an `AVFrame` of the library, which is unchanged during `'a`. `index` must be below 8.
pub(crate) unsafe fn held_bytes<'a>(
    libav: &Libav,
    raw: *mut c_void,
    index: usize,
    length: usize,
) -> Result<&'a [u8], DecodeError> {
    let bad = |reason: String| DecodeError::Frame { reason };
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "below 8")]
    let number = index as i32;
    // SAFETY: `AVFrame` has eight elements in the field. The function returns a buffer of the frame that contains the
    // start of the plane, or null.
    let (start, held) = unsafe {
        let start = field::<*const u8>(raw, frame::DATA + index * size_of::<*const u8>());
        (start, (libav.functions().av_frame_get_plane_buffer)(raw, number))
    };
    if start.is_null() || held.is_null() {
        return Err(bad(format!("its plane {index} is missing")));
    }
    // SAFETY: `held` is an `AVBufferRef`.
    let (base, size) = unsafe { (field::<*const u8>(held, buffer::DATA), field::<usize>(held, buffer::SIZE)) };
    let end = (start as usize).checked_sub(base as usize).and_then(|offset| offset.checked_add(length));
    if end.is_none_or(|end| end > size) {
        return Err(bad(format!("its plane {index} of {length} bytes is larger than its buffer of {size} bytes")));
    }
    // SAFETY: the bytes lie in a buffer that the frame holds, and nobody writes to it while the frame holds it.
    Ok(unsafe { slice::from_raw_parts(start, length) })
}

fn format(libav: &Libav, number: i32) -> Result<PixelFormat, DecodeError> {
    // SAFETY: the function returns null or a text that lives as long as the library.
    let name = unsafe {
        let name = (libav.functions().av_get_pix_fmt_name)(number);
        if name.is_null() { c"unknown" } else { CStr::from_ptr(name) }
    };
    let name = name.to_str().unwrap_or("unknown");
    // Formats with opacity are not supported, as only few decoders have them.
    PixelFormat::of_name(name).ok_or_else(|| DecodeError::PixelFormat { name: name.to_string(), number })
}

/// Reads a field of a structure.
///
/// # Safety
/// A value of type `T` must lie at the offset.
pub(crate) unsafe fn field<T: Copy>(structure: *const c_void, offset: usize) -> T {
    // SAFETY: the caller guarantees it.
    unsafe { ptr::read_unaligned(structure.byte_add(offset).cast()) }
}

/// Writes a field of a structure.
///
/// # Safety
/// A value of type `T` must lie at the offset, which nobody else uses at the same time.
pub(crate) unsafe fn set_field<T: Copy>(structure: *mut c_void, offset: usize, value: T) {
    // SAFETY: the caller guarantees it.
    unsafe { ptr::write_unaligned(structure.byte_add(offset).cast(), value) }
}

impl PixelFormat {
    /// Returns whether samples of chroma exist.
    pub fn has_color(self) -> bool {
        self.arrangement != Arrangement::Gray
    }
}
