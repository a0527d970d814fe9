"""The kinds of columns, and the NumPy arrays that they become. The engine knows both."""

from __future__ import annotations

from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from stoker import _native

__all__ = ["ColumnShape", "column_shape", "column_shapes"]

#: The number of schemas whose shapes are kept.
NUM_KEPT = 8


class ColumnShape(NamedTuple):
    """The NumPy array that a column becomes.

    Attributes:
        kind: The name of the column's kind.
        dtype: The type of the array's elements; ``None`` for Python objects.
        shape: The shape of one row; empty for scalars. For lists of any length, the shape of an element.
        nulls: What a null becomes; ``"zero"`` for columns whose nulls only a mask can tell.
        small_float: The name of the float that numbers are and that NumPy lacks, such as ``"bfloat16"``; it is stored
            as unsigned integers.
        levels: How many lists of any length are nested in each other; 0 for rows of one shape.
        sizes: For tensors of which each has its own shape: the size of each dimension, ``None`` where it differs.
        axes: For each dimension of a row, the number of the stored dimension that it is; ``None`` if both have one
            order.
        names: The names of the dimensions of a row.
    """

    kind: str
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]
    nulls: Literal["zero", "nan", "nat", "none"]
    small_float: str | None = None
    levels: int = 0
    sizes: tuple[int | None, ...] | None = None
    axes: tuple[int, ...] | None = None
    names: tuple[str, ...] | None = None

    @property
    def is_ragged(self) -> bool:
        """Whether rows differ in their lengths."""
        return self.levels > 0 or self.sizes is not None

    @property
    def element(self) -> str:
        """The name of the type of an element."""
        return self.small_float or str(self.dtype)

    @property
    def element_len(self) -> int:
        """The number of numbers of an element of lists, or of a row if all rows have one shape."""
        return prod(self.shape)

    @property
    def first_axis(self) -> int:
        """The number of the stored dimension that is the first one of a row."""
        return self.axes[0] if self.axes else 0

    def stored(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the sizes of a row's dimensions in the order in which they are stored."""
        if self.axes is None:
            return shape
        sizes = [0] * len(shape)
        for axis, size in zip(self.axes, shape, strict=True):
            sizes[axis] = size
        return tuple(sizes)

    def ordered(self, sizes: Any) -> Any:
        """Returns the stored sizes of rows, of shape ``(rows, dimensions)``, in the order of a row's dimensions.

        It takes arrays of NumPy and tensors of PyTorch.
        """
        return sizes if self.axes is None else sizes[:, list(self.axes)]

    def transposed(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns rows in stored order with the dimensions of the column; the first dimension is the row."""
        return values if self.axes is None else values.transpose(0, *(axis + 1 for axis in self.axes))

    def from_stored(self, values: np.ndarray[Any, Any], num_rows: int) -> np.ndarray[Any, Any]:
        """Returns stored numbers as an array of shape ``(num_rows, *shape)``."""
        return self.transposed(values.reshape(num_rows, *self.stored(self.shape)))


#: The schemas that were seen last, with their shapes. The batches of a stream have equal schemas.
_kept: tuple[tuple[pa.Schema, tuple[ColumnShape, ...]], ...] = ()


def column_shapes(schema: pa.Schema) -> tuple[ColumnShape, ...]:
    """Returns the shapes of all columns of a schema, in order."""
    global _kept
    for known, shapes in _kept:
        # Schemas with other metadata are equal by ``==``, and by their hashes.
        if known is schema or known.equals(schema, check_metadata=True):
            return shapes
    shapes = tuple(_shape(column) for column in _native.column_shapes(schema))
    _kept = ((schema, shapes), *_kept[: NUM_KEPT - 1])
    return shapes


def column_shape(field: pa.Field) -> ColumnShape:
    """Returns the shape of one column."""
    return column_shapes(pa.schema([field]))[0]


def _shape(column: _native.ColumnShape) -> ColumnShape:
    dtype = None if column["dtype"] is None else np.dtype(column["dtype"])
    return ColumnShape(
        column["kind"],
        dtype,
        column["shape"],
        column["nulls"],
        column["small_float"],
        column["levels"],
        column["sizes"],
        column["axes"],
        column["names"],
    )
