"""Converts Arrow columns to NumPy arrays, without copying where both have the same layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from stoker import _native
from stoker._column_shapes import ColumnShape, column_shape
from stoker._errors import InvalidRequestError

__all__ = [
    "as_elements",
    "bits",
    "fixed_rows",
    "imported",
    "imported_batch",
    "numbers",
    "other_column",
    "stored_dtype",
    "tensor_shape",
]


def imported(array: _native.ArrowArray) -> pa.Array:
    """Returns an array of the engine, without copying.

    ``pyarrow.array`` would return the same, but it first imports pandas, if that is installed, to test for a Series.
    """
    return pa.Array._import_from_c_capsule(*array.__arrow_c_array__())


def imported_batch(batch: _native.Batch) -> pa.RecordBatch:
    """Returns a batch of the engine as a record batch; like :func:`imported`, it copies nothing."""
    return pa.RecordBatch._import_from_c_capsule(*batch.__arrow_c_array__())


def tensor_shape(field: pa.Field) -> tuple[int, ...]:
    """Returns the shape of one row: a tensor's shape, ``(size,)`` for a vector, ``()`` for any other column.

    The shape of a tensor whose dimensions are stored in another order (``permutation``) is that of its arrays.

    Example:
        >>> stoker.tensor_shape(lake.table("digits").schema.field("image"))
        (1, 8, 8)
    """
    if not isinstance(field, pa.Field):
        raise InvalidRequestError(f"a {type(field).__name__} has no shape; give a pyarrow.Field of a schema")
    shape = column_shape(field)
    return () if shape.is_ragged else shape.shape


def fixed_rows(batch: _native.Batch, index: int, shape: ColumnShape) -> np.ndarray[Any, Any] | None:
    """Returns a column whose rows are numbers or booleans of one shape, as an array of shape ``(rows, *shape)``.

    Numbers are read-only views of the Arrow memory, unless some are null. ``None`` for other columns.
    """
    if shape.dtype is None or shape.dtype.kind not in "biuf" or shape.is_ragged:
        return None
    found = batch.numbers(index)
    if found is None:
        return None
    values = numbers(imported(found), stored_dtype(shape.dtype))
    return as_elements(shape.from_stored(values, batch.place.num_rows), shape)


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns the type in which the engine hands over elements: booleans are bytes."""
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype


def as_elements(values: np.ndarray[Any, Any], shape: ColumnShape) -> np.ndarray[Any, Any]:
    """Views stored elements as what they are.

    Floats that NumPy lacks become those of ml_dtypes, if that package is installed; otherwise they stay bits.
    """
    if shape.dtype is not None and shape.dtype.kind == "b":
        return values.view(np.bool_)
    if shape.small_float is None:
        return values
    try:
        import ml_dtypes
    except ImportError:
        return values
    return values.view(getattr(ml_dtypes, shape.small_float))


def other_column(shape: ColumnShape, array: pa.Array) -> np.ndarray[Any, Any]:
    """Returns a column of times, or of Python objects: texts, binary values, lists of them, and structs."""
    if shape.dtype is None or shape.dtype.kind not in "mM" or isinstance(array, pa.ExtensionArray):
        objects = np.empty(len(array), dtype=object)
        objects[:] = array.to_pylist()
        return objects
    times = numbers(array, shape.dtype)
    if array.null_count == 0:
        return times
    return np.where(bits(array.buffers()[0], array), times, np.array("NaT", dtype=times.dtype))


def numbers(array: pa.Array, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Returns an array of numbers or times, in which nulls have arbitrary values.

    It is a read-only view, except for times of 32 bits, which NumPy has not. ``Array.to_numpy`` would return the same,
    but it first imports pandas, if that is installed.
    """
    stored = dtype if dtype.itemsize * 8 == array.type.bit_width else np.dtype(np.int32)
    values = array.buffers()[1]
    if values is None or len(array) == 0:
        return np.empty(0, dtype)
    view = np.frombuffer(values, stored, len(array), array.offset * stored.itemsize)
    return view if stored is dtype else view.astype(dtype)


def bits(buffer: pa.Buffer | None, array: pa.Array) -> np.ndarray[Any, Any]:
    """Returns the bits that a buffer of an array has for its rows, as booleans."""
    if buffer is None:
        return np.empty(0, dtype=bool)
    end = array.offset + len(array)
    return np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little", count=end)[array.offset :].astype(bool)
