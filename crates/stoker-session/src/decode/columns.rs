//! The columns of a stream that are decoded, and their memory.

use std::collections::BTreeMap;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use stoker_batch::{Batch, BufferPool, Held, Pooled};
use stoker_decode::{BatchDecoder, RowMemory, bucket_row_seed, list_array, output_array, sample_seed, value_bytes};
use stoker_types::{Slice, StreamSpec};

use super::options::{ColumnDecoder, DecodeOptions};
use crate::error::bad_value;
use crate::{Error, Result};

/// A batch that is being decoded.
pub(crate) struct DecodedBatch {
    /// The rows, with encoded values.
    pub batch: Batch,
    /// The memory of each decoded column.
    outputs: Vec<Outputs>,
    /// The rows with values that cannot be decoded.
    pub bad: BTreeMap<usize, BadValue>,
    /// The memory that the outputs reserve.
    held: Held,
}

/// The memory of a decoded column.
enum Outputs {
    /// That of each output, row by row.
    Fixed(Vec<Pooled>),
    /// The list of each row.
    Lists(Vec<Vec<u8>>),
}

/// The reason why a row is bad.
pub(crate) struct BadValue {
    /// The index of the value's column among the decoded columns; the first one when several are bad.
    pub column: usize,
    /// The decoder's error.
    pub reason: String,
}

/// Decodes the batches of one slice.
pub(crate) struct DecodedColumns {
    columns: Vec<Column>,
    schema: SchemaRef,
    /// The number of columns before decoding.
    num_encoded: usize,
    spec: StreamSpec,
    slice: Slice,
    pool: BufferPool,
}

struct Column {
    index: usize,
    name: String,
    decoder: BatchDecoder,
    /// The indices of the columns of the decoder's parameters.
    parameters: Vec<usize>,
    /// The indices of the outputs in decoded batches.
    outputs: Vec<usize>,
}

impl Column {
    fn try_new(
        (name, decoder): &(String, ColumnDecoder),
        encoded: &Schema,
        decoded: &Schema,
        num_threads: usize,
    ) -> Result<Self> {
        let decoder = BatchDecoder::try_new(decoder.build()?, num_threads)?;
        let index_of = |schema: &Schema, name: &str| schema.index_of(name).map_err(Error::internal);
        let outputs = decoder.outputs().iter().map(|output| index_of(decoded, &output.name(name)));
        let parameters = decoder.decoder().parameters().into_iter().map(|named| index_of(encoded, named));
        Ok(Self {
            index: index_of(encoded, name)?,
            name: name.clone(),
            parameters: parameters.collect::<Result<_>>()?,
            outputs: outputs.collect::<Result<_>>()?,
            decoder,
        })
    }

