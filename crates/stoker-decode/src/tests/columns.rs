//! Columns of images: types, threads, bad rows.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray, Int32Array, LargeBinaryArray};
use arrow_schema::{DataType, Field};
use image::ImageFormat;
use stoker_types::ErrorKind;

use super::{bytes, column, decoded, encoded, jpeg, picture};
use crate::{BatchDecoder, Crop, Error, ImageTransform, RandomResizedCrop, decode_images};

#[test]
fn rows_are_in_their_places_on_any_number_of_threads() {
    let transform = ImageTransform {
        random_resized_crop: Some(RandomResizedCrop::default()),
        horizontal_flip: 0.5,
        ..ImageTransform::new(24, 20)
    };
    let files: Vec<Vec<u8>> = (0..40).map(|row| jpeg(&picture(30 + row, 64 - row))).collect();
    let seeds: Vec<u64> = (0..40).map(|row| row * 7).collect();
    let expected: Vec<Vec<u8>> =
        files.iter().zip(&seeds).map(|(file, seed)| decoded(file, &transform, *seed)).collect();
    let files: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    let values: ArrayRef = Arc::new(BinaryArray::from_iter_values(&files));
    for num_threads in [1, 2, 5] {
        let decoder = BatchDecoder::try_new(transform.clone(), num_threads).unwrap();
        for _ in 0..2 {
            let mut tensor = vec![0xEE; 40 * transform.row_bytes()];
            decoder.decode_into(values.as_ref(), &seeds, &mut tensor).unwrap();
            assert!(tensor.chunks(transform.row_bytes()).eq(expected.iter().map(Vec::as_slice)));
        }
    }
}

#[test]
fn the_array_has_the_shape_of_the_transform() {
    let transform = ImageTransform::new(4, 6);
    let file = encoded(&picture(4, 6), ImageFormat::Png);
    let tensors = decode_images(&column(&[&file, &file]), &transform, &[0, 1]).unwrap();
    assert_eq!(transform.shape(), [3, 4, 6]);
    let item = Field::new("item", transform.element.data_type(), true);
    assert_eq!(tensors.data_type(), &DataType::FixedSizeList(item.into(), 72));
    assert_eq!(bytes(&tensors, 0), bytes(&tensors, 1));
    assert_eq!(decode_images(&column(&[]), &transform, &[]).unwrap().len(), 0);
}

#[test]
fn the_first_bad_row_is_named() {
    let file = jpeg(&picture(16, 16));
    let files = [Some(file.as_slice()), Some(&file[..file.len() / 2]), None, Some(b"text".as_slice())];
    let values: ArrayRef = Arc::new(LargeBinaryArray::from_iter(files));
    let error = decode_images(&values, &ImageTransform::new(16, 16), &[0; 4]).unwrap_err();
    assert!(matches!(error, Error::BadImage { row: 1, .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::DataCorrupt);
    let values: ArrayRef = Arc::new(LargeBinaryArray::from_iter([None::<&[u8]>]));
    let error = decode_images(&values, &ImageTransform::new(16, 16), &[0]).unwrap_err();
    assert!(error.to_string().contains("row 0") && error.to_string().contains("null"), "{error}");
}

#[test]
fn all_bad_rows_are_named_whatever_their_seeds() {
    let image = picture(33, 20);
    let mut files: Vec<Option<Vec<u8>>> = vec![None, Some(Vec::new()), Some(b"text".to_vec())];
    for file in [jpeg(&image), encoded(&image, ImageFormat::Png), encoded(&image, ImageFormat::WebP)] {
        files.extend([1, 2, 3].map(|quarters| Some(file[..file.len() * quarters / 4].to_vec())));
        files.push(Some(file));
    }
    files.extend([(1, 1), (1, 300), (300, 1), (2, 7)].map(|(height, width)| Some(jpeg(&picture(height, width)))));
    let values: ArrayRef = Arc::new(LargeBinaryArray::from_iter(files.iter().map(Option::as_deref)));
    let good = [6, 10, 14, 15, 16, 17, 18];
    let expected: Vec<usize> = (0..files.len()).filter(|row| !good.contains(row)).collect();
    let random = RandomResizedCrop::default();
    for transform in [
        ImageTransform { random_resized_crop: Some(random), horizontal_flip: 0.5, ..ImageTransform::new(24, 20) },
        ImageTransform { crop: Crop::Random, shorter_side: Some(31), ..ImageTransform::new(24, 20) },
        ImageTransform { crop: Crop::Random, ..ImageTransform::new(7, 300) },
    ] {
        let (decoder, row_bytes) = (BatchDecoder::try_new(transform.clone(), 2).unwrap(), transform.row_bytes());
        for seed in 0..50 {
            let mut tensor = vec![0; files.len() * row_bytes];
            let tensors = tensor.chunks_exact_mut(row_bytes).collect();
            let bad = decoder.decode_each(values.as_ref(), &vec![seed; files.len()], tensors).unwrap();
            assert_eq!(bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), expected, "{transform:?}, seed {seed}");
            assert!(bad.iter().all(|(_, bad)| !bad.reason.is_empty()));
        }
    }
    let decoder = BatchDecoder::try_new(ImageTransform::new(4, 4), 1).unwrap();
    let error = decoder.decode_each(values.as_ref(), &[0], Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
}

#[test]
fn other_columns_are_refused() {
    let values: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let error = decode_images(&values, &ImageTransform::new(16, 16), &[0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}
