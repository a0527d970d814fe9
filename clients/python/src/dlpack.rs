//! Hands columns of numbers to tensor libraries through DLPack, without copying.
//!
//! The structures, and the protocol of the capsule, are defined in <https://dmlc.github.io/dlpack/latest/>.

use std::ffi::{CStr, c_void};
use std::{iter, ptr};

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field};
use pyo3::ffi::{PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyObject};
use pyo3::prelude::*;
use stoker_columns::{NumpyShape, Rows, SmallFloat, dense_values, kind_of};

/// The name of a capsule whose tensor nobody has taken.
const UNTAKEN: &CStr = c"dltensor";

/// The number of the device type that is main memory.
const CPU: i32 = 1;

#[derive(Clone, Copy)]
#[repr(C)]
struct DataTypeOf {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Device {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    num_dims: i32,
    data_type: DataTypeOf,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct ManagedTensor {
    tensor: Tensor,
    context: *mut c_void,
    delete: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// A tensor, and what it refers to. The tensor is the first field, so that both have the same address.
#[repr(C)]
struct Exported {
    managed: ManagedTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _values: ArrayRef,
}

/// The tensor that a column becomes.
pub(crate) struct TensorColumn {
    data_type: DataTypeOf,
    /// The shape of one row.
    shape: Vec<usize>,
    /// For each dimension of a row, the number of the stored dimension that it is; `None` if both have one order.
    axes: Option<Vec<usize>>,
    /// The type as which the numbers are to be seen; `None` for numbers that have their own type.
    pub(crate) view: Option<&'static str>,
}

impl TensorColumn {
    /// Returns the tensor that a column becomes, or `None` for columns that are not numbers.
    pub(crate) fn of(field: &Field) -> Option<Self> {
        let NumpyShape { dtype, shape, small_float, rows: Rows::Fixed { axes }, .. } = kind_of(field).numpy(field)
        else {
            return None;
        };
        dtype.as_ref()?;
        let mut element = field.data_type();
        while let DataType::FixedSizeList(inner, _) = element {
            element = inner.data_type();
        }
        let (code, bits) = match element {
            DataType::UInt16 if small_float == Some(SmallFloat::BFloat16) => (4, 16),
            DataType::Boolean => (1, 8),
            DataType::Int8 => (0, 8),
            DataType::Int16 => (0, 16),
            DataType::Int32 => (0, 32),
            DataType::Int64 => (0, 64),
            DataType::UInt8 => (1, 8),
            DataType::UInt16 => (1, 16),
            DataType::UInt32 => (1, 32),
            DataType::UInt64 => (1, 64),
            DataType::Float16 => (2, 16),
            DataType::Float32 => (2, 32),
            DataType::Float64 => (2, 64),
            _ => return None,
        };
        let view = match element {
            DataType::Boolean => Some("bool"),
            DataType::UInt8 => small_float.map(SmallFloat::name),
            _ => None,
        };
        Some(Self { data_type: DataTypeOf { code, bits, lanes: 1 }, shape, axes, view })
    }

    /// Returns a capsule with the tensor of an array, which stays in memory as long as the tensor. Nulls become what
    /// [`dense_values`] says. Returns `None` for an array whose values do not fit the shape.
    pub(crate) fn export<'py>(&self, py: Python<'py>, array: &ArrayRef) -> PyResult<Option<Bound<'py, PyAny>>> {
        let num_rows = array.len();
        let Some(values) = dense_values(array) else { return Ok(None) };
        let row_len = self.shape.iter().try_fold(1usize, |length, size| length.checked_mul(*size));
        let length = row_len.and_then(|length| length.checked_mul(num_rows));
        if length != Some(values.len()) {
            return Ok(None);
        }
        let sizes = [num_rows].into_iter().chain(self.shape.iter().copied());
        let Ok(shape) = sizes.map(i64::try_from).collect::<Result<Vec<_>, _>>() else { return Ok(None) };
        capsule(py, self.data_type, self.strides(&shape), shape, values)
    }

