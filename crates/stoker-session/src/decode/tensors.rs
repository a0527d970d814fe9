//! Compressed tensors.

use std::cell::RefCell;

use arrow_schema::Field;
use stoker_codec::Decoder;
use stoker_columns::CompressedTensor;
use stoker_decode::{BadValue, OutputSpec, Row, ValueDecoder};

/// The bytes of the neighbouring rows that a thread decodes at once: some ten microseconds of work.
const BYTES_AT_ONCE: usize = 64 << 10;

thread_local! {
    /// The decoder of a thread. Tensors are so small and so many that a lock would cost more than they do.
    static DECODER: RefCell<Option<Decoder>> = const { RefCell::new(None) };
}

/// Decodes the frames of a column of compressed tensors.
pub struct TensorDecoder {
    tensor: CompressedTensor,
}

impl TensorDecoder {
    /// Makes a decoder of frames with these tensors.
    pub fn new(tensor: CompressedTensor) -> Self {
        Self { tensor }
    }
}

impl ValueDecoder for TensorDecoder {
    fn noun(&self) -> &'static str {
        "compressed tensor"
    }

    fn validate(&self) -> stoker_decode::Result<()> {
        Ok(())
    }

    fn outputs(&self) -> Vec<OutputSpec> {
        // The field of the column has the sizes of the dimensions.
        vec![OutputSpec::tensor(self.tensor.element(), vec![self.tensor.row().num_elements()])]
    }

    fn field(&self, column: &str) -> Option<Field> {
        Some(self.tensor.tensor_field(column))
    }

    fn rows_at_once(&self) -> usize {
        BYTES_AT_ONCE / self.tensor.row().num_bytes().max(1)
    }

    fn decode(&self, row: &Row<'_>, outputs: &mut [&mut [u8]]) -> Result<(), BadValue> {
        let [tensor] = outputs else { return Err(BadValue::fatal("a compressed tensor has one array")) };
        let frame = row.file()?;
        DECODER.with_borrow_mut(|decoder| {
            let decoder = match decoder {
                Some(decoder) => decoder,
                None => decoder.insert(Decoder::try_new().map_err(BadValue::fatal)?),
            };
            let dictionary = self.tensor.dictionary.as_ref();
            decoder.decode(&self.tensor.row(), dictionary, frame, tensor).map_err(BadValue::new)
        })
    }
}
