//! One thread's decoder of JPEG files.
#![expect(unsafe_code, reason = "calls of the shim, see the safety comments")]

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

use super::ffi::{self, Handle};
use super::library::Turbo;
use crate::segments::has_end_marker;
use crate::{BadValue, Header, Window};

/// The most scans of a file, as TurboJPEG's `TJFLAG_LIMITSCANS` limits them. Progressive files have about ten; a small
/// file of many empty scans takes time without end.
const SCANS_MAX: c_int = 500;

/// The number of columns beside a window that are decoded with it: libjpeg interpolates colours from two columns.
const NEIGHBOURS: u32 = 4;

/// libjpeg's numbers of colour spaces (`J_COLOR_SPACE`).
const GRAY: u32 = 1;
const RGB: u32 = 2;
const YCBCR: u32 = 3;
const CMYK: u32 = 4;
const YCCK: u32 = 5;

/// Decodes JPEG files by libjpeg-turbo, one at a time.
///
/// libjpeg's own object is created anew for each file: a reused object would keep the tables of the file before, and a
/// file without tables would decode to pixels that depend on its predecessor.
pub struct Decompressor {
    handle: NonNull<Handle>,
    _turbo: Arc<Turbo>,
}

// SAFETY: the handle is memory of its own, without ties to a thread, and no two threads have it at the same time.
unsafe impl Send for Decompressor {}

/// A JPEG file whose header was read.
pub(crate) struct Opened<'a> {
    decompressor: &'a mut Decompressor,
    /// libjpeg reads from the file until it is closed.
    file: &'a [u8],
}

/// The size of decoded pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub height: u32,
    pub width: u32,
    /// 1 for gray, 3 for RGB, 4 for CMYK.
    pub channels: u32,
}

impl Decompressor {
    /// Creates a decoder.
    ///
    /// # Errors
    /// [`BadValue`] if there is no memory.
    pub fn new(turbo: &Arc<Turbo>) -> Result<Self, BadValue> {
        // SAFETY: there are as many functions as the shim copies.
        let handle = NonNull::new(unsafe { ffi::stoker_jpeg_new(turbo.functions.as_ptr(), SCANS_MAX) });
        let handle = handle.ok_or_else(|| BadValue::new("no memory for a decoder"))?;
        Ok(Self { handle, _turbo: turbo.clone() })
    }

    /// Reads the header of a file.
    pub(crate) fn open<'a>(&'a mut self, file: &'a [u8]) -> Result<Opened<'a>, BadValue> {
        // SAFETY: the file lives as long as the result. The shim reads from it only in calls that the result makes; it
        // closes a file before it opens another, also if the result was forgotten.
        let is_open = unsafe { ffi::stoker_jpeg_open(self.handle.as_ptr(), file.as_ptr(), file.len()) };
        let opened = Opened { decompressor: self, file };
        if is_open == 0 {
            return Err(opened.error());
        }
        let image = opened.image();
        if image.precision != 8 {
            return Err(BadValue::new(format!("the JPEG file has samples of {} bits, not of 8", image.precision)));
        }
        opened.channels().map(|_| opened)
    }
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // SAFETY: the handle is not used any more.
        unsafe { ffi::stoker_jpeg_free(self.handle.as_ptr()) }
    }
}

