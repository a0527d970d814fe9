//! The functions of `shim.c`. No function unwinds or jumps out of its own frame.
#![expect(unsafe_code, reason = "declarations of C functions")]

use std::ffi::{c_char, c_int, c_uint};

/// A function of the library, which only the shim calls, with its real type.
pub(super) type Function = unsafe extern "C" fn();

/// `struct stoker_jpeg`.
#[repr(C)]
pub(super) struct Handle {
    _private: [u8; 0],
}

/// `struct image`.
#[repr(C)]
pub(super) struct Image {
    /// The offset of the first scan's compressed pixels.
    pub header_bytes: usize,
    pub width: c_uint,
    pub height: c_uint,
    pub num_components: c_uint,
    pub color_space: c_uint,
    pub precision: c_uint,
    pub has_many_scans: c_uint,
    pub out_left: c_uint,
    pub out_width: c_uint,
    pub out_height: c_uint,
    pub out_components: c_uint,
    /// Text that ends with a zero byte.
    pub error: [u8; 200],
}

unsafe extern "C" {
    pub(super) fn stoker_jpeg_new(functions: *const Function, scans_max: c_int) -> *mut Handle;
    pub(super) fn stoker_jpeg_image(handle: *mut Handle) -> *const Image;
    pub(super) fn stoker_jpeg_open(handle: *mut Handle, file: *const u8, bytes: usize) -> c_int;
    pub(super) fn stoker_jpeg_start(
        handle: *mut Handle,
        color_space: c_int,
        denominator: c_uint,
        left: c_uint,
        width: c_uint,
    ) -> c_int;
    pub(super) fn stoker_jpeg_read(
        handle: *mut Handle,
        top: c_uint,
        num_rows: c_uint,
        pixels: *mut u8,
        row_bytes: usize,
    ) -> c_int;
    pub(super) fn stoker_jpeg_close(handle: *mut Handle);
    pub(super) fn stoker_jpeg_free(handle: *mut Handle);
    pub(super) fn stoker_jpeg_path(function: Function) -> *const c_char;
}
