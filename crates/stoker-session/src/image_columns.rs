//! The image columns of a stream that are decoded, and their tensors.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use stoker_batch::{Batch, BufferPool, Held, Pooled};
use stoker_columns::encoded_image::decoded;
use stoker_decode::{BatchDecoder, ImageTransform, sample_seed};
use stoker_types::{Slice, StreamSpec};

use crate::error::bad_image;
use crate::{Error, Result};

/// The transform of each column that the client decodes, and the number of threads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecodeOptions {
    /// Names of columns of the stream, each with the transform of its images.
    pub columns: Vec<(String, ImageTransform)>,
    /// The number of decoding threads for each column; 0 stands for the number of cores.
    pub num_threads: usize,
}

impl DecodeOptions {
    /// Returns the schema of decoded batches: a non-null tensor column in place of each image column.
    ///
    /// # Errors
    /// [`stoker_decode::Error`] for a transform that is not valid; [`Error::InvalidRequest`] for a column that does not exist,
    /// is named twice or does not hold binary values.
    pub fn schema(&self, schema: &Schema) -> Result<SchemaRef> {
        let mut fields = schema.fields().to_vec();
        for (number, (name, transform)) in self.columns.iter().enumerate() {
            transform.validate()?;
            if self.columns.iter().take(number).any(|(other, _)| other == name) {
                return Err(Error::invalid(format!("cannot decode column {name} twice")));
            }
            let Some(field) = fields.iter_mut().find(|field| field.name() == name) else {
                let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                return Err(Error::invalid(format!(
                    "cannot decode column {name}, it does not exist; the columns are {}",
                    names.join(", ")
                )));
            };
            let Some(decoded) = decoded(field, transform) else {
                let found = field.data_type();
                return Err(Error::invalid(format!(
                    "column {name} holds {found}, not files of images: it cannot be decoded"
                )));
            };
            *field = Arc::new(decoded);
        }
        Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
    }
}

/// A batch whose images are being decoded.
pub(crate) struct ImageBatch {
    /// The rows, with encoded images.
    pub batch: Batch,
    /// The tensors of each decoded column, row by row.
    tensors: Vec<Pooled>,
    /// The rows whose images cannot be decoded.
    pub bad: BTreeMap<usize, BadImage>,
    /// The memory that the tensors reserve.
    held: Held,
}

/// The reason why a row is bad.
pub(crate) struct BadImage {
    /// The index of the bad image's column among the decoded columns; the first one when several are bad.
    pub column: usize,
    /// The decoder's error.
    pub reason: String,
}

/// Decodes the batches of one slice.
pub(crate) struct ImageColumns {
    columns: Vec<Column>,
    schema: SchemaRef,
    spec: StreamSpec,
    slice: Slice,
    pool: BufferPool,
}

struct Column {
    index: usize,
    name: String,
    decoder: BatchDecoder,
}

impl ImageColumns {
    pub fn try_new(
        options: &DecodeOptions,
        encoded: &Schema,
        spec: &StreamSpec,
        slice: &Slice,
        pool: BufferPool,
    ) -> Result<Self> {
        let schema = options.schema(encoded)?;
        let column = |(name, transform): &(String, ImageTransform)| -> Result<Column> {
            let index = schema.index_of(name).map_err(Error::internal)?;
            let decoder = BatchDecoder::try_new(transform.clone(), options.num_threads)?;
            Ok(Column { index, name: name.clone(), decoder })
        };
        let columns = options.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
        Ok(Self { columns, schema, spec: spec.clone(), slice: *slice, pool })
    }

    /// Returns the number of bytes that the tensors of a batch take.
    pub fn tensor_bytes(&self, num_rows: usize) -> u64 {
        self.columns.iter().map(|column| (column.decoder.transform().row_bytes() * num_rows) as u64).sum()
    }

    /// Decodes the images of a batch. Rows whose images cannot be decoded are in [`ImageBatch::bad`] of the result.
    /// Blocks the thread until all images are decoded.
    pub fn decode(&self, batch: Batch, held: Held) -> Result<ImageBatch> {
        let num_rows = batch.data.num_rows();
        let bytes = |column: &Column| num_rows.saturating_mul(column.decoder.transform().row_bytes());
        let tensors = self.columns.iter().map(|column| self.pool.take(bytes(column)));
        let tensors = tensors.collect::<stoker_batch::Result<_>>()?;
        let mut images = ImageBatch { batch, tensors, bad: BTreeMap::new(), held };
        let (all, files) = ((0..num_rows).collect::<Vec<_>>(), images.batch.data.clone());
        images.bad = self.decode_rows(&mut images, &files, &all)?;
        Ok(images)
    }

