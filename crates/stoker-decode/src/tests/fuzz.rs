//! Changed image files never cause a panic, and give pixels or a reason.

use image::ImageFormat;
use png::{BitDepth, ColorType, Encoder};

use super::{column, encoded, jpeg, picture};
use crate::{Channels, Element, FileSamples, ImageTransform, decode_images};

fn accepts(file: &[u8], transform: &ImageTransform) -> bool {
    match decode_images(&column(&[file]), transform, &[1]) {
        Ok(_) => true,
        Err(bad) => {
            assert!(!bad.to_string().is_empty());
            false
        }
    }
}

#[test]
fn changed_images_give_pixels_or_a_reason() {
    let transform = ImageTransform { image_bytes_max: 1 << 20, ..ImageTransform::new(4, 4) };
    let image = picture(12, 10);
    let seeds = [jpeg(&image), encoded(&image, ImageFormat::Png), encoded(&image, ImageFormat::WebP)];
    stoker_fuzz::Target::new("images").seeds(seeds).run(|file| accepts(file, &transform));
}

#[test]
fn changed_masks_give_numbers_or_a_reason() {
    let transform = ImageTransform {
        samples: FileSamples::Values,
        channels: Channels::Gray,
        element: Element::UInt16,
        image_bytes_max: 1 << 20,
        ..ImageTransform::new(4, 4)
    };
    let seeds = [(BitDepth::One, 3), (BitDepth::Four, 12), (BitDepth::Sixteen, 40)].map(|(depth, bytes)| {
        let mut file = Vec::new();
        let (width, height) = if depth == BitDepth::Sixteen { (5, 4) } else { (6, 3) };
        let mut encoder = Encoder::new(&mut file, width, height);
        encoder.set_color(ColorType::Grayscale);
        encoder.set_depth(depth);
        let lines: Vec<u8> = (0..bytes).collect();
        let lines = if depth == BitDepth::Four { lines[..9].to_vec() } else { lines };
        encoder.write_header().unwrap().write_image_data(&lines).unwrap();
        file
    });
    stoker_fuzz::Target::new("masks").seeds(seeds).run(|file| accepts(file, &transform));
}
