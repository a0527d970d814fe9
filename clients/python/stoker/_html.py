"""Shows the first rows of a query as HTML, for notebooks."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from stoker._column_shapes import ColumnShape, column_shapes
from stoker._columns import plain_column

if TYPE_CHECKING:
    from stoker._query import Query

__all__ = ["preview"]

#: The number of rows that a preview shows.
NUM_ROWS = 8
#: The longest side of a thumbnail in pixels.
THUMBNAIL_PIXELS = 64
#: The maximum characters of a value that a preview shows.
NUM_CHARS = 80


def preview(query: Query) -> str:
    """Returns an HTML table of the first rows, with thumbnails of images if Pillow is installed."""
    inner = query.sql.strip().rstrip(";")
    table = query._lake.sql(f"SELECT * FROM (\n{inner}\n) AS preview LIMIT {NUM_ROWS}", query.params).to_arrow()
    head = "".join(
        f"<th>{html.escape(field.name)}<br><small>{html.escape(_type_name(field))}</small></th>"
        for field in table.schema
    )
    fields = zip(table.schema, column_shapes(table.schema), strict=True)
    columns = [_cells(field, shape, table.column(field.name).combine_chunks()) for field, shape in fields]
    rows = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in zip(*columns, strict=True))
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<small>the first {table.num_rows} rows</small>"
    )


def _type_name(field: pa.Field) -> str:
    shape = getattr(field.type, "shape", None)
    return f"{field.type.value_type}{list(shape)}" if shape is not None else str(field.type)


def _cells(field: pa.Field, shape: ColumnShape, array: pa.Array | pa.ChunkedArray) -> list[str]:
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if shape.kind == "encoded_image":
        return [_encoded(value) for value in array.to_pylist()]
    plain = plain_column(field, shape, array) if not array.null_count else None
    if plain is not None and plain.shape:
        values = plain.values.to_numpy(zero_copy_only=True).reshape(len(array), *plain.shape)
        return [_thumbnail(value) or _text(value) for value in values]
    return [_text(value) for value in array.to_pylist()]


def _encoded(value: bytes | None) -> str:
    try:
        from PIL import Image

        return _image(Image.open(io.BytesIO(value or b"")))
    except (ImportError, OSError):
        return _text(f"{len(value or b'')} bytes")


def _thumbnail(value: np.ndarray[Any, Any]) -> str | None:
    """Returns an image tag for a uint8 tensor of height × width, with or without 1, 3 or 4 channels; else ``None``."""
    if value.dtype != np.uint8 or value.ndim not in (2, 3) or min(value.shape[-2:]) < 1:
        return None
    if value.ndim == 3 and value.shape[0] in (1, 3, 4):
        value = np.moveaxis(value, 0, -1)
    if value.ndim == 3 and value.shape[-1] not in (1, 3, 4):
        return None
    try:
        from PIL import Image
    except ImportError:
        return None
    return _image(Image.fromarray(np.ascontiguousarray(value.squeeze(-1) if value.shape[-1] == 1 else value)))


def _image(image: Any) -> str:
    image.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, format="PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img src="data:image/png;base64,{data}" style="min-width:32px;image-rendering:pixelated">'


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = np.array2string(value, threshold=6, edgeitems=2)
    text = "" if value is None else str(value)
    return html.escape(text if len(text) <= NUM_CHARS else text[: NUM_CHARS - 1] + "…")
