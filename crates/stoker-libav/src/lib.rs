//! Decodes compressed video frames and sound with FFmpeg's libavcodec, which is loaded at run time.
//!
//! ```text
//! folders, files, names ──Libav::load──► Libav ──VideoDecoder::new──► VideoDecoder ──send(packet)──► libavcodec
//!                         major checked                                   └──receive──► FrameRef: planes, colours
//!                                          ──AudioDecoder::new──► AudioDecoder ── the same ──► SampleFrame: channels
//! ```
//!
//! Nothing of FFmpeg is needed to build this crate. [`Libav::load`] accepts the major versions 59 to 62 of libavcodec
//! (FFmpeg 5.0 to 8.0): the library of a distribution, or the one inside the wheel `av` of PyPI. `layout.rs` lists the
//! few fields of FFmpeg's structures that are accessed by their offset. All else goes through functions and options.
//!
//! This crate does no I/O besides loading the library, and knows nothing of containers.

mod codec;
mod decoder;
mod error;
mod frame;
mod functions;
mod layout;
mod library;
mod load;
mod pixel_format;
mod raw_decoder;
mod search;
mod sound;
#[cfg(test)]
mod tests;

pub use codec::Codec;
pub use decoder::{Damage, DecoderOptions, VideoDecoder};
pub use error::{DecodeError, LoadError};
pub use frame::{ColorRange, FrameRef, Matrix, Plane};
pub use load::Libav;
pub use pixel_format::{Arrangement, PixelFormat};
pub use sound::{AudioCodec, AudioDecoder, SOUND_CHANNELS_MAX, SampleFrame};
