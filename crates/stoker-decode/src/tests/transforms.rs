//! Regions, layouts, elements and invalid options of transforms.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use image::{ImageFormat, Rgb, RgbImage};

use super::{column, decoded, encoded, picture};
use crate::random::Draws;
use crate::{
    Crop, Element, Fit, ImageTransform, Interpolation, Layout, Normalize, RandomResizedCrop, decode_images, geometry,
};

fn hwc(height: u32, width: u32) -> ImageTransform {
    ImageTransform { layout: Layout::Hwc, ..ImageTransform::new(height, width) }
}

/// Returns the region of an image as (left, top, width, height).
fn region(transform: &ImageTransform, height: u32, width: u32, seed: u64) -> (f64, f64, f64, f64) {
    let region = geometry::place(transform, height, width, &Draws::new(seed)).region;
    (region.left, region.top, region.width, region.height)
}

#[test]
fn the_fit_decides_which_region_is_kept() {
    let transform = ImageTransform::new(100, 100);
    assert_eq!(region(&transform, 200, 400, 0), (100.0, 0.0, 200.0, 200.0));
    assert_eq!(region(&transform, 50, 40, 0), (0.0, 5.0, 40.0, 40.0));
    assert_eq!(
        region(&ImageTransform { fit: Fit::Stretch, ..transform.clone() }, 200, 400, 0),
        (0.0, 0.0, 400.0, 200.0)
    );
    let evaluation = ImageTransform { shorter_side: Some(200), ..transform.clone() };
    assert_eq!(region(&evaluation, 400, 800, 0), (300.0, 100.0, 200.0, 200.0));
    let contained = geometry::place(&ImageTransform { fit: Fit::Contain, ..transform }, 50, 200, &Draws::new(0));
    assert_eq!((contained.left, contained.top, contained.width, contained.height), (0, 37, 100, 25));
}

#[test]
fn random_regions_lie_in_the_image_and_depend_on_the_seed() {
    let random = ImageTransform { crop: Crop::Random, ..ImageTransform::new(64, 64) };
    let resized =
        ImageTransform { random_resized_crop: Some(RandomResizedCrop::default()), ..ImageTransform::new(64, 64) };
    for transform in [random, resized] {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            for (height, width) in [(90, 333), (333, 90), (1, 1), (3, 500)] {
                let (left, top, w, h) = region(&transform, height, width, seed);
                assert!(left >= 0.0 && top >= 0.0 && w > 0.0 && h > 0.0);
                assert!(left + w <= f64::from(width) && top + h <= f64::from(height), "{seed}: {left} {top} {w} {h}");
            }
            let found = region(&transform, 90, 333, seed);
            assert_eq!(found, region(&transform, 90, 333, seed));
            seen.insert(format!("{found:?}"));
        }
        assert!(seen.len() > 100);
    }
}

#[test]
fn crops_without_resizing_keep_pixels_as_they_are() {
    let image = picture(60, 80);
    let transform = ImageTransform { shorter_side: Some(60), ..hwc(40, 50) };
    let expected = image::imageops::crop_imm(&image, 15, 10, 50, 40).to_image().into_raw();
    assert_eq!(decoded(&encoded(&image, ImageFormat::Png), &transform, 0), expected);
}

#[test]
fn resized_pixels_are_near_those_of_the_image_crate() {
    let image = picture(120, 90);
    let expected = image::imageops::resize(&image, 30, 40, image::imageops::FilterType::Triangle).into_raw();
    for interpolation in [Interpolation::Bilinear, Interpolation::Box, Interpolation::Bicubic, Interpolation::Lanczos] {
        let transform = ImageTransform { fit: Fit::Stretch, interpolation, ..hwc(40, 30) };
        let found = decoded(&encoded(&image, ImageFormat::Png), &transform, 0);
        let worst = found.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(worst <= Some(6), "{interpolation:?}: {worst:?}");
    }
}

