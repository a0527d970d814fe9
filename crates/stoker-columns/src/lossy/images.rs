//! Images as JPEG files.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{Array, ArrayRef, LargeBinaryArray};
use arrow_buffer::{Buffer, OffsetBuffer};
use stoker_codec::{JpegSize, encode_jpeg};

use super::ImageSize;
use crate::Mismatch;
use crate::compressed_tensor::in_parts;

/// Returns how the pixels of a shape lie: channels first, channels last, or one channel. `None` for shapes that are none of
/// images.
pub(super) fn size(shape: &[usize]) -> Option<ImageSize> {
    let (channels, height, width, is_channels_first) = match *shape {
        [channels @ (1 | 3), height, width] => (channels, height, width, true),
        [height, width, channels @ (1 | 3)] => (channels, height, width, false),
        [height, width] => (1, height, width, false),
        _ => return None,
    };
    let side = |size: usize| u16::try_from(size).ok().filter(|size| *size > 0);
    let jpeg = JpegSize { width: side(width)?, height: side(height)?, has_color: channels == 3 };
    Some(ImageSize { jpeg, is_channels_first })
}

/// Converts tensors of pixels to JPEG files. Returns the largest difference of a value.
pub(super) fn convert(column: &ArrayRef, size: ImageSize, quality: u8) -> Result<(ArrayRef, f64), Mismatch> {
    let wrong = |found: String| Mismatch::new(None, "pixels without nulls", found);
    let lists = column.as_fixed_size_list();
    let row_bytes = size.jpeg.num_bytes();
    let Some(pixels) = lists.values().as_primitive_opt::<UInt8Type>().filter(|pixels| pixels.null_count() == 0) else {
        return Err(wrong(column.data_type().to_string()));
    };
    let start = lists.offset() * row_bytes;
    let bytes = pixels.values().get(start..start + lists.len() * row_bytes);
    let bytes = bytes.ok_or_else(|| wrong("tensors of another size".into()))?;
    let parts = in_parts(bytes, row_bytes, |rows| {
        let (mut files, mut lengths, mut max, mut interleaved) = (Vec::new(), Vec::new(), 0, Vec::new());
        for row in rows.chunks_exact(row_bytes) {
            let pixels = match size.is_channels_first && size.jpeg.has_color {
                true => {
                    interleave(row, &mut interleaved);
                    interleaved.as_slice()
                }
                false => row,
            };
            let before = files.len();
            let error = encode_jpeg(size.jpeg, quality, pixels, &mut files).map_err(|error| error.to_string())?;
            lengths.push(files.len() - before);
            max = max.max(error);
        }
        Ok((files, lengths, max))
    });
    let parts = parts.map_err(wrong)?;
    let offsets = OffsetBuffer::<i64>::from_lengths(parts.iter().flat_map(|(_, lengths, _)| lengths.iter().copied()));
    let max = parts.iter().map(|(_, _, max)| *max).max().unwrap_or(0);
    let files = parts.into_iter().flat_map(|(files, _, _)| files).collect::<Vec<u8>>();
    let array = LargeBinaryArray::try_new(offsets, Buffer::from_vec(files), None);
    array.map(|array| (Arc::new(array) as ArrayRef, f64::from(max))).map_err(|error| wrong(error.to_string()))
}

/// Writes three planes as pixels.
fn interleave(planes: &[u8], pixels: &mut Vec<u8>) {
    pixels.resize(planes.len(), 0);
    let (red, rest) = planes.split_at(planes.len() / 3);
    let (green, blue) = rest.split_at(rest.len() / 2);
    let (places, _) = pixels.as_chunks_mut::<3>();
    let colors = red.iter().zip(green).zip(blue);
    places.iter_mut().zip(colors).for_each(|(pixel, ((red, green), blue))| *pixel = [*red, *green, *blue]);
}