    /// Decodes the images of `rows` into rows `places` of the batch's tensors: ascending row numbers, one for each row
    /// of `rows`. Returns the rows that are bad in some column, by their index in `rows`. Blocks the thread.
    pub fn decode_rows(
        &self,
        images: &mut ImageBatch,
        rows: &RecordBatch,
        places: &[usize],
    ) -> Result<BTreeMap<usize, BadImage>> {
        let share = self.slice.share(images.batch.step, self.spec.num_rows);
        let mut bad = BTreeMap::new();
        for (number, (column, tensors)) in self.columns.iter().zip(&mut images.tensors).enumerate() {
            let position = |place: &usize| share.position(*place as u64);
            let seed = |place: &usize| sample_seed(self.spec.seed, self.slice.epoch, position(place), &column.name);
            let seeds: Vec<u64> = places.iter().map(seed).collect();
            let (row_bytes, mut wanted) = (column.decoder.transform().row_bytes(), places.iter().peekable());
            let all = tensors.as_mut().chunks_exact_mut(row_bytes).enumerate();
            let mine = all.filter_map(|(place, tensor)| wanted.next_if_eq(&&place).map(|_| tensor)).collect();
            let files = rows.column(column.index);
            for (row, stoker_decode::BadImage { reason }) in column.decoder.decode_each(files.as_ref(), &seeds, mine)? {
                bad.entry(row).or_insert(BadImage { column: number, reason });
            }
        }
        Ok(bad)
    }

    /// Builds the batch with tensors in place of images, once all images are decoded. Returns it with its reserved
    /// memory.
    pub fn finish(&self, images: ImageBatch) -> Result<(Batch, Held)> {
        let ImageBatch { batch, tensors, held, .. } = images;
        let (mut columns, num_rows) = (batch.data.columns().to_vec(), batch.data.num_rows());
        for (column, tensors) in self.columns.iter().zip(tensors) {
            columns[column.index] = column.decoder.tensors(tensors.freeze(), num_rows)?;
        }
        let data = RecordBatch::try_new(self.schema.clone(), columns).map_err(Error::internal)?;
        Ok((Batch { data, ..batch }, held))
    }

    /// Returns the indices of the columns that are not decoded.
    pub fn others(&self) -> Vec<usize> {
        let is_decoded = |index: &usize| self.columns.iter().any(|column| column.index == *index);
        (0..self.schema.fields().len()).filter(|index| !is_decoded(index)).collect()
    }

    /// Returns the position of a row of a batch.
    pub fn position(&self, batch: &Batch, row: usize) -> u64 {
        self.slice.share(batch.step, self.spec.num_rows).position(row as u64)
    }

    /// Returns the epoch of the batches.
    pub fn epoch(&self) -> u64 {
        self.slice.epoch
    }

    /// Builds the error for a batch with bad images. It names the first bad row of the first column that has one.
    pub fn error(&self, images: &ImageBatch) -> Error {
        let first = images.bad.iter().min_by_key(|(row, bad)| (bad.column, **row));
        let Some((row, bad)) = first else { return Error::internal("a batch without bad images") };
        let place = self.place(&images.batch, *row);
        Error::BadImage { column: self.columns[bad.column].name.clone(), place, reason: bad.reason.clone() }
    }

    /// Describes a bad row of a batch: its column, its location and the decoder's error.
    pub fn reason(&self, batch: &Batch, row: usize, bad: &BadImage) -> String {
        bad_image(&self.columns[bad.column].name, &self.place(batch, row), &bad.reason)
    }

    /// Returns the name of the column of a bad image.
    pub fn name(&self, bad: &BadImage) -> &str {
        &self.columns[bad.column].name
    }

    /// Describes the row ids, position and epoch of a row of a batch, for messages.
    pub fn place(&self, batch: &Batch, row: usize) -> String {
        let supplied = self.spec.tables().zip(&batch.row_addrs).filter_map(|(table, addrs)| {
            let addr = addrs.get(row).filter(|addr| **addr != u64::MAX)?;
            Some(format!("row id {addr} of {} version {}", table.table, table.version))
        });
        let rows: Vec<String> = supplied.collect();
        format!("{} (position {} of epoch {})", rows.join(", "), self.position(batch, row), self.slice.epoch)
    }
}
