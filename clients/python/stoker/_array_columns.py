"""Columns of arrays and tensors: of one shape, or each of a shape of its own."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stoker._arrays import is_array, to_numpy
from stoker._column_shapes import ColumnShape
from stoker._errors import InvalidRequestError
from stoker._refused import ADVICE, refused, shown

__all__ = ["Lists", "Shaped", "Tensors", "of_arrays", "tensor_column", "tensor_field"]


def of_arrays(name: str, values: Sequence[Any], first_row: int) -> OfArrays:
    """Returns the column for arrays: tensors if all have one shape, otherwise lists or tensors of any shape."""
    first: tuple[int, ...] | None = None
    is_one_shape = True
    dtypes: dict[str, np.dtype[Any]] = {}
    small_float = None
    for row, value in enumerate(values):
        if value is None:
            continue
        if not is_array(value) or value.ndim == 0:
            raise refused(name, first_row + row, "an array", shown(value))
        stored = to_numpy(value[:0] if value.ndim else value)
        dtypes.setdefault(str(stored[0].dtype), stored[0].dtype)
        shape = tuple(value.shape)
        first = shape if first is None else first
        if len(shape) != len(first):
            raise refused(name, first_row + row, f"an array of {len(first)} dimensions, as before", shown(value))
        if row and stored[1] != small_float and small_float is not None:
            raise refused(name, first_row + row, f"numbers of {small_float}, as before", shown(value))
        small_float, is_one_shape = stored[1], is_one_shape and shape == first
    assert first is not None
    dtype = _common(name, values, dtypes, first_row)
    if is_one_shape:
        return Tensors.of(name, dtype, first, small_float)
    if small_float is not None:
        raise refused(name, None, f"rows of one shape, as all of {small_float}", "rows of different shapes")
    return Lists(name, dtype) if len(first) == 1 else Shaped(name, dtype, len(first))


def _common(name: str, values: Sequence[Any], dtypes: Mapping[str, np.dtype[Any]], first_row: int) -> np.dtype[Any]:
    """Returns the type of numbers that holds those of all arrays, which are all integers, or floats, or booleans."""
    found = list(dtypes.values())
    kinds = {"i" if dtype.kind == "u" else dtype.kind for dtype in found}
    if found[0].kind not in "biuf":
        raise refused(name, first_row, "numbers or booleans", f"an array of {found[0]}")
    common = np.result_type(*found)
    if len(kinds) > 1 or common.kind not in "biuf" or (common.kind == "f" and found[0].kind != "f"):
        row = next(
            row for row, value in enumerate(values) if value is not None and to_numpy(value)[0].dtype != found[0]
        )
        raise refused(name, first_row + row, f"numbers of {found[0]}, as before", shown(values[row]))
    return common


class OfArrays(ABC):
    """What columns of arrays have in common.

    Attributes:
        field: The column.
    """

    field: pa.Field

    def __init__(self, field: pa.Field, dtype: np.dtype[Any] | None, small_float: str | None = None) -> None:
        self.field = field
        self._dtype = dtype
        self._small_float = small_float

    @abstractmethod
    def array(self, values: Sequence[Any], first_row: int) -> pa.Array:
        """Returns the rows; ``first_row`` is the number of the first one, for messages."""

    def _numbers(self, value: Any, row: int) -> np.ndarray[Any, Any]:
        """Returns the array of a value with the numbers of the column."""
        is_list = not is_array(value)
        if is_list and not isinstance(value, list | tuple):
            raise refused(self.field.name, row, "an array", shown(value))
        try:
            array, small_float = to_numpy(value)
        except (TypeError, ValueError) as failed:
            raise refused(self.field.name, row, "an array", f"{shown(value)}: {failed}") from failed
        if small_float != self._small_float:
            names = (self._small_float or self._dtype, small_float or array.dtype)
            raise refused(self.field.name, row, f"numbers of {names[0]}", f"numbers of {names[1]}")
        if self._dtype is None or array.dtype == self._dtype:
            return array
        if is_list and array.size == 0:
            return array.astype(self._dtype)
        if _is_safe(array.dtype, self._dtype):
            return array.astype(self._dtype)
        if is_list and (cast := _exact(array, self._dtype)) is not None:
            return cast
        raise refused(self.field.name, row, f"numbers of {self._dtype}", f"numbers of {array.dtype}; {ADVICE}")


def _is_safe(found: np.dtype[Any], to: np.dtype[Any]) -> bool:
    """Whether numbers become those of a wider type of the same sort."""
    both = found.kind + to.kind
    return both in ("ii", "uu", "ui", "ff") and np.can_cast(found, to, "safe")


def _exact(array: np.ndarray[Any, Any], to: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    """Returns Python's numbers in a type: integers if they stay the same, floats rounded to its nearest ones."""
    both = array.dtype.kind + to.kind
    if both not in ("ii", "iu", "uu", "ui", "if", "uf", "ff"):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(to)
        if both == "ff":
            return cast if np.isfinite(cast).sum() == np.isfinite(array).sum() else None
        return cast if (cast.astype(object) == array.astype(object)).all() else None


