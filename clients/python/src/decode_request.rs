//! The decoders of a stream, from Python.

use std::sync::Arc;

use pyo3::prelude::*;
use stoker_session::{ColumnDecoder, CustomDecoder, DecodeOptions};
use stoker_types::ErrorKind;

use crate::exceptions::{Raise, error};
use crate::image_request::TransformRequest;
use crate::media_request::{AudioRequest, VideoRequest};
use crate::python_decoder::DecoderRequest;
use crate::text_request::TextTokenizer;

/// The keys of the `DecodeRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct DecodeRequest {
    /// The name of each column, the kind of its decoder, and the decoder's options.
    columns: Vec<(String, String, Py<PyAny>)>,
    num_threads: usize,
    /// The names of columns of compressed tensors whose frames stay as they are.
    as_stored: Vec<String>,
}

impl DecodeRequest {
    /// Converts the request to options, which are not yet validated against a schema.
    pub(crate) fn to_options(&self, py: Python<'_>) -> PyResult<DecodeOptions> {
        let column = |(name, kind, options): &(String, String, Py<PyAny>)| {
            Ok((name.clone(), decoder(py, kind, options.bind(py))?))
        };
        let columns = self.columns.iter().map(column).collect::<PyResult<_>>()?;
        Ok(DecodeOptions { columns, num_threads: self.num_threads, as_stored: self.as_stored.clone() })
    }
}

fn decoder(py: Python<'_>, kind: &str, options: &Bound<'_, PyAny>) -> PyResult<ColumnDecoder> {
    match kind {
        "image" => Ok(ColumnDecoder::Image(options.extract::<TransformRequest>()?.to_options(py)?)),
        "audio" => Ok(ColumnDecoder::Audio(options.extract::<AudioRequest>()?.to_options())),
        "video" => Ok(ColumnDecoder::Video(options.extract::<VideoRequest>()?.to_options(py)?)),
        "text" => Ok(ColumnDecoder::Text(options.cast::<TextTokenizer>()?.get().0.clone())),
        "function" => {
            let decoder = options.extract::<DecoderRequest>()?.to_decoder(py);
            Ok(ColumnDecoder::Custom(CustomDecoder::new(Arc::new(decoder))))
        }
        other => Err(error(py, ErrorKind::Internal, &format!("there is no decoder {other}"))),
    }
}

/// Validates a decoder, without a stream.
#[pyfunction]
pub(crate) fn check_decoder(py: Python<'_>, kind: &str, options: &Bound<'_, PyAny>) -> PyResult<()> {
    decoder(py, kind, options)?.validate().raise(py)
}

/// Returns the value of an option that is one of several names.
///
/// # Errors
/// `InvalidRequestError`, which names the transform, the option and the choices.
pub(crate) fn chosen<T: Copy>(
    py: Python<'_>,
    transform: &str,
    option: &str,
    name: &str,
    choices: &[(&str, T)],
) -> PyResult<T> {
    if let Some((_, value)) = choices.iter().find(|(choice, _)| *choice == name) {
        return Ok(*value);
    }
    let names: Vec<String> = choices.iter().map(|(choice, _)| format!("{choice:?}")).collect();
    let message = format!("{transform}: {option} is {name:?}; it must be one of {}", names.join(", "));
    Err(error(py, ErrorKind::InvalidRequest, &message))
}