impl Opened<'_> {
    /// The size of the pixels at full scale.
    pub fn shape(&self) -> Shape {
        let ffi::Image { height, width, .. } = *self.image();
        Shape { height, width, channels: self.channels().unwrap_or_default().1 }
    }

    /// Returns an upper bound of the bytes that libjpeg takes for the coefficients of the whole image: two for each
    /// sample if the file has several scans, else none. Edges are rounded up to the largest unit of 32 pixels.
    pub fn coefficient_bytes(&self) -> u64 {
        let ffi::Image { height, width, num_components, has_many_scans, .. } = *self.image();
        let rounded = |edge: u32| u64::from(edge.next_multiple_of(32));
        if has_many_scans == 0 { 0 } else { rounded(height) * rounded(width) * u64::from(num_components) * 2 }
    }

    /// Tells whether an end-of-image marker comes after the header, where libjpeg found its end. With it, libjpeg
    /// cannot run out of bytes in a file of one scan, so that no window of it is refused.
    pub fn has_end(&self) -> bool {
        has_end_marker(self.file.get(self.image().header_bytes..).unwrap_or_default())
    }

    /// Decodes at least a window of the image at 1/`denominator` of its size (1, 2, 4 or 8; rounded up, which `header`
    /// is) into `pixels`, whose previous content is replaced. Returns the window that was decoded.
    pub fn decode(
        self,
        denominator: u32,
        header: Header,
        window: &Window,
        pixels: &mut Vec<u8>,
    ) -> Result<Window, BadValue> {
        let (found, row_bytes) = self.start(denominator, header, window)?;
        // The old content stays, because libjpeg writes every byte of every row or reports an error.
        pixels.resize(row_bytes * found.height as usize, 0);
        self.read(&found, row_bytes, pixels)?;
        Ok(found)
    }

    /// Decodes the whole image into `pixels`, which has as many bytes. After an error, some of them are written.
    pub fn decode_into(self, header: Header, pixels: &mut [u8]) -> Result<(), BadValue> {
        let (found, row_bytes) = self.start(1, header, &Window::whole(header))?;
        self.read(&found, row_bytes, pixels)
    }

    /// Starts to decode at least a window. Returns the window that is decoded, and the bytes of its rows.
    fn start(&self, denominator: u32, header: Header, window: &Window) -> Result<(Window, usize), BadValue> {
        let handle = self.decompressor.handle.as_ptr();
        let (color_space, channels) = self.channels()?;
        let (left, width) = window.columns(header.width);
        // SAFETY: the file is open and lives. libjpeg knows the color space, and refuses columns that the image lacks.
        if unsafe { ffi::stoker_jpeg_start(handle, color_space, denominator, left, width) } == 0 {
            return Err(self.error());
        }
        let ffi::Image { out_height, out_left, out_width, out_components, .. } = *self.image();
        let rows_end = window.top.checked_add(window.height).filter(|end| *end <= out_height);
        if out_components != channels || out_width > header.width || out_height != header.height || rows_end.is_none() {
            let reason = format!("{out_height}x{out_width}x{out_components} pixels are not as expected");
            return Err(BadValue::new(reason));
        }
        let row_bytes = out_width as usize * channels as usize;
        Ok((Window { top: window.top, left: out_left, height: window.height, width: out_width }, row_bytes))
    }

    /// Reads the rows of the window that [`Opened::start`] returned with `row_bytes`.
    fn read(&self, window: &Window, row_bytes: usize, pixels: &mut [u8]) -> Result<(), BadValue> {
        let (num_bytes, room) = (row_bytes * window.height as usize, pixels.len());
        if num_bytes != room {
            return Err(BadValue::new(format!("{num_bytes} bytes of pixels do not fit {room}")));
        }
        let handle = self.decompressor.handle.as_ptr();
        // SAFETY: decoding has started, and `pixels` has room for `window.height` rows of `row_bytes`, into each of
        // which libjpeg writes `out_width * out_components` bytes. The image has the rows of the window.
        if unsafe { ffi::stoker_jpeg_read(handle, window.top, window.height, pixels.as_mut_ptr(), row_bytes) } == 0 {
            return Err(self.error());
        }
        Ok(())
    }

    /// Returns libjpeg's number of the color space of the pixels, and its number of channels.
    fn channels(&self) -> Result<(c_int, u32), BadValue> {
        match self.image().color_space {
            GRAY => Ok((1, 1)),
            RGB | YCBCR => Ok((2, 3)),
            CMYK | YCCK => Ok((4, 4)),
            _ => {
                let components = self.image().num_components;
                Err(BadValue::new(format!("the JPEG file has {components} components of unknown colours")))
            }
        }
    }

    fn image(&self) -> &ffi::Image {
        // SAFETY: the pointer is to memory of the handle, which lives as long as the result. Only calls that need
        // `self` or its parts change it, and no reference is held across them.
        unsafe { &*ffi::stoker_jpeg_image(self.decompressor.handle.as_ptr()) }
    }

    fn error(&self) -> BadValue {
        let text = CStr::from_bytes_until_nul(&self.image().error).unwrap_or_default();
        BadValue::new(text.to_string_lossy())
    }
}

impl Window {
    /// Returns the first column that libjpeg must decode, and the number of columns. The colours of a window's outer
    /// pixels depend on their neighbours where the colour planes are smaller than the image.
    fn columns(&self, image_width: u32) -> (u32, u32) {
        let left = self.left.saturating_sub(NEIGHBOURS);
        let end = self.left.saturating_add(self.width).saturating_add(NEIGHBOURS).min(image_width);
        (left, end.saturating_sub(left))
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle lives. Closing a file twice, or one that failed to open, does nothing.
        unsafe { ffi::stoker_jpeg_close(self.decompressor.handle.as_ptr()) }
    }
}
