"""Arrow columns as NumPy arrays, without copying where Arrow's layout is NumPy's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stoker._errors import InvalidRequestError

__all__ = ["PlainColumn", "numpy_column", "plain_column", "tensor_shape"]


class PlainColumn(NamedTuple):
    """A column that is one contiguous run of numbers.

    Attributes:
        values: The numbers of all rows, row-major; primitive, without nulls.
        shape: The shape of one row; empty for scalars.
        bfloat16: Whether the values are uint16 that stand for bfloat16.
    """

    values: pa.Array
    shape: tuple[int, ...]
    bfloat16: bool


def tensor_shape(field: pa.Field) -> tuple[int, ...]:
    """Returns the shape of one row of a column: of a tensor, ``(size,)`` of a vector, ``()`` of anything else.

    Example:
        >>> stoker.tensor_shape(lake.table("digits").schema.field("image"))
        (1, 8, 8)
    """
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
        array = array.flatten()
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
        view = plain.values.to_numpy(zero_copy_only=True).reshape(len(array), *plain.shape)
        return _as_bfloat16(view) if plain.bfloat16 else view
    kind = array.type
    if pa.types.is_boolean(kind):
        _refuse_nulls(field, array)
        return np.asarray(array.to_numpy(zero_copy_only=False))
    if pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    objects = np.empty(len(array), dtype=object)
    objects[:] = array.to_pylist()
    return objects


def _as_bfloat16(view: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """NumPy has no bfloat16: the type of ml_dtypes where that package is installed, else the bits as uint16."""
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
