//! Imports Arrow data and schemas from Python through the Arrow C data interface, without copying.

use arrow::ffi::FFI_ArrowSchema;
use arrow::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_schema::Schema;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use stoker_types::ErrorKind;

use crate::exceptions::{Raise, error};

/// Returns a reader of the record batches of any object that has the method `__arrow_c_stream__`.
///
/// # Errors
/// `InvalidRequest` for an object without that method, and for a schema that this build of Arrow does not support.
pub(crate) fn reader(data: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    let py = data.py();
    if !data.hasattr("__arrow_c_stream__")? {
        let message = format!("{} has no method __arrow_c_stream__", data.get_type());
        return Err(error(py, ErrorKind::InvalidRequest, &message));
    }
    let capsule = data.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
    ArrowArrayStreamReader::try_new(take(&capsule)?).raise(py)
}

/// Returns the schema of any object that has the method `__arrow_c_schema__`.
///
/// # Errors
/// `InvalidRequest` for an object without that method, and for a schema that this build of Arrow does not support.
pub(crate) fn schema(data: &Bound<'_, PyAny>) -> PyResult<Schema> {
    let py = data.py();
    if !data.hasattr("__arrow_c_schema__")? {
        let message = format!("{} has no method __arrow_c_schema__", data.get_type());
        return Err(error(py, ErrorKind::InvalidRequest, &message));
    }
    let capsule = data.call_method0("__arrow_c_schema__")?.cast_into::<PyCapsule>()?;
    Schema::try_from(&take_schema(&capsule)?).raise(py)
}

/// Moves the schema out of its capsule.
#[expect(unsafe_code, reason = "the C data interface hands over a pointer to a structure")]
fn take_schema(capsule: &Bound<'_, PyCapsule>) -> PyResult<FFI_ArrowSchema> {
    let pointer = capsule.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // SAFETY: Arrow's PyCapsule interface says that a capsule of this name holds a valid `ArrowSchema`, and the structure
    // lives for as long as `capsule`. `from_raw` moves the structure out and leaves a released structure in the capsule,
    // which the capsule's destructor ignores.
    Ok(unsafe { FFI_ArrowSchema::from_raw(pointer.as_ptr()) })
}

/// Moves the stream out of its capsule. Passing the data as Arrow IPC bytes would need no unsafe code, but would copy
/// every tensor twice.
#[expect(unsafe_code, reason = "the C data interface hands over a pointer to a structure")]
fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<FFI_ArrowArrayStream> {
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: Arrow's PyCapsule interface says that a capsule of this name holds a valid `ArrowArrayStream`, and the
    // structure lives for as long as `capsule`. `from_raw` moves the structure out and leaves a released structure in
    // the capsule, which the capsule's destructor ignores.
    Ok(unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr()) })
}
