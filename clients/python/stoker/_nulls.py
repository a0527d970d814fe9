"""Nulls in columns whose NumPy arrays and tensors cannot hold them: a warning, or a refusal before the first step."""

from __future__ import annotations

import warnings

import pyarrow as pa

from stoker import _native
from stoker._column_shapes import column_shapes
from stoker._errors import InvalidRequestError, NullsWarning
from stoker._rows import BatchRows

__all__ = ["NULL_ROW", "know_of_nulls", "refuse_nulls", "warn_of_nulls"]

#: What nulls of rows of different lengths become, for messages.
NULL_ROW = "an empty row, or as 0 or NaN in a row"

#: The streams and columns whose nulls the program knows of.
_known: set[tuple[str, str]] = set()


def know_of_nulls(rows: BatchRows, column: str) -> None:
    """Notes that the program asks for the mask of a column, so that it needs no warning."""
    _known.add((rows.cursor.stream_id, column))


def warn_of_nulls(rows: BatchRows, column: str, value: str = "0") -> None:
    """Warns once for each stream that nulls of a column became another value, if the batch has some.

    A column that was written with a mask needs no warning, because the batch has the mask as a column.
    """
    mask = rows.masks.get(column)
    if mask is None or column in rows.masked:
        return
    key = (rows.cursor.stream_id, column)
    if key in _known:
        return
    _known.add(key)
    warnings.warn(
        f"column {column} has nulls, which read as {value} ({len(mask) - int(mask.sum())} of {len(mask)} rows of this "
        f"batch): batch.is_valid({column!r}) tells them, null_masks=[{column!r}] adds that mask to each batch of a "
        "loader, and allow_nulls=False refuses such streams",
        NullsWarning,
        stacklevel=4,
    )


def refuse_nulls(handle: _native.StreamHandle) -> _native.StreamHandle:
    """Returns the stream, after a check that its arrays need no mask to tell nulls.

    The check scans the nullable columns once; without nullable columns, it reads nothing.

    Raises:
        InvalidRequestError: Tensors, vectors, lists, integers or booleans have nulls in the rows of the stream.
    """
    schema = pa.schema(handle.schema)
    shapes = zip(schema, column_shapes(schema), strict=True)
    columns = [field.name for field, shape in shapes if field.nullable and shape.nulls == "zero"]
    found = handle.nulls(columns) if columns else []
    if found:
        first = schema.field(found[0])
        names = f"columns {', '.join(found)} have" if len(found) > 1 else f"column {first.name} has"
        quoted = '"' + first.name.replace('"', '""') + '"'
        raise InvalidRequestError(
            f"{names} nulls among the rows of the stream, which arrays of {first.type} cannot hold; leave these rows "
            f"out with WHERE {quoted} IS NOT NULL, select coalesce({quoted}, …) AS {quoted}, "
            f"or leave out allow_nulls=False, so that nulls read as 0 and batch.is_valid({first.name!r}) tells them"
        )
    return handle
