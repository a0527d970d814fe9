//! Functions of Python that decode the values of a column.

use std::sync::Arc;

use arrow_schema::DataType;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use stoker_decode::{BadValue, Error, ListSpec, OutputSpec, Row, Takes, ValueDecoder};
use stoker_session::SavedDecoder;

/// What error messages call the options.
const TRANSFORM: &str = "decoder";

/// The most bytes of the array of a row, and of an element of a list.
const ROW_BYTES_MAX: usize = 1 << 30;

/// The keys of the `DecoderRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct DecoderRequest {
    decoder: Py<PyAny>,
    shape: Vec<Option<usize>>,
    dtype: String,
}

/// A `stoker.Decoder`. Threads take the interpreter's lock for each value.
pub(crate) struct PythonDecoder {
    /// The `stoker.Decoder`, which `stoker._decoder.decoded` calls.
    decoder: Py<PyAny>,
    /// The sizes of the dimensions. The first one is `None` for rows of any length.
    shape: Vec<Option<usize>>,
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

    /// Whether rows have any length.
    fn makes_lists(&self) -> bool {
        self.shape.first().is_some_and(Option::is_none)
    }

    /// The sizes of a row or, for rows of any length, of an element.
    fn sizes(&self) -> Vec<usize> {
        self.shape.iter().copied().flatten().collect()
    }

    /// Calls the function with a value, and `take` with the bytes of its array.
    fn call<T>(&self, row: &Row<'_>, take: impl FnOnce(&[u8]) -> T) -> Result<T, BadValue> {
        let value = row.file()?;
        let text = if row.is_text { Some(row.text()?) } else { None };
        let called = Python::try_attach(|py| {
            let value = match text {
                Some(text) => PyString::new(py, text).into_any(),
                None => PyBytes::new(py, value).into_any(),
            };
            let module = py.import("stoker._decoder").map_err(BadValue::fatal)?;
            let array = module.call_method1("decoded", (self.decoder.bind(py), value, row.seed));
            let array = array.and_then(|array| Ok(array.cast_into::<PyBytes>()?));
            let array = array.map_err(|error| bad_value(py, &error))?;
            Ok(take(array.as_bytes()))
        });
        called.unwrap_or_else(|| Err(BadValue::fatal("the interpreter is ending")))
    }
}

/// Returns what an exception says about a value.
fn bad_value(py: Python<'_>, error: &PyErr) -> BadValue {
    let class = py.import("stoker._errors").and_then(|module| module.getattr("BadRow"));
    match class.is_ok_and(|class| error.matches(py, class).unwrap_or(false)) {
        true => BadValue::new(error.value(py)),
        false => BadValue::fatal(error),
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
        if self.shape.iter().skip(1).any(Option::is_none) {
            let reason = "has a dimension of any size that is not the first one";
            return Err(Error::invalid(TRANSFORM, "shape", reason));
        }
        let sizes = self.sizes();
        let bytes = sizes.iter().try_fold(element.primitive_width().unwrap_or(1), |all, size| all.checked_mul(*size));
        match bytes {
            Some(bytes @ 1..) if bytes <= ROW_BYTES_MAX => Ok(()),
            Some(0) => Err(Error::invalid(TRANSFORM, "shape", format!("is {sizes:?}, which has no elements"))),
            _ => Err(Error::invalid(
                TRANSFORM,
                "shape",
                format!("is {sizes:?}, more than the limit of {ROW_BYTES_MAX} bytes"),
            )),
        }
    }

    fn outputs(&self) -> Vec<OutputSpec> {
        let element = self.element().filter(|_| !self.makes_lists());
        element.map(|element| OutputSpec::tensor(element, self.sizes())).into_iter().collect()
    }

    fn list(&self) -> Option<ListSpec> {
        let number = self.element().filter(|_| self.makes_lists())?;
        let bytes_per_byte = number.primitive_width().unwrap_or(1);
        Some(ListSpec { number, shape: self.sizes(), bytes_per_byte })
    }

    fn takes(&self) -> Takes {
        Takes::FilesOrTexts
    }

    fn decode(&self, row: &Row<'_>, outputs: &mut [&mut [u8]]) -> Result<(), BadValue> {
        let Some(output) = outputs.first_mut() else { return Ok(()) };
        self.call(row, |array| output.copy_from_slice(array))
    }

    fn decode_list(&self, row: &Row<'_>) -> Result<Vec<u8>, BadValue> {
        self.call(row, |array| match array.len() <= ROW_BYTES_MAX {
            true => Ok(array.to_vec()),
            false => Err(BadValue::new(format!("its array has more than {ROW_BYTES_MAX} bytes"))),
        })?
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