    /// Returns the memory of the rows of `places`, ascending row numbers.
    fn memory<'a>(&self, outputs: &'a mut [Pooled], places: &[usize]) -> Vec<RowMemory<'a>> {
        let mut rows: Vec<RowMemory<'a>> = places.iter().map(|_| Vec::with_capacity(outputs.len())).collect();
        for (bytes, output) in outputs.iter_mut().zip(self.decoder.outputs()) {
            let mut wanted = places.iter().zip(&mut rows).peekable();
            for (place, slice) in bytes.as_mut().chunks_exact_mut(output.row_bytes().max(1)).enumerate() {
                if let Some((_, row)) = wanted.next_if(|(wanted, _)| **wanted == place) {
                    row.push(slice);
                }
            }
        }
        rows
    }

    /// Makes the memory of a batch.
    fn outputs(&self, num_rows: usize, pool: &BufferPool) -> Result<Outputs> {
        if self.decoder.list().is_some() {
            return Ok(Outputs::Lists(vec![Vec::new(); num_rows]));
        }
        let outputs = self.decoder.outputs().iter();
        let memory = outputs.map(|output| pool.take(num_rows.saturating_mul(output.row_bytes())));
        Ok(Outputs::Fixed(memory.collect::<stoker_batch::Result<_>>()?))
    }

    /// Returns the number of bytes that the outputs of a batch take: of lists, as many as its values may become.
    fn output_bytes(&self, batch: &RecordBatch) -> u64 {
        let bytes = match self.decoder.list() {
            Some(list) => value_bytes(batch.column(self.index).as_ref()).saturating_mul(list.bytes_per_byte),
            None => self.decoder.row_bytes().saturating_mul(batch.num_rows()),
        };
        bytes as u64
    }

    /// Decodes `rows` into rows `places` of the outputs: ascending row numbers, one for each row of `rows`.
    fn decode(
        &self,
        outputs: &mut Outputs,
        rows: &RecordBatch,
        places: &[usize],
        seeds: &[u64],
    ) -> Result<Vec<(usize, stoker_decode::BadValue)>> {
        let parameters: Vec<&dyn Array> =
            self.parameters.iter().map(|index| rows.column(*index).as_ref() as &dyn Array).collect();
        let values = rows.column(self.index).as_ref();
        Ok(match outputs {
            Outputs::Fixed(outputs) => {
                self.decoder.decode_each(values, &parameters, seeds, self.memory(outputs, places))?
            }
            Outputs::Lists(lists) => {
                let mut wanted = places.iter().peekable();
                let is_wanted = |(row, _): &(usize, &mut Vec<u8>)| wanted.next_if(|place| **place == *row).is_some();
                let lists = lists.iter_mut().enumerate().filter(is_wanted).map(|(_, list)| list).collect();
                self.decoder.decode_lists(values, &parameters, seeds, lists)?
            }
        })
    }

    /// Returns the arrays of the outputs, each with its index in decoded batches.
    fn arrays(&self, outputs: Outputs, num_rows: usize, pool: &BufferPool) -> Result<Vec<(usize, ArrayRef)>> {
        let mut arrays = Vec::with_capacity(self.outputs.len().max(1));
        match outputs {
            Outputs::Fixed(outputs) => {
                for ((index, output), bytes) in self.outputs.iter().zip(self.decoder.outputs()).zip(outputs) {
                    arrays.push((*index, output_array(output, bytes.freeze(), num_rows)?));
                }
            }
            Outputs::Lists(lists) => {
                let Some(list) = self.decoder.list() else { return Err(Error::internal("lists of no decoder")) };
                let mut bytes = pool.take(lists.iter().map(Vec::len).fold(0, usize::saturating_add))?;
                let mut rest = bytes.as_mut();
                for row in &lists {
                    let (place, others) = rest.split_at_mut(row.len());
                    place.copy_from_slice(row);
                    rest = others;
                }
                arrays.push((self.index, list_array(list, bytes.freeze(), lists.iter().map(Vec::len))?));
            }
        }
        Ok(arrays)
    }

    /// The column whose name the seeds are made with.
    fn draws_of(&self) -> &str {
        self.decoder.decoder().draws_of().unwrap_or(&self.name)
    }
}

impl DecodedColumns {
    pub fn try_new(
        options: &DecodeOptions,
        encoded: &Schema,
        spec: &StreamSpec,
        slice: &Slice,
        pool: BufferPool,
    ) -> Result<Self> {
        let schema = options.schema(encoded)?;
        let columns =
            options.columns.iter().map(|column| Column::try_new(column, encoded, &schema, options.num_threads));
        Ok(Self {
            columns: columns.collect::<Result<_>>()?,
            schema,
            num_encoded: encoded.fields().len(),
            spec: spec.clone(),
            slice: *slice,
            pool,
        })
    }

    /// Returns the number of bytes that the outputs of fixed shapes take of a row.
    pub fn row_bytes(&self) -> u64 {
        self.columns.iter().map(|column| column.decoder.row_bytes() as u64).fold(0, u64::saturating_add)
    }

    /// Returns the number of bytes that the outputs of a batch take.
    pub fn output_bytes(&self, batch: &RecordBatch) -> u64 {
        self.columns.iter().map(|column| column.output_bytes(batch)).fold(0, u64::saturating_add)
    }

    /// Decodes a batch. Rows with values that cannot be decoded are in [`DecodedBatch::bad`] of the result. Blocks the
    /// thread until all values are decoded.
    pub fn decode(&self, batch: Batch, held: Held) -> Result<DecodedBatch> {
        let num_rows = batch.data.num_rows();
        let outputs = self.columns.iter().map(|column| column.outputs(num_rows, &self.pool)).collect::<Result<_>>()?;
        let mut decoded = DecodedBatch { batch, outputs, bad: BTreeMap::new(), held };
        let (all, encoded) = ((0..num_rows).collect::<Vec<_>>(), decoded.batch.data.clone());
        decoded.bad = self.decode_rows(&mut decoded, &encoded, &all)?;
        Ok(decoded)
    }

