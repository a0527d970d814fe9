//! Turns image files into tensors.
//!
//! ```text
//! file's bytes ──ImageFile──► pixels ──geometry──► region ──resize──► resized pixels ──write──► tensor's bytes
//!                JPEG: SIMD             ▲ draws                                         ▲ flip, layout,
//!                PNG, WebP              └─ sample_seed(stream seed, epoch, position, column)  normalization
//! ```
//!
//! [`ImageTransform`] defines the tensor of each image. [`BatchDecoder`] decodes the rows of a column on its own
//! threads and writes each tensor directly to its offset in the batch's buffer. Ingest uses the same [`ImageFile`],
//! [`resize`] and [`write_tensor`], so that an image gives the same pixels wherever it is decoded.
//!
//! Augmentations are pure functions of each row's seed; `RANDOMNESS.md` beside this crate's manifest specifies them.
//! This crate does no I/O, and does not depend on SQL or gRPC.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod batch_decoder;
mod error;
mod geometry;
mod image_file;
mod planes;
mod random;
mod resize;
mod scratch;
mod transform;
mod write;

pub use batch_decoder::{BatchDecoder, decode_images};
pub use error::{BadImage, Error, Result};
pub use geometry::Region;
pub use image_file::{Header, ImageFile, decode_jpeg_alone};
pub use random::sample_seed;
pub use resize::{Pixels, resize};
pub use transform::{
    Channels, Crop, Element, Fit, IMAGE_BYTES_MAX, ImageTransform, Interpolation, Layout, Normalize, Orientation,
    RandomResizedCrop,
};
pub use write::{Frame, write_tensor};

#[cfg(test)]
mod tests;
