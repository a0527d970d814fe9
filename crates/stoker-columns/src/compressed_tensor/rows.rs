//! Compresses tensors, on several threads.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::{available_parallelism, scope};

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, LargeBinaryArray};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field};
use stoker_codec::{Dictionary, Encoder, SMALL_ROW_BYTES_MAX};

use super::CompressedTensor;
use crate::Mismatch;
use crate::tensor::fit_elements;

/// The least bytes of tensors for which a thread is started.
const THREAD_BYTES_MIN: usize = 1 << 20;

/// The frames of some rows, one behind the other, and the length of each.
type Frames = (Vec<u8>, Vec<usize>);

/// Calls a function for parts of the bytes of some rows, each on a thread of its own, and returns the results in order.
///
/// # Errors
/// The first error of a part.
pub(crate) fn in_parts<T: Send>(
    bytes: &[u8],
    row_bytes: usize,
    work: impl Fn(&[u8]) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let num_rows = bytes.len() / row_bytes.max(1);
    let num_threads = available_parallelism().map_or(1, NonZero::get);
    let num_threads = num_threads.min(bytes.len() / THREAD_BYTES_MIN).max(1);
    let part_bytes = num_rows.div_ceil(num_threads).max(1) * row_bytes.max(1);
    scope(|threads| {
        let work = &work;
        let parts: Vec<_> = bytes.chunks(part_bytes).map(|rows| threads.spawn(move || work(rows))).collect();
        let joined = parts.into_iter().map(|part| part.join().unwrap_or_else(|_| Err("a panic".into())));
        joined.collect()
    })
}

impl CompressedTensor {
    /// Compresses tensors or vectors of the rows of this column. The frames take at most seven bytes more for each row than
    /// the tensors.
    ///
    /// # Errors
    /// Values of another type or length, and nulls; the first row that is null.
    pub fn compress(&self, column: &ArrayRef) -> Result<ArrayRef, Mismatch> {
        let tensors = self.elements(column)?;
        let failed = |error| Mismatch::new(None, self.expected(), error);
        self.compress_rows(tensors.as_fixed_size_list()).map_err(failed)
    }

    /// Returns the column with a dictionary that is made of some rows, if they are small and it makes them clearly shorter.
    /// Frames need the dictionary from then on, so that only the column of a new table gets one.
    ///
    /// # Errors
    /// As for [`CompressedTensor::compress`].
    pub fn with_dictionary(mut self, column: &ArrayRef) -> Result<Self, Mismatch> {
        if self.dictionary.is_some() || self.row.num_bytes() > SMALL_ROW_BYTES_MAX {
            return Ok(self);
        }
        let tensors = self.elements(column)?;
        let failed = |error: String| Mismatch::new(None, self.expected(), error);
        let data = tensors.to_data();
        let bytes = self.bytes(&data).map_err(failed)?;
        let trained = Dictionary::train(self.codec, &self.row, bytes).map_err(|error| failed(error.to_string()))?;
        self.dictionary = trained;
        Ok(self)
    }

    fn expected(&self) -> String {
        format!("{} without nulls", self.row)
    }

    /// Returns tensors or vectors of the rows of this column, without nulls.
    fn elements(&self, column: &ArrayRef) -> Result<ArrayRef, Mismatch> {
        let expected = || self.expected();
        let item = Arc::new(Field::new("item", self.element(), false));
        let length = i32::try_from(self.row.num_elements()).unwrap_or(i32::MAX);
        let plain = Field::new("x", DataType::FixedSizeList(item, length), false);
        let is_same = matches!(column.data_type(), DataType::FixedSizeList(found, found_length)
            if *found_length == length && *found.data_type() == self.element());
        if !is_same {
            return Err(Mismatch::new(None, expected(), column.data_type().to_string()));
        }
        if column.null_count() > 0 {
            let row = (0..column.len()).find(|row| column.is_null(*row));
            return Err(Mismatch::new(row, expected(), "null"));
        }
        fit_elements(&plain, column).map_err(|_| Mismatch::new(None, expected(), "a null element"))
    }

    /// Returns the bytes of some tensors.
    fn bytes<'a>(&self, tensors: &'a ArrayData) -> Result<&'a [u8], String> {
        let row_bytes = self.row.num_bytes();
        let elements = tensors.child_data().first().ok_or("tensors without elements")?;
        let start = (elements.offset() + tensors.offset() * self.row.num_elements()) * self.row.dtype().width();
        let bytes = elements.buffers().first().map(Buffer::as_slice).unwrap_or_default();
        bytes.get(start..start + tensors.len() * row_bytes).ok_or_else(|| "a tensor that ends early".into())
    }

    fn compress_rows(&self, tensors: &FixedSizeListArray) -> Result<ArrayRef, String> {
        let data = tensors.to_data();
        let (bytes, row_bytes) = (self.bytes(&data)?, self.row.num_bytes());
        let parts = in_parts(bytes, row_bytes, |rows| self.frames(rows))?;
        let lengths = parts.iter().flat_map(|(_, lengths)| lengths.iter().copied());
        let offsets = OffsetBuffer::<i64>::from_lengths(lengths);
        let frames = match <[Frames; 1]>::try_from(parts) {
            Ok([(frames, _)]) => frames,
            Err(parts) => {
                let mut all = Vec::with_capacity(parts.iter().map(|(frames, _)| frames.len()).sum());
                parts.into_iter().for_each(|(frames, _)| all.extend(frames));
                all
            }
        };
        let array = LargeBinaryArray::try_new(offsets, Buffer::from_vec(frames), None);
        array.map(|array| Arc::new(array) as ArrayRef).map_err(|error| error.to_string())
    }

    fn frames(&self, rows: &[u8]) -> Result<Frames, String> {
        let mut encoder = Encoder::try_new(self.codec, self.dictionary.as_ref()).map_err(|error| error.to_string())?;
        let (mut frames, mut lengths) = (Vec::new(), Vec::with_capacity(rows.len() / self.row.num_bytes()));
        for row in rows.chunks_exact(self.row.num_bytes()) {
            let before = frames.len();
            encoder.encode(&self.row, row, &mut frames).map_err(|error| error.to_string())?;
            lengths.push(frames.len() - before);
        }
        Ok((frames, lengths))
    }
}
