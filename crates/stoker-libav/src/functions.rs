//! The functions of libavcodec and libavutil that this crate calls.
#![expect(unsafe_code, reason = "functions of a C library have no other form")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

/// Declares the table of functions and how it is filled.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Pointers to functions, valid as long as the library is loaded.
        pub(crate) struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Looks up all functions. Returns the name of the first one that is missing.
            pub fn of(library: &Library) -> Result<Self, &'static str> {
                // SAFETY: each type is the declaration of the function in FFmpeg's headers, which is the same in all
                // major versions that `layout.rs` lists. `Libav` never unloads the library.
                unsafe {
                    Ok(Self { $($name: *library.get(stringify!($name)).map_err(|_| stringify!($name))?,)* })
                }
            }
        }
    };
}

functions! {
    avcodec_version: fn() -> c_uint;
    avutil_version: fn() -> c_uint;
    avcodec_find_decoder_by_name: fn(*const c_char) -> *const c_void;
    avcodec_descriptor_get_by_name: fn(*const c_char) -> *const c_void;
    avcodec_alloc_context3: fn(*const c_void) -> *mut c_void;
    avcodec_free_context: fn(*mut *mut c_void);
    avcodec_parameters_alloc: fn() -> *mut c_void;
    avcodec_parameters_free: fn(*mut *mut c_void);
    avcodec_parameters_to_context: fn(*mut c_void, *const c_void) -> c_int;
    avcodec_open2: fn(*mut c_void, *const c_void, *mut *mut c_void) -> c_int;
    avcodec_send_packet: fn(*mut c_void, *const c_void) -> c_int;
    avcodec_receive_frame: fn(*mut c_void, *mut c_void) -> c_int;
    avcodec_flush_buffers: fn(*mut c_void);
    av_packet_alloc: fn() -> *mut c_void;
    av_packet_free: fn(*mut *mut c_void);
    av_packet_unref: fn(*mut c_void);
    av_new_packet: fn(*mut c_void, c_int) -> c_int;
    av_frame_alloc: fn() -> *mut c_void;
    av_frame_free: fn(*mut *mut c_void);
    av_frame_get_plane_buffer: fn(*mut c_void, c_int) -> *mut c_void;
    av_mallocz: fn(usize) -> *mut c_void;
    av_opt_set_int: fn(*mut c_void, *const c_char, i64, c_int) -> c_int;
    av_opt_set: fn(*mut c_void, *const c_char, *const c_char, c_int) -> c_int;
    av_opt_get_int: fn(*mut c_void, *const c_char, c_int, *mut i64) -> c_int;
    av_get_pix_fmt_name: fn(c_int) -> *const c_char;
    av_strerror: fn(c_int, *mut c_char, usize) -> c_int;
    av_log_get_level: fn() -> c_int;
    av_log_set_level: fn(c_int);
}