class Tensors(OfArrays):
    """Arrays of one shape: tensors, and vectors of floats."""

    def __init__(self, field: pa.Field, shape: ColumnShape) -> None:
        super().__init__(field, shape.dtype, shape.small_float)
        self._shape = shape.shape

    @classmethod
    def of(cls, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], small_float: str | None) -> Tensors:
        """Returns the column for arrays of this type and shape."""
        field = tensor_field(name, dtype, shape, small_float)
        return cls(field, ColumnShape("tensor", dtype, shape, "zero", small_float))

    def array(self, values: Sequence[Any], first_row: int) -> pa.Array:
        zeros: np.ndarray[Any, Any] | None = None
        arrays = []
        for row, value in enumerate(values):
            if value is None:
                zeros = np.zeros(self._shape, self._dtype) if zeros is None else zeros
                arrays.append(zeros)
                continue
            array = self._numbers(value, first_row + row)
            if array.shape != self._shape:
                advice = "; rows of different shapes need a list type, or arrow.variable_shape_tensor, in schema="
                found = f"an array of the shape {list(array.shape)}{advice}"
                raise refused(self.field.name, first_row + row, f"an array of the shape {list(self._shape)}", found)
            arrays.append(array)
        stacked = np.stack(arrays) if arrays else np.zeros((0, *self._shape), self._dtype)
        mask = None if zeros is None else np.array([value is None for value in values])
        kind = self.field.type
        stored = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        lists = fixed_size_lists(stacked, mask, stored)
        return kind.wrap_array(lists) if isinstance(kind, pa.BaseExtensionType) else lists


class Lists(OfArrays):
    """Arrays of one dimension, of any lengths."""

    def __init__(self, name: str, dtype: np.dtype[Any] | None) -> None:
        item = pa.from_numpy_dtype(dtype) if dtype is not None else pa.float64()
        super().__init__(pa.field(name, pa.list_(item)), dtype)

    def array(self, values: Sequence[Any], first_row: int) -> pa.Array:
        return _lists(*self._rows(values, first_row), self.field.type)

    def _rows(self, values: Sequence[Any], first_row: int) -> tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
        """Returns the rows, empty ones for nulls, and which rows are null."""
        rows = []
        for row, value in enumerate(values):
            array = np.zeros(0, self._dtype) if value is None else self._numbers(value, first_row + row)
            if array.ndim != 1:
                raise refused(self.field.name, first_row + row, "an array of 1 dimension", shown(value))
            rows.append(array)
        return rows, np.array([value is None for value in values], dtype=bool)


