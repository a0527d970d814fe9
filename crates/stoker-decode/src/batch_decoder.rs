//! Decodes columns of images.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float16Array, Float32Array, UInt8Array};
use arrow_buffer::{Buffer, MutableBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use stoker_types::catch_panic;

use crate::geometry::{Placement, place};
use crate::random::{Draw, Draws};
use crate::scratch::{Lent, Scratch, ScratchPool};
use crate::write::Table;
use crate::{BadImage, Element, Error, Frame, ImageFile, ImageTransform, Orientation, Pixels, Result, resize};

/// Decodes columns of images with one transform, on its own threads, which reuse their buffers. Dropping the decoder
/// stops the threads.
pub struct BatchDecoder {
    transform: ImageTransform,
    table: Table,
    scratch: ScratchPool,
    threads: ThreadPool,
}

impl BatchDecoder {
    /// Creates a decoder with `num_threads` threads; 0 stands for the number of cores.
    ///
    /// # Errors
    /// [`Error::InvalidTransform`]; [`Error::Threads`] when the operating system starts no threads.
    pub fn try_new(transform: ImageTransform, num_threads: usize) -> Result<Self> {
        transform.validate()?;
        let threads = ThreadPoolBuilder::new()
            .num_threads(num_threads)
            .thread_name(|index| format!("stoker-decode-{index}"))
            .build()
            .map_err(|source| Error::Threads { num_threads, source })?;
        Ok(Self { table: Table::new(&transform), transform, scratch: ScratchPool::default(), threads })
    }

    /// The transform.
    pub fn transform(&self) -> &ImageTransform {
        &self.transform
    }

    /// Decodes the rows of a Binary, LargeBinary or BinaryView column into `tensor`, which must have
    /// [`ImageTransform::row_bytes`] bytes for each row. Row i draws its augmentations from `seeds[i]`. This call
    /// blocks until all rows are decoded.
    ///
    /// # Errors
    /// [`Error::NotBinary`]; [`Error::BadImage`] with the first row that is null, damaged, too large or no image, while
    /// the other rows are still decoded; [`Error::Internal`] for wrong lengths.
    pub fn decode_into(&self, values: &dyn Array, seeds: &[u64], tensor: &mut [u8]) -> Result<()> {
        let row_bytes = self.transform.row_bytes();
        if tensor.len() != seeds.len() * row_bytes {
            let found = format!("{} seeds, {} bytes", seeds.len(), tensor.len());
            return Err(Error::internal(format!("decoding rows with {found} into rows of {row_bytes} bytes")));
        }
        let failed = self.decode_each(values, seeds, tensor.chunks_exact_mut(row_bytes).collect())?;
        let first = failed.into_iter().next();
        first.map_or(Ok(()), |(row, BadImage { reason })| Err(Error::BadImage { row, reason }))
    }

    /// Decodes rows as [`BatchDecoder::decode_into`] does, with row i in `tensors[i]`. Returns the rows that are null,
    /// damaged, too large or no image, in ascending order; the content of their tensors is undefined.
    ///
    /// Which rows fail depends only on their files and on the transform, not on the seeds: augmentations choose a
    /// region of an image that was decoded as a whole. Every process that decodes a file therefore gets the same
    /// result.
    ///
    /// # Errors
    /// [`Error::NotBinary`]; [`Error::Internal`] for wrong lengths.
    pub fn decode_each(
        &self,
        values: &dyn Array,
        seeds: &[u64],
        tensors: Vec<&mut [u8]>,
    ) -> Result<Vec<(usize, BadImage)>> {
        let (files, row_bytes) = (files(values)?, self.transform.row_bytes());
        let fits = tensors.iter().all(|tensor| tensor.len() == row_bytes);
        if seeds.len() != files.len() || tensors.len() != files.len() || !fits {
            let found = format!("{} rows, {} seeds, {} tensors", files.len(), seeds.len(), tensors.len());
            return Err(Error::internal(format!("decoding {found} into tensors of {row_bytes} bytes")));
        }
        let rows = tensors.into_par_iter().zip(files).zip(seeds).enumerate().with_max_len(1);
        let decode = |lent: &mut Lent<'_>, (row, ((tensor, file), seed)): (usize, Row<'_>)| {
            let failed = self.decode_file(&mut lent.scratch, file, *seed, tensor).err();
            failed.map(|bad| (row, bad))
        };
        let mut failed: Vec<(usize, BadImage)> = self.threads.install(|| {
            let failures = rows.map_init(|| self.scratch.lend(), decode).flatten_iter();
            failures.collect()
        });
        failed.sort_by_key(|(row, _)| *row);
        Ok(failed)
    }

    /// Returns the bytes that [`BatchDecoder::decode_into`] wrote as an array of fixed-size lists, one for each
    /// tensor.
    ///
    /// # Errors
    /// [`Error::Internal`] when the length is wrong.
    pub fn tensors(&self, bytes: Buffer, num_rows: usize) -> Result<ArrayRef> {
        if bytes.len() != num_rows * self.transform.row_bytes() {
            return Err(Error::internal(format!("{} bytes for {num_rows} tensors", bytes.len())));
        }
        let values: ArrayRef = match self.transform.element {
            Element::UInt8 => Arc::new(UInt8Array::new(ScalarBuffer::from(bytes), None)),
            Element::Float16 => Arc::new(Float16Array::new(ScalarBuffer::from(bytes), None)),
            Element::Float32 => Arc::new(Float32Array::new(ScalarBuffer::from(bytes), None)),
        };
        let item = Field::new("item", values.data_type().clone(), true);
        let length = i32::try_from(self.transform.shape().iter().product::<usize>()).map_err(Error::internal)?;
        let list = FixedSizeListArray::try_new(item.into(), length, values, None).map_err(Error::internal)?;
        Ok(Arc::new(list))
    }

    fn decode_file(
        &self,
        scratch: &mut Scratch,
        file: Option<&[u8]>,
        seed: u64,
        tensor: &mut [u8],
    ) -> Result<(), BadImage> {
        let file = file.ok_or_else(|| BadImage::new("it is null"))?;
        catch_panic(|| self.decode_image(scratch, file, &Draws::new(seed), tensor), BadImage::new)
    }

    fn decode_image(
        &self,
        scratch: &mut Scratch,
        file: &[u8],
        draws: &Draws,
        tensor: &mut [u8],
    ) -> Result<(), BadImage> {
        let Scratch { pixels, resized, canvas, resizer } = scratch;
        let transform = &self.transform;
        let file = ImageFile::open(file, transform.image_bytes_max)?;
        let (height, width) = match transform.orientation {
            Orientation::Ignore => {
                let header = file.header();
                file.decode(transform.channels, pixels)?;
                (header.height, header.width)
            }
            Orientation::Apply => file.decode_oriented(transform.channels, pixels)?,
        };
        let placement = place(transform, height, width, draws);
        let source = Pixels { bytes: pixels, height, width, channels: transform.channels };
        let frame = Frame {
            width: transform.width,
            channels: transform.channels,
            layout: transform.layout,
            is_flipped: draws.unit(Draw::Flip, 0) < transform.horizontal_flip,
        };
        let size = (placement.height, placement.width);
        if size == (height, width) && placement.region == source.region() && is_filled(transform, &placement) {
            self.table.write(pixels, &frame, tensor);
            return Ok(());
        }
        resized.resize(size.0 as usize * size.1 as usize * transform.channels.count(), 0);
        resize(resizer, &source, &placement.region, transform.interpolation, size, resized)?;
        if is_filled(transform, &placement) {
            self.table.write(resized, &frame, tensor);
        } else {
            fill_around(transform, &placement, resized, canvas);
            self.table.write(canvas, &frame, tensor);
        }
        Ok(())
    }
}

