//! Turns sound files into tensors.
//!
//! ```text
//! file's bytes ──Container──► Wav ──────────────────────┐
//!                             Mp3, Vorbis, Opus, Stream ┴─► Planes ──Resampler──► tensor's bytes
//!                             (frames and pages of sound;   (samples of the clip's
//!                              seek, decode, discard)        part, mixed down)
//! ```
//!
//! [`AudioClip`] defines the tensor of each sound, and [`AudioClip::decode`] makes it from the bytes of a file, with the
//! buffers in [`Scratch`]. [`header`] reads what a file holds, and [`is_sound`] tells whether it is a sound file at all.
//!
//! | container | codecs | how a clip is reached |
//! |---|---|---|
//! | WAV, RF64 | PCM of 8 to 32 bits, float, A-law, µ-law | its bytes are read |
//! | FLAC | FLAC | binary search |
//! | MP3 | layer III | all frame headers are read |
//! | Ogg | Vorbis, Opus | all page headers are read |
//! | MP4, M4A, MOV | AAC, ALAC, FLAC, MP3, PCM | the table of samples; of HE-AAC, decoding from the beginning |
//! | Matroska, WebM | the same, Vorbis | decoding from the beginning |
//! | MP4, Matroska, WebM | Opus | the lengths of all packets are read |
//!
//! Opus, AAC other than LC with one or two channels, and Vorbis with more than two channels are decoded by libavcodec,
//! which [`Scratch::new`] gives. ADPCM and other codecs give an error that names them. A clip starts with as much sound before it as the codec needs to give the same samples as from the
//! beginning. The delay of encoders is removed where the file tells it: by LAME's tag, by the granules of Ogg, by the edit
//! list of MP4, by the header of Opus.
//!
//! This crate starts no threads, does no I/O, and does not depend on SQL or gRPC.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod blocks;
mod clip;
mod codec;
mod container;
mod decode;
mod error;
mod flac_header;
mod libav_decoder;
mod libav_source;
mod matroska_delay;
mod memory_file;
mod mp3;
mod mp4_edits;
mod mpeg_frame;
mod ogg_packets;
mod ogg_pages;
mod opus;
mod opus_decoder;
mod opus_head;
mod opus_ogg;
mod opus_track;
mod planes;
mod resample;
mod scratch;
mod sound;
mod stream;
mod vorbis;
mod vorbis_setup;
mod wav;
mod xing_tag;

pub use clip::{AUDIO_BYTES_MAX, AudioClip, CHANNELS_MAX, SAMPLE_RATE_MAX, Start};
pub use container::is_sound;
pub use error::{BadSound, Error, Result};
pub use libav_source::LibavSource;
pub use scratch::Scratch;
pub use sound::{Header, header};

#[cfg(test)]
mod tests;

/// Measures the memory that the targets of `tests/fuzz.rs` hold.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
