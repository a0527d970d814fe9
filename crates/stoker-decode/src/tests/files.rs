//! Image files: formats, damage, limits, orientation.

use image::{DynamicImage, GrayImage, ImageFormat, Luma};

use super::{decoded, encoded, jpeg, picture, refused};
use crate::{Channels, Fit, ImageFile, ImageTransform, Layout, Orientation};

fn plain(height: u32, width: u32) -> ImageTransform {
    ImageTransform { layout: Layout::Hwc, ..ImageTransform::new(height, width) }
}

#[test]
fn all_formats_have_the_pixels_that_the_image_crate_says() {
    let image = picture(40, 56);
    for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Jpeg] {
        let file = encoded(&image, format);
        let expected = image::load_from_memory(&file).unwrap().into_rgb8().into_raw();
        assert_eq!(decoded(&file, &plain(40, 56), 0), expected, "{format:?}");
    }
}

#[test]
fn gray_becomes_rgb_and_back() {
    let gray = GrayImage::from_fn(24, 16, |x, y| Luma([(x * 8 + y) as u8]));
    for format in [ImageFormat::Png, ImageFormat::Jpeg] {
        let mut file = std::io::Cursor::new(Vec::new());
        gray.write_to(&mut file, format).unwrap();
        let expected = image::load_from_memory(file.get_ref()).unwrap();
        assert_eq!(decoded(file.get_ref(), &plain(16, 24), 0), expected.to_rgb8().into_raw());
        let transform = ImageTransform { channels: Channels::Gray, ..plain(16, 24) };
        assert_eq!(decoded(file.get_ref(), &transform, 0), expected.into_luma8().into_raw());
    }
    let file = jpeg(&picture(16, 24));
    let expected = image::load_from_memory(&file).unwrap().into_luma8().into_raw();
    assert_eq!(decoded(&file, &ImageTransform { channels: Channels::Gray, ..plain(16, 24) }, 0), expected);
}

#[test]
fn a_file_that_ends_early_is_refused_wherever_it_ends() {
    let (image, transform) = (picture(48, 48), plain(48, 48));
    let file = jpeg(&image);
    for end in (0..file.len() - 1).step_by(7).chain([file.len() - 1]) {
        refused(&file[..end], &transform);
    }
    for format in [ImageFormat::Png, ImageFormat::WebP] {
        let file = encoded(&image, format);
        for end in (0..file.len() * 9 / 10).step_by(5) {
            refused(&file[..end], &transform);
        }
    }
}

#[test]
fn flipped_bytes_never_panic_and_decode_alike() {
    let image = picture(40, 40);
    for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP] {
        let file = encoded(&image, format);
        for at in (0..file.len()).step_by(file.len() / 100 + 1) {
            let mut file = file.clone();
            file[at] ^= 0x5A;
            let transform = ImageTransform { fit: Fit::Stretch, ..plain(40, 40) };
            let decode = || {
                let decoded = crate::decode_images(&super::column(&[&file]), &transform, &[0]);
                decoded.map(|tensors| super::bytes(&tensors, 0)).map_err(|error| error.to_string())
            };
            let decoded = decode();
            assert_eq!(decoded, decode());
            if let Err(error) = decoded {
                assert!(!error.contains("its decoder failed"), "byte {at} of {format:?}: {error}");
            }
        }
    }
}

#[test]
fn what_is_no_image_or_too_large_is_refused() {
    let transform = plain(8, 8);
    assert!(refused(b"this is text", &transform).contains("no PNG, JPEG or WebP file: it begins with \"this is \""));
    assert!(refused(b"", &transform).contains("row 0"));
    let limited = ImageTransform { image_bytes_max: 2_000, ..transform };
    for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP] {
        let reason = refused(&encoded(&picture(100, 100), format), &limited);
        assert!(reason.contains("limit") || reason.contains("Limit"), "{reason}");
    }
}

#[test]
fn previews_do_not_stand_for_the_end_of_an_image() {
    let file = jpeg(&picture(32, 32));
    let mut preview = vec![0xFF, 0xE1, 0x00, 0x08, 1, 2, 0xFF, 0xD9, 3, 4];
    let mut with_preview = file[..2].to_vec();
    with_preview.append(&mut preview);
    with_preview.extend_from_slice(&file[2..]);
    assert_eq!(decoded(&with_preview, &plain(32, 32), 0), decoded(&file, &plain(32, 32), 0));
    assert!(refused(&with_preview[..with_preview.len() - 20], &plain(32, 32)).contains("ends before its image"));
}

#[test]
fn orientation_is_applied_on_request_only() {
    let image = picture(32, 48);
    let file = jpeg(&image);
    for tag in 1..=8u8 {
        let turned = with_orientation(&file, tag);
        assert_eq!(decoded(&turned, &plain(32, 48), 0), decoded(&file, &plain(32, 48), 0), "{tag}");
        let mut expected = DynamicImage::ImageRgb8(image::load_from_memory(&file).unwrap().into_rgb8());
        expected.apply_orientation(image::metadata::Orientation::from_exif(tag).unwrap());
        let transform =
            ImageTransform { orientation: Orientation::Apply, ..plain(expected.height(), expected.width()) };
        assert_eq!(decoded(&turned, &transform, 0), expected.into_rgb8().into_raw(), "{tag}");
    }
}

#[test]
fn headers_tell_size_and_colour() {
    let file = jpeg(&picture(20, 30));
    let header = ImageFile::open(&file, 1 << 20).unwrap().header();
    assert_eq!((header.height, header.width, header.has_color), (20, 30, true));
}

/// Returns a JPEG file with an EXIF segment (CIPA DC-008, 4.5.4 and 4.6.5) that contains only the orientation.
fn with_orientation(file: &[u8], tag: u8) -> Vec<u8> {
    let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend_from_slice(&[tag, 0, 0, 0, 0, 0, 0, 0]);
    let length = (exif.len() + 2) as u16;
    let mut turned = vec![0xFF, 0xD8, 0xFF, 0xE1];
    turned.extend_from_slice(&length.to_be_bytes());
    turned.extend_from_slice(&exif);
    turned.extend_from_slice(&file[2..]);
    turned
}
