//! Decodes columns of files.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, OffsetSizeTrait};
use arrow_buffer::{BooleanBuffer, Buffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::ops::Range;
use stoker_types::catch_panic;

use crate::value_decoder::{Number, OutputSpec, Row, ValueDecoder};
use crate::{BadValue, Error, Result};

/// Decodes columns of files on its own threads. Dropping the decoder stops the threads.
pub struct BatchDecoder {
    decoder: Box<dyn ValueDecoder>,
    outputs: Vec<OutputSpec>,
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
        Ok(Self { outputs: decoder.outputs(), decoder, threads })
    }

    /// What decodes the values.
    pub fn decoder(&self) -> &dyn ValueDecoder {
        self.decoder.as_ref()
    }

    /// The arrays that each row becomes.
    pub fn outputs(&self) -> &[OutputSpec] {
        &self.outputs
    }

    /// The bytes of a row, of all outputs.
    pub fn row_bytes(&self) -> usize {
        self.outputs.iter().map(OutputSpec::row_bytes).fold(0, usize::saturating_add)
    }

    /// Decodes the rows of a column of files or of lists of files, row i into `memory[i]`, with the draws of `seeds[i]`
    /// and the number of row i of `parameters`. This call blocks until all rows are decoded. Returns the rows that are
    /// null, damaged, too large or in another format, in ascending order; the content of their memory is undefined.
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
        parameters: Option<&dyn Array>,
        seeds: &[u64],
        memory: Vec<RowMemory<'_>>,
    ) -> Result<Vec<(usize, BadValue)>> {
        let files = Files::of(values, self.decoder.takes_lists())?;
        let numbers = parameters.map(numbers).transpose()?.unwrap_or_else(|| vec![None; values.len()]);
        let fits = |row: &RowMemory<'_>| {
            row.len() == self.outputs.len()
                && row.iter().zip(&self.outputs).all(|(slice, output)| slice.len() == output.row_bytes())
        };
        if seeds.len() != values.len() || numbers.len() != values.len() || memory.len() != values.len() {
            let found = format!("{} rows, {} seeds, {} numbers", values.len(), seeds.len(), numbers.len());
            return Err(Error::internal(format!("decoding {found} into {} rows", memory.len())));
        }
        if !memory.iter().all(fits) {
            return Err(Error::internal(format!("decoding into rows of other sizes than {:?}", self.outputs)));
        }
        let at_once = self.decoder.rows_at_once().max(1);
        let rows = memory.into_par_iter().enumerate().with_min_len(at_once).with_max_len(at_once);
        let decode = |(row, mut outputs): (usize, RowMemory<'_>)| {
            let decoded = match files.of_row(row) {
                None => Err(BadValue::new("it is null")),
                Some(files) => {
                    let row = Row { files, parameter: numbers[row], seed: seeds[row] };
                    catch_panic(|| self.decoder.decode(&row, &mut outputs), BadValue::new)
                }
            };
            decoded.err().map(|bad| (row, bad))
        };
        let mut failed: Vec<(usize, BadValue)> = self.threads.install(|| rows.flat_map_iter(decode).collect());
        failed.sort_by_key(|(row, _)| *row);
        Ok(failed)
    }
}

/// Returns the bytes of an output as an array: numbers, or fixed-size lists of them.
///
/// # Errors
/// [`Error::Internal`] when the length is wrong.
pub fn output_array(output: &OutputSpec, bytes: Buffer, num_rows: usize) -> Result<ArrayRef> {
    if bytes.len() != num_rows.saturating_mul(output.row_bytes()) {
        return Err(Error::internal(format!("{} bytes for {num_rows} rows of {output:?}", bytes.len())));
    }
    let bytes = match output.element {
        DataType::Boolean => BooleanBuffer::from_iter(bytes.iter().map(|byte| *byte != 0)).into_inner(),
        _ => bytes,
    };
    let values = ArrayData::builder(output.element.clone())
        .len(num_rows * output.row_elements())
        .add_buffer(bytes)
        .build()
        .map_err(Error::internal)?;
    if output.shape.is_empty() {
        return Ok(arrow_array::make_array(values));
    }
    let item = Field::new("item", output.element.clone(), true);
    let length = i32::try_from(output.row_elements()).map_err(Error::internal)?;
    let lists = ArrayData::builder(DataType::FixedSizeList(item.into(), length))
        .len(num_rows)
        .add_child_data(values)
        .build()
        .map_err(Error::internal)?;
    Ok(arrow_array::make_array(lists))
}

