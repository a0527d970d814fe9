//! Reads the numbers of PNG files as they are: class masks and depth.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, Limits, Transformations};

use crate::BadValue;

/// Decodes the numbers of a PNG file with one channel, in row-major order: palette indices, or grey values of 1 to 16
/// bits, which are not scaled. `sample_bytes` is 1 for uint8 and 2 for uint16 in the byte order of this machine. Returns
/// height and width.
///
/// # Errors
/// [`BadValue`] for other formats, for files with colours or transparency, for numbers of 16 bits that become uint8, for
/// images of more than `bytes_max` bytes, and for damaged files.
pub(crate) fn decode_values(
    file: &[u8],
    bytes_max: u64,
    sample_bytes: usize,
    pixels: &mut Vec<u8>,
) -> Result<(u32, u32), BadValue> {
    let mut decoder = Decoder::new_with_limits(Cursor::new(file), Limits { bytes: limit(bytes_max) });
    decoder.set_transformations(Transformations::IDENTITY);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(|error| BadValue::new(format!("it is no PNG file: {error}")))?;
    let (height, width, color, depth) = {
        let info = reader.info();
        (info.height, info.width, info.color_type, info.bit_depth)
    };
    if !matches!(color, ColorType::Grayscale | ColorType::Indexed) {
        let reason = format!("its pixels are {color:?}; samples=\"values\" reads grey values and palette indices");
        return Err(BadValue::new(reason));
    }
    if depth == BitDepth::Sixteen && sample_bytes == 1 {
        return Err(BadValue::new("it has values of 16 bits; dtype=\"uint16\" keeps them"));
    }
    let samples = u64::from(height) * u64::from(width);
    let bytes = samples.saturating_mul(2);
    if bytes > bytes_max {
        let reason = format!("{height}x{width} values take {bytes} bytes, more than the limit of {bytes_max}");
        return Err(BadValue::new(reason));
    }
    let mut packed = vec![0; reader.output_buffer_size().unwrap_or(0)];
    let line = reader.next_frame(&mut packed).map_err(BadValue::new)?.line_size;
    pixels.clear();
    pixels.reserve_exact(limit(samples).saturating_mul(sample_bytes));
    for line in packed.chunks_exact(line.max(1)) {
        match depth {
            BitDepth::Sixteen => pixels.extend(line.as_chunks::<2>().0.iter().copied().flat_map(native)),
            BitDepth::Eight => line.iter().for_each(|value| push(pixels, *value, sample_bytes)),
            BitDepth::One | BitDepth::Two | BitDepth::Four => {
                let bits = depth as usize;
                for column in 0..width as usize {
                    let shift = 8 - bits - column * bits % 8;
                    push(pixels, line[column * bits / 8] >> shift & (0xFF >> (8 - bits)), sample_bytes);
                }
            }
        }
    }
    Ok((height, width))
}

fn push(pixels: &mut Vec<u8>, value: u8, sample_bytes: usize) {
    match sample_bytes {
        1 => pixels.push(value),
        _ => pixels.extend(u16::from(value).to_ne_bytes()),
    }
}

/// Returns a number of a PNG file, which has its greater byte first (PNG specification, 7.2), as this machine has it.
fn native(bytes: [u8; 2]) -> [u8; 2] {
    u16::from_be_bytes(bytes).to_ne_bytes()
}

fn limit(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
