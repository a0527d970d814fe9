//! Rotations, changes of colours, and matrices.

use std::io::Cursor;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt8Type};
use image::{GrayImage, ImageFormat, Luma, Rgb, RgbImage};
use proptest::prelude::*;

use super::{column, decoded, encoded, jpeg, picture};
use crate::{
    BatchDecoder, Channels, ColorJitter, Crop, Fit, ImageDecoder, ImageTransform, Interpolation, Layout,
    RandomResizedCrop, output_array,
};

const STILL: ColorJitter =
    ColorJitter { brightness: (1.0, 1.0), contrast: (1.0, 1.0), saturation: (1.0, 1.0), hue: (0.0, 0.0) };

fn hwc(height: u32, width: u32) -> ImageTransform {
    ImageTransform { layout: Layout::Hwc, ..ImageTransform::new(height, width) }
}

#[test]
fn a_quarter_turn_moves_pixels_and_changes_none() {
    let image = picture(40, 40);
    let file = encoded(&image, ImageFormat::Png);
    for (degrees, turned) in [
        (90.0, image::imageops::rotate270(&image)),
        (-90.0, image::imageops::rotate90(&image)),
        (180.0, image::imageops::rotate180(&image)),
        (360.0, image.clone()),
    ] {
        for interpolation in [Interpolation::Nearest, Interpolation::Bilinear] {
            let transform = ImageTransform { rotation: (degrees, degrees), interpolation, ..hwc(40, 40) };
            let found = decoded(&file, &transform, 1);
            let worst = found.iter().zip(turned.as_raw()).map(|(a, b)| a.abs_diff(*b)).max();
            assert!(worst <= Some(1), "{degrees} {interpolation:?}: {worst:?}");
        }
    }
}

#[test]
fn a_rotated_region_takes_its_corners_from_the_image() {
    let image = RgbImage::from_pixel(200, 200, Rgb([7, 8, 9]));
    let file = encoded(&image, ImageFormat::Png);
    let inner = ImageTransform { rotation: (30.0, 30.0), shorter_side: Some(200), fill: 99, ..hwc(100, 100) };
    assert!(decoded(&file, &inner, 0).as_chunks::<3>().0.iter().all(|pixel| *pixel == [7, 8, 9]));
    let outer = ImageTransform { rotation: (45.0, 45.0), fill: 99, ..hwc(200, 200) };
    let found = decoded(&file, &outer, 0);
    let found = found.as_chunks::<3>().0;
    assert_eq!((found[0], found[100 * 200 + 100]), ([99; 3], [7, 8, 9]));
    let filled = found.iter().filter(|pixel| **pixel == [99; 3]).count() as f64 / 40_000.0;
    // The octagon that both squares cover has 2 (sqrt 2 - 1) of the area.
    assert!((filled - 0.1716).abs() < 0.01, "{filled}");
}

#[test]
fn jitter_without_range_changes_nothing() {
    let (file, plain) = (jpeg(&picture(20, 30)), hwc(20, 30));
    let still = ImageTransform { color_jitter: Some(STILL), ..plain.clone() };
    assert_eq!(decoded(&file, &still, 3), decoded(&file, &plain, 3));
}

#[test]
fn each_change_of_colours_does_what_it_says() {
    let image = picture(20, 30);
    let file = encoded(&image, ImageFormat::Png);
    let changed = |jitter| decoded(&file, &ImageTransform { color_jitter: Some(jitter), ..hwc(20, 30) }, 3);
    let near = |found: &[u8], expected: &[f64]| {
        let worst = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b.clamp(0.0, 255.0)).abs());
        assert!(worst.fold(0.0, f64::max) <= 1.01);
    };
    let raw: Vec<f64> = image.as_raw().iter().map(|value| f64::from(*value)).collect();
    let luminance: Vec<f64> =
        raw.as_chunks::<3>().0.iter().map(|[r, g, b]| 0.299 * r + 0.587 * g + 0.114 * b).collect();
    let mean = luminance.iter().sum::<f64>() / luminance.len() as f64;
    near(
        &changed(ColorJitter { brightness: (1.5, 1.5), ..STILL }),
        &raw.iter().map(|value| value * 1.5).collect::<Vec<_>>(),
    );
    near(
        &changed(ColorJitter { contrast: (0.4, 0.4), ..STILL }),
        &raw.iter().map(|value| value * 0.4 + mean * 0.6).collect::<Vec<_>>(),
    );
    let blended: Vec<f64> = raw.iter().enumerate().map(|(at, value)| value * 0.3 + luminance[at / 3] * 0.7).collect();
    near(&changed(ColorJitter { saturation: (0.3, 0.3), ..STILL }), &blended);
    // A third of the circle moves each channel to the next one.
    let third = ColorJitter { hue: (1.0 / 3.0, 1.0 / 3.0), ..STILL };
    let moved: Vec<f64> = raw.as_chunks::<3>().0.iter().flat_map(|[r, g, b]| [*b, *r, *g]).collect();
    near(&changed(third), &moved);
    let gray = ImageTransform { channels: Channels::Gray, color_jitter: Some(third), ..hwc(20, 30) };
    assert_eq!(decoded(&file, &gray, 3), decoded(&file, &ImageTransform { color_jitter: None, ..gray.clone() }, 3));
}

