//! Test images with known pixels, as files.

mod changes;
mod columns;
mod files;
mod fuzz;
mod planes;
mod random;
mod regions;
mod texts;
mod transforms;
mod values;

use std::io::Cursor;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{ArrayRef, LargeBinaryArray};
use image::codecs::jpeg::JpegEncoder;
use image::{ImageFormat, Rgb, RgbImage};

use crate::{ImageTransform, decode_images};

/// Returns an image of smooth colours, which JPEG changes little.
fn picture(height: u32, width: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        Rgb([(x * 255 / width) as u8, (y * 255 / height) as u8, ((x + y) * 255 / (width + height)) as u8])
    })
}

fn encoded(image: &RgbImage, format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    image.write_to(&mut file, format).unwrap();
    file.into_inner()
}

fn jpeg(image: &RgbImage) -> Vec<u8> {
    let mut file = Vec::new();
    image.write_with_encoder(JpegEncoder::new_with_quality(&mut file, 90)).unwrap();
    file
}

fn column(files: &[&[u8]]) -> ArrayRef {
    Arc::new(LargeBinaryArray::from_iter_values(files))
}

/// Returns the uint8 tensor of one file.
fn decoded(file: &[u8], transform: &ImageTransform, seed: u64) -> Vec<u8> {
    let tensors = decode_images(&column(&[file]), transform, &[seed]).unwrap();
    bytes(&tensors, 0)
}

fn bytes(tensors: &ArrayRef, row: usize) -> Vec<u8> {
    tensors.as_fixed_size_list().value(row).as_primitive::<UInt8Type>().values().to_vec()
}

/// Returns why one file fails.
fn refused(file: &[u8], transform: &ImageTransform) -> String {
    decode_images(&column(&[file]), transform, &[0]).unwrap_err().to_string()
}
