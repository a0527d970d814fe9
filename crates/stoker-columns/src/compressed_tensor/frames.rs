//! Decodes and checks the frames of a column.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::MutableBuffer;
use arrow_data::ArrayData;
use arrow_schema::DataType;
use stoker_codec::{Decoder, check_header};

use super::CompressedTensor;
use crate::Mismatch;

impl CompressedTensor {
    /// Decodes frames to tensors, on this thread. Null rows stay null.
    ///
    /// # Errors
    /// The first frame that cannot be decoded, and values that are not binary.
    pub fn decompress(&self, column: &ArrayRef) -> Result<ArrayRef, Mismatch> {
        let expected = || format!("a frame of {}", self.row);
        let frames = frames(column).ok_or_else(|| Mismatch::new(None, expected(), column.data_type().to_string()))?;
        let row_bytes = self.row.num_bytes();
        let fail = |row: Option<usize>, error: String| Mismatch::new(row, expected(), error);
        let mut decoder = Decoder::try_new().map_err(|error| fail(None, error.to_string()))?;
        let mut bytes = MutableBuffer::from_len_zeroed(column.len() * row_bytes);
        let rows = bytes.as_slice_mut().chunks_exact_mut(row_bytes);
        for (row, (frame, memory)) in frames.into_iter().zip(rows).enumerate() {
            if let Some(frame) = frame {
                decoder
                    .decode(&self.row, self.dictionary.as_ref(), frame, memory)
                    .map_err(|error| fail(Some(row), error.to_string()))?;
            }
        }
        let elements = ArrayData::builder(self.element())
            .len(column.len() * self.row.num_elements())
            .add_buffer(bytes.into())
            .build()
            .map_err(|error| fail(None, error.to_string()))?;
        let tensors = ArrayData::builder(self.tensor_field("x").data_type().clone())
            .len(column.len())
            .nulls(column.nulls().cloned())
            .add_child_data(elements)
            .build();
        tensors.map(make_array).map_err(|error| fail(None, error.to_string()))
    }

    /// Checks that each value that is not null begins as a frame of this column.
    pub(super) fn check_frames(&self, column: &ArrayRef) -> Result<(), Mismatch> {
        let expected = || format!("a frame of {}", self.row);
        let frames = frames(column).ok_or_else(|| Mismatch::new(None, expected(), column.data_type().to_string()))?;
        for (row, frame) in frames.into_iter().enumerate() {
            if let Some(frame) = frame {
                let found = |error| Mismatch::new(Some(row), expected(), format!("other bytes ({error})"));
                check_header(&self.row, self.dictionary.as_ref(), frame).map_err(found)?;
            }
        }
        Ok(())
    }
}

/// Returns the binary values of a column; `None` for a column of other values.
fn frames(column: &ArrayRef) -> Option<Vec<Option<&[u8]>>> {
    match column.data_type() {
        DataType::Binary => Some(column.as_binary::<i32>().iter().collect()),
        DataType::LargeBinary => Some(column.as_binary::<i64>().iter().collect()),
        DataType::BinaryView => Some(column.as_binary_view().iter().collect()),
        _ => None,
    }
}
