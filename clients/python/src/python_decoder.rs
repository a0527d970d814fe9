//! Functions of Python that decode the values of a column.

use std::sync::Arc;

use arrow_schema::DataType;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stoker_decode::{BadValue, Error, OutputSpec, Row, ValueDecoder};
use stoker_session::SavedDecoder;

/// What error messages call the options.
const TRANSFORM: &str = "decoder";

/// The most bytes of the array of a row.
const ROW_BYTES_MAX: usize = 1 << 30;

/// The keys of the `DecoderRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct DecoderRequest {
    decoder: Py<PyAny>,
    shape: Vec<usize>,
    dtype: String,
}

/// A `stoker.Decoder`. Threads take the interpreter's lock for each value.
pub(crate) struct PythonDecoder {
    /// The `stoker.Decoder`, which `stoker._decoder.decoded` calls.
    decoder: Py<PyAny>,
    shape: Vec<usize>,
    dtype: String,
}

impl DecoderRequest {
    pub(crate) fn to_decoder(&self, py: Python<'_>) -> PythonDecoder {
        let (shape, dtype) = (self.shape.clone(), self.dtype.clone());
        PythonDecoder { decoder: self.decoder.clone_ref(py), shape, dtype }
    }
}

impl PythonDecoder {
    fn element(&self) -> Option<DataType> {
        Some(match self.dtype.as_str() {
            "int8" => DataType::Int8,
            "int16" => DataType::Int16,
            "int32" => DataType::Int32,
            "int64" => DataType::Int64,
            "uint8" => DataType::UInt8,
            "uint16" => DataType::UInt16,
            "uint32" => DataType::UInt32,
            "uint64" => DataType::UInt64,
            "float16" => DataType::Float16,
            "float32" => DataType::Float32,
            "float64" => DataType::Float64,
            _ => return None,
        })
    }

    /// Calls the function, and returns the bytes of its array.
    fn call(&self, py: Python<'_>, file: &[u8], seed: u64, output: &mut [u8]) -> PyResult<()> {
        let module = py.import("stoker._decoder")?;
        let array = module.call_method1("decoded", (self.decoder.bind(py), PyBytes::new(py, file), seed))?;
        let array = array.cast_into::<PyBytes>()?;
        output.copy_from_slice(array.as_bytes());
        Ok(())
    }
}

impl ValueDecoder for PythonDecoder {
    fn noun(&self) -> &'static str {
        "value"
    }

    fn validate(&self) -> stoker_decode::Result<()> {
        let Some(element) = self.element() else {
            let reason =
                format!("is {:?}; it must be an integer or float type of NumPy, such as \"float32\"", self.dtype);
            return Err(Error::invalid(TRANSFORM, "dtype", reason));
        };
        let bytes =
            self.shape.iter().try_fold(element.primitive_width().unwrap_or(1), |all, size| all.checked_mul(*size));
        match bytes {
            Some(bytes @ 1..) if bytes <= ROW_BYTES_MAX => Ok(()),
            Some(0) => Err(Error::invalid(TRANSFORM, "shape", format!("is {:?}, which has no elements", self.shape))),
            _ => Err(Error::invalid(
                TRANSFORM,
                "shape",
                format!("is {:?}, more than the limit of {ROW_BYTES_MAX} bytes", self.shape),
            )),
        }
    }

    fn outputs(&self) -> Vec<OutputSpec> {
        self.element().map(|element| OutputSpec::tensor(element, self.shape.clone())).into_iter().collect()
    }

    fn decode(&self, row: &Row<'_>, outputs: &mut [&mut [u8]]) -> Result<(), BadValue> {
        let (Some(output), file) = (outputs.first_mut(), row.file()?) else { return Ok(()) };
        let called = Python::try_attach(|py| {
            self.call(py, file, row.seed, output).map_err(|error| {
                let is_bad_row = py
                    .import("stoker._errors")
                    .and_then(|module| module.getattr("BadRow"))
                    .is_ok_and(|class| error.matches(py, class).unwrap_or(false));
                match is_bad_row {
                    true => BadValue::new(error.value(py)),
                    false => BadValue::fatal(error),
                }
            })
        });
        called.unwrap_or_else(|| Err(BadValue::fatal("the interpreter is ending")))
    }
}

impl SavedDecoder for PythonDecoder {
    fn save(&self) -> Result<Vec<u8>, String> {
        Python::attach(|py| {
            let pickled = py.import("pickle")?.call_method1("dumps", (self.decoder.bind(py),))?;
            pickled.extract::<Vec<u8>>()
        })
        .map_err(|error| format!("the function of a stoker.Decoder cannot be sent to another process: {error}"))
    }
}

/// Loads a saved decoder.
pub(crate) fn load(saved: &[u8]) -> Result<Arc<dyn SavedDecoder>, String> {
    Python::attach(|py| {
        let decoder = py.import("pickle")?.call_method1("loads", (PyBytes::new(py, saved),))?;
        let request: DecoderRequest = decoder.call_method0("_request")?.extract()?;
        Ok(Arc::new(request.to_decoder(py)) as Arc<dyn SavedDecoder>)
    })
    .map_err(|error: PyErr| format!("loading the function of a stoker.Decoder: {error}"))
}
