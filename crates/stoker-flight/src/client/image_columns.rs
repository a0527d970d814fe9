//! Which columns of a stream are decoded, and to what.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema, SchemaRef};
use stoker_chunks::BufferPool;
use stoker_decode::{BatchDecoder, ImageTransform, sample_seed};
use stoker_stream::Batch;
use stoker_types::{Slice, StreamSpec};

use crate::{Error, Result};

/// The transform of each column that is decoded on the client's side, with the threads for it.
#[derive(Clone, Debug, Default)]
pub struct DecodeOptions {
    /// Names of columns of the stream, each with what its images become.
    pub columns: Vec<(String, ImageTransform)>,
    /// Threads that decode, for each column; 0 stands for the number of cores.
    pub num_threads: usize,
}

impl DecodeOptions {
    /// The schema of batches whose images are decoded: a non-null tensor in place of each file.
    ///
    /// # Errors
    /// [`Error::Decode`] for a transform that is not valid; [`Error::InvalidRequest`] for a column that is not there, is named twice
    /// or does not hold binary values.
    pub fn schema(&self, schema: &Schema) -> Result<SchemaRef> {
        let mut fields = schema.fields().to_vec();
        for (number, (name, transform)) in self.columns.iter().enumerate() {
            transform.validate()?;
            if self.columns.iter().take(number).any(|(other, _)| other == name) {
                return Err(Error::invalid(format!("column {name} would be decoded twice")));
            }
            let Some(field) = fields.iter_mut().find(|field| field.name() == name) else {
                let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                return Err(Error::invalid(format!(
                    "no column {name} to decode; the columns are {}",
                    names.join(", ")
                )));
            };
            if !matches!(field.data_type(), DataType::Binary | DataType::LargeBinary | DataType::BinaryView) {
                let found = field.data_type();
                return Err(Error::invalid(format!(
                    "column {name} holds {found}, not files of images: it cannot be decoded"
                )));
            }
            *field = Arc::new(transform.tensor_type().to_field(name));
        }
        Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
    }
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

    /// Bytes that the tensors of a batch take.
    pub fn tensor_bytes(&self, num_rows: usize) -> u64 {
        self.columns.iter().map(|column| (column.decoder.transform().row_bytes() * num_rows) as u64).sum()
    }

    /// The batch with tensors in place of files. Blocks the thread until all are decoded.
    pub fn decode(&self, batch: Batch) -> Result<Batch> {
        let mut columns = batch.data.columns().to_vec();
        for column in &self.columns {
            columns[column.index] = self.decode_column(column, &batch)?;
        }
        let data = RecordBatch::try_new(self.schema.clone(), columns).map_err(Error::internal)?;
        Ok(Batch { data, ..batch })
    }

    fn decode_column(&self, column: &Column, batch: &Batch) -> Result<ArrayRef> {
        let (files, num_rows) = (batch.data.column(column.index), batch.data.num_rows());
        let share = self.slice.share(batch.step, self.spec.num_rows);
        let seed = |row: usize| sample_seed(self.spec.seed, self.slice.epoch, share.position(row as u64), &column.name);
        let seeds: Vec<u64> = (0..num_rows).map(seed).collect();
        let mut tensors = self.pool.take(num_rows * column.decoder.transform().row_bytes());
        match column.decoder.decode_into(files.as_ref(), &seeds, tensors.as_mut()) {
            Ok(()) => Ok(column.decoder.tensors(tensors.freeze(), num_rows)?),
            Err(stoker_decode::Error::BadImage { row, reason }) => Err(Error::BadImage {
                column: column.name.clone(),
                place: self.place(batch, row, share.position(row as u64)),
                reason,
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Where a row of a batch stands, for messages.
    fn place(&self, batch: &Batch, row: usize, position: u64) -> String {
        let supplied = self.spec.tables().zip(&batch.row_addrs).filter_map(|(table, addrs)| {
            let addr = addrs.get(row).filter(|addr| **addr != u64::MAX)?;
            Some(format!("row id {addr} of {} version {}", table.table, table.version))
        });
        let rows: Vec<String> = supplied.collect();
        format!("{} (position {position} of epoch {})", rows.join(", "), self.slice.epoch)
    }
}
