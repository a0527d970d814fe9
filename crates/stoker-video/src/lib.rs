//! Decodes clips of videos into tensors, after reading only the parts of a file that hold them.
//!
//! ```text
//! file ──VideoIndex::read──► VideoIndex ──VideoClip::frames_of──► ClipFrames ──packets──► Packets ──byte_ranges──► I/O
//!        MP4, MOV, MKV, WebM   │  ▲                                                        │
//!                      to_bytes▼  │from_bytes        ByteSource ──► VideoClip::decode ◄─────┘
//!                     column beside the file                          │ libavcodec, colours, rotation, size
//!                                                                     ▼
//!                                                                 tensor's bytes
//! ```
//!
//! [`VideoIndex`] lists the frames of a video without decoding. [`VideoClip`] says which frames become a tensor, and
//! how. [`VideoClip::decode`] begins at the key frame before the wanted frames, and takes the compressed frames from a
//! [`ByteSource`], which needs only the ranges that [`Packets::byte_ranges`] lists. [`Decoders`] keeps open decoders.
//!
//! [`CheckedIndex`] has a checksum of each frame beside the index. [`ClipBytes`] puts an index and parts of a file into one
//! value.
//!
//! This crate does no I/O, and does not depend on SQL or gRPC.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod checked_index;
mod choose;
mod clip;
mod clip_bytes;
mod convert;
mod decode;
mod decoders;
mod error;
mod factors;
mod frame_span;
mod full;
mod h264;
mod index;
mod index_bytes;
mod input;
mod interpolated;
mod mkv;
mod mp4;
mod packets;
mod rotate;
mod scratch;
mod source;
mod subsampled;

pub use checked_index::CheckedIndex;
pub use choose::ClipFrames;
pub use clip::{Layout, PIXELS_MAX, Position, VideoClip};
pub use clip_bytes::ClipBytes;
pub use decode::Video;
pub use decoders::Decoders;
pub use error::{BadVideo, Error, Result};
pub use index::{FrameEntry, Rotation, VideoIndex};
pub use packets::{PacketRun, Packets};
pub use source::{ByteSource, Pieces};
pub use stoker_types::ClipStart as Start;

#[cfg(test)]
mod tests;

/// Measures the memory that the targets of `tests/fuzz.rs` hold.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
