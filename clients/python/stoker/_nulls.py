"""Refuses a stream whose batches cannot become NumPy arrays or tensors, before its first step."""

from __future__ import annotations

import pyarrow as pa

from stoker import _native
from stoker._column_shapes import column_shapes
from stoker._errors import InvalidRequestError

__all__ = ["refuse_nulls"]


def refuse_nulls(handle: _native.StreamHandle) -> _native.StreamHandle:
    """Returns the stream, after a check that none of its tensors, vectors, integers and booleans is null.

    The check scans the nullable columns once; without nullable columns, it reads nothing.

    Raises:
        InvalidRequestError: A column of these types has nulls in the rows of the stream.
    """
    schema = pa.schema(handle.schema)
    shapes = zip(schema, column_shapes(schema), strict=True)
    columns = [field.name for field, shape in shapes if field.nullable and shape.nulls == "refused"]
    found = handle.nulls(columns) if columns else []
    if found:
        first = schema.field(found[0])
        names = f"columns {', '.join(found)} have" if len(found) > 1 else f"column {first.name} has"
        quoted = '"' + first.name.replace('"', '""') + '"'
        raise InvalidRequestError(
            f"{names} nulls among the rows of the stream, which arrays of {first.type} cannot hold; leave these rows "
            f"out with WHERE {quoted} IS NOT NULL, select coalesce({quoted}, …) AS {quoted}, "
            "or give allow_nulls=True and take batches by to_arrow()"
        )
    return handle
