//! Decodes image files to tensors.

use arrow_array::ArrayRef;
use arrow_buffer::MutableBuffer;
use arrow_schema::DataType;
use image::metadata::Orientation as Tag;

use crate::batch_decoder::RowMemory;
use crate::geometry::{Placement, Region, place};
use crate::jitter::jitter;
use crate::output_array::output_array;
use crate::png_values::decode_values;
use crate::random::{Draw, Draws};
use crate::read_placed::read_placed;
use crate::resize::Samples;
use crate::rotate::Rotation;
use crate::scratch::{Scratch, ScratchPool};
use crate::value_decoder::{OutputSpec, Row, Takes, ValueDecoder, write_number};
use crate::write::Table;
use crate::{
    BadValue, BatchDecoder, Element, Error, FileSamples, Frame, Header, ImageFile, ImageTransform, Jpeg, JpegDecoder,
    Layout, Orientation, Pixels, Result, resize,
};

/// Decodes images with one transform. Its buffers are reused.
pub struct ImageDecoder {
    transform: ImageTransform,
    table: Table,
    jpeg: JpegDecoder,
    scratch: ScratchPool,
}

impl ImageDecoder {
    /// Creates a decoder. [`ValueDecoder::validate`] checks the transform.
    pub fn new(transform: ImageTransform) -> Self {
        Self { table: Table::new(&transform), transform, jpeg: JpegDecoder::Zune, scratch: ScratchPool::default() }
    }

    /// Sets the decoder of JPEG files, which transforms need that ask for libjpeg-turbo. Other transforms ignore it.
    pub fn with_jpeg(self, jpeg: JpegDecoder) -> Self {
        Self { jpeg: if self.transform.jpeg == Jpeg::Zune { JpegDecoder::Zune } else { jpeg }, ..self }
    }

    /// Decodes one file into the tensors of its crops, and writes the matrix of each crop. Both follow each other.
    fn decode_file(
        &self,
        scratch: &mut Scratch,
        file: &[u8],
        seed: u64,
        tensors: &mut [u8],
        matrices: &mut [u8],
    ) -> Result<(), BadValue> {
        let transform = &self.transform;
        let mut matrices = matrices.chunks_exact_mut(MATRIX_BYTES);
        if self.reads_parts() {
            let Scratch { pixels, decompressor, .. } = scratch;
            let (mut file, draws) = (self.jpeg.open(decompressor, file, transform.image_bytes_max)?, Draws::new(seed));
            if let Some(placement) = self.placed_as_decoded(&mut file, &draws) {
                file.decode_into(tensors)?;
                matrices.for_each(|matrix| self.write_matrix(&placement, &draws, matrix));
                return Ok(());
            }
            let placed = read_placed(file, transform, &draws, pixels)?;
            self.write_crop(scratch, placed.size, &placed.in_pixels, &draws, tensors)?;
            matrices.for_each(|matrix| self.write_matrix(&placed.in_image, &draws, matrix));
            return Ok(());
        }
        let size = self.read_pixels(scratch, file)?;
        for (number, tensor) in tensors.chunks_exact_mut(transform.image_bytes()).enumerate() {
            let draws = Draws::of_crop(seed, number);
            let placement = place(transform, size.0, size.1, &draws);
            self.write_crop(scratch, size, &placement, &draws, tensor)?;
            if let Some(matrix) = matrices.next() {
                self.write_matrix(&placement, &draws, matrix);
            }
        }
        Ok(())
    }

    /// Returns the placement of an image whose tensor is its decoded pixels, if they are decoded into it.
    fn placed_as_decoded(&self, file: &mut ImageFile<'_>, draws: &Draws) -> Option<Placement> {
        let transform = &self.transform;
        let Header { height, width, .. } = file.header();
        let is_plain = matches!(self.table, Table::UInt8)
            && transform.layout == Layout::Hwc
            && (height, width) == (transform.height, transform.width)
            && transform.color_jitter.is_none()
            && file.decodes_into(transform.channels)
            && !self.is_flipped(draws);
        if !is_plain || transform.orientation == Orientation::Apply && file.orientation() != Tag::NoTransforms {
            return None;
        }
        let placement = place(transform, height, width, draws);
        (placement.region == Region::whole(height, width) && is_filled(transform, &placement)).then_some(placement)
    }

    /// Whether only the part of an image is decoded that its tensor needs.
    fn reads_parts(&self) -> bool {
        let transform = &self.transform;
        transform.samples == FileSamples::Colors && transform.num_crops() == 1 && transform.rotation == (0.0, 0.0)
    }

