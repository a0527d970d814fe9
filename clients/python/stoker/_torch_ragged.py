"""Rows of different lengths as PyTorch tensors: one for each row, nested, or padded."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.utils.dlpack import from_dlpack

from stoker import _native
from stoker._column_shapes import ColumnShape, column_shapes
from stoker._columns import imported
from stoker._errors import InvalidRequestError
from stoker._ragged import Layout, Layouts, layouts, padding_of, padding_request

__all__ = ["ragged_values", "torch_layouts"]


def torch_layouts(schema: pa.Schema, ragged: Layouts) -> dict[str, Layout]:
    """Returns the layout of each column whose rows differ in length, as :func:`layouts` does.

    Raises:
        InvalidRequestError: The option does not fit the columns, or PyTorch has no nested tensor for a column.
    """
    chosen = layouts(schema, ragged)
    for field, shape in zip(schema, column_shapes(schema), strict=True):
        if chosen.get(field.name) != "jagged":
            continue
        if not hasattr(torch.nested, "nested_tensor_from_jagged"):
            raise InvalidRequestError(f"ragged is 'jagged' for column {field.name}, which needs PyTorch 2.5 or later")
        if shape.levels > 1 or not _varies_in_first(shape):
            raise InvalidRequestError(
                f"ragged is 'jagged' for column {field.name}, whose rows differ in more than their first dimension: "
                "PyTorch has no such nested tensors; take 'pad' or 'list'"
            )
    return chosen


def ragged_values(batch: _native.Batch, index: int, name: str, shape: ColumnShape, layout: Layout) -> dict[str, Any]:
    """Returns a column in a layout, with the keys of its padding."""
    padding = padding_of(layout)
    if padding is not None:
        request = padding_request(name, shape, padding)
        elements, dims, lengths, mask = batch.padded(index, request, shape.element_len, shape.first_axis)
        values = _transposed(_elements(elements, shape).view(*dims, *shape.shape), shape)
        found: dict[str | None, Any] = {name: values, padding.lengths: _by_axes(_tensor(lengths), shape)}
        if mask is not None:
            found[padding.mask] = _transposed(_tensor(mask).view(torch.bool).view(dims), shape)
        return {key: value for key, value in found.items() if key is not None}
    offsets, elements, sizes = batch.ragged(index)
    levels = [_tensor(level) for level in offsets]
    values = _elements(elements, shape).view(-1, *shape.shape) if shape.shape else _elements(elements, shape)
    shapes = None if sizes is None else _tensor(sizes).view(-1, len(shape.sizes or ()))
    if layout == "jagged":
        if shape.sizes is not None:
            # All dimensions but the first are the same, and stored in order.
            inner = [size for size in shape.sizes[1:] if size is not None]
            levels[0] = levels[0] // max(int(np.prod(inner)), 1)
            values = values.view(-1, *inner)
        return {name: torch.nested.nested_tensor_from_jagged(values, levels[0])}
    return {name: _rows(values, levels, shapes, shape)}


def _rows(
    values: torch.Tensor, levels: list[torch.Tensor], shapes: torch.Tensor | None, shape: ColumnShape
) -> list[Any]:
    """Returns one tensor, or list of lists of tensors, for each row; they share the memory of the values."""
    rows: list[Any] = list(torch.split(values, torch.diff(levels[-1]).tolist()))
    if shapes is not None:
        rows = [row.view(sizes) for row, sizes in zip(rows, shapes.tolist(), strict=True)]
        return rows if shape.axes is None else [row.permute(shape.axes) for row in rows]
    for offsets in reversed(levels[:-1]):
        bounds = offsets.tolist()
        rows = [rows[start:end] for start, end in pairwise(bounds)]
    return rows


def _varies_in_first(shape: ColumnShape) -> bool:
    return shape.sizes is None or (shape.axes is None and None not in shape.sizes[1:])


def _elements(array: _native.ArrowArray, shape: ColumnShape) -> torch.Tensor:
    """Returns stored elements as what they are."""
    values = _tensor(array)
    if shape.dtype is not None and shape.dtype.kind == "b":
        return values.view(torch.bool)
    return values if shape.small_float is None else values.view(getattr(torch, shape.small_float))


def _tensor(array: _native.ArrowArray) -> torch.Tensor:
    found = imported(array)
    if len(found) == 0:
        return torch.from_numpy(np.empty(0, found.type.to_pandas_dtype()))
    return from_dlpack(found)


def _transposed(values: torch.Tensor, shape: ColumnShape) -> torch.Tensor:
    return values if shape.axes is None else values.permute(0, *(axis + 1 for axis in shape.axes))


def _by_axes(lengths: torch.Tensor, shape: ColumnShape) -> Any:
    """Returns the lengths of rows, or their shapes in the order of the column's dimensions."""
    return lengths if shape.sizes is None else shape.ordered(lengths.view(-1, len(shape.sizes)))
