"""The kinds of columns, and the NumPy arrays that they become. The engine knows both."""

from __future__ import annotations

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
        shape: The shape of one row; empty for scalars.
        nulls: What a null becomes; ``"refused"`` if the array cannot hold it.
        bfloat16: Whether numbers are bfloat16, which are stored as uint16.
    """

    kind: str
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]
    nulls: Literal["refused", "nan", "nat", "none"]
    bfloat16: bool


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
    return ColumnShape(column["kind"], dtype, column["shape"], column["nulls"], column["bfloat16"])
