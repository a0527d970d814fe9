//! Rows of numbers, compressed by pco.

use bytemuck::{Pod, Zeroable};
use half::f16;
use pco::ChunkConfig;
use pco::data_types::Number;
use pco::errors::PcoError;
use pco::metadata::DeltaEncoding;
use pco::wrapped::{FileCompressor, FileDecompressor};
use stoker_types::catch_panic;

use crate::{Dtype, Error, Result};

/// The most numbers of a chunk: pco's own default for pages.
const CHUNK_NUMBERS: usize = 1 << 18;

/// The mode of chunks with a dictionary, in the lower four bits of their first byte. pco would take memory for the size
/// that the chunk declares, before it reads the dictionary. Its encoder chooses this mode on request only.
const DICTIONARY_MODE: u8 = 4;

/// The window of lookbacks that a chunk of any length may have, as a power of two.
const WINDOW_LOG_MIN: u32 = 15;

/// Calls a function for the type that pco has for elements.
macro_rules! with_numbers {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            Dtype::UInt8
            | Dtype::Float8E4M3FN
            | Dtype::Float8E4M3FNUZ
            | Dtype::Float8E5M2
            | Dtype::Float8E5M2FNUZ => $function::<u8>($($argument),*),
            Dtype::Int8 => $function::<i8>($($argument),*),
            Dtype::UInt16 | Dtype::BFloat16 => $function::<u16>($($argument),*),
            Dtype::Int16 => $function::<i16>($($argument),*),
            Dtype::UInt32 => $function::<u32>($($argument),*),
            Dtype::Int32 => $function::<i32>($($argument),*),
            Dtype::UInt64 => $function::<u64>($($argument),*),
            Dtype::Int64 => $function::<i64>($($argument),*),
            Dtype::Float16 => $function::<f16>($($argument),*),
            Dtype::Float32 => $function::<f32>($($argument),*),
            Dtype::Float64 => $function::<f64>($($argument),*),
        }
    };
}

/// Adds the payload of a row.
pub(crate) fn compress(dtype: Dtype, level: i32, row: &[u8], payload: &mut Vec<u8>) -> Result<()> {
    let level = usize::try_from(level).map_err(Error::internal)?;
    let config = ChunkConfig::default().with_compression_level(level).with_enable_8_bit(true);
    catch_panic(|| with_numbers!(dtype, compress_numbers(&config, row, payload)), Error::internal)
}

/// Writes the numbers of a payload to a row.
pub(crate) fn decompress(dtype: Dtype, payload: &[u8], row: &mut [u8]) -> Result<()> {
    catch_panic(|| with_numbers!(dtype, decompress_numbers(payload, row)), Error::bad_frame)
}

fn compress_numbers<T: Number + Pod>(config: &ChunkConfig, row: &[u8], payload: &mut Vec<u8>) -> Result<()> {
    let mut copied = Vec::new();
    let numbers: &[T] = match bytemuck::try_cast_slice(row) {
        Ok(numbers) => numbers,
        Err(_) => {
            copied.resize(row.len() / size_of::<T>(), T::zeroed());
            bytemuck::cast_slice_mut(&mut copied).copy_from_slice(row);
            &copied
        }
    };
    let file = FileCompressor::default();
    let write = |payload: &mut Vec<u8>| {
        file.write_header(&mut *payload)?;
        for part in numbers.chunks(CHUNK_NUMBERS) {
            let mut chunk = file.chunk_compressor(part, config)?;
            chunk.write_meta(&mut *payload)?;
            chunk.write_page(0, &mut *payload)?;
        }
        Ok(())
    };
    write(payload).map_err(|error: PcoError| Error::internal(error))
}

fn decompress_numbers<T: Number + Pod>(payload: &[u8], row: &mut [u8]) -> Result<()> {
    if let Ok(numbers) = bytemuck::try_cast_slice_mut(row) {
        return read::<T>(payload, numbers);
    }
    let mut numbers = vec![<T as Zeroable>::zeroed(); row.len() / size_of::<T>()];
    read(payload, &mut numbers)?;
    row.copy_from_slice(bytemuck::cast_slice(&numbers));
    Ok(())
}

fn read<T: Number>(payload: &[u8], numbers: &mut [T]) -> Result<()> {
    let (file, mut rest) = FileDecompressor::new(payload).map_err(damaged)?;
    for part in numbers.chunks_mut(CHUNK_NUMBERS) {
        if rest.first().is_some_and(|first| first & 0x0f == DICTIONARY_MODE) {
            return Err(Error::bad_frame("pco: a chunk has a dictionary, which frames never have"));
        }
        let (mut chunk, after) = file.chunk_decompressor::<T, &[u8]>(rest).map_err(damaged)?;
        check_window(&chunk.meta().delta_encoding, part.len())?;
        let mut page = chunk.page_decompressor(after, part.len()).map_err(damaged)?;
        let progress = page.read(part).map_err(damaged)?;
        if !progress.finished || progress.n_processed != part.len() {
            return Err(Error::bad_frame("pco: a chunk has fewer numbers than the frame declares"));
        }
        rest = page.into_src();
    }
    match rest.len() {
        0 => Ok(()),
        num_bytes => Err(Error::bad_frame(format!("pco: {num_bytes} bytes follow the last number"))),
    }
}

/// Refuses windows of lookbacks that are much longer than the chunk: pco takes the memory of a whole window.
fn check_window(delta: &DeltaEncoding, num_numbers: usize) -> Result<()> {
    let DeltaEncoding::Lookback { config, .. } = delta else { return Ok(()) };
    let needed = num_numbers.next_power_of_two().ilog2() + 1;
    match config.window_n_log <= needed.max(WINDOW_LOG_MIN) {
        true => Ok(()),
        false => {
            let window = config.window_n_log;
            Err(Error::bad_frame(format!("pco: a window of 2^{window} numbers in a chunk of {num_numbers}")))
        }
    }
}

fn damaged(error: PcoError) -> Error {
    Error::bad_frame(format!("pco: {error}"))
}
