//! How fast JPEG files in memory become tensors, beside the decoder alone on the same threads.
//!
//! ```text
//! cargo run --release -p stoker-decode --example decode_rate -- [--size 256] [--rows 256] [--threads 2] [--repeat 7]
//! ```
//!
//! Prints images/s, median and range of the repetitions, which take turns: `decoder` decodes each file into a reused buffer with zune-jpeg and
//! nothing else; `tensor` is `BatchDecoder::decode_into` to uint8[3, size, size]; `ratio` is the second by the first.
#![expect(clippy::print_stdout, reason = "it is a program")]

use std::time::Instant;

use anyhow::{Context, Result};
use arrow_array::LargeBinaryArray;
use image::codecs::jpeg::JpegEncoder;
use image::{Rgb, RgbImage};
use rayon::prelude::*;
use stoker_decode::{BatchDecoder, ImageTransform};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;

fn main() -> Result<()> {
    let (size, rows, threads, repeat) =
        (option("--size", 256)?, option("--rows", 256)?, option("--threads", 2)?, option("--repeat", 7)?);
    let files = (0..rows).map(|row| file(size as u32, row as u32)).collect::<Result<Vec<_>>>()?;
    let bytes: usize = files.iter().map(Vec::len).sum();
    println!("{rows} JPEG files of {size}x{size} pixels, {} bytes on average, {threads} threads", bytes / rows);
    let values = LargeBinaryArray::from_iter_values(&files);
    let decoder = BatchDecoder::try_new(ImageTransform::new(size as u32, size as u32), threads)?;
    let mut tensor = vec![0; rows * decoder.transform().row_bytes()];
    let (seeds, pool) = (vec![0; rows], rayon::ThreadPoolBuilder::new().num_threads(threads).build()?);
    let (mut alone, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..=repeat {
        let begun = Instant::now();
        pool.install(|| {
            files.par_iter().with_max_len(1).try_for_each_init(
                || vec![0; size * size * 3],
                |pixels, file| JpegDecoder::new(ZCursor::new(file.as_slice())).decode_into(pixels),
            )
        })
        .map_err(|error| anyhow::anyhow!("{error}"))?;
        alone.push(rows as f64 / begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        decoder.decode_into(&values, &seeds, &mut tensor)?;
        whole.push(rows as f64 / begun.elapsed().as_secs_f64());
    }
    let (alone, whole) = (shown("decoder", &mut alone), shown("tensor", &mut whole));
    println!("ratio    {:.3}", whole / alone);
    Ok(())
}

/// Prints and returns the median without the first repetition, which warms up.
fn shown(name: &str, rates: &mut Vec<f64>) -> f64 {
    rates.remove(0);
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    println!("{name:<8} {median:>8.0} images/s ({:.0} to {:.0})", rates[0], rates[rates.len() - 1]);
    median
}

/// A photograph-like image at quality 90: smooth shapes with some noise.
fn file(size: u32, seed: u32) -> Result<Vec<u8>> {
    let image = RgbImage::from_fn(size, size, |x, y| {
        let noise =
            (x.wrapping_mul(7919) ^ y.wrapping_mul(104_729) ^ seed.wrapping_mul(31)).wrapping_mul(2_654_435_761) >> 28;
        let wave = (f64::from(x + seed) / 17.0).sin() * (f64::from(y) / 23.0).cos() * 90.0 + 120.0;
        let wave = wave as u32 + noise;
        Rgb([wave as u8, (wave / 2 + x * 100 / size) as u8, (wave / 3 + y * 100 / size) as u8])
    });
    let mut file = Vec::new();
    image.write_with_encoder(JpegEncoder::new_with_quality(&mut file, 90))?;
    Ok(file)
}

fn option(name: &str, default: usize) -> Result<usize> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().map_or(Ok(default), |value| value.parse().with_context(|| format!("{name} {value}")))
}
