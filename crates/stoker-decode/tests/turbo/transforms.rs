//! Transforms with smaller scales.

use stoker_decode::{
    BatchDecoder, Error, Fit, ImageDecoder, ImageTransform, Jpeg, JpegDecoder, Layout, Orientation, RandomResizedCrop,
};
use stoker_types::ErrorKind;

use super::{difference, jpeg, tensor};

#[test]
fn a_transform_that_needs_the_library_is_refused_without_it() {
    let transform = ImageTransform { jpeg: Jpeg::Turbo, ..ImageTransform::new(8, 8) };
    let error = BatchDecoder::try_new(Box::new(ImageDecoder::new(transform)), 1).map(drop).unwrap_err();
    assert!(matches!(error, Error::NoTurbo { jpeg: Jpeg::Turbo }), "{error}");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(matches!(JpegDecoder::load(Jpeg::Zune, &["/nowhere".into()]), Ok(JpegDecoder::Zune)));
}

#[test]
fn smaller_scales_give_nearly_the_same_tensors() {
    let fits = [Fit::Stretch, Fit::Cover, Fit::Contain];
    for (height, width) in [(400, 600), (399, 601), (1003, 757)] {
        let file = jpeg(height, width);
        for fit in fits {
            for edge in [20, 48, 90] {
                check(&file, &ImageTransform { fit, ..ImageTransform::new(edge, edge) }, 0);
            }
        }
        let random = ImageTransform {
            random_resized_crop: Some(RandomResizedCrop::default()),
            horizontal_flip: 0.5,
            ..ImageTransform::new(24, 24)
        };
        (0..30).for_each(|seed| check(&file, &random, seed));
    }
}

#[test]
fn orientations_shift_nothing() {
    let file = jpeg(403, 605);
    for tag in 1..=8 {
        let transform = ImageTransform { orientation: Orientation::Apply, ..ImageTransform::new(40, 30) };
        check(&with_orientation(&file, tag), &transform, 0);
        check(&with_orientation(&file, tag), &ImageTransform { fit: Fit::Stretch, ..transform }, 0);
    }
}

#[test]
fn pixels_that_are_decoded_into_the_tensor_are_those_that_are_copied_there() {
    let file = jpeg(60, 44);
    let transform = |layout| ImageTransform { layout, jpeg: Jpeg::Turbo, ..ImageTransform::new(60, 44) };
    for tag in 1..=8 {
        let file = with_orientation(&file, tag);
        for orientation in [Orientation::Ignore, Orientation::Apply] {
            for horizontal_flip in [0.0, 1.0] {
                let of = |layout| {
                    let options = ImageTransform { orientation, horizontal_flip, ..transform(layout) };
                    tensor(&file, &options, 0).unwrap()
                };
                let (pixels, planes) = (of(Layout::Hwc), of(Layout::Chw));
                let num_pixels = planes.len() / 3;
                let together: Vec<u8> = (0..num_pixels)
                    .flat_map(|pixel| [0, 1, 2].map(|plane| planes[plane * num_pixels + pixel]))
                    .collect();
                assert!(pixels == together, "tag {tag}, {orientation:?}, flip {horizontal_flip}");
            }
        }
    }
    let cut_off = &file[..file.len() / 2];
    let error = tensor(cut_off, &transform(Layout::Hwc), 0).unwrap_err();
    assert!(error.contains("ends before its image does"), "{error}");
}

#[test]
fn small_images_are_decoded_at_full_size() {
    let file = jpeg(60, 60);
    let transform = |jpeg| ImageTransform { jpeg, ..ImageTransform::new(32, 32) };
    assert_eq!(tensor(&file, &transform(Jpeg::Turbo), 0), tensor(&file, &transform(Jpeg::TurboScaled), 0));
}

/// Checks that smaller scales change the tensor a little only.
fn check(file: &[u8], transform: &ImageTransform, seed: u64) {
    let of = |jpeg| tensor(file, &ImageTransform { jpeg, ..transform.clone() }, seed).unwrap();
    let (mean, largest) = difference(&of(Jpeg::Turbo), &of(Jpeg::TurboScaled));
    assert!(mean < 1.0 && largest <= 12, "mean {mean}, largest {largest}, seed {seed}: {transform:?}");
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