    /// Decodes the pixels of a file. Returns height and width.
    fn read_pixels(&self, scratch: &mut Scratch, file: &[u8]) -> Result<(u32, u32), BadValue> {
        let Scratch { pixels, decompressor, .. } = scratch;
        let transform = &self.transform;
        if transform.samples == FileSamples::Values {
            return decode_values(file, transform.image_bytes_max, self.samples().bytes(), pixels);
        }
        let mut file = self.jpeg.open(decompressor, file, transform.image_bytes_max)?;
        match transform.orientation {
            Orientation::Ignore => {
                let header = file.header();
                file.decode(transform.channels, pixels)?;
                Ok((header.height, header.width))
            }
            Orientation::Apply => {
                let orientation = file.orientation();
                file.decode_oriented(transform.channels, orientation, pixels)
            }
        }
    }

    fn samples(&self) -> Samples {
        if self.transform.element == Element::UInt16 { Samples::UInt16 } else { Samples::UInt8 }
    }

    /// The rotation of a crop; `None` if it is not rotated.
    fn rotation(&self, placement: &Placement, draws: &Draws) -> Option<Rotation> {
        let degrees = draws.uniform(Draw::Angle, 0, self.transform.rotation);
        (degrees != 0.0).then(|| Rotation::new(degrees, placement))
    }

    fn is_flipped(&self, draws: &Draws) -> bool {
        draws.unit(Draw::Flip, 0) < self.transform.horizontal_flip
    }

    /// Writes one crop of the decoded image.
    fn write_crop(
        &self,
        scratch: &mut Scratch,
        (height, width): (u32, u32),
        placement: &Placement,
        draws: &Draws,
        tensor: &mut [u8],
    ) -> Result<(), BadValue> {
        let Scratch { pixels, resized, canvas, resizer, .. } = scratch;
        let transform = &self.transform;
        let (channels, samples) = (transform.channels, self.samples());
        let source = Pixels { bytes: pixels, height, width, channels, samples };
        let is_flipped = self.is_flipped(draws);
        let frame = Frame { width: transform.width, channels, layout: transform.layout, is_flipped };
        let (size, is_filled) = ((placement.height, placement.width), is_filled(transform, placement));
        let rotation = self.rotation(placement, draws);
        let is_whole = size == (height, width) && placement.region == source.region() && is_filled;
        if is_whole && rotation.is_none() && transform.color_jitter.is_none() {
            self.table.write(pixels, &frame, tensor);
            return Ok(());
        }
        let drawn = if let Some(rotation) = rotation {
            rotation.draw(transform, placement, &source, resizer, (resized, canvas))?;
            canvas
        } else {
            resized.resize(size.0 as usize * size.1 as usize * source.pixel_bytes(), 0);
            resize(resizer, &source, &placement.region, transform.interpolation, size, resized)?;
            if is_filled {
                resized
            } else {
                fill_around(transform, placement, &source, resized, canvas);
                canvas
            }
        };
        if let Some(options) = &transform.color_jitter {
            jitter(options, channels, draws, drawn);
        }
        self.table.write(drawn, &frame, tensor);
        Ok(())
    }

    fn write_matrix(&self, placement: &Placement, draws: &Draws, matrix: &mut [u8]) {
        let bytes = self.matrix(placement, draws).into_iter().flat_map(f32::to_ne_bytes);
        matrix.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    }

    /// Returns the matrix that maps (x, y, 1) of the decoded image to the tensor, row by row.
    #[expect(clippy::cast_possible_truncation, reason = "pixels need no more bits")]
    fn matrix(&self, placement: &Placement, draws: &Draws) -> [f32; 6] {
        let region = &placement.region;
        let (scale_x, scale_y) =
            (f64::from(placement.width) / region.width, f64::from(placement.height) / region.height);
        let rotation = self.rotation(placement, draws);
        let map = |x: f64, y: f64| {
            let x = f64::from(placement.left) + (x - region.left) * scale_x;
            let y = f64::from(placement.top) + (y - region.top) * scale_y;
            let (x, y) = rotation.as_ref().map_or((x, y), |rotation| rotation.after(x, y));
            if self.is_flipped(draws) { (f64::from(self.transform.width) - x, y) } else { (x, y) }
        };
        // The map is affine: its values at three points determine it.
        let (origin, right, down) = (map(0.0, 0.0), map(1.0, 0.0), map(0.0, 1.0));
        [right.0 - origin.0, down.0 - origin.0, origin.0, right.1 - origin.1, down.1 - origin.1, origin.1]
            .map(|value| value as f32)
    }
}

/// The bytes of the matrix of a crop.
const MATRIX_BYTES: usize = 6 * size_of::<f32>();

