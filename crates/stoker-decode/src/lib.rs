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
//! JPEG files are decoded by zune-jpeg or, where a transform asks for it, by a libjpeg-turbo that [`Turbo::load`]
//! finds.
//!
//! This crate does no I/O, except that it loads this library, and does not depend on SQL or gRPC.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod batch_decoder;
mod column_values;
mod error;
mod geometry;
mod image_decoder;
mod image_file;
mod jitter;
mod jpeg;
mod jpeg_file;
mod output_array;
mod planes;
mod png_values;
mod random;
mod read_placed;
mod resize;
mod rotate;
mod scratch;
mod segments;
mod shrink;
mod transform;
mod turbo;
mod value_decoder;
mod window;
mod write;

pub use batch_decoder::{BatchDecoder, RowMemory};
pub use column_values::{is_file, is_text, numbers, value_bytes};
pub use error::{BadValue, Error, Result};
pub use geometry::Region;
pub use image_decoder::{ImageDecoder, decode_images};
pub use image_file::{Header, ImageFile};
pub use jpeg::{Jpeg, JpegDecoder};
pub use jpeg_file::decode_jpeg_alone;
pub use output_array::{list_array, output_array};
pub use random::{bucket_row_seed, draw_start, sample_seed};
pub use resize::{Pixels, Samples, resize};
pub use transform::{
    Channels, ColorJitter, Crop, Element, FileSamples, Fit, IMAGE_BYTES_MAX, ImageTransform, Interpolation, Layout,
    Normalize, Orientation, RandomResizedCrop,
};
pub use turbo::{Decompressor, LoadError, Turbo};
pub use value_decoder::{ListSpec, Number, OutputSpec, Row, Takes, ValueDecoder, write_number};
pub use window::Window;
pub use write::{Frame, write_tensor};

#[cfg(test)]
mod tests;
