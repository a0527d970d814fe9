//! Loads libavcodec.
#![expect(unsafe_code, reason = "calls a C library")]

use std::ffi::{CStr, OsStr};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::Arc;

use libloading::Library;

use crate::functions::Functions;
use crate::layout::util_major;
use crate::search::candidates;
use crate::{Codec, LoadError, library};

/// A loaded libavcodec, with the libavutil that it uses.
pub struct Libav {
    functions: Functions,
    place: String,
    version: (u32, u32, u32),
    /// The library stays loaded until the process ends, as its threads and tables may outlive this value.
    _library: ManuallyDrop<Library>,
}

impl Libav {
    /// Loads the first usable library: from the files and folders in `search`, in this order, then by the names under
    /// which the system's loader knows it. Of several libraries in one folder the newest is used.
    ///
    /// A library that another part of the process loaded from the same file is shared with it. If nobody changed
    /// libavutil's log level, it is set so that only fatal errors are printed.
    ///
    /// # Errors
    /// [`LoadError`] with all that was tried.
    pub fn load(search: &[PathBuf]) -> Result<Arc<Self>, LoadError> {
        let mut tried = Vec::new();
        for candidate in candidates(search) {
            let name = match candidate {
                Ok(name) => name,
                Err(place) => {
                    tried.push(place);
                    continue;
                }
            };
            match Self::open(&name) {
                Ok(libav) => return Ok(Arc::new(libav)),
                Err(reason) => tried.push((name.to_string_lossy().into_owned(), reason)),
            }
        }
        Err(LoadError { tried })
    }

    /// The file or name from which the library was loaded.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The version of libavcodec: major, minor, micro.
    pub fn version(&self) -> (u32, u32, u32) {
        self.version
    }

    /// Returns whether the library has a decoder for a codec.
    pub fn has_decoder(&self, codec: Codec) -> bool {
        self.find_decoder(codec.decoders()).is_some()
    }

    pub(crate) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Returns the first of some decoders, an `AVCodec`, which lives as long as the library.
    pub(crate) fn find_decoder(&self, names: &[&CStr]) -> Option<*const std::ffi::c_void> {
        names.iter().find_map(|name| {
            // SAFETY: the name ends with a zero byte; the function only reads static tables.
            let found = unsafe { (self.functions.avcodec_find_decoder_by_name)(name.as_ptr()) };
            (!found.is_null()).then_some(found)
        })
    }

    /// Returns the text of an error number.
    pub(crate) fn text(&self, error: i32) -> String {
        let mut text = [0; 128];
        // SAFETY: the function writes at most the given number of bytes, with a zero byte at the end.
        unsafe { (self.functions.av_strerror)(error, text.as_mut_ptr().cast(), text.len()) };
        let text = CStr::from_bytes_until_nul(&text).map(|text| text.to_string_lossy().into_owned());
        text.unwrap_or_else(|_| format!("error {error}"))
    }

    fn open(name: &OsStr) -> Result<Self, String> {
        if size_of::<usize>() != 8 {
            return Err("this processor does not have addresses of 64 bits".to_string());
        }
        let library = library::open(name)?;
        // Symbols of libavutil are found through libavcodec, which depends on it.
        let functions = Functions::of(&library).map_err(|missing| format!("has no function {missing}"))?;
        // SAFETY: both functions only return a number.
        let (codec, util) = unsafe { ((functions.avcodec_version)(), (functions.avutil_version)()) };
        let version = (codec >> 16, codec >> 8 & 0xFF, codec & 0xFF);
        if util_major(version.0) != Some(util >> 16) {
            return Err(format!("has the major version {}, with libavutil {}", version.0, util >> 16));
        }
        silence(&functions);
        Ok(Self { functions, place: name.to_string_lossy().into_owned(), version, _library: library })
    }
}

/// Raises the log level of libavutil from the default `AV_LOG_INFO` to `AV_LOG_FATAL`, and leaves other levels, which
/// somebody chose. Decoders need no level, as their messages are below all levels; this is for the few messages that
/// FFmpeg prints without a decoder.
fn silence(functions: &Functions) {
    const INFO: i32 = 32;
    const FATAL: i32 = 8;
    // SAFETY: both functions read or write one atomic number.
    unsafe {
        if (functions.av_log_get_level)() == INFO {
            (functions.av_log_set_level)(FATAL);
        }
    }
}

impl fmt::Debug for Libav {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Libav").field("place", &self.place).field("version", &self.version).finish_non_exhaustive()
    }
}