    /// Returns how many numbers lie between neighbours of each dimension.
    fn strides(&self, shape: &[i64]) -> Vec<i64> {
        let num_dims = self.shape.len();
        let axes: Vec<usize> = self.axes.clone().unwrap_or_else(|| (0..num_dims).collect());
        // The sizes and the strides of the stored dimensions.
        let mut sizes = vec![1; num_dims];
        for (axis, size) in axes.iter().zip(shape.iter().skip(1)) {
            sizes[*axis] = *size;
        }
        let mut stored = vec![1; num_dims];
        for at in (1..num_dims).rev() {
            stored[at - 1] = stored[at] * sizes[at];
        }
        let row_len = sizes.iter().product();
        iter::once(row_len).chain(axes.into_iter().map(|axis| stored[axis])).collect()
    }
}

/// Makes the capsule. `values` are the numbers of all rows.
#[expect(unsafe_code, reason = "DLPack is a C interface: Python frees the capsule, and its consumer the tensor")]
fn capsule<'py>(
    py: Python<'py>,
    data_type: DataTypeOf,
    strides: Vec<i64>,
    shape: Vec<i64>,
    values: ArrayRef,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let data = values.to_data();
    let width = usize::from(data_type.bits) / 8;
    let first = data.offset().checked_mul(width);
    let bytes = data.buffers().first().zip(first).and_then(|(buffer, first)| buffer.get(first..));
    let Some(bytes) = bytes.filter(|bytes| bytes.len() / width >= values.len()) else { return Ok(None) };
    let tensor = Tensor {
        data: bytes.as_ptr().cast_mut().cast(),
        device: Device { device_type: CPU, device_id: 0 },
        num_dims: i32::try_from(shape.len()).unwrap_or(i32::MAX),
        data_type,
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let managed = ManagedTensor { tensor, context: ptr::null_mut(), delete: Some(delete) };
    let mut exported = Box::new(Exported { managed, shape, strides, _values: values });
    exported.managed.tensor.shape = exported.shape.as_mut_ptr();
    exported.managed.tensor.strides = exported.strides.as_mut_ptr();
    let exported: *mut Exported = Box::into_raw(exported);
    // SAFETY: the interpreter lock is held (`py`). `exported` is valid until `delete` is called, once: by the consumer, who
    // renames the capsule, or else by `dropped`. The shape, the strides and the bytes belong to it, and moving it would
    // not move them.
    let capsule = unsafe { PyCapsule_New(exported.cast(), UNTAKEN.as_ptr(), Some(dropped)) };
    if capsule.is_null() {
        // SAFETY: no capsule was made, so nobody else has the pointer.
        drop(unsafe { Box::from_raw(exported) });
        return Err(PyErr::fetch(py));
    }
    // SAFETY: the capsule is a new reference, which nobody else owns.
    Ok(Some(unsafe { Bound::from_owned_ptr(py, capsule) }))
}

/// Frees a tensor that its consumer does not need any more, on any thread.
#[expect(unsafe_code, reason = "the consumer of a tensor calls this through a pointer")]
unsafe extern "C" fn delete(managed: *mut ManagedTensor) {
    // SAFETY: `managed` is the first field of an `Exported` that `capsule` made, and the protocol calls this once.
    drop(unsafe { Box::from_raw(managed.cast::<Exported>()) });
}

/// Frees the tensor of a capsule that nobody took.
#[expect(unsafe_code, reason = "Python calls this through a pointer")]
unsafe extern "C" fn dropped(capsule: *mut PyObject) {
    // SAFETY: Python calls this with the capsule that it frees, and holds the interpreter lock. A capsule that was taken
    // has another name.
    unsafe {
        if PyCapsule_IsValid(capsule, UNTAKEN.as_ptr()) == 1 {
            delete(PyCapsule_GetPointer(capsule, UNTAKEN.as_ptr()).cast());
        }
    }
}