#[test]
fn contained_images_are_surrounded() {
    let image = RgbImage::from_pixel(10, 5, Rgb([1, 2, 3]));
    let transform = ImageTransform { fit: Fit::Contain, fill: 9, ..hwc(10, 10) };
    let found = decoded(&encoded(&image, ImageFormat::Png), &transform, 0);
    let rows: Vec<u8> = found.chunks(30).map(|row| row[0]).collect();
    assert_eq!(rows, [9, 9, 1, 1, 1, 1, 1, 9, 9, 9]);
}

#[test]
fn layouts_hold_the_same_pixels() {
    let file = encoded(&picture(6, 8), ImageFormat::Png);
    let (pixels, planes) = (decoded(&file, &hwc(6, 8), 0), decoded(&file, &ImageTransform::new(6, 8), 0));
    for (at, value) in pixels.iter().enumerate() {
        assert_eq!(planes[at % 3 * 48 + at / 3], *value);
    }
}

#[test]
fn mirrored_rows_run_backwards() {
    let image = picture(6, 8);
    let file = encoded(&image, ImageFormat::Png);
    let mirrored = image::imageops::flip_horizontal(&image).into_raw();
    let always = ImageTransform { horizontal_flip: 1.0, ..hwc(6, 8) };
    assert_eq!(decoded(&file, &always, 3), mirrored);
    let half = ImageTransform { horizontal_flip: 0.5, ..hwc(6, 8) };
    let flips = (0..400).filter(|seed| decoded(&file, &half, *seed) == mirrored).count();
    assert!((150..250).contains(&flips), "{flips}");
}

#[test]
fn floats_are_scaled_and_normalised() {
    let file = encoded(&picture(4, 4), ImageFormat::Png);
    let raw = decoded(&file, &ImageTransform::new(4, 4), 0);
    let normalize = Normalize { mean: [0.5, 0.25, 0.0], std: [0.5, 2.0, 1.0] };
    let transform =
        ImageTransform { element: Element::Float32, normalize: Some(normalize), ..ImageTransform::new(4, 4) };
    let tensors = decode_images(&column(&[&file]), &transform, &[0]).unwrap();
    let row = tensors.as_fixed_size_list().value(0);
    for (at, (found, raw)) in row.as_primitive::<Float32Type>().values().iter().zip(&raw).enumerate() {
        let channel = at / 16;
        assert_eq!(*found, (f32::from(*raw) / 255.0 - normalize.mean[channel]) / normalize.std[channel]);
    }
    let transform = ImageTransform { element: Element::Float16, ..ImageTransform::new(4, 4) };
    let tensors = decode_images(&column(&[&file]), &transform, &[0]).unwrap();
    let row = tensors.as_fixed_size_list().value(0);
    for (found, raw) in row.as_primitive::<Float16Type>().values().iter().zip(&raw) {
        assert_eq!(*found, half::f16::from_f32(f32::from(*raw) / 255.0));
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let good = ImageTransform::new(32, 48);
    good.validate().unwrap();
    let check = |transform: ImageTransform, words: &str| {
        let message = transform.validate().unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    };
    check(ImageTransform::new(0, 5), "size is 0x5");
    check(ImageTransform { horizontal_flip: 1.5, ..good.clone() }, "horizontal_flip is 1.5");
    check(ImageTransform { horizontal_flip: f64::NAN, ..good.clone() }, "horizontal_flip");
    check(ImageTransform { shorter_side: Some(40), ..good.clone() }, "from 48");
    check(ImageTransform { fit: Fit::Contain, crop: Crop::Random, ..good.clone() }, "crops nothing");
    let normalize = Some(Normalize { mean: [0.0; 3], std: [1.0; 3] });
    check(ImageTransform { normalize, ..good.clone() }, "float");
    let normalize = Some(Normalize { mean: [0.0; 3], std: [1.0, 0.0, 1.0] });
    check(ImageTransform { normalize, element: Element::Float32, ..good.clone() }, "std positive");
    let crop = |scale, ratio| Some(RandomResizedCrop { scale, ratio });
    check(ImageTransform { random_resized_crop: crop((0.0, 1.0), (1.0, 1.0)), ..good.clone() }, "scale");
    check(ImageTransform { random_resized_crop: crop((0.1, 1.0), (2.0, 1.0)), ..good.clone() }, "ratio");
    check(ImageTransform { image_bytes_max: 100, ..good }, "limit is 100");
}
