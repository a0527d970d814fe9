//! Writes pixels as the bytes of a tensor.

use half::f16;

use crate::planes::split_planes;
use crate::{Channels, Element, ImageTransform, Layout};

/// The arrangement of pixels in a tensor.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The number of pixels in a row.
    pub width: u32,
    /// The channels of the pixels and of the tensor.
    pub channels: Channels,
    /// The order of the tensor's dimensions.
    pub layout: Layout,
    /// Whether rows are mirrored left to right.
    pub is_flipped: bool,
}

/// Writes uint8 elements with the values of the pixels. `tensor` must have as many bytes as `pixels`.
pub fn write_tensor(pixels: &[u8], frame: &Frame, tensor: &mut [u8]) {
    match (frame.layout, frame.channels) {
        (Layout::Chw, Channels::Rgb) => write_planes(pixels.as_chunks::<3>().0, frame, tensor),
        _ if frame.is_flipped => write::<1>(pixels, frame, |_, value| [value], tensor),
        _ => tensor.copy_from_slice(pixels),
    }
}

fn write_planes(pixels: &[[u8; 3]], frame: &Frame, tensor: &mut [u8]) {
    let (red, rest) = tensor.split_at_mut(pixels.len());
    let (green, blue) = rest.split_at_mut(pixels.len());
    split_planes(pixels, [red, green, blue]);
    if frame.is_flipped {
        tensor.chunks_exact_mut(frame.width as usize).for_each(<[u8]>::reverse);
    }
}

/// Writes the numbers of two bytes of an image with one channel.
fn write_values(pixels: &[u8], frame: &Frame, tensor: &mut [u8]) {
    tensor.copy_from_slice(pixels);
    if frame.is_flipped {
        let values = tensor.as_chunks_mut::<2>().0;
        values.chunks_exact_mut(frame.width as usize).for_each(<[[u8; 2]]>::reverse);
    }
}

/// The bytes of the element for each value of each channel. With a table of 256 values no pixel needs arithmetic, and
/// every machine writes the same bits.
pub(crate) enum Table {
    UInt8,
    /// Numbers of two bytes, which stay as they are.
    Values,
    Float16(Box<[[[u8; 2]; 256]; 3]>),
    Float32(Box<[[[u8; 4]; 256]; 3]>),
}

impl Table {
    pub fn new(transform: &ImageTransform) -> Self {
        let float = |channel: usize, value: usize| {
            let scaled = value as f32 / 255.0;
            transform.normalize.map_or(scaled, |normal| (scaled - normal.mean[channel]) / normal.std[channel])
        };
        match transform.element {
            Element::UInt8 => Table::UInt8,
            Element::UInt16 => Table::Values,
            Element::Float16 => {
                let bytes = |channel, value| f16::from_f32(float(channel, value)).to_ne_bytes();
                Table::Float16(Box::new(std::array::from_fn(|channel| {
                    std::array::from_fn(|value| bytes(channel, value))
                })))
            }
            Element::Float32 => {
                let bytes = |channel, value| float(channel, value).to_ne_bytes();
                Table::Float32(Box::new(std::array::from_fn(|channel| {
                    std::array::from_fn(|value| bytes(channel, value))
                })))
            }
        }
    }

    /// Writes the elements of a tensor. `tensor` must have as many elements as `pixels` has numbers.
    pub fn write(&self, pixels: &[u8], frame: &Frame, tensor: &mut [u8]) {
        match self {
            Table::UInt8 => write_tensor(pixels, frame, tensor),
            Table::Values => write_values(pixels, frame, tensor),
            Table::Float16(table) => {
                write(pixels, frame, |channel, value| table[channel][usize::from(value)], tensor);
            }
            Table::Float32(table) => {
                write(pixels, frame, |channel, value| table[channel][usize::from(value)], tensor);
            }
        }
    }
}

fn write<const BYTES: usize>(
    pixels: &[u8],
    frame: &Frame,
    element: impl Fn(usize, u8) -> [u8; BYTES],
    tensor: &mut [u8],
) {
    let (width, elements) = (frame.width as usize, tensor.as_chunks_mut::<BYTES>().0);
    if frame.channels == Channels::Gray {
        for (from, to) in pixels.chunks_exact(width).zip(elements.chunks_exact_mut(width)) {
            mirrored(from, to.iter_mut(), frame.is_flipped, |value, to| *to = element(0, *value));
        }
        return;
    }
    let rgb = pixels.as_chunks::<3>().0;
    match frame.layout {
        Layout::Hwc => {
            let targets = elements.as_chunks_mut::<3>().0;
            for (from, to) in rgb.chunks_exact(width).zip(targets.chunks_exact_mut(width)) {
                let put = |[red, green, blue]: &[u8; 3], to: &mut [[u8; BYTES]; 3]| {
                    *to = [element(0, *red), element(1, *green), element(2, *blue)];
                };
                mirrored(from, to.iter_mut(), frame.is_flipped, put);
            }
        }
        Layout::Chw => {
            let (red, rest) = elements.split_at_mut(rgb.len());
            let (green, blue) = rest.split_at_mut(rgb.len());
            let planes =
                red.chunks_exact_mut(width).zip(green.chunks_exact_mut(width)).zip(blue.chunks_exact_mut(width));
            for (from, ((red, green), blue)) in rgb.chunks_exact(width).zip(planes) {
                let targets = red.iter_mut().zip(green).zip(blue);
                mirrored(from, targets, frame.is_flipped, |pixel, ((red, green), blue)| {
                    *red = element(0, pixel[0]);
                    *green = element(1, pixel[1]);
                    *blue = element(2, pixel[2]);
                });
            }
        }
    }
}

/// Passes each pixel of a row to its target, in reverse order if `is_flipped`.
fn mirrored<P, T>(from: &[P], to: impl Iterator<Item = T>, is_flipped: bool, mut put: impl FnMut(&P, T)) {
    if is_flipped {
        from.iter().rev().zip(to).for_each(|(pixel, place)| put(pixel, place));
    } else {
        from.iter().zip(to).for_each(|(pixel, place)| put(pixel, place));
    }
}