class Shaped(OfArrays):
    """Arrays of several dimensions, each of which has a shape of its own: ``arrow.variable_shape_tensor``."""

    def __init__(self, name: str, dtype: np.dtype[Any] | None, num_dims: int) -> None:
        self._num_dims = num_dims
        item = pa.from_numpy_dtype(dtype) if dtype is not None else pa.float64()
        kind = pa.struct([("data", pa.list_(item)), ("shape", pa.list_(pa.int32(), num_dims))])
        metadata = {b"ARROW:extension:name": b"arrow.variable_shape_tensor", b"ARROW:extension:metadata": b"{}"}
        super().__init__(pa.field(name, kind, metadata=metadata), dtype)

    def array(self, values: Sequence[Any], first_row: int) -> pa.Array:
        rows, shapes = [], []
        for row, value in enumerate(values):
            empty = np.zeros((0,) * self._num_dims, self._dtype)
            array = empty if value is None else self._numbers(value, first_row + row)
            if array.ndim != self._num_dims:
                raise refused(
                    self.field.name, first_row + row, f"an array of {self._num_dims} dimensions", shown(value)
                )
            rows.append(np.ascontiguousarray(array).reshape(-1))
            shapes.append(array.shape)
        data = _lists(rows, np.zeros(len(rows), dtype=bool), self.field.type.field("data").type)
        sizes = pa.array(np.array(shapes, np.int32).reshape(-1))
        shape = pa.FixedSizeListArray.from_arrays(sizes, type=self.field.type.field("shape").type)
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays([data, shape], fields=list(self.field.type), mask=mask)


def _lists(rows: Sequence[np.ndarray[Any, Any]], nulls: np.ndarray[Any, Any], kind: pa.DataType) -> pa.Array:
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise InvalidRequestError("lists have more than 2,147,483,647 elements together: give the rows in batches")
    flat = pa.array(np.concatenate(rows)) if rows else pa.array([], kind.value_type)
    mask = pa.array(nulls) if nulls.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), flat, type=kind, mask=mask)


def tensor_column(name: str, values: np.ndarray[Any, Any], small_float: str | None) -> tuple[pa.Field, pa.Array]:
    """Returns the column of an array whose first dimension counts rows.

    Raises:
        InvalidRequestError: The array has no dimension, or holds neither numbers nor booleans.
    """
    if values.ndim == 0:
        raise InvalidRequestError(f"column {name} is a single value; it needs one value per row")
    if values.dtype.kind not in "biuf":
        raise InvalidRequestError(
            f"column {name} has {values.ndim} dimensions of {values.dtype}; tensors have integers, floats or booleans"
        )
    field = tensor_field(name, values.dtype, values.shape[1:], small_float)
    return field.with_nullable(False), fixed_size_lists(values)


def tensor_field(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], small_float: str | None) -> pa.Field:
    """Returns the column of tensors, or of vectors if these are floats of one dimension."""
    size = int(np.prod(shape))
    item = pa.field("item", pa.from_numpy_dtype(dtype), nullable=False)
    metadata: dict[bytes, bytes] = {} if small_float is None else {b"stoker.dtype": small_float.encode()}
    if len(shape) > 1 or dtype.kind != "f" or metadata:
        metadata |= {
            b"ARROW:extension:name": b"arrow.fixed_shape_tensor",
            b"ARROW:extension:metadata": json.dumps({"shape": list(shape)}).encode(),
        }
    return pa.field(name, pa.list_(item, size), metadata=metadata or None)


def fixed_size_lists(
    values: np.ndarray[Any, Any], nulls: np.ndarray[Any, Any] | None = None, kind: pa.DataType | None = None
) -> pa.Array:
    """Returns an array whose first dimension counts rows as lists of a fixed size."""
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    size = int(np.prod(values.shape[1:]))
    kind = kind or pa.list_(pa.field("item", flat.type, nullable=False), size)
    mask = None if nulls is None else pa.array(nulls)
    return pa.FixedSizeListArray.from_arrays(flat, type=kind, mask=mask)
