"""Columns of Python values: numbers and texts, arrays and tensors, images."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from stoker._array_columns import Lists, Shaped, Tensors, of_arrays, tensor_field
from stoker._arrays import SMALL_FLOATS, is_array, scalar
from stoker._column_shapes import column_shape
from stoker._pictures import file_of, is_picture
from stoker._refused import ADVICE, refused, shown

__all__ = ["ENCODED_IMAGE_METADATA", "Column", "column_of"]

#: Field metadata of columns with JPEG, PNG or WebP files.
ENCODED_IMAGE_METADATA = {b"stoker.kind": b"encoded_image"}


class Column(Protocol):
    """A column of a table, and how Python values become its rows.

    Attributes:
        field: The column.
    """

    field: pa.Field

    def array(self, values: Sequence[Any], first_row: int) -> pa.Array | pa.ChunkedArray:
        """Returns the rows; ``first_row`` is the number of the first one, for messages.

        Raises:
            InvalidRequestError: A value does not fit; the message names column and row.
        """


def column_of(name: str, values: Sequence[Any], hint: pa.Field | None = None, *, first_row: int = 0) -> Column:
    """Returns the column for values, of the type of ``hint`` if there is one, and of the type of the values otherwise.

    Raises:
        InvalidRequestError: The values have no common type.
    """
    sample = next((value for value in values if value is not None), None)
    if hint is not None and b"stoker.codec" in (hint.metadata or {}):
        hint = _decompressed(hint)
    if hint is not None:
        return _hinted(hint, sample)
    if is_picture(sample):
        return Pictures(name)
    if is_array(sample) and sample.ndim > 0:
        return of_arrays(name, values, first_row)
    return Plain(pa.field(name, _inferred(name, values, first_row)))


def _decompressed(hint: pa.Field) -> pa.Field | None:
    """Returns the column of the tensors that a column holds compressed; ``None`` if their type does not tell all."""
    dtype, shape = hint.metadata.get(b"stoker.dtype"), hint.metadata.get(b"stoker.shape")
    if dtype is None or shape is None or dtype.decode() in SMALL_FLOATS or b"stoker.permutation" in hint.metadata:
        return None
    return tensor_field(hint.name, np.dtype(dtype.decode()), tuple(json.loads(shape)), None)


def _hinted(hint: pa.Field, sample: Any) -> Column:
    shape = column_shape(hint)
    if shape.kind == "encoded_image" and not is_array(sample):
        return Pictures(hint.name)
    if shape.kind in ("tensor", "vector") and shape.axes is None and not shape.is_ragged:
        return Tensors(pa.field(hint.name, hint.type, metadata=hint.metadata), shape)
    if shape.sizes is not None and is_array(sample):
        return Shaped(hint.name, shape.dtype, len(shape.sizes))
    if shape.levels == 1 and not shape.shape:
        return NumberLists(hint.with_nullable(True), shape.dtype)
    return Plain(hint.with_nullable(True))


class Plain:
    """Values of one Arrow type, which pyarrow converts."""

    def __init__(self, field: pa.Field) -> None:
        self.field = field

    def array(self, values: Sequence[Any], first_row: int) -> pa.Array | pa.ChunkedArray:
        kind = self.field.type
        values = [scalar(value) for value in values]
        check = _check_of(kind)
        if check is not None:
            for row, value in enumerate(values):
                if value is not None and not check(value):
                    raise refused(self.field.name, first_row + row, str(kind), shown(value))
        try:
            return _converted(values, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as failed:
            index = next((index for index, value in enumerate(values) if not _fits(value, kind)), None)
            found = str(failed) if index is None else f"{shown(values[index])}: {failed}"
            number = None if index is None else first_row + index
            raise refused(self.field.name, number, str(kind), f"{found}; {ADVICE}") from failed


class NumberLists:
    """Lists of numbers or booleans, of any lengths: Python's lists, or arrays."""

    def __init__(self, field: pa.Field, dtype: np.dtype[Any] | None) -> None:
        self.field = field
        self._plain = Plain(field)
        self._lists = Lists(field.name, dtype)

    def array(self, values: Sequence[Any], first_row: int) -> pa.Array | pa.ChunkedArray:
        if any(map(is_array, values)):
            return self._lists.array(values, first_row).cast(self.field.type)
        return self._plain.array(values, first_row)


def _converted(values: Sequence[Any], kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(kind, pa.BaseExtensionType):
        stored = _converted(values, kind.storage_type)
        return kind.wrap_array(stored)
    return pa.array(values, kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        _converted([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _check_of(kind: pa.DataType) -> Callable[[Any], bool] | None:
    """Returns a check of what pyarrow would convert with a loss: fractions, keys of dicts, too large numbers."""
    types = pa.types
    if types.is_integer(kind):
        return lambda value: not isinstance(value, float | np.floating)
    if types.is_floating(kind) and not types.is_float64(kind):
        limit = float(np.finfo(kind.to_pandas_dtype()).max)
        return lambda value: not isinstance(value, float | np.floating) or _is_below(value, limit)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return lambda value: not isinstance(value, str)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = _check_of(kind.value_type)
        if item is None:
            return None
        return lambda value: not isinstance(value, Sequence) or all(one is None or item(one) for one in value)
    if types.is_struct(kind):
        fields = {kind.field(index).name: _check_of(kind.field(index).type) for index in range(kind.num_fields)}
        return lambda value: _is_of(value, fields)
    return None


def _is_below(value: float | np.floating[Any], limit: float) -> bool:
    return not math.isfinite(value) or abs(float(value)) <= limit


def _is_of(value: object, fields: Mapping[str, Callable[[Any], bool] | None]) -> bool:
    if not isinstance(value, Mapping):
        return True
    checked = ((fields.get(key), one) for key, one in value.items())
    return value.keys() <= fields.keys() and all(check is None or one is None or check(one) for check, one in checked)


def _inferred(name: str, values: Sequence[Any], first_row: int) -> pa.DataType:
    """Returns the type of plain values."""
    plain = [scalar(value) for value in values]
    try:
        kind = pa.array(plain).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as failed:
        row = _first_unlike(plain)
        raise refused(name, first_row + row, "a value of the same type as those before", shown(values[row])) from failed
    return pa.large_binary() if pa.types.is_binary(kind) else kind


def _first_unlike(values: Sequence[Any]) -> int:
    """Returns the index of the first value that has no type in common with those before it."""
    low, high = 0, len(values)
    while low + 1 < high:
        middle = (low + high) // 2
        try:
            pa.array(values[:middle])
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            high = middle
        else:
            low = middle
    return high - 1


class Pictures:
    """Images: of Pillow, or files."""

    def __init__(self, name: str) -> None:
        self.field = pa.field(name, pa.large_binary(), metadata=ENCODED_IMAGE_METADATA)

    def array(self, values: Sequence[Any], first_row: int) -> pa.Array:
        files = [self._file(value, first_row + row) for row, value in enumerate(values)]
        return pa.array(files, pa.large_binary())

    def _file(self, value: Any, row: int) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        if isinstance(value, Mapping) and isinstance(value.get("bytes"), bytes):
            return bytes(value["bytes"])
        if not is_picture(value):
            raise refused(self.field.name, row, "an image of Pillow, or the bytes of a file", shown(value))
        try:
            return file_of(value)
        except (ValueError, OSError) as failed:
            raise refused(self.field.name, row, "an image", str(failed)) from failed