    /// Decodes `rows` into rows `places` of the batch's outputs: ascending row numbers, one for each row of `rows`.
    /// Returns the rows that are bad in some column, by their index in `rows`. Blocks the thread.
    pub fn decode_rows(
        &self,
        decoded: &mut DecodedBatch,
        rows: &RecordBatch,
        places: &[usize],
    ) -> Result<BTreeMap<usize, BadValue>> {
        let share = self.slice.share(decoded.batch.step, self.spec.num_rows);
        let mut bad = BTreeMap::new();
        for (number, (column, outputs)) in self.columns.iter().zip(&mut decoded.outputs).enumerate() {
            let seed = |place: &usize| {
                let (at, of_bucket) = decoded.batch.place_of(*place);
                let position = share.position(at as u64);
                let seed = sample_seed(self.spec.seed, self.slice.epoch, position, column.draws_of());
                match decoded.batch.buckets {
                    None => seed,
                    Some(_) => bucket_row_seed(seed, of_bucket as u64),
                }
            };
            let seeds: Vec<u64> = places.iter().map(seed).collect();
            for (row, found) in column.decode(outputs, rows, places, &seeds)? {
                if found.is_fatal {
                    let place = self.place(&decoded.batch, places[row]);
                    return Err(Error::DecoderFailed { column: column.name.clone(), place, reason: found.reason });
                }
                bad.entry(row).or_insert(BadValue { column: number, reason: found.reason });
            }
        }
        Ok(bad)
    }

    /// Builds the batch with the outputs in place of encoded values, once all values are decoded. Returns it with its
    /// reserved memory.
    pub fn finish(&self, decoded: DecodedBatch) -> Result<(Batch, Held)> {
        let DecodedBatch { batch, outputs, held, .. } = decoded;
        let num_rows = batch.data.num_rows();
        let mut columns: Vec<_> = batch.data.columns().iter().cloned().map(Some).collect();
        columns.resize(self.schema.fields().len(), None);
        for (column, outputs) in self.columns.iter().zip(outputs) {
            for (index, array) in column.arrays(outputs, num_rows, &self.pool)? {
                columns[index] = Some(array);
            }
        }
        let columns = columns.into_iter().flatten().collect();
        let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
        let data = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options);
        Ok((Batch { data: data.map_err(Error::internal)?, ..batch }, held))
    }

    /// Returns the indices of the columns that are not decoded.
    pub fn others(&self) -> Vec<usize> {
        let is_decoded = |index: &usize| self.columns.iter().any(|column| column.index == *index);
        (0..self.num_encoded).filter(|index| !is_decoded(index)).collect()
    }

    /// Returns the position of a row of a batch.
    pub fn position(&self, batch: &Batch, row: usize) -> u64 {
        self.slice.share(batch.step, self.spec.num_rows).position(batch.place_of(row).0 as u64)
    }

    /// Returns the epoch of the batches.
    pub fn epoch(&self) -> u64 {
        self.slice.epoch
    }

    /// Builds the error for a batch with bad rows. It names the first bad row of the first column that has one.
    pub fn error(&self, decoded: &DecodedBatch) -> Error {
        let first = decoded.bad.iter().min_by_key(|(row, bad)| (bad.column, **row));
        let Some((row, bad)) = first else { return Error::internal("a batch without bad rows") };
        let place = self.place(&decoded.batch, *row);
        let column = &self.columns[bad.column];
        let (noun, reason) = (column.decoder.decoder().noun(), bad.reason.clone());
        Error::BadValue { column: column.name.clone(), noun, place, reason }
    }

    /// Describes a bad row of a batch: its column, its location and the decoder's error.
    pub fn reason(&self, batch: &Batch, row: usize, bad: &BadValue) -> String {
        let column = &self.columns[bad.column];
        bad_value(&column.name, column.decoder.decoder().noun(), &self.place(batch, row), &bad.reason)
    }

    /// Describes a bad value without its row: its column and the decoder's error.
    pub fn reason_alone(&self, bad: &BadValue) -> String {
        let column = &self.columns[bad.column];
        format!("column {}: the {} cannot be decoded: {}", column.name, column.decoder.decoder().noun(), bad.reason)
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
