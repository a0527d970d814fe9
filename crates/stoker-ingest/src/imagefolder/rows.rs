//! Converts groups of image files into record batches.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, LargeBinaryArray, RecordBatch, StringArray, UInt8Array};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rayon::prelude::*;
use stoker_columns::{TensorType, encoded_image};

use super::decode::{Failure, Target, decode, header, verify};
use super::listing::{ImageFile, Listing};
use crate::job::catch_panic;
use crate::{Error, Images, OnError, Result, Skipped};

/// Makes rows from the files of a listing.
pub(super) struct RowBuilder {
    pub listing: Listing,
    pub images: Images,
    /// The shape of the tensors; `None` when only the files are stored.
    pub target: Option<Target>,
    pub verify: bool,
    pub image_bytes_max: u64,
    pub on_error: OnError,
}

/// The rows of a group of files.
pub(super) struct Rows {
    pub batch: RecordBatch,
    pub skipped: Vec<Skipped>,
}

impl RowBuilder {
    /// Returns a builder for some of the files, which are given by ascending index.
    pub fn only(&self, files: &[usize]) -> Self {
        Self {
            listing: self.listing.only(files),
            images: self.images,
            target: self.target,
            verify: self.verify,
            image_bytes_max: self.image_bytes_max,
            on_error: self.on_error,
        }
    }

    /// Returns the schema: `image`, `image_bytes` if both are stored, `label`, `label_name`, `path`, `split`. No column
    /// is nullable.
    pub fn schema(&self) -> SchemaRef {
        let tensor = self.target.map(|target| TensorType { element: DataType::UInt8, shape: target.shape() });
        let encoded = |name: &str| encoded_image::new_field(name, false);
        let mut fields: Vec<Field> = tensor.iter().map(|tensor| tensor.to_field("image")).collect();
        match self.images {
            Images::Tensor => {}
            Images::Encoded => fields.push(encoded("image")),
            Images::Both => fields.push(encoded("image_bytes")),
        }
        fields.push(Field::new("label", DataType::Int64, false));
        fields.extend(["label_name", "path", "split"].map(|name| Field::new(name, DataType::Utf8, false)));
        Arc::new(Schema::new(fields))
    }

    /// Returns the number of bytes that a file's row takes in memory.
    pub fn row_bytes(&self, file: &ImageFile) -> u64 {
        self.target.map_or(0, |target| target.row_bytes() as u64) + file.stamp.bytes
    }

    /// Reads and decodes a range of the files on all cores.
    pub fn rows(&self, range: Range<usize>) -> Result<Rows> {
        let files = &self.listing.files[range];
        let _ahead = self.listing.fetch_ahead(files);
        let row_bytes = self.target.map_or(0, |target| target.row_bytes());
        let mut pixels = vec![0u8; row_bytes * files.len()];
        let read: Vec<Result<Vec<u8>, Failure>> = if row_bytes == 0 {
            files.par_iter().map(|file| self.read(file, &mut [])).collect()
        } else {
            let tensors = pixels.par_chunks_exact_mut(row_bytes);
            files.par_iter().zip(tensors).map(|(file, tensor)| self.read(file, tensor)).collect()
        };
        let (mut kept, mut encoded, mut skipped) = (Vec::with_capacity(files.len()), Vec::new(), Vec::new());
        for (index, (file, read)) in files.iter().zip(read).enumerate() {
            match read {
                Ok(bytes) => {
                    let row = kept.len();
                    if row < index {
                        pixels.copy_within(index * row_bytes..(index + 1) * row_bytes, row * row_bytes);
                    }
                    kept.push(file);
                    encoded.push(bytes);
                }
                Err(failure) => skipped.push(self.skip(file, failure)?),
            }
        }
        pixels.truncate(kept.len() * row_bytes);
        Ok(Rows { batch: self.batch(&kept, pixels, &encoded)?, skipped })
    }

    /// Decodes a file, into `tensor` if tensors are stored. Returns the bytes of the file if these are stored.
    fn read(&self, file: &ImageFile, tensor: &mut [u8]) -> Result<Vec<u8>, Failure> {
        let bytes = self.file(file)?;
        let decode = || match &self.target {
            Some(target) => decode(&bytes, self.image_bytes_max, target, tensor),
            None if self.verify => verify(&bytes, self.image_bytes_max),
            None => header(&bytes, self.image_bytes_max).map(drop),
        };
        catch_panic(decode, Failure::Unreadable)?;
        Ok(if self.images == Images::Tensor { Vec::new() } else { bytes })
    }

    /// Reads the bytes of a file and checks that it did not change after it was listed. Never reads more bytes than it
    /// had then.
    pub fn file(&self, file: &ImageFile) -> Result<Vec<u8>, Failure> {
        if file.stamp.bytes > self.image_bytes_max {
            let reason = format!("{} bytes are more than the limit of {}", file.stamp.bytes, self.image_bytes_max);
            return Err(Failure::Unreadable(reason));
        }
        Ok(self.listing.place.open(&self.listing.path(file), &file.stamp)?.read_all()?)
    }

    /// Returns the record of a skipped file, or an error if the failure must not be skipped.
    pub fn skip(&self, file: &ImageFile, failure: Failure) -> Result<Skipped> {
        let path = self.listing.path(file);
        match failure {
            Failure::Unreadable(reason) if self.on_error == OnError::Skip => Ok(Skipped::file(&path, reason)),
            Failure::Unreadable(reason) => Err(Error::Unreadable { path, reason }),
            Failure::Changed(change) => Err(Error::Changed { path, change }),
            Failure::Unreachable(reason) => Err(Error::Unreachable { path, reason }),
            Failure::Mismatch { expected, found } => {
                Err(Error::Mismatch { path, row: None, column: "image".into(), expected, found })
            }
        }
    }

    fn batch(&self, files: &[&ImageFile], pixels: Vec<u8>, encoded: &[Vec<u8>]) -> Result<RecordBatch> {
        let fail = |source| Error::internal("building rows of images", source);
        let schema = self.schema();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        if self.target.is_some()
            && let DataType::FixedSizeList(item, length) = schema.field(0).data_type()
        {
            let values = UInt8Array::new(ScalarBuffer::from(Buffer::from_vec(pixels)), None);
            let tensors = FixedSizeListArray::try_new(item.clone(), *length, Arc::new(values), None);
            columns.push(Arc::new(tensors.map_err(fail)?));
        }
        if self.images != Images::Tensor {
            columns.push(Arc::new(LargeBinaryArray::from_iter_values(encoded)));
        }
        columns.push(Arc::new(Int64Array::from_iter_values(files.iter().map(|file| file.class as i64))));
        let text = |of: &dyn Fn(&ImageFile) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(files.iter().map(|file| of(file))))
        };
        columns.push(text(&|file| self.listing.classes[file.class].clone()));
        columns.push(text(&|file| file.relative.clone()));
        columns.push(text(&|file| self.listing.splits[file.split].clone()));
        RecordBatch::try_new(schema, columns).map_err(fail)
    }
}
