//! Decodes JPEG files by libjpeg-turbo, which is loaded at run time.
//!
//! ```text
//! Turbo::load ─► library.rs: finds and checks a libjpeg-turbo ─► Arc<Turbo>, shared by all threads
//! Decompressor::open ─► decompressor.rs ─► ffi.rs ─► shim.c ─► libjpeg-turbo
//! ```
//!
//! The library's classic interface, version 6.2, is used, because that is what Pillow's wheel and Debian's
//! `libjpeg62-turbo` export; the wheels of other packages link the library statically or with other versions of its
//! interface. Its errors need `setjmp`, which Rust cannot call, so that `shim.c` stands between.

mod decompressor;
mod ffi;
mod library;
mod probe;

pub use decompressor::Decompressor;
pub(crate) use decompressor::Opened;
pub use library::{LoadError, Turbo};
