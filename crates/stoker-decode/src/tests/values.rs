//! Class masks and depth: the numbers of PNG files as they are.

use arrow_array::cast::AsArray;
use arrow_array::types::UInt16Type;
use png::{BitDepth, ColorType, Encoder};

use super::{column, decoded, encoded, jpeg, picture, refused};
use crate::{Channels, Crop, Element, FileSamples, ImageTransform, Interpolation, Layout, decode_images};

/// Returns a PNG file of these packed lines.
fn png(width: u32, height: u32, color: ColorType, depth: BitDepth, lines: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if color == ColorType::Indexed {
        encoder.set_palette([10, 20, 30].repeat(16));
    }
    encoder.write_header().unwrap().write_image_data(lines).unwrap();
    file
}

fn values(height: u32, width: u32, element: Element) -> ImageTransform {
    ImageTransform {
        samples: FileSamples::Values,
        channels: Channels::Gray,
        interpolation: Interpolation::Nearest,
        element,
        ..ImageTransform::new(height, width)
    }
}

fn depths(file: &[u8], transform: &ImageTransform, seed: u64) -> Vec<u16> {
    let tensors = decode_images(&column(&[file]), transform, &[seed]).unwrap();
    tensors.as_fixed_size_list().value(0).as_primitive::<UInt16Type>().values().to_vec()
}

#[test]
fn numbers_stay_as_they_are() {
    let uint8 = values(2, 5, Element::UInt8);
    let four = png(5, 2, ColorType::Indexed, BitDepth::Four, &[0x01, 0x23, 0x40, 0x98, 0x76, 0x50]);
    assert_eq!(decoded(&four, &uint8, 0), [0, 1, 2, 3, 4, 9, 8, 7, 6, 5]);
    let one = png(5, 2, ColorType::Grayscale, BitDepth::One, &[0b1010_1000, 0b0101_0000]);
    assert_eq!(decoded(&one, &uint8, 0), [1, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
    let two = png(5, 2, ColorType::Grayscale, BitDepth::Two, &[0b0001_1011, 0b0100_0000, 0b1110_0100, 0]);
    assert_eq!(decoded(&two, &uint8, 0), [0, 1, 2, 3, 1, 3, 2, 1, 0, 0]);
    let eight = png(5, 2, ColorType::Grayscale, BitDepth::Eight, &[0, 255, 7, 8, 9, 1, 2, 3, 4, 5]);
    assert_eq!(decoded(&eight, &uint8, 0), [0, 255, 7, 8, 9, 1, 2, 3, 4, 5]);
    let uint16 = values(2, 5, Element::UInt16);
    assert_eq!(depths(&eight, &uint16, 0), [0, 255, 7, 8, 9, 1, 2, 3, 4, 5]);
    let numbers: Vec<u16> = (0..10).map(|number| number * 6007 + 1).collect();
    let lines: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    let sixteen = png(5, 2, ColorType::Grayscale, BitDepth::Sixteen, &lines);
    assert_eq!(depths(&sixteen, &uint16, 0), numbers);
    let flipped = ImageTransform { horizontal_flip: 1.0, layout: Layout::Hwc, ..uint16.clone() };
    let expected: Vec<u16> = numbers.chunks(5).flat_map(|row| row.iter().rev().copied()).collect();
    assert_eq!(depths(&sixteen, &flipped, 0), expected);
    let turned = ImageTransform { rotation: (180.0, 180.0), ..uint16.clone() };
    assert_eq!(depths(&sixteen, &turned, 0), numbers.iter().rev().copied().collect::<Vec<_>>());
    let contained = ImageTransform { fit: crate::Fit::Contain, fill: 3, ..values(4, 5, Element::UInt16) };
    assert_eq!(depths(&sixteen, &contained, 0), [&[3; 5][..], &numbers, &[3; 5]].concat());
}

#[test]
fn crops_of_depth_are_parts_of_it() {
    let numbers: Vec<u16> = (0..30 * 40).map(|number| number * 50).collect();
    let lines: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    let file = png(40, 30, ColorType::Grayscale, BitDepth::Sixteen, &lines);
    let random = ImageTransform { crop: Crop::Random, shorter_side: Some(30), ..values(20, 20, Element::UInt16) };
    for seed in 0..20 {
        assert!(depths(&file, &random, seed).iter().all(|number| numbers.contains(number)));
    }
    let smooth = ImageTransform { interpolation: Interpolation::Bilinear, ..values(15, 20, Element::UInt16) };
    let halved = depths(&file, &smooth, 0);
    assert!(halved.iter().max() > Some(&50_000), "16 bits are kept where depth is resized");
}

#[test]
fn other_files_and_options_are_refused() {
    let (uint8, uint16) = (values(2, 5, Element::UInt8), values(2, 5, Element::UInt16));
    let sixteen = png(5, 2, ColorType::Grayscale, BitDepth::Sixteen, &[0; 20]);
    assert!(refused(&sixteen, &uint8).contains("dtype=\"uint16\""));
    assert!(refused(&encoded(&picture(2, 5), image::ImageFormat::Png), &uint16).contains("Rgb"));
    assert!(refused(&jpeg(&picture(2, 5)), &uint16).contains("no PNG file"));
    assert!(!refused(&sixteen[..sixteen.len() - 20], &uint16).is_empty());
    let huge = png(1, 1, ColorType::Grayscale, BitDepth::One, &[0]);
    let mut huge = huge;
    huge[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    assert!(!refused(&huge, &uint8).is_empty(), "its size is refused before memory is taken, or its checksum is wrong");
    let small = ImageTransform { image_bytes_max: 19, ..uint8.clone() };
    assert!(refused(&sixteen, &ImageTransform { element: Element::UInt16, ..small }).contains("limit is 19"));
    for (transform, words) in [
        (ImageTransform { element: Element::UInt16, ..ImageTransform::new(2, 2) }, "samples"),
        (ImageTransform { channels: Channels::Rgb, ..uint8.clone() }, "channels"),
        (ImageTransform { element: Element::Float32, ..uint8.clone() }, "dtype"),
        (ImageTransform { rotation: (5.0, -5.0), ..uint8.clone() }, "rotation"),
        (ImageTransform { rotation: (f64::NAN, 0.0), ..uint8 }, "rotation"),
    ] {
        let error = transform.validate().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
