//! Decodes columns of files and texts.

use arrow_array::Array;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use stoker_types::catch_panic;

use crate::column_values::{Values, numbers};
use crate::value_decoder::{ListSpec, OutputSpec, Row, ValueDecoder};
use crate::{BadValue, Error, Result};

/// Decodes columns of files or texts on its own threads. Dropping the decoder stops the threads.
pub struct BatchDecoder {
    decoder: Box<dyn ValueDecoder>,
    outputs: Vec<OutputSpec>,
    list: Option<ListSpec>,
    threads: ThreadPool,
}

/// The memory of one row: a slice for each output of the decoder.
pub type RowMemory<'a> = Vec<&'a mut [u8]>;

impl BatchDecoder {
    /// Creates a decoder with `num_threads` threads; 0 stands for the number of cores.
    ///
    /// # Errors
    /// [`Error::InvalidTransform`]; [`Error::Threads`] when the operating system starts no threads.
    pub fn try_new(decoder: Box<dyn ValueDecoder>, num_threads: usize) -> Result<Self> {
        decoder.validate()?;
        let threads = ThreadPoolBuilder::new()
            .num_threads(num_threads)
            .thread_name(|index| format!("stoker-decode-{index}"))
            .build()
            .map_err(|source| Error::Threads { num_threads, source })?;
        Ok(Self { outputs: decoder.outputs(), list: decoder.list(), decoder, threads })
    }

    /// What decodes the values.
    pub fn decoder(&self) -> &dyn ValueDecoder {
        self.decoder.as_ref()
    }

    /// The arrays that each row becomes.
    pub fn outputs(&self) -> &[OutputSpec] {
        &self.outputs
    }

    /// The list that each row becomes; `None` for rows of fixed shapes.
    pub fn list(&self) -> Option<&ListSpec> {
        self.list.as_ref()
    }

    /// The bytes of a row, of all outputs; 0 for lists.
    pub fn row_bytes(&self) -> usize {
        self.outputs.iter().map(OutputSpec::row_bytes).fold(0, usize::saturating_add)
    }

    /// Decodes the rows of a column of files, of lists of files, or of texts, row i into `memory[i]`, with the draws of
    /// `seeds[i]` and the numbers of row i of `parameters`, the columns of
    /// [`ValueDecoder::parameters`]. This call blocks until all rows are decoded. Returns the rows
    /// that are null, damaged, too large or in another format, in ascending order; the content of their memory is
    /// undefined.
    ///
    /// Which rows fail depends only on their files, parameters and seeds, and on the decoder. Every process that decodes
    /// a row therefore gets the same result. The seed matters only where a decoder reads no more than the part that was
    /// drawn.
    ///
    /// # Errors
    /// [`Error::NotFiles`], [`Error::NotNumbers`]; [`Error::Internal`] for wrong lengths.
    pub fn decode_each(
        &self,
        values: &dyn Array,
        parameters: &[&dyn Array],
        seeds: &[u64],
        memory: Vec<RowMemory<'_>>,
    ) -> Result<Vec<(usize, BadValue)>> {
        let fits = |row: &RowMemory<'_>| {
            row.len() == self.outputs.len()
                && row.iter().zip(&self.outputs).all(|(slice, output)| slice.len() == output.row_bytes())
        };
        if !memory.iter().all(fits) {
            return Err(Error::internal(format!("decoding into rows of other sizes than {:?}", self.outputs)));
        }
        let decode = |row: &Row<'_>, mut outputs: RowMemory<'_>| self.decoder.decode(row, &mut outputs);
        self.each(values, parameters, seeds, memory, decode)
    }

    /// Decodes the rows of such a column into lists, row i into `lists[i]`, as [`BatchDecoder::decode_each`] does. The list
    /// of a row that fails is empty.
    ///
    /// # Errors
    /// Those of [`BatchDecoder::decode_each`].
    pub fn decode_lists(
        &self,
        values: &dyn Array,
        parameters: &[&dyn Array],
        seeds: &[u64],
        lists: Vec<&mut Vec<u8>>,
    ) -> Result<Vec<(usize, BadValue)>> {
        let element_bytes = self.list.as_ref().map_or(1, ListSpec::element_bytes);
        let decode = |row: &Row<'_>, list: &mut Vec<u8>| {
            list.clear();
            let found = self.decoder.decode_list(row)?;
            match found.len().is_multiple_of(element_bytes) {
                true => *list = found,
                false => return Err(BadValue::fatal("the decoder made a part of an element")),
            }
            Ok(())
        };
        self.each(values, parameters, seeds, lists, decode)
    }

    /// Calls `decode` with each row and its memory.
    fn each<M: Send>(
        &self,
        values: &dyn Array,
        parameters: &[&dyn Array],
        seeds: &[u64],
        memory: Vec<M>,
        decode: impl Fn(&Row<'_>, M) -> Result<(), BadValue> + Sync,
    ) -> Result<Vec<(usize, BadValue)>> {
        let found = Values::of(values, self.decoder.takes())?;
        let columns = parameters.iter().map(|column| numbers(*column)).collect::<Result<Vec<_>>>()?;
        let are_as_many = columns.iter().all(|column| column.len() == values.len());
        if seeds.len() != values.len() || !are_as_many || memory.len() != values.len() {
            let found = format!("{} rows, {} seeds, {} parameters", values.len(), seeds.len(), columns.len());
            return Err(Error::internal(format!("decoding {found} into {} rows", memory.len())));
        }
        let at_once = self.decoder.rows_at_once().max(1);
        let rows = memory.into_par_iter().enumerate().with_min_len(at_once).with_max_len(at_once);
        let decode = |(row, memory): (usize, M)| {
            let decoded = match found.of_row(row) {
                None => Err(BadValue::new("it is null")),
                Some(files) => {
                    let parameters: Vec<_> = columns.iter().map(|column| column[row]).collect();
                    let row = Row { files, is_text: found.are_texts, parameters: &parameters, seed: seeds[row] };
                    catch_panic(|| decode(&row, memory), BadValue::new)
                }
            };
            decoded.err().map(|bad| (row, bad))
        };
        let mut failed: Vec<(usize, BadValue)> = self.threads.install(|| rows.flat_map_iter(decode).collect());
        failed.sort_by_key(|(row, _)| *row);
        Ok(failed)
    }
}