#[test]
fn jitter_draws_its_factors_and_their_order() {
    let file = jpeg(&picture(20, 30));
    let jitter = ColorJitter { brightness: (0.5, 1.5), contrast: (0.5, 1.5), saturation: (0.5, 1.5), hue: (-0.2, 0.2) };
    let transform = ImageTransform { color_jitter: Some(jitter), ..hwc(20, 30) };
    let all: std::collections::BTreeSet<Vec<u8>> = (0..50).map(|seed| decoded(&file, &transform, seed)).collect();
    assert_eq!(all.len(), 50);
    assert_eq!(decoded(&file, &transform, 7), decoded(&file, &transform, 7));
}

/// Returns the tensor and the matrix of a file.
fn with_matrix(file: &[u8], transform: &ImageTransform, seed: u64) -> (Vec<u8>, Vec<f32>) {
    let transform = ImageTransform { matrix: true, ..transform.clone() };
    let decoder = BatchDecoder::try_new(Box::new(ImageDecoder::new(transform.clone())), 1).unwrap();
    let (mut tensor, mut matrix) = (vec![0; transform.row_bytes()], vec![0; 24 * transform.num_crops()]);
    let failed = decoder.decode_each(&column(&[file]), &[], &[seed], vec![vec![&mut tensor, &mut matrix]]).unwrap();
    assert_eq!(failed, []);
    let output = &decoder.outputs()[1];
    assert_eq!(output.name("image"), "image_matrix");
    let matrix = output_array(output, matrix.into(), 1).unwrap();
    let row = matrix.as_fixed_size_list().value(0);
    (tensor, row.as_primitive::<Float32Type>().values().to_vec())
}

proptest! {
    /// A white square is where the matrix says.
    #[test]
    fn the_matrix_says_where_a_point_lies(
        seed: u64, height in 60u32..200, width in 60u32..200, x in 0.2f64..0.8, y in 0.2f64..0.8, kind in 0usize..5,
    ) {
        let (x, y) = ((x * f64::from(width)).floor(), (y * f64::from(height)).floor());
        let image = GrayImage::from_fn(width, height, |column, row| {
            let is_near = (f64::from(column) - x).abs() <= 4.0 && (f64::from(row) - y).abs() <= 4.0;
            Luma([if is_near { 255 } else { 0 }])
        });
        let mut file = Cursor::new(Vec::new());
        image.write_to(&mut file, ImageFormat::Png).unwrap();
        let base = ImageTransform { channels: Channels::Gray, horizontal_flip: 0.5, ..ImageTransform::new(70, 90) };
        let transform = match kind {
            0 => ImageTransform { fit: Fit::Stretch, ..base },
            1 => ImageTransform { fit: Fit::Contain, rotation: (-40.0, 40.0), ..base },
            2 => ImageTransform { crop: Crop::Random, rotation: (-180.0, 180.0), ..base },
            3 => ImageTransform { random_resized_crop: Some(RandomResizedCrop::default()), crops: Some(3), ..base },
            _ => ImageTransform { random_resized_crop: Some(RandomResizedCrop::default()), rotation: (10.0, 20.0), ..base },
        };
        let (tensors, matrices) = with_matrix(&file.into_inner(), &transform, seed);
        for (tensor, matrix) in tensors.chunks_exact(70 * 90).zip(matrices.chunks_exact(6)) {
            // The centre of a pixel is half a pixel from its corner.
            let (from_x, from_y) = (x as f32 + 0.5, y as f32 + 0.5);
            let to_x = matrix[0] * from_x + matrix[1] * from_y + matrix[2];
            let to_y = matrix[3] * from_x + matrix[4] * from_y + matrix[5];
            if (0.0..90.0).contains(&to_x) && (0.0..70.0).contains(&to_y) {
                let value = tensor[to_y as usize * 90 + to_x as usize];
                prop_assert!(value > 80, "{value} at {to_x}, {to_y} of {transform:?}");
            }
        }
    }

    /// A mask that follows its image lies over it.
    #[test]
    fn masks_lie_over_their_images(seed: u64, height in 30u32..120, width in 30u32..120) {
        let image = GrayImage::from_fn(width, height, |x, y| Luma([if (x / 16 + y / 16) % 2 == 0 { 200 } else { 0 }]));
        let mut file = Cursor::new(Vec::new());
        image.write_to(&mut file, ImageFormat::Png).unwrap();
        let file = file.into_inner();
        let transform = ImageTransform {
            channels: Channels::Gray,
            random_resized_crop: Some(RandomResizedCrop::default()),
            rotation: (-20.0, 20.0),
            horizontal_flip: 0.5,
            interpolation: Interpolation::Nearest,
            ..ImageTransform::new(40, 50)
        };
        let mask = ImageTransform { samples: crate::FileSamples::Values, ..transform.clone() };
        prop_assert_eq!(decoded(&file, &transform, seed), decoded(&file, &mask, seed));
    }
}

#[test]
fn all_options_work_together() {
    let file = jpeg(&picture(50, 60));
    let transform = ImageTransform {
        random_resized_crop: Some(RandomResizedCrop::default()),
        rotation: (-15.0, 15.0),
        color_jitter: Some(ColorJitter { brightness: (0.6, 1.4), ..STILL }),
        horizontal_flip: 0.5,
        crops: Some(2),
        ..ImageTransform::new(16, 16)
    };
    let tensors = crate::decode_images(&column(&[&file]), &transform, &[4]).unwrap();
    assert_eq!(tensors.as_fixed_size_list().value(0).as_primitive::<UInt8Type>().len(), 2 * 3 * 16 * 16);
}
