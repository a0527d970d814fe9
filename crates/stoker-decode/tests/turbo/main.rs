//! Tests with a libjpeg-turbo, which `STOKER_LIBJPEG` names: its file, or a folder such as Python's `site-packages`.
//! The feature `turbo-tests` turns them on. `STOKER_PYTHON`, by default `python3`, must have Pillow:
//!
//! ```text
//! STOKER_LIBJPEG=.../site-packages STOKER_PYTHON=.../python cargo test -p stoker-decode --features turbo-tests
//! ```

#![expect(clippy::cast_possible_truncation, reason = "tests know their numbers")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests are not test functions")]

mod damage;
mod fuzz;
mod pixels;
mod transforms;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, LazyLock};

use arrow_array::{ArrayRef, LargeBinaryArray};
use image::codecs::jpeg::JpegEncoder;
use image::{Rgb, RgbImage};
use stoker_decode::{BadValue, BatchDecoder, Channels, Decompressor, ImageDecoder, ImageTransform, Jpeg, JpegDecoder};

const LIMIT: u64 = 16 << 20;
const DENOMINATORS: [u32; 4] = [1, 2, 4, 8];

static TURBO: LazyLock<JpegDecoder> = LazyLock::new(|| {
    let path = std::env::var("STOKER_LIBJPEG").expect("STOKER_LIBJPEG names the library");
    JpegDecoder::load(Jpeg::Turbo, &[PathBuf::from(path)]).expect("the library loads")
});

/// Files by name, with the pixels that Pillow decodes at each of [`DENOMINATORS`].
static FILES: LazyLock<BTreeMap<String, Sample>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let python = std::env::var("STOKER_PYTHON").unwrap_or_else(|_| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pillow_pixels.py");
    assert!(Command::new(python).arg(script).arg(folder.path()).status().expect("Python runs").success());
    let read = |name: String| std::fs::read(folder.path().join(name)).expect("a file");
    let entries = std::fs::read_dir(folder.path()).expect("the folder").flatten();
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".jpg")?.to_string()));
    let sample = |name: &str| Sample {
        file: read(format!("{name}.jpg")),
        pixels: DENOMINATORS.map(|denominator| read(format!("{name}.{denominator}.rgb"))),
    };
    names.map(|name| (name.clone(), sample(&name))).collect()
});

struct Sample {
    file: Vec<u8>,
    pixels: [Vec<u8>; 4],
}

/// Decodes a file to the channels that it has, with height and width.
fn decode(
    decompressor: &mut Option<Decompressor>,
    file: &[u8],
    denominator: u32,
) -> Result<(u32, u32, Vec<u8>), BadValue> {
    let mut opened = TURBO.open(decompressor, file, LIMIT)?;
    assert!(opened.shrink(denominator));
    let header = opened.header();
    let (channels, mut pixels) = (if header.has_color { Channels::Rgb } else { Channels::Gray }, Vec::new());
    opened.decode(channels, &mut pixels)?;
    assert_eq!(pixels.len(), header.height as usize * header.width as usize * channels.count());
    Ok((header.height, header.width, pixels))
}

/// Returns the uint8 tensor of one file.
fn tensor(file: &[u8], transform: &ImageTransform, seed: u64) -> Result<Vec<u8>, String> {
    let images = ImageDecoder::new(transform.clone()).with_jpeg(TURBO.clone());
    let decoder = BatchDecoder::try_new(Box::new(images), 1).map_err(|error| error.to_string())?;
    let values: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values([file]));
    let mut bytes = vec![0; transform.row_bytes()];
    let failed = decoder.decode_each(&values, &[], &[seed], vec![vec![&mut bytes]]);
    match failed.map_err(|error| error.to_string())?.into_iter().next() {
        Some((_, bad)) => Err(bad.reason),
        None => Ok(bytes),
    }
}

/// Returns a file of smooth colours with some texture.
fn jpeg(height: u32, width: u32) -> Vec<u8> {
    let image = RgbImage::from_fn(width, height, |x, y| {
        let texture = ((x * 7 + y * 13) % 32) as u8;
        Rgb([(x * 223 / width) as u8 + texture, (y * 223 / height) as u8 + texture, 255 - texture])
    });
    let mut file = Vec::new();
    image.write_with_encoder(JpegEncoder::new_with_quality(&mut file, 90)).expect("an encoder");
    file
}

/// Returns the mean and the largest difference.
fn difference(a: &[u8], b: &[u8]) -> (f64, u8) {
    assert_eq!(a.len(), b.len());
    let differences = || a.iter().zip(b).map(|(a, b)| a.abs_diff(*b));
    (differences().map(f64::from).sum::<f64>() / a.len() as f64, differences().max().unwrap_or(0))
}
