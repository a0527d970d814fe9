"""Rows of different lengths, such as tokens: as they lie in memory, padded, or one array for each row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from stoker import _native
from stoker._column_shapes import ColumnShape, column_shapes
from stoker._columns import as_elements, imported, numbers, stored_dtype
from stoker._errors import InvalidRequestError
from stoker._numbers import whole, whole_or_none

__all__ = [
    "Jagged",
    "Layout",
    "Layouts",
    "Pad",
    "PaddedRows",
    "RaggedRows",
    "layouts",
    "numpy_values",
    "padded_rows",
    "padding_of",
    "padding_request",
    "ragged_rows",
    "rows_of",
]

#: The largest multiple and length of padded rows.
_LENGTH_MAX = 2**31


@dataclass(frozen=True, kw_only=True)
class Pad:
    """Pads the rows of a column to one length: an array of shape ``(rows, length, …)``.

    Attributes:
        value: What fills the array where rows end.
        multiple: The length of a batch is that of its longest row, rounded up to a multiple of this number.
        length: The same length for all batches, instead. A longer row is an error, unless ``truncate`` is true.
        truncate: Whether rows that are longer than ``length`` lose their end.
        mask: The key under which batches have a bool array that is true for the values of rows, such as
            ``"attention_mask"``; its shape is that of the padded rows without the shape of an element. Default: none.
        lengths: The key under which batches have the lengths of the rows, of shape ``(rows,)``; for tensors of which
            each has its own shape, their shapes, of shape ``(rows, dimensions)``. Default: none.

    Lists in lists, and tensors of which each has its own shape, are padded in all dimensions; ``multiple`` and
    ``length`` are about the first one. A batch whose padded rows take more than 4 GiB is an error.
    """

    value: float = 0
    multiple: int = 1
    length: int | None = None
    truncate: bool = False
    mask: str | None = None
    lengths: str | None = None

    def __post_init__(self) -> None:
        whole("multiple", self.multiple, 1, _LENGTH_MAX)
        whole_or_none("length", self.length, 0, _LENGTH_MAX)
        if not isinstance(self.value, (bool, int, float, np.number, np.bool_)):
            raise InvalidRequestError(f"value is {self.value!r}; rows are padded with a number")
        if self.truncate and self.length is None:
            raise InvalidRequestError("truncate needs length, to which rows are cut")
        for name, key in (("mask", self.mask), ("lengths", self.lengths)):
            if key is not None and not isinstance(key, str):
                raise InvalidRequestError(f"{name} is {key!r}; it must be the key of a batch")


Layout = Literal["list", "jagged", "pad"] | Pad

#: How the columns of rows of different lengths are handed out: for each of them, or the same for all.
Layouts = Layout | Mapping[str, Layout] | None


class Jagged:
    """The rows of a column, one after the other in one array.

    Row ``r`` has the elements ``values[offsets[r]:offsets[r + 1]]``. ``jagged[r]`` returns them, in the shape of the
    row if each row has a shape of its own.

    Attributes:
        values: The elements of all rows, of shape ``(elements, *element_shape)``; a read-only view of the Arrow memory.
        offsets: Where each row begins among the elements, and where the last one ends: int64 of shape ``(rows + 1,)``.
            If lists are nested, where each row begins among the lists of ``inner_offsets[0]``.
        inner_offsets: The same for each further level of lists; empty for lists of numbers.
        shapes: The shapes of the rows, int64 of shape ``(rows, dimensions)``, if each has a shape of its own.

    Example:
        >>> _ = lake.create_table("texts", {"tokens": [[1, 2, 3], [4], []]}, mode="overwrite")
        >>> batch = next(iter(lake.sql("SELECT tokens FROM texts").numpy(batch_size=3, shuffle=False, ragged="jagged")))
        >>> batch["tokens"].values.tolist(), batch["tokens"].offsets.tolist()
        ([1, 2, 3, 4], [0, 3, 4, 4])
    """

    __slots__ = ("_axes", "inner_offsets", "offsets", "shapes", "values")

    def __init__(self, rows: RaggedRows) -> None:
        self.values = rows.values
        self.offsets = rows.offsets[0]
        self.inner_offsets = rows.offsets[1:]
        self.shapes = rows.sizes
        self._axes = rows.shape.axes

    @property
    def lengths(self) -> np.ndarray[Any, Any]:
        """The number of elements of each row, or of lists of a row; int64 of shape ``(rows,)``."""
        return np.diff(self.offsets)

    def _with_values(self, values: np.ndarray[Any, Any]) -> Jagged:
        """Returns the same rows with other elements of the same shape."""
        other = object.__new__(Jagged)
        other.values, other.offsets, other.inner_offsets = values, self.offsets, self.inner_offsets
        other.shapes, other._axes = self.shapes, self._axes
        return other

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Any:
        index = row + len(self) if row < 0 else row
        if not 0 <= index < len(self):
            raise IndexError(f"row {row} of {len(self)} rows")
        levels = (self.offsets, *self.inner_offsets)
        return _row(self.values, levels, self.shapes, self._axes, index)

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        return f"Jagged(rows={len(self)}, values={self.values.dtype}{list(self.values.shape)})"


class RaggedRows(NamedTuple):
    """The rows of a column as the engine has them.

    Attributes:
        shape: The shape of the column.
        values: The elements of all rows, of shape ``(elements, *element_shape)``.
        offsets: Where each row, and each list in it, begins and ends.
        sizes: The shapes of tensors of which each has its own, in the order of the column's dimensions.
    """

    shape: ColumnShape
    values: np.ndarray[Any, Any]
    offsets: tuple[np.ndarray[Any, Any], ...]
    sizes: np.ndarray[Any, Any] | None


class PaddedRows(NamedTuple):
    """Padded rows.

    Attributes:
        values: Of shape ``(rows, length, …)``.
        lengths: The length or the shape of each row.
        mask: Which values are those of rows; ``None`` if the padding has no mask.
    """

    values: np.ndarray[Any, Any]
    lengths: np.ndarray[Any, Any]
    mask: np.ndarray[Any, Any] | None


def layouts(schema: pa.Schema, ragged: Layouts) -> dict[str, Layout]:
    """Returns the layout of each column whose rows differ in length.

    Raises:
        InvalidRequestError: The option names no such column, or a layout that does not fit it.
    """
    shapes = {field.name: shape for field, shape in zip(schema, column_shapes(schema), strict=True)}
    columns = [name for name, shape in shapes.items() if shape.is_ragged]
    chosen: dict[str, Layout] = dict.fromkeys(columns, "list")
    if isinstance(ragged, Mapping):
        for name in ragged:
            if name not in columns:
                what = f"which holds {schema.field(name).type}" if name in schema.names else "which is no column"
                there = ", ".join(columns) or "none"
                raise InvalidRequestError(
                    f"ragged names {name!r}, {what}; the columns of rows of different lengths are: {there}"
                )
        chosen.update(ragged)
    elif ragged is not None:
        _check_layout(ragged, "all columns")
        chosen = dict.fromkeys(columns, ragged)
    for name, layout in chosen.items():
        _check_layout(layout, f"column {name}")
        padding = padding_of(layout)
        if padding is not None:
            _fill(name, shapes[name], padding)
    return chosen


def _check_layout(layout: Any, what: str) -> None:
    if not isinstance(layout, Pad) and not (isinstance(layout, str) and layout in ("list", "jagged", "pad")):
        raise InvalidRequestError(
            f"ragged is {layout!r} for {what}; it must be 'list', 'jagged', 'pad' or a stoker.Pad"
        )


def ragged_rows(batch: _native.Batch, index: int, shape: ColumnShape) -> RaggedRows:
    """Returns the rows of a column as they lie in memory."""
    offsets, elements, sizes = batch.ragged(index)
    integers = np.dtype(np.int64)
    found: np.ndarray[Any, Any] | None = None
    if sizes is not None and shape.sizes is not None:
        found = shape.ordered(numbers(imported(sizes), integers).reshape(-1, len(shape.sizes)))
    levels = tuple(numbers(imported(level), integers) for level in offsets)
    return RaggedRows(shape, _elements(elements, shape, shape.shape), levels, found)


def padded_rows(batch: _native.Batch, index: int, name: str, shape: ColumnShape, padding: Pad) -> PaddedRows:
    """Returns the rows of a column, padded."""
    request = padding_request(name, shape, padding)
    elements, sizes, lengths, mask = batch.padded(index, request, shape.element_len, shape.first_axis)
    found = numbers(imported(lengths), np.dtype(np.int64))
    if shape.sizes is not None:
        found = shape.ordered(found.reshape(-1, len(shape.sizes)))
    values = _elements(elements, shape, (*sizes[1:], *shape.shape), sizes[0])
    flags = None
    if mask is not None:
        flags = shape.transposed(numbers(imported(mask), np.dtype(np.uint8)).view(np.bool_).reshape(sizes))
    return PaddedRows(shape.transposed(values), found, flags)


def padding_request(name: str, shape: ColumnShape, padding: Pad) -> _native.PaddingRequest:
    """Returns a padding as the engine takes it.

    Raises:
        InvalidRequestError: The value that fills rows is none of the column's type.
    """
    return {
        "fill": _fill(name, shape, padding),
        "multiple": padding.multiple,
        "length": padding.length,
        "truncate": padding.truncate,
        "mask": padding.mask is not None,
    }


def numpy_values(batch: _native.Batch, index: int, name: str, shape: ColumnShape, layout: Layout) -> dict[str, Any]:
    """Returns a column in a layout, with the keys of its padding."""
    padding = padding_of(layout)
    if padding is not None:
        padded = padded_rows(batch, index, name, shape, padding)
        found = {name: padded.values, padding.lengths: padded.lengths, padding.mask: padded.mask}
        return {key: value for key, value in found.items() if key is not None}
    rows = ragged_rows(batch, index, shape)
    return {name: Jagged(rows) if layout == "jagged" else rows_of(rows)}


def rows_of(rows: RaggedRows) -> np.ndarray[Any, Any]:
    """Returns an array of objects: one array, or list of lists of arrays, for each row."""
    found = np.empty(len(rows.offsets[0]) - 1, dtype=object)
    for row in range(len(found)):
        found[row] = _row(rows.values, rows.offsets, rows.sizes, rows.shape.axes, row)
    return found


def _row(
    values: np.ndarray[Any, Any],
    levels: tuple[np.ndarray[Any, Any], ...],
    shapes: np.ndarray[Any, Any] | None,
    axes: tuple[int, ...] | None,
    row: int,
) -> Any:
    start, end = int(levels[0][row]), int(levels[0][row + 1])
    if len(levels) > 1:
        return [_row(values, levels[1:], None, None, inner) for inner in range(start, end)]
    if shapes is None:
        return values[start:end]
    sizes = shapes[row].tolist()
    stored = list(sizes)
    for axis, size in zip(axes or range(len(sizes)), sizes, strict=True):
        stored[axis] = size
    found = values[start:end].reshape(stored)
    return found if axes is None else found.transpose(axes)


def padding_of(layout: Layout) -> Pad | None:
    """Returns how a layout pads rows; ``None`` for layouts that do not."""
    return Pad() if layout == "pad" else layout if isinstance(layout, Pad) else None


def _elements(
    array: _native.ArrowArray, shape: ColumnShape, sizes: tuple[int, ...], num_rows: int | None = None
) -> np.ndarray[Any, Any]:
    """Returns stored elements as an array of shape ``(num_rows, *sizes)``."""
    if shape.dtype is None:
        raise TypeError(f"elements of a column of kind {shape.kind} are no numbers")
    values = numbers(imported(array), stored_dtype(shape.dtype))
    count = len(values) // max(math.prod(sizes), 1) if num_rows is None else num_rows
    return as_elements(values.reshape(count, *sizes), shape)


def _fill(name: str, shape: ColumnShape, padding: Pad) -> bytes:
    """Returns the bytes of an element that pads rows.

    Raises:
        InvalidRequestError: The value is none of the column's type.
    """
    value, dtype = padding.value, shape.dtype
    if dtype is None:
        raise TypeError(f"elements of a column of kind {shape.kind} are no numbers")
    if shape.small_float is not None:
        if value == 0:
            return bytes(dtype.itemsize)
        try:
            import ml_dtypes
        except ImportError:
            raise InvalidRequestError(
                f"column {name} holds {shape.small_float}; padding it with {value} needs the package ml_dtypes"
            ) from None
        return np.asarray(value, getattr(ml_dtypes, shape.small_float)).tobytes()
    if dtype.kind == "b":
        return bytes([bool(value)])
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not math.isfinite(value) or value != int(value) or not limits.min <= value <= limits.max:
            raise InvalidRequestError(f"column {name} holds {dtype}, which cannot be padded with {value}")
        return np.asarray(int(value), dtype).tobytes()
    return np.asarray(value, dtype).tobytes()
