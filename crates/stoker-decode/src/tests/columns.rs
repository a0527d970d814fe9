//! Columns of images: types, threads, bad rows.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray, Int32Array, LargeBinaryArray, ListArray, StringArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};
use image::ImageFormat;
use stoker_types::ErrorKind;

use super::{bytes, column, decoded, encoded, jpeg, picture};
use crate::random::Draws;
use crate::{BadValue, BatchDecoder, Crop, Error, ImageDecoder, ImageTransform, RandomResizedCrop, decode_images};

fn batch_decoder(transform: &ImageTransform, num_threads: usize) -> BatchDecoder {
    BatchDecoder::try_new(Box::new(ImageDecoder::new(transform.clone())), num_threads).unwrap()
}

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
        let decoder = batch_decoder(&transform, num_threads);
        for _ in 0..2 {
            let mut tensor = vec![0xEE; 40 * transform.row_bytes()];
            let memory = tensor.chunks_exact_mut(transform.row_bytes()).map(|row| vec![row]).collect();
            assert_eq!(decoder.decode_each(values.as_ref(), &[], &seeds, memory).unwrap(), []);
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
        let (decoder, row_bytes) = (batch_decoder(&transform, 2), transform.row_bytes());
        for seed in 0..50 {
            let mut tensor = vec![0; files.len() * row_bytes];
            let tensors = tensor.chunks_exact_mut(row_bytes).map(|row| vec![row]).collect();
            let bad = decoder.decode_each(values.as_ref(), &[], &vec![seed; files.len()], tensors).unwrap();
            assert_eq!(bad.iter().map(|(row, _)| *row).collect::<Vec<_>>(), expected, "{transform:?}, seed {seed}");
            assert!(bad.iter().all(|(_, bad)| !bad.reason.is_empty()));
        }
    }
    let decoder = batch_decoder(&ImageTransform::new(4, 4), 1);
    let error = decoder.decode_each(values.as_ref(), &[], &[0], Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
}

#[test]
fn files_in_structs_are_decoded() {
    let file = jpeg(&picture(16, 16));
    let paths: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let fields = vec![Field::new("bytes", DataType::LargeBinary, true), Field::new("path", DataType::Utf8, true)];
    let rows = StructArray::new(fields.into(), vec![column(&[&file, &file]), paths], Some(vec![true, false].into()));
    let transform = ImageTransform::new(16, 16);
    let values: ArrayRef = Arc::new(rows);
    let first = decode_images(&values.slice(0, 1), &transform, &[0]).unwrap();
    assert_eq!(bytes(&first, 0), decoded(&file, &transform, 0));
    assert!(decode_images(&values, &transform, &[0, 0]).unwrap_err().to_string().contains("row 1"));
}

#[test]
fn other_columns_are_refused() {
    let values: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let error = decode_images(&values, &ImageTransform::new(16, 16), &[0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

/// Returns a column of two lists and a null.
fn lists(files: &[&[u8]]) -> ArrayRef {
    let offsets = OffsetBuffer::new(vec![0, 1, files.len() as i32, files.len() as i32].into());
    let item = Arc::new(Field::new("item", DataType::LargeBinary, true));
    let nulls = NullBuffer::from(vec![true, true, false]);
    Arc::new(ListArray::new(item, offsets, column(files), Some(nulls)))
}

#[test]
fn lists_of_images_are_padded_and_cut() {
    let random = ImageTransform {
        random_resized_crop: Some(RandomResizedCrop::default()),
        images: Some(3),
        ..ImageTransform::new(8, 6)
    };
    assert_eq!(random.shape(), [3, 3, 8, 6]);
    let files: Vec<Vec<u8>> = (0..6).map(|row| jpeg(&picture(30 + row, 40))).collect();
    let files: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    let (values, decoder, image) = (lists(&files), batch_decoder(&random, 2), random.image_bytes());
    let (mut tensors, mut lengths) = (vec![0xEE; 3 * random.row_bytes()], vec![0xEE; 3 * 4]);
    let memory = tensors.chunks_exact_mut(random.row_bytes()).zip(lengths.chunks_exact_mut(4));
    let memory = memory.map(|(tensor, length)| vec![tensor, length]).collect();
    let failed = decoder.decode_each(values.as_ref(), &[], &[5, 6, 7], memory).unwrap();
    assert_eq!(failed, [(2, BadValue::new("it is null"))]);
    assert_eq!(lengths[..8], [1i32.to_ne_bytes(), 3i32.to_ne_bytes()].concat());
    let one = ImageTransform { images: None, ..random.clone() };
    assert_eq!(tensors[..image], decoded(files[0], &one, 5));
    assert!(tensors[image..3 * image].iter().all(|byte| *byte == 0));
    let row: Vec<&[u8]> = tensors[3 * image..6 * image].chunks_exact(image).collect();
    assert_eq!(row[0], decoded(files[1], &one, 6));
    for (number, tensor) in row.iter().enumerate().skip(1) {
        assert_eq!(*tensor, decoded(files[number + 1], &one, Draws::seed_of_image(6, number)));
        assert_ne!(*tensor, decoded(files[number + 1], &one, 6), "the images of a list have draws of their own");
    }
    let error = decode_images(&column(&files), &random, &[0; 6]).unwrap_err();
    assert!(error.to_string().contains("lists"), "{error}");
    let mut broken = files.clone();
    broken[2] = b"text";
    let memory = tensors.chunks_exact_mut(random.row_bytes()).zip(lengths.chunks_exact_mut(4));
    let memory = memory.map(|(tensor, length)| vec![tensor, length]).collect();
    let failed = decoder.decode_each(lists(&broken).as_ref(), &[], &[0; 3], memory).unwrap();
    assert!(failed[0].1.reason.starts_with("number 1 of its list: it is no PNG"), "{failed:?}");
}

#[test]
fn crops_of_an_image_have_draws_of_their_own() {
    let one = ImageTransform { random_resized_crop: Some(RandomResizedCrop::default()), ..ImageTransform::new(8, 6) };
    let many = ImageTransform { crops: Some(4), ..one.clone() };
    assert_eq!(many.shape(), [4, 3, 8, 6]);
    let file = jpeg(&picture(50, 60));
    let tensors = decoded(&file, &many, 9);
    let crops: Vec<&[u8]> = tensors.chunks_exact(one.row_bytes()).collect();
    assert_eq!(crops[0], decoded(&file, &one, 9));
    assert!((1..4).all(|number| (0..number).all(|other| crops[number] != crops[other])));
    for (crops, images) in [(Some(0), None), (Some(4097), None), (None, Some(0)), (Some(4000), Some(4000))] {
        let error = ImageTransform { crops, images, ..ImageTransform::new(64, 64) }.validate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
}