/// The files of a column, row after row.
struct Files<'a> {
    files: Vec<Option<&'a [u8]>>,
    /// The files of each row; `None` for null rows.
    rows: Vec<Option<Range<usize>>>,
}

impl<'a> Files<'a> {
    fn of(values: &'a dyn Array, are_lists: bool) -> Result<Self> {
        let not_files = || Error::NotFiles { found: values.data_type().to_string(), are_lists };
        if !are_lists {
            let files = files(values).ok_or_else(not_files)?;
            let rows = files.iter().enumerate().map(|(row, file)| file.map(|_| row..row + 1)).collect();
            return Ok(Self { files, rows });
        }
        match values.data_type() {
            DataType::List(_) => Self::of_lists(values.as_list::<i32>()).ok_or_else(not_files),
            DataType::LargeList(_) => Self::of_lists(values.as_list::<i64>()).ok_or_else(not_files),
            _ => Err(not_files()),
        }
    }

    fn of_lists<O: OffsetSizeTrait>(lists: &'a arrow_array::GenericListArray<O>) -> Option<Self> {
        let files = files(lists.values().as_ref())?;
        let range = |row: usize| lists.value_offsets()[row].as_usize()..lists.value_offsets()[row + 1].as_usize();
        let rows = (0..lists.len()).map(|row| lists.is_valid(row).then(|| range(row))).collect();
        Some(Self { files, rows })
    }

    fn of_row(&self, row: usize) -> Option<&[Option<&'a [u8]>]> {
        self.files.get(self.rows[row].clone()?)
    }
}

/// Returns whether values are files: binary, or structs with the field `bytes`, as `datasets` stores media.
pub fn is_file(data_type: &DataType) -> bool {
    match data_type {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        DataType::Struct(fields) => fields
            .iter()
            .any(|field| field.name() == "bytes" && !field.data_type().is_nested() && is_file(field.data_type())),
        _ => false,
    }
}

/// Returns the files of a column, with `None` for null rows; `None` if it is no column of files.
fn files(values: &dyn Array) -> Option<Vec<Option<&[u8]>>> {
    match values.data_type() {
        DataType::Binary => Some(values.as_binary::<i32>().iter().collect()),
        DataType::LargeBinary => Some(values.as_binary::<i64>().iter().collect()),
        DataType::BinaryView => Some(values.as_binary_view().iter().collect()),
        found @ DataType::Struct(_) if is_file(found) => {
            let rows = values.as_struct();
            let mut bytes = files(rows.column_by_name("bytes")?.as_ref())?;
            bytes.iter_mut().enumerate().filter(|(row, _)| rows.is_null(*row)).for_each(|(_, file)| *file = None);
            Some(bytes)
        }
        _ => None,
    }
}

/// Returns the numbers of a column of integers or floats.
fn numbers(values: &dyn Array) -> Result<Vec<Option<Number>>> {
    let data_type = values.data_type();
    let not_numbers = |_| Error::NotNumbers { found: data_type.to_string() };
    if data_type.is_integer() {
        let whole = arrow_cast::cast(values, &DataType::Int64).map_err(not_numbers)?;
        return Ok(whole.as_primitive::<Int64Type>().iter().map(|number| number.map(Number::Whole)).collect());
    }
    if data_type.is_floating() {
        let real = arrow_cast::cast(values, &DataType::Float64).map_err(not_numbers)?;
        return Ok(real.as_primitive::<Float64Type>().iter().map(|number| number.map(Number::Real)).collect());
    }
    Err(Error::NotNumbers { found: data_type.to_string() })
}
