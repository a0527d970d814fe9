"""Converts Arrow columns to NumPy arrays, without copying where both have the same layout."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stoker import _native
from stoker._column_shapes import ColumnShape, column_shape
from stoker._errors import InvalidRequestError

__all__ = [
    "PlainColumn",
    "flags",
    "imported",
    "imported_batch",
    "numbers",
    "numpy_column",
    "plain_column",
    "tensor_shape",
    "with_nulls",
]


class PlainColumn(NamedTuple):
    """A column that is one contiguous run of numbers.

    Attributes:
        values: The numbers of all rows, row-major; primitive, without nulls.
        dtype: NumPy's type of the numbers.
        shape: The shape of one row; empty for scalars.
        bfloat16: Whether the values are bfloat16 numbers, which are stored as uint16.
    """

    values: pa.Array
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    bfloat16: bool


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

    Example:
        >>> stoker.tensor_shape(lake.table("digits").schema.field("image"))
        (1, 8, 8)
    """
    if not isinstance(field, pa.Field):
        raise InvalidRequestError(f"a {type(field).__name__} has no shape; give a pyarrow.Field of a schema")
    return column_shape(field).shape


def plain_column(field: pa.Field, shape: ColumnShape, array: pa.Array) -> PlainColumn | None:
    """Returns the numbers of a tensor, vector or numeric column, or ``None`` for other types.

    Raises:
        InvalidRequestError: A tensor, vector or integer column has nulls.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_fixed_size_list(array.type):
        _refuse_nulls(field, array)
        array = array.values.slice(array.offset * array.type.list_size, len(array) * array.type.list_size)
    if isinstance(array, pa.ExtensionArray) or shape.dtype is None or shape.dtype.kind not in "iuf":
        return None
    if array.null_count and shape.nulls == "nan":
        return None
    _refuse_nulls(field, array)
    return PlainColumn(array, shape.dtype, shape.shape, shape.bfloat16)


def numpy_column(field: pa.Field, shape: ColumnShape, array: pa.Array) -> np.ndarray[Any, Any]:
    """Returns a column as a NumPy array of shape ``(rows, *shape)``.

    Numbers, tensors and vectors are read-only views of the Arrow memory. Booleans, times and floats with nulls (as NaN)
    are copied; text, binary and lists are arrays of objects.

    Raises:
        InvalidRequestError: A tensor, vector, integer or boolean column has nulls.
    """
    plain = plain_column(field, shape, array)
    if plain is not None:
        view = numbers(plain.values, plain.dtype).reshape(len(array), *plain.shape)
        return _as_bfloat16(view) if plain.bfloat16 else view
    if shape.dtype is None or isinstance(array, pa.ExtensionArray):
        objects = np.empty(len(array), dtype=object)
        objects[:] = array.to_pylist()
        return objects
    if shape.dtype.kind == "b":
        _refuse_nulls(field, array)
        return flags(array)
    return with_nulls(numbers(array, shape.dtype), array, np.nan if shape.nulls == "nan" else "NaT")


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


def flags(array: pa.Array) -> np.ndarray[Any, Any]:
    """Returns booleans without nulls as a NumPy array."""
    return _bits(array.buffers()[1], array)


def with_nulls(values: np.ndarray[Any, Any], array: pa.Array, null: Any) -> np.ndarray[Any, Any]:
    """Returns the values, with ``null`` where the array has nulls."""
    if array.null_count == 0:
        return values
    return np.where(_bits(array.buffers()[0], array), values, np.array(null, dtype=values.dtype))


def _bits(buffer: pa.Buffer | None, array: pa.Array) -> np.ndarray[Any, Any]:
    if buffer is None:
        return np.empty(0, dtype=bool)
    end = array.offset + len(array)
    return np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little", count=end)[array.offset :].astype(bool)


def _as_bfloat16(view: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Views uint16 as the bfloat16 of ml_dtypes, if that package is installed; NumPy itself has no such type."""
    try:
        import ml_dtypes
    except ImportError:
        return view
    return view.view(ml_dtypes.bfloat16)


def _refuse_nulls(field: pa.Field, array: pa.Array) -> None:
    if array.null_count:
        raise InvalidRequestError(
            f"column {field.name} has {array.null_count} nulls, which {array.type} arrays cannot hold; "
            f"filter them out, select coalesce({field.name}, …), or use to_arrow()"
        )