/// Decodes a column with a new decoder, for single calls. A [`BatchDecoder`] keeps its threads and buffers between
/// calls.
///
/// # Errors
/// As [`BatchDecoder::try_new`] and [`BatchDecoder::decode_into`].
pub fn decode_images(values: &ArrayRef, transform: &ImageTransform, seeds: &[u64]) -> Result<ArrayRef> {
    let decoder = BatchDecoder::try_new(transform.clone(), 0)?;
    // Arrow's buffers are aligned for elements of every type.
    let mut bytes = MutableBuffer::from_len_zeroed(values.len() * transform.row_bytes());
    decoder.decode_into(values, seeds, &mut bytes)?;
    decoder.tensors(bytes.into(), values.len())
}

type Row<'a> = ((&'a mut [u8], Option<&'a [u8]>), &'a u64);

/// Returns the files of a column, with `None` for null rows.
fn files(values: &dyn Array) -> Result<Vec<Option<&[u8]>>> {
    match values.data_type() {
        DataType::Binary => Ok(values.as_binary::<i32>().iter().collect()),
        DataType::LargeBinary => Ok(values.as_binary::<i64>().iter().collect()),
        DataType::BinaryView => Ok(values.as_binary_view().iter().collect()),
        other => Err(Error::NotBinary { found: other.to_string() }),
    }
}

fn is_filled(transform: &ImageTransform, placement: &Placement) -> bool {
    (placement.height, placement.width) == (transform.height, transform.width)
}

/// Writes the image to its rectangle of the canvas and fills the rest.
fn fill_around(transform: &ImageTransform, placement: &Placement, image: &[u8], canvas: &mut Vec<u8>) {
    let channels = transform.channels.count();
    let (stride, row_bytes) = (transform.width as usize * channels, placement.width as usize * channels);
    canvas.clear();
    canvas.resize(transform.height as usize * stride, transform.fill);
    let left = placement.left as usize * channels;
    let rows = canvas.chunks_exact_mut(stride).skip(placement.top as usize);
    for (to, from) in rows.zip(image.chunks_exact(row_bytes)) {
        to[left..left + row_bytes].copy_from_slice(from);
    }
}
