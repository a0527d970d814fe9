//! Arrow data from Python by the C stream interface, without copying.

use arrow::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use stoker_types::ErrorKind;

use crate::exceptions::{Raise, error};

/// A reader of the record batches of any object with `__arrow_c_stream__`.
///
/// # Errors
/// `InvalidRequest` for other objects, and for schemas that this build of Arrow does not know.
pub(crate) fn reader(data: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    let py = data.py();
    if !data.hasattr("__arrow_c_stream__")? {
        let message = format!("{} has no method __arrow_c_stream__", data.get_type());
        return Err(error(py, ErrorKind::InvalidRequest, &message));
    }
    let capsule = data.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
    ArrowArrayStreamReader::try_new(take(&capsule)?).raise(py)
}

/// Moves the stream out of its capsule. Handing the data over as IPC bytes would need no unsafe code, and copy every
/// tensor twice.
#[expect(unsafe_code, reason = "the C data interface hands over a pointer to a structure")]
fn take(capsule: &Bound<'_, PyCapsule>) -> PyResult<FFI_ArrowArrayStream> {
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name holds a valid `ArrowArrayStream` (PyCapsule interface of Arrow), and it is alive for as
    // long as `capsule`. `from_raw` moves the structure out and leaves a released one behind, which the capsule's
    // destructor ignores.
    Ok(unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr()) })
}