impl ValueDecoder for ImageDecoder {
    fn noun(&self) -> &'static str {
        "image"
    }

    fn validate(&self) -> Result<()> {
        self.transform.validate()?;
        match (self.transform.jpeg, &self.jpeg) {
            (jpeg @ (Jpeg::Turbo | Jpeg::TurboScaled), JpegDecoder::Zune) => Err(Error::NoTurbo { jpeg }),
            _ => Ok(()),
        }
    }

    fn outputs(&self) -> Vec<OutputSpec> {
        let transform = &self.transform;
        let mut outputs = vec![OutputSpec::tensor(transform.element.data_type(), transform.shape())];
        if transform.matrix {
            let counts = [transform.images, transform.crops].into_iter().flatten().map(|count| count as usize);
            let shape = counts.chain([2, 3]).collect();
            outputs.push(OutputSpec { suffix: "matrix", element: DataType::Float32, shape });
        }
        if transform.images.is_some() {
            outputs.push(OutputSpec::number("length"));
        }
        outputs
    }

    fn takes(&self) -> Takes {
        if self.transform.images.is_some() { Takes::FileLists } else { Takes::Files }
    }

    fn draws_of(&self) -> Option<&str> {
        self.transform.follow.as_deref()
    }

    fn decode(&self, row: &Row<'_>, outputs: &mut [&mut [u8]]) -> Result<(), BadValue> {
        let mut lent = self.scratch.lend();
        let scratch = &mut lent.scratch;
        let Some((tensors, rest)) = outputs.split_first_mut() else { return Ok(()) };
        let (matrices, rest) = rest.split_at_mut(usize::from(self.transform.matrix));
        let mut none: [&mut [u8]; 1] = [&mut []];
        let matrices = matrices.first_mut().unwrap_or(&mut none[0]);
        let Some(images) = self.transform.images else {
            return self.decode_file(scratch, row.file()?, row.seed, tensors, matrices);
        };
        let crops = self.transform.num_crops();
        let mut matrices = matrices.chunks_exact_mut(MATRIX_BYTES * crops);
        let tensors = tensors.chunks_exact_mut(self.transform.image_bytes() * crops);
        for (number, tensors) in tensors.enumerate() {
            let matrices = matrices.next().unwrap_or_default();
            let Some(file) = row.files.get(number) else {
                tensors.fill(0);
                matrices.fill(0);
                continue;
            };
            let seed = Draws::seed_of_image(row.seed, number);
            let decoded = file.ok_or_else(|| BadValue::new("it is null"));
            let decoded = decoded.and_then(|file| self.decode_file(scratch, file, seed, tensors, matrices));
            decoded.map_err(|bad| BadValue::new(format!("number {number} of its list: {bad}")))?;
        }
        rest.iter_mut().for_each(|length| write_number(row.files.len().min(images as usize), length));
        Ok(())
    }
}

/// Decodes a column with a new decoder, for single calls. A [`BatchDecoder`] keeps its threads and buffers between
/// calls.
///
/// # Errors
/// As [`BatchDecoder::try_new`] and [`BatchDecoder::decode_each`]; [`Error::BadImage`] with the first row that cannot be
/// decoded.
pub fn decode_images(values: &ArrayRef, transform: &ImageTransform, seeds: &[u64]) -> Result<ArrayRef> {
    let decoder = BatchDecoder::try_new(Box::new(ImageDecoder::new(transform.clone())), 0)?;
    // Arrow's buffers are aligned for elements of every type.
    let mut memory: Vec<MutableBuffer> = decoder
        .outputs()
        .iter()
        .map(|output| MutableBuffer::from_len_zeroed(values.len() * output.row_bytes()))
        .collect();
    let mut rows: Vec<RowMemory<'_>> = (0..values.len()).map(|_| Vec::new()).collect();
    for (buffer, output) in memory.iter_mut().zip(decoder.outputs()) {
        let slices = buffer.chunks_exact_mut(output.row_bytes());
        rows.iter_mut().zip(slices).for_each(|(row, slice)| row.push(slice));
    }
    let failed = decoder.decode_each(values, &[], seeds, rows)?;
    if let Some((row, BadValue { reason, .. })) = failed.into_iter().next() {
        return Err(Error::BadImage { row, reason });
    }
    let (Some(tensors), Some(output)) = (memory.into_iter().next(), decoder.outputs().first()) else {
        return Err(Error::internal("a decoder without outputs"));
    };
    output_array(output, tensors.into(), values.len())
}

fn is_filled(transform: &ImageTransform, placement: &Placement) -> bool {
    (placement.height, placement.width) == (transform.height, transform.width)
}

/// Writes the image to its rectangle of the canvas and fills the rest.
fn fill_around(
    transform: &ImageTransform,
    placement: &Placement,
    source: &Pixels<'_>,
    image: &[u8],
    canvas: &mut Vec<u8>,
) {
    let pixel_bytes = source.pixel_bytes();
    let (stride, row_bytes) = (transform.width as usize * pixel_bytes, placement.width as usize * pixel_bytes);
    canvas.resize(transform.height as usize * stride, 0);
    source.samples.fill(canvas, transform.fill);
    let left = placement.left as usize * pixel_bytes;
    let rows = canvas.chunks_exact_mut(stride).skip(placement.top as usize);
    for (to, from) in rows.zip(image.chunks_exact(row_bytes)) {
        to[left..left + row_bytes].copy_from_slice(from);
    }
}
