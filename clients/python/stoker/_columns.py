"""Converts Arrow columns to NumPy arrays, without copying where both have the same layout."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stoker import _native
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


#: Arrow's names of floats, where they differ from NumPy's.
_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}


class PlainColumn(NamedTuple):
    """A column that is one contiguous run of numbers.

    Attributes:
        values: The numbers of all rows, row-major; primitive, without nulls.
        shape: The shape of one row; empty for scalars.
        bfloat16: Whether the values are bfloat16 numbers, which are stored as uint16.
    """

    values: pa.Array
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
    if isinstance(field.type, pa.FixedShapeTensorType):
        return tuple(field.type.shape)
    return (field.type.list_size,) if pa.types.is_fixed_size_list(field.type) else ()


def plain_column(field: pa.Field, array: pa.Array) -> PlainColumn | None:
    """Returns the numbers of a tensor, vector or numeric column, or ``None`` for other types.

    Raises:
        InvalidRequestError: A tensor, vector or integer column has nulls.
    """
    shape = tensor_shape(field)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_fixed_size_list(array.type):
        _refuse_nulls(field, array)
        array = array.values.slice(array.offset * array.type.list_size, len(array) * array.type.list_size)
    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    if array.null_count and pa.types.is_floating(kind) and not shape:
        return None
    _refuse_nulls(field, array)
    bfloat16 = (field.metadata or {}).get(b"stoker.dtype") == b"bfloat16"
    return PlainColumn(array, shape, bfloat16)


def numpy_column(field: pa.Field, array: pa.Array) -> np.ndarray[Any, Any]:
    """Returns a column as a NumPy array of shape ``(rows, *shape)``.

    Numbers, tensors and vectors are read-only views of the Arrow memory. Booleans, times and floats with nulls (as NaN)
    are copied; text, binary and lists are arrays of objects.

    Raises:
        InvalidRequestError: A tensor, vector, integer or boolean column has nulls.
    """
    plain = plain_column(field, array)
    if plain is not None:
        view = numbers(plain.values).reshape(len(array), *plain.shape)
        return _as_bfloat16(view) if plain.bfloat16 else view
    kind = array.type
    if pa.types.is_boolean(kind):
        _refuse_nulls(field, array)
        return flags(array)
    if pa.types.is_floating(kind):
        return with_nulls(numbers(array), array, np.nan)
    unit = _time_unit(kind)
    if unit is not None:
        return with_nulls(numbers(array.view(pa.int32() if kind.bit_width == 32 else pa.int64()), unit), array, "NaT")
    objects = np.empty(len(array), dtype=object)
    objects[:] = array.to_pylist()
    return objects


def numbers(array: pa.Array, unit: str | None = None) -> np.ndarray[Any, Any]:
    """Returns a read-only view of an array of numbers, in which nulls have arbitrary values.

    ``Array.to_numpy`` would return the same, but it first imports pandas, if that is installed.

    Args:
        array: Integers or floats.
        unit: NumPy's name of the time type whose values the integers are.
    """
    dtype = np.dtype(_FLOATS.get(str(array.type), str(array.type)))
    values = array.buffers()[1]
    if values is None or len(array) == 0:
        view = np.empty(0, dtype)
    else:
        view = np.frombuffer(values, dtype, len(array), array.offset * dtype.itemsize)
    if unit is None:
        return view
    return view.astype(unit) if dtype.itemsize == 4 else view.view(unit)


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


def _time_unit(kind: pa.DataType) -> str | None:
    """Returns NumPy's name of a type of dates, timestamps or durations; ``None`` for other types."""
    if pa.types.is_timestamp(kind):
        return f"datetime64[{kind.unit}]"
    if pa.types.is_duration(kind):
        return f"timedelta64[{kind.unit}]"
    if pa.types.is_date32(kind):
        return "datetime64[D]"
    return "datetime64[ms]" if pa.types.is_date64(kind) else None


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
